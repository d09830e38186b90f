"""What is run beside gapscope. Each program prints a line of JSON with how much it found: nothing passes for work."""

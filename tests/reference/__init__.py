"""A slow, plain second opinion on recordings: it shares no code with the product that it checks."""

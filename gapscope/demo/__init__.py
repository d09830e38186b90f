"""The recording that is shipped with gapscope.

Two processes on two H200 GPUs, recorded by nsys 2025.3: rank 0 runs its stage and hands 24,576 bytes to rank 1
through a pinned-host mailbox, 20 times. Before each send rank 0 sleeps 2 ms on the host, so the known cause of its
gaps is a late submission.
"""

from pathlib import Path

DEMO_RECORDING = Path(__file__).parent / "mailbox_late_submit_nsys.sqlite.gz"

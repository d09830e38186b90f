"""Handoffs without marks, from what recordings hold anyway.

`messages` (sends and receives of NCCL), `host` (gloo), `groups` (collectives, and kernels that the user declares) find
the ends, `neighbors` the producer's and the consumer's operation, `keys` names them, `ends` brings them into the form of
what marks give, so that everything behind treats both alike; `find` decides what is taken.
"""

from gapscope.unmarked.find import with_unmarked

__all__ = ["with_unmarked"]

"""The events of each handoff as each rank's own file tells them, on that file's own clocks.

The files, in the order in which the data flows: `nesting` takes nested ranges apart, `launched` finds the operations of
each mark, `losses` what a damaged file may have lost of them, `times` and `points` the times that a mark gives,
`pairing` puts the marks of one key together, `ends` ties it up. Nothing here compares two clocks: that needs
`gapscope.clocks`, which in turn learns from the events which moments of two files hang together.
"""

from gapscope.events.ends import Ends, find_ends

__all__ = ["Ends", "find_ends"]

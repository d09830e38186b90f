"""One timebase for all files, with a proven uncertainty.

The files, in the order in which the data flows: `domains` names the clocks, `evidence` finds moments on two clocks of
which one cannot come after the other (`observations`), `assumptions` adds what is taken for granted and `options` what
the user states. `closure` is the arithmetic, `solve` bounds the offsets and sets points inside the bounds (with `soft`
estimates where the files' own claims cannot be true), `conflicts` deals with what contradicts itself, `alignment` is
the result, and `align` ties it up.
"""

from gapscope.clocks.align import align, observe
from gapscope.clocks.alignment import Alignment
from gapscope.clocks.options import AlignOptions, Anchor, read_anchors

__all__ = ["AlignOptions", "Alignment", "Anchor", "align", "observe", "read_anchors"]

"""Why the gap is there: the steps of the walk through the graph become tiles, each with its cause.

`names` lists the causes, `naming` gives each step one. It needs `facts` about handoffs and items, `sharing` (devices
that two processes take turns on), `overhead` (of the profiler), `peers` (kernels whose peer is not known) and
`schedule` (stages that were put first). `tiles` writes the tables, `headroom` what it would bring to remove a cause.
`units` finds the steps and requests whose ends users feel, `exposure` what of their time each cause holds. `movements`
says when bytes moved, `messages` what bound handoffs of many messages, `interference` what ran slower beside other
work.
"""

from gapscope.cause_names import CAUSES
from gapscope.causes.exposure import unit_exposure
from gapscope.causes.interference import interference
from gapscope.causes.messages import fragmented
from gapscope.causes.tiles import Explained, explain
from gapscope.causes.units import find_units
from gapscope.causes.waiting import waiting

__all__ = ["CAUSES", "Explained", "explain", "find_units", "fragmented", "interference", "unit_exposure", "waiting"]

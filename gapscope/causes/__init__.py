"""Why the gap is there: the steps of the walk through the graph become tiles, each with its cause.

`names` lists the causes, `facts` is what naming needs to know, `sharing` finds devices that two processes take turns
on, `tiles` names each step. `units` finds the steps and requests whose ends users feel, `exposure` what of their time
each cause holds. `movements` says when bytes moved, `messages` what bound handoffs of many messages,
`interference` what ran slower beside other work.
"""

from gapscope.causes.exposure import unit_exposure
from gapscope.causes.interference import interference
from gapscope.causes.messages import fragmented
from gapscope.causes.names import CAUSES
from gapscope.causes.tiles import Explained, explain
from gapscope.causes.units import find_units

__all__ = ["CAUSES", "Explained", "explain", "find_units", "fragmented", "interference", "unit_exposure"]

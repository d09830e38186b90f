"""Why the gap is there: the steps of the walk through the graph become tiles, each with its cause.

`names` lists the causes, `facts` is what naming needs to know, `sharing` finds devices that two processes take turns
on, `tiles` names each step.
"""

from gapscope.causes.names import CAUSES
from gapscope.causes.tiles import explain

__all__ = ["CAUSES", "explain"]

"""The dependency graph over all ranks, and the walk through it.

`items` are the things that take time, `edges` what an edge is, `families` where edges come from (one file each),
`build` puts them together, `kernels` are the compiled loops, `walks` runs them for all handoffs.
"""

from gapscope.graph.build import Graph, build_graph
from gapscope.graph.items import find_items, unplaced
from gapscope.graph.walks import STEP, find_walks, replay_without, walk_handoffs, walks_between

__all__ = [
    "STEP",
    "Graph",
    "build_graph",
    "find_items",
    "find_walks",
    "replay_without",
    "unplaced",
    "walk_handoffs",
    "walks_between",
]

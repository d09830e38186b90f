"""The graph of a run: items, order on streams and threads, launches, and the edges of all families."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.graph.context import Context
from gapscope.graph.edges import LEVEL, Edges, grouped
from gapscope.graph.families import FAMILIES
from gapscope.graph.items import Items, find_items
from gapscope.graph.kernels import Arrays, thread_order
from gapscope.trace import Trace

Ints = npt.NDArray[np.int64]

_AT_ONCE = 2
"""Families that look for edges at the same time; each is in part a single thread's work."""


@dataclass(frozen=True)
class Graph:
    """What had to be over before what, over all ranks.

    Attributes:
        items: Operations and host items; each has a start node and an end node.
        edges: The edges of the families, grouped by the node that they lead to.
        call: Item that launched each operation; -1: not recorded.
        call_level: How that is known, numbers of `gapscope.graph.edges.EVIDENCE`.
        nested: Host items that `gapscope.graph.kernels.before_of` does not see the node before of,
        before: and that node for each.
        context: What the families worked with.
    """

    items: Items
    edges: Edges
    call: npt.NDArray[np.int32]
    call_level: npt.NDArray[np.int8]
    nested: Ints
    before: npt.NDArray[np.int32]
    context: Context

    @cached_property
    def arrays(self) -> Arrays:
        """The graph as the compiled loops take it."""
        items, edges, times = self.items, self.edges, self.items.times
        return Arrays(
            times.start, times.end, times.lane, times.clock, times.jumped, np.array([items.n_ops], np.int64), self.call,
            self.call_level, self.nested, self.before, edges.held, edges.first, edges.source, edges.ready, edges.kind,
            edges.level,
        )  # fmt: skip


def build_graph(trace: Trace, alignment: Alignment, ends: Ends | None, items: Items | None = None) -> Graph:
    """Return the graph of a run.

    Args:
        trace: The recordings.
        alignment: Where their clocks stand.
        ends: Events of the handoffs that marks name; None: there are none.
        items: Result of `gapscope.graph.items.find_items`, if it is there.
    """
    items = find_items(trace, alignment, ends) if items is None else items
    context = Context(trace, alignment, items, ends)
    _ = context.deciding_ops  # most families want them: they are made before any of them asks
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = list(pool.map(lambda family: _comparable(context, family(context)), FAMILIES))
    edges = grouped(parts, 2 * items.n)
    items.forget()
    nested, before = thread_order(items.start, items.end, items.lane, items.n_ops)
    level = items.ops["is_declared"].to_numpy() * np.int8(LEVEL["declared"])
    return Graph(items, edges, items.call, level, nested, before, context)


def _comparable(context: Context, edges: pl.DataFrame) -> pl.DataFrame:
    """Return the edges without those across files of which one end has no known time on the common timebase."""
    times = context.items.times
    if times.all_known:
        return edges
    one, two = (edges[side].to_numpy() // 2 for side in ("from", "to"))
    file = context.alignment.domains.clock
    same_file = file[times.clock_of(one)] == file[times.clock_of(two)]
    return edges.filter(pl.Series(same_file | (times.is_known(one) & times.is_known(two))))

"""Tiles tied to the nodes of the graph: before which node the time of each lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes import Explained
from gapscope.causes.units import NO_NODE, Units
from gapscope.errors import ReplayError
from gapscope.graph import Graph
from gapscope.graph.forward import NEVER, Forward, forward_of, latest
from gapscope.graph.kernels import BODY, LEAD, UNKNOWN

Ints = npt.NDArray[np.int64]

EDGE = ("kind", "group", "src_rank", "dst_rank", "channel", "direction")

COUNTED = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")
"""Handoffs that percentiles are over."""


@dataclass(frozen=True)
class Model:
    """What replays need of an analysis.

    Attributes:
        graph: The graph.
        explained: Tiles and handoffs.
        units: Steps and requests.
    """

    graph: Graph
    explained: Explained
    units: Units

    @cached_property
    def forward(self) -> Forward:
        """The graph in an order to replay it in.

        Raises:
            ReplayError: A replay that changes nothing does not give back the recorded times, so that no other can be
                believed. The message names the first node that differs.
        """
        forward = forward_of(self.graph)
        node = forward.diverging()
        if node is not None:
            raise ReplayError(self._name(node), int(forward.time[node]))
        return forward

    @cached_property
    def allowed(self) -> tuple[Ints, Ints]:
        """How late each node may be with all units ending when they did (`gapscope.graph.forward.latest`).

        A rank that was not the last to end a unit may end it later, as late as the last.
        """
        ends = self.units.ends
        end_ns = ends["position"].replace_strict(
            pl.Series(range(self.units.table.height)), self.units.table["end_ns"], default=None, return_dtype=pl.Int64
        )
        known = ends.with_columns(unit_ns=end_ns).drop_nulls()
        node = known["node"].to_numpy()
        spare = (known["unit_ns"] - known["end_ns"]).to_numpy()
        return latest(self.forward, node, self.forward.time[node] + spare)

    @cached_property
    def _reaching(self) -> Ints:
        """How late each node may be for what each unit ended with, of its last rank alone."""
        last = self.units.last[self.units.last != NO_NODE]
        return latest(self.forward, last, self.forward.time[last])[0]

    def reaches_an_end(self, nodes: Ints) -> bool:
        """Tell whether what a step or request ended with hangs on any of some nodes, by what is recorded."""
        return bool((self._reaching[nodes] < NEVER).any()) if len(nodes) else False

    def _name(self, node: int) -> str:
        items, item = self.graph.items, node // 2
        frame, position = (items.ops, item) if item < items.n_ops else (items.hosts, item - items.n_ops)
        row = frame.row(position, named=True)
        return f"the {'end' if node % 2 else 'start'} of {row['name']} on rank {row['rank']}"

    @cached_property
    def parts(self) -> pl.DataFrame:
        """One row per tile, in the order of table ``tiles``.

        Columns: ``handoff_id, start_ns, end_ns, cause, rank, phase``, the edge of its handoff (`EDGE`), ``counted``
        (percentiles are over its handoff), and ``node``: the tile is time right before it (null: not in the graph).
        """
        passed = self.explained.passed.with_columns(
            phase=self.explained.tiles["phase"], cause=pl.col("cause").cast(pl.String), node=self._nodes
        )
        edges = self.explained.handoffs.select("handoff_id", *EDGE, counted=COUNTED)
        return passed.join(edges, on="handoff_id", how="left", maintain_order="left")

    @cached_property
    def _nodes(self) -> pl.Series:
        passed, items = self.explained.passed, self.graph.items
        item, what = (passed[c].fill_null(-1).to_numpy().astype(np.int64) for c in ("item", "what"))
        node = 2 * item + (what == BODY)
        node[(item < 0) | (what == UNKNOWN)] = -1
        # Host time right before a consumer that is itself no item: it lies before what its thread does next.
        ends = passed["end_ns"].to_numpy()
        for i in np.flatnonzero((what == LEAD) & (item >= items.n_ops)):
            node[i] = self._next_on_thread(int(item[i]), int(ends[i]))
        return pl.Series(node).replace(-1, None)

    def _next_on_thread(self, item: int, at_ns: int) -> int:
        """Return what comes next on a thread after a time: the end of an item, or the start of one; -1: nothing does.

        Args:
            item: The item of the thread that began last before.
            at_ns: The time.
        """
        lane, hosts = self.graph.items.lane, self.graph.items.n_ops
        of_hosts = lane[hosts:]
        first, until = (hosts + np.searchsorted(of_hosts, lane[item], side=s) for s in ("left", "right"))
        found = first + np.searchsorted(self.graph.items.start[first:until], at_ns, side="left")
        end = self.graph.items.end[item]
        if end > at_ns and (found == until or end < self.graph.items.start[found]):
            return 2 * item + 1
        return int(2 * found) if found < until else -1

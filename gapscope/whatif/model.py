"""Tiles tied to the nodes of the graph: before which node the time of each lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes import Explained
from gapscope.causes.all_ranks import Transfers
from gapscope.causes.units import NO_NODE, Units
from gapscope.errors import ReplayError
from gapscope.graph import Graph
from gapscope.graph.allowance import latest, reaching
from gapscope.graph.forward import Forward, forward_of
from gapscope.graph.kernels import BODY, LEAD, NONE, UNKNOWN, leaf
from gapscope.whatif.classes import Classes
from gapscope.whatif.timeline import Timeline

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

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
        floor: Result of `gapscope.graph.floors.floors_of`: what hangs on the graph alone is made ahead.
    """

    graph: Graph
    explained: Explained
    units: Units
    floor: Ints

    @cached_property
    def forward(self) -> Forward:
        """The graph in an order to replay it in.

        Raises:
            ReplayError: A replay that changes nothing does not give back the recorded times, so that no other can be
                believed. The message names the first node that differs.
        """
        forward = forward_of(self.graph, self._asked, self.floor)
        node = forward.diverging()
        if node is not None:
            raise ReplayError(self._name(int(forward.node[node])), int(forward.time[node]))
        return forward

    @cached_property
    def _asked(self) -> Ints:
        """Nodes that scenarios take time from, and of which tables tell the times; may repeat."""
        lose = self.parts["node"].drop_nulls().to_numpy()
        units = self.units
        asked: Ints = np.concatenate([
            lose, self.transfers.peers_of(lose), units.last, units.first, units.ends["node"].to_numpy(),
            self.explained.begin,
        ])  # fmt: skip
        return np.asarray(asked[asked != NO_NODE])

    @cached_property
    def timeline(self) -> Timeline:
        """Steps and requests as replays move them."""
        return Timeline.of(self.units, self.forward)

    @cached_property
    def transfers(self) -> Transfers:
        """Which operations move the same bytes."""
        return Transfers.of(self.graph)

    @cached_property
    def walked(self) -> pl.DataFrame:
        """Handoffs with a gap that was walked."""
        has_gap = (pl.col("gap_ns") >= 0).fill_null(value=False)
        return self.explained.handoffs.filter(has_gap & (pl.col("order") == "ok"))

    def forget(self) -> None:
        """Free what replays work in; the next one makes it again."""
        if "forward" in self.__dict__:
            self.forward.forget()

    def allowed(self) -> tuple[Ints, Indices]:
        """How much later each node may be with all units ending when they did, and what takes that up (`latest`).

        A rank that was not the last to end a unit may end it later, as late as the last.
        """
        ends = self.units.ends
        end_ns = ends["position"].replace_strict(
            pl.Series(range(self.units.table.height)), self.units.table["end_ns"], default=None, return_dtype=pl.Int64
        )
        known = ends.with_columns(unit_ns=end_ns).drop_nulls()
        node = self.forward.places(known["node"].to_numpy())
        spare = (known["unit_ns"] - known["end_ns"]).to_numpy()
        return latest(self.forward, node, spare)

    @cached_property
    def _reaching(self) -> Bools:
        """Which nodes what a unit ended with hangs on, of its last rank alone."""
        return reaching(self.forward, self.forward.places(self.units.last[self.units.last != NO_NODE]))

    def reaches_an_end(self, places: Ints) -> bool:
        """Tell whether what a step or request ended with hangs on any of some nodes of `forward`."""
        return bool(self._reaching[places].any())

    def _name(self, node: int) -> str:
        items, item = self.graph.items, node // 2
        number = pl.Series([item])
        row = (items.ops_at(number) if item < items.n_ops else items.hosts_at(number)).row(0, named=True)
        return f"the {'end' if node % 2 else 'start'} of {row['name']} on rank {row['rank']}"

    @cached_property
    def parts(self) -> pl.DataFrame:
        """One row per tile, in the order of table ``tiles``.

        Columns: ``start_ns, end_ns, length_ns, cause, rank, phase``, ``handoff`` (its row in table ``handoffs``),
        ``counted`` (percentiles are over its handoff), and ``node``: the tile is time right before it (null: not in the
        graph).
        """
        passed, handoffs = self.explained.passed, self.explained.handoffs
        counted = handoffs.select(COUNTED).to_series().gather(passed["handoff"])
        return passed.select(
            "start_ns", "end_ns", "cause", "rank", "handoff", length_ns=pl.col("end_ns") - pl.col("start_ns"),
            phase=self.explained.tiles["phase"], counted=counted, node=self._nodes,
        )  # fmt: skip

    @cached_property
    def classes(self) -> Classes:
        """Which of `parts` are of one cause on one rank."""
        return Classes.of(self.parts)

    @cached_property
    def error_ns(self) -> Ints:
        """Clock error of the handoff of each of `parts`: -1 where no bound is known, 0 where it is not counted."""
        errors = self.explained.handoffs["uncertainty_ns"].fill_null(NONE).to_numpy()
        counted = self.parts["counted"].fill_null(value=False).to_numpy()
        return np.where(counted, errors[self.parts["handoff"].to_numpy()], 0)

    @cached_property
    def by_node(self) -> tuple[Indices, Indices]:
        """Rows of `parts` that lie before a node, in the order of that and of their times; where each node stands.

        That is where it stands in `forward`.
        """
        parts = self.parts
        every = parts["node"].fill_null(NO_NODE).to_numpy()
        row = np.argsort(every, kind="stable")[parts["node"].null_count() :]
        node = every[row]
        # Few nodes have several tiles before them: those are put in order by themselves.
        is_first = np.append(True, node[1:] != node[:-1])[: len(node)]
        shared = np.flatnonzero(~(is_first & np.append(is_first[1:], True)[: len(node)]))
        some = row[shared]
        times = (parts[c].gather(some).to_numpy() for c in ("end_ns", "start_ns"))
        row[shared] = some[np.lexsort((*times, every[some]))]
        place = self.forward.places(node[is_first])[np.cumsum(is_first) - 1]
        return row.astype(np.int32), place.astype(np.int32)

    @cached_property
    def _nodes(self) -> pl.Series:
        passed, items = self.explained.passed, self.graph.items
        item, what = (passed[c].fill_null(-1).to_numpy().astype(np.int64) for c in ("item", "what"))
        node = 2 * item + (what == BODY)
        node[(item < 0) | (what == UNKNOWN)] = -1
        # Host time right before a consumer that is itself no item: it lies before what its thread does next.
        lead = np.flatnonzero((what == LEAD) & (item >= items.n_ops))
        if len(lead):
            ends = passed["end_ns"].to_numpy()[lead]
            node[lead] = next_on_thread(items.start, items.end, items.lane, item[lead], ends)
        return pl.Series(node).replace(-1, None)


@leaf
def _next_on_thread(  # noqa: PLR0917 - what it looks at
    start: Ints, end: Ints, lane: Indices, item: Ints, at_ns: Ints, found: Ints
) -> None:
    for i in range(len(item)):
        low, high = item[i], np.int64(len(start))
        # Items of a thread stand together, and began in this order: the first that is of another, or begins later.
        while low < high:
            middle = (low + high) // 2
            if lane[middle] > lane[item[i]] or start[middle] >= at_ns[i]:
                high = middle
            else:
                low = middle + 1
        is_there = low < len(start) and lane[low] == lane[item[i]]
        last = end[item[i]]
        if last > at_ns[i] and (not is_there or last < start[low]):
            found[i] = 2 * item[i] + 1
        else:
            found[i] = 2 * low if is_there else -1


def next_on_thread(start: Ints, end: Ints, lane: Indices, item: Ints, at_ns: Ints) -> Ints:
    """Return what comes next on a thread after a time: the end of an item, or the start of one; -1: nothing does.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        lane: Their lanes; items of one stand together, in ascending order of lanes.
        item: The items that began last before, all of hosts.
        at_ns: The times.
    """
    found = np.empty(len(item), np.int64)
    _next_on_thread(start, end, lane, item, at_ns, found)
    return found

"""Walks from the consumer of each handoff back to its producer, along what was satisfied last.

The steps of a walk are half-open, contiguous and disjoint, and sum to the gap exactly; that is asserted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks.closure import FINITE
from gapscope.clocks.solve import uncertainty
from gapscope.graph.build import Graph
from gapscope.graph.kernels import NONE, turn, walk
from gapscope.graph.replays import replay

Ints = npt.NDArray[np.int64]

STEP = {
    "walk": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "what": pl.Int8,
    "item": pl.Int32,
    "edge": pl.Int8,
    "evidence": pl.Int8,
    "runner_up": pl.Int32,
    "passed": pl.Int8,
}
"""A step: which walk, from when to when, what it is of (`gapscope.graph.kernels`), its item, the edge by which the
walk went on, how that is known, a second node that the clocks cannot tell from the one it went on to, and what the walk
had passed (an acknowledgment, an edge that contradicts the times)."""

_STEP_PLACES = (0, 1, 2, 3, 4, 5, 6, 8, 10)
"""Where these stand in the rows of `gapscope.graph.kernels.walk`."""

_OF_REPLAYS = ("walk", "start_ns", "end_ns", "what", "item", "edge", "length_ns", "passed")
REPLAYED = {name: STEP.get(name, pl.Int64) for name in _OF_REPLAYS}
"""A step of a replayed chain: columns of `STEP`, and its length, which may differ from that between its times."""


@dataclass(frozen=True)
class Walks:
    """Where walks begin and end.

    Attributes:
        begin: Node that each begins at; -1: unknown.
        finish: When the producer finished.
        consumer: When the consumer started.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        window: Window of each walk.
    """

    begin: Ints
    finish: Ints
    consumer: Ints
    bounds: Ints
    window: Ints

    def part(self, rows: slice) -> Walks:
        """Return some of them."""
        return Walks(self.begin[rows], self.finish[rows], self.consumer[rows], self.bounds, self.window[rows])


def find_walks(graph: Graph, handoffs: pl.DataFrame) -> Walks:
    """Return where the walks of handoffs begin and end; position is number.

    Args:
        graph: The graph.
        handoffs: Rows of table ``handoffs`` with a gap that is not negative.
    """
    finish, consumer = (handoffs[c].to_numpy().astype(np.int64) for c in ("producer_finish_ns", "consumer_start_ns"))
    return walks_between(graph, _first_nodes(graph, handoffs), finish, consumer)


def walks_between(graph: Graph, begin: Ints, finish: Ints, consumer: Ints) -> Walks:
    """Return walks from given nodes and times back to others; see `Walks`."""
    solution = graph.context.alignment.solution
    window = np.clip(np.searchsorted(solution.edges, consumer, side="right") - 1, 0, len(solution.edges) - 2)
    used, position = np.unique(window, return_inverse=True)
    return Walks(begin, finish, consumer, clock_bounds(graph, used), position.astype(np.int64))


def walk_handoffs(graph: Graph, handoffs: pl.DataFrame, walks: Walks) -> pl.DataFrame:
    """Return the steps of all walks, in order of time within each.

    Args:
        graph: The graph.
        handoffs: Rows of table ``handoffs`` with a gap that is not negative; position is the number of the walk.
        walks: Where they begin and end.

    Returns:
        Columns `STEP`; ``edge`` is null where there was none, ``item`` where nothing is known.
    """
    capacity = max(64 * len(walks.begin), 4096)
    while True:
        rows, count = walk(
            graph.arrays, walks.begin, walks.finish, walks.consumer, walks.bounds, walks.window, capacity
        )
        if count >= 0:
            break
        capacity *= 4
    steps = _in_order(rows[:count], STEP, _STEP_PLACES)
    steps = steps.with_columns(pl.when(pl.col(c) != NONE).then(c).alias(c) for c in ("item", "edge", "runner_up"))
    _assert_exact(steps, handoffs)
    return steps


def _in_order(rows: Ints, columns: Mapping[str, type[pl.DataType]], places: Sequence[int]) -> pl.DataFrame:
    """Return rows of walk, start and more, which come latest first within each walk, in order of time.

    On equal starts, which only replayed chains have, what came later in the chain comes first.

    Args:
        rows: The rows; are put in order.
        columns: Columns of what is returned.
        places: Where each of these stands in the rows.
    """
    turn(rows)
    walk, start = rows[:, 0], rows[:, 1]
    if ((walk[1:] == walk[:-1]) & (start[1:] < start[:-1])).any():
        rows = rows[np.lexsort((start, walk))]
    values = zip(columns, places, strict=True)
    return pl.DataFrame({n: pl.Series(rows[:, k]).cast(columns[n]) for n, k in values})


def replay_without(graph: Graph, walks: Walks, removed: pl.DataFrame) -> tuple[Ints, pl.DataFrame]:
    """Let parts of gaps vanish; return when consumers would have started, and the chains that would hold them then.

    Args:
        graph: The graph.
        walks: Where the walks begin and end.
        removed: ``walk, node, duration_ns``: the parts; ``node`` null: right before the consumer.

    Returns:
        The starts, and ``walk, start_ns, end_ns`` (as recorded), ``what, item, edge, length_ns`` (what is
        left), ``passed``, in order of time within each walk.
    """
    removed = removed.sort("walk", maintain_order=True)
    counts = np.bincount(removed["walk"].to_numpy(), minlength=len(walks.begin))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    node, length = (removed[c].fill_null(NONE).to_numpy().astype(np.int64) for c in ("node", "duration_ns"))
    capacity = max(64 * len(walks.begin), 4096)
    while True:
        starts, rows, count = replay(
            graph.arrays, walks.begin, walks.finish, walks.consumer, walks.bounds, walks.window, first, node, length,
            capacity,
        )  # fmt: skip
        if count >= 0:
            return starts, _in_order(rows[:count], REPLAYED, range(len(REPLAYED)))
        capacity *= 4


def clock_bounds(graph: Graph, windows: Ints) -> Ints:
    """Return ``[window, clock, clock]``: the uncertainty of time differences; 2^60 where none is known."""
    n = graph.context.alignment.domains.n
    one, two = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    solution = graph.context.alignment.solution
    found = [uncertainty(solution, one, two, np.full_like(one, w)) for w in windows.tolist()]
    stacked = np.stack(found) if found else np.zeros((0, n, n), np.int64)
    return np.minimum(stacked, FINITE)


def _first_nodes(graph: Graph, handoffs: pl.DataFrame) -> Ints:
    """Return the node that each walk begins at."""
    consumers = graph.context.deciding_ops.filter(pl.col("mark") == "consume").select(
        "handoff",
        pl.col("item").cast(pl.Int64),
        dst_rank=pl.coalesce("side_rank", "dst").cast(handoffs.schema["dst_rank"]),
        consumer_start_ns=pl.col("start").cast(pl.Int64),
    )
    same = ["handoff", "dst_rank", "consumer_start_ns"]
    on_device = handoffs.with_columns(handoff=graph.context.numbers_of(handoffs)).join(
        consumers.unique(same, keep="first", maintain_order=True), on=same, how="left", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip
    is_emitted = pl.col("consumer_start_source").cast(pl.String) == "emitted"
    node = on_device.select(pl.when(~is_emitted).then(pl.col("item") * 2)).to_series()
    if node.null_count():
        node = node.zip_with(node.is_not_null(), _host_nodes(graph, handoffs))
    return node.fill_null(NONE).to_numpy().astype(np.int64)


def _host_nodes(graph: Graph, handoffs: pl.DataFrame) -> pl.Series:
    """Return, for consumers on the host, the node before them on their thread."""
    items, context = graph.items, graph.context
    if context.ends is None or not items.hosts.height:
        return pl.Series([None] * handoffs.height, dtype=pl.Int64)
    consume = context.brackets.filter(pl.col("mark") == "consume").sort("mark_id")
    consume = consume.select("handoff", "source", "process", "thread")
    keys = handoffs.select("consumer_start_ns", handoff=context.numbers_of(handoffs))
    threads = keys.join(
        consume.unique("handoff", keep="first", maintain_order=True), on="handoff", how="left", maintain_order="left"
    )
    lanes = items.lanes.filter("is_host").with_row_index("place")
    place = threads.join(lanes, on=["source", "process", "thread"], how="left", maintain_order="left")
    lane, at = place["place"].fill_null(lanes.height).to_numpy(), place["consumer_start_ns"].to_numpy()
    item = np.full(handoffs.height, NONE, np.int64)
    for number, (first, until) in enumerate(lanes.select("first", "until").iter_rows()):
        mine = np.flatnonzero(lane == number)  # host items of a thread stand together, ordered by start
        found = np.searchsorted(items.start[first:until], at[mine], side="right") - 1
        item[mine] = np.where(found >= 0, first + found, NONE)
    there = item != NONE
    node = np.full(handoffs.height, NONE, np.int64)
    node[there] = 2 * item[there] + (items.end[item[there]] <= at[there])
    return pl.Series("node", node).replace(NONE, None)


def _assert_exact(steps: pl.DataFrame, handoffs: pl.DataFrame) -> None:
    """Check that steps are contiguous and sum to the gap."""
    finish, consumer = (handoffs[c].to_numpy() for c in ("producer_finish_ns", "consumer_start_ns"))
    walk, start, end = (steps[c].to_numpy() for c in ("walk", "start_ns", "end_ns"))
    begins, ends = (np.searchsorted(walk, np.arange(len(finish)), side=side) for side in ("left", "right"))
    some = ends > begins
    wrong = finish != consumer
    wrong[some] = (start[begins[some]] != finish[some]) | (end[ends[some] - 1] != consumer[some])
    within = walk[1:] == walk[:-1]
    wrong[walk[1:][within & (start[1:] != end[:-1])]] = True
    wrong[walk[end <= start]] = True
    assert not wrong.any(), f"steps do not tile the gap: {handoffs.filter(pl.Series(wrong)).head(3)}"

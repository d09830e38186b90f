"""The things that take time: GPU operations and host calls of all ranks, on one timebase, in arrays.

An item has a start node (twice its number) and an end node (twice its number plus one). Operations come first,
ordered by stream and by when they were enqueued; host items follow, ordered by thread and by start. Host items are
API calls and the ranges of host messages (``gloo:``), which take host time without being API calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks import Alignment
from gapscope.comms.streams import Streams
from gapscope.correlation import Rows, greatest
from gapscope.events import Ends
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.trace import Trace

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NONE = -1
_THREAD = ["source", "process", "thread"]
_STREAM = ["source", "process", "device", "stream"]
_LAUNCHED = ["op_device", "op_stream", "op_start_ns"]
HOST_RANGES = "^(gloo):"

_PIECE = 1 << 20
"""Rows whose times are moved at once."""


@dataclass(frozen=True)
class Items:
    """Operations and host items.

    Attributes:
        ops: One row per timed operation, position is number: ``source, process, rank, device, stream, correlation,
            kind, copy_kind, name, size_bytes, raw_start_ns`` (on the file's clock), ``call`` (number of the item that
            launched it; null: unknown), ``is_declared`` (that item is a bracket, not a call). Those of one stream stand
            together, in the order in which they were enqueued.
        hosts: One row per host item, position plus `n_ops` is number: ``source, process, rank, thread, correlation,
            name, family, raw_start_ns``.
        start: Start of each item on the common timebase.
        end: End of each item.
        lane: Number of the stream or thread of each item.
        clock: Clock of each item.
        is_placed: Whether the times of each item are known on the common timebase.
    """

    ops: pl.DataFrame
    hosts: pl.DataFrame
    start: Ints
    end: Ints
    lane: Indices
    clock: Indices
    is_placed: Bools

    @cached_property
    def streams(self) -> Streams:
        """Operations by stream."""
        lane = self.lane[: self.n_ops]
        cuts = np.flatnonzero(lane[1:] != lane[:-1]) + 1
        first = np.concatenate([np.zeros(min(self.n_ops, 1), np.int64), cuts])
        until = np.concatenate([cuts, np.full(min(self.n_ops, 1), self.n_ops, np.int64)])
        table = self.ops[first].select(*_STREAM, first=pl.Series(first), until=pl.Series(until))
        return Streams(table, self.ops["correlation"], self.start[: self.n_ops], self.end[: self.n_ops])

    @property
    def n_ops(self) -> int:
        """Number of operations."""
        return self.ops.height

    @property
    def n(self) -> int:
        """Number of items."""
        return self.ops.height + self.hosts.height

    @cached_property
    def _ops_by_id(self) -> Rows:
        return Rows(self.ops)

    @cached_property
    def _hosts_by_id(self) -> Rows:
        return Rows(self.hosts)

    def forget(self) -> None:
        """Free what looking items up has built; the next look-up builds it again."""
        for name in ("_ops_by_id", "_hosts_by_id"):
            self.__dict__.pop(name, None)

    def by_correlation(self, frame: pl.DataFrame, column: str, into: str, *, last: bool = False) -> pl.DataFrame:
        """Add the number of the operation that has a correlation id; of several (a replayed graph) the first or last.

        Args:
            frame: Has ``source``, ``process`` and ``column``.
            column: Column with correlation ids.
            into: Name of the new column.
            last: Take the operation that ended last instead of the one that was enqueued first.
        """
        rows = self._ops_by_id
        low, high = rows.spans(frame, column)
        found = np.full(frame.height, NONE, np.int32)
        there = high > low
        at = greatest(low[there], high[there], self.end[rows.order]) if last else low[there]
        found[there] = rows.order[at]
        return frame.with_columns(pl.Series(into, found).replace(NONE, None))

    def calls_by_correlation(self, frame: pl.DataFrame, column: str, into: str) -> pl.DataFrame:
        """Add the number of the call that has a correlation id."""
        found = pl.Series(into, self._hosts_by_id.first(frame, column)).replace(NONE, None)
        return frame.with_columns(found + self.n_ops)


def find_items(trace: Trace, alignment: Alignment, ends: Ends | None) -> Items:
    """Return operations and host items of all ranked processes.

    An operation whose call the tool does not record, and which a bracket is known to enclose, was launched somewhere
    between the bracket's begin and its own start: that stretch is a host item, an upper bound, and launches it.
    """
    chosen = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
    hosts, host_lane, unseen = _find_hosts(trace, chosen, ends)
    ops = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null())
        .join(chosen.lazy(), on=["source", "process"], how="semi")
        .select(
            "source", "process", "rank", "device", "stream", "start_ns", "end_ns", "correlation", "kind", "copy_kind",
            "name", "size_bytes",
        )
        .collect()
    )  # fmt: skip
    call = Rows(hosts).first(ops)
    began = hosts["start_ns"].to_numpy()
    # Correlation ids count calls, so they give the order also where a call was not recorded.
    numbered = pl.col("correlation").is_not_null().all().over("source", "process")
    if not ops["correlation"].null_count():
        enqueued = ops["correlation"].to_numpy()
    else:
        at = pl.Series(np.where(call >= 0, began[call], ops["start_ns"].to_numpy()) if len(began) else ops["start_ns"])
        enqueued = ops.select(pl.when(numbered).then("correlation").otherwise(at)).to_series().to_numpy()
    ops = _with_unseen(ops.with_columns(call=pl.Series(call).replace(NONE, None)), hosts, unseen)
    streams, op_lane = lanes_of(ops, _STREAM, nulls_last=True)
    order = order_by_lane(op_lane, streams.height, [enqueued, *(ops[c].to_numpy() for c in ("start_ns", "end_ns"))])
    del call, began, enqueued
    ops, op_lane = _taken(ops, order), op_lane[order]
    del order
    ops = ops.with_columns(pl.col("call") + ops.height)
    threads = hosts[np.unique(host_lane, return_index=True)[1]].select(_THREAD)
    clocks = [
        alignment.domains.with_domain(streams, "device", "", "clock")["clock"].fill_null(0).to_numpy(),
        alignment.domains.with_domain(threads, None, "", "clock")["clock"].fill_null(0).to_numpy(),
    ]
    lane = np.concatenate([op_lane, host_lane + np.int32(streams.height)])
    del op_lane, host_lane
    clock = np.concatenate(clocks).astype(np.int32)[lane]
    start, end, is_placed = np.empty(len(lane), np.int64), np.empty(len(lane), np.int64), np.empty(len(lane), np.bool_)
    for frame, begin in ((ops, 0), (hosts, ops.height)):
        for low in range(0, frame.height, _PIECE):
            piece = frame.slice(low, _PIECE).select("start_ns", "end_ns")
            part = slice(begin + low, begin + low + piece.height)
            clock[part], shift, is_placed[part] = _placed(clock[part], piece["start_ns"].to_numpy(), alignment)
            start[part], end[part] = piece["start_ns"].to_numpy() + shift, piece["end_ns"].to_numpy() + shift
    ops, hosts = (frame.rename({"start_ns": "raw_start_ns"}).drop("end_ns") for frame in (ops, hosts))
    return Items(ops, hosts, start, end, lane, clock, is_placed)


def _find_hosts(trace: Trace, chosen: pl.DataFrame, ends: Ends | None) -> tuple[pl.DataFrame, Indices, pl.DataFrame]:
    """Return host items ordered by thread and start, the number of the thread of each, and `_unseen_launches`."""
    calls = trace.scan("calls").select(
        "source", "process", "rank", "thread", "start_ns", "end_ns", "correlation", pl.col("name"), "family"
    )
    ranges = (
        trace.scan("ranges")
        .filter(pl.col("name").str.contains(HOST_RANGES) & pl.col("end_ns").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]))
        .select(
            "source", "process", "rank", "thread", "start_ns", "end_ns",
            correlation=pl.lit(None, dtype=pl.Int64), name=pl.col("name").cast(pl.Categorical()),
            family=pl.lit(None, dtype=calls.collect_schema()["family"]),
        )
    )  # fmt: skip
    unseen = _unseen_launches(ends, calls.collect_schema())
    hosts = (
        pl.concat([calls, ranges, unseen.drop(_LAUNCHED).unique(maintain_order=True).lazy()])
        .filter(pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
        .join(chosen.lazy(), on=["source", "process"], how="semi")
        .collect()
    )
    threads, lane = lanes_of(hosts, _THREAD, nulls_last=False)
    start, end = hosts["start_ns"].to_numpy(), hosts["end_ns"].to_numpy()
    order = order_by_lane(lane, threads.height, [start, -end, end])
    return _taken(hosts, order), lane[order], unseen


def _taken(frame: pl.DataFrame, order: Indices) -> pl.DataFrame:
    """Return the rows in an order."""
    if (order[1:] > order[:-1]).all():
        return frame
    return frame[order]


def _unseen_launches(ends: Ends | None, schema: pl.Schema) -> pl.DataFrame:
    """Return host items that stand for calls which are not recorded, with `_LAUNCHED` of what they launched."""
    if ends is None:
        return pl.DataFrame(schema={**schema, "op_device": pl.Int32, "op_stream": pl.Int64, "op_start_ns": pl.Int64})
    inside = ends.launched.filter((pl.col("by") == "span") & pl.col("start_ns").is_not_null())
    brackets = ends.brackets.select(
        "mark_id", "source", "process", "rank", "thread", "mark", begin="start_ns", until="end_ns"
    )
    inside = inside.select("mark_id", op_device="device", op_stream="stream", op_start_ns="start_ns")
    found = inside.join(brackets, on="mark_id")
    # Of nested brackets the innermost says most.
    found = found.sort("begin").unique(["source", "process", *_LAUNCHED], keep="last", maintain_order=True)
    return found.select(
        "source", "process", "rank", "thread", start_ns="begin", end_ns=pl.min_horizontal("until", "op_start_ns"),
        correlation=pl.lit(None, dtype=pl.Int64), name=pl.format("gapscope::{}", "mark").cast(pl.Categorical()),
        family=pl.lit(None, dtype=schema["family"]), op_device="op_device", op_stream="op_stream",
        op_start_ns="op_start_ns",
    ).filter(pl.col("end_ns") >= pl.col("start_ns"))  # fmt: skip


def _with_unseen(ops: pl.DataFrame, hosts: pl.DataFrame, unseen: pl.DataFrame) -> pl.DataFrame:
    """Fill in ``call`` from host items that stand for calls which are not recorded; add ``is_declared``."""
    place = ["source", "process", "thread", "start_ns", "end_ns", "name"]
    if not unseen.height:
        return ops.with_columns(is_declared=pl.lit(value=False))
    numbers = hosts.with_row_index("unseen").filter(pl.col("family").is_null()).select(*place, "unseen")
    # Of several tensors' operations some may start in the same nanosecond, on streams of their own.
    started = [*_STREAM, "start_ns"]
    stands = unseen.join(numbers, on=place).select(
        "source", "process", "unseen", device="op_device", stream="op_stream", start_ns="op_start_ns"
    )
    stands = stands.unique(started, maintain_order=True)
    ops = ops.join(stands, on=started, how="left", maintain_order="left", nulls_equal=True)
    declared = pl.col("call").is_null() & pl.col("unseen").is_not_null()
    return ops.with_columns(is_declared=declared, call=pl.coalesce("call", "unseen")).drop("unseen")


def _placed(clock: Indices, time: Ints, alignment: Alignment) -> tuple[Indices, Ints, Bools]:
    """Return the clocks of times (after a jump of a clock, another), what to add to them, and which are then known.

    Those of a clock that has no place on the common timebase stay as they were recorded; those in the middle of a jump
    of their clock go on from before it. Within one file both are of use, across files they are not.
    """
    sure, is_amid = time, np.zeros(len(time), np.bool_)
    for step in alignment.domains.steps:
        amid = (clock == step.before) & (time > step.begin_ns) & (time < step.end_ns)
        sure, is_amid = np.where(amid, step.begin_ns, sure), is_amid | amid
        clock = np.where((clock == step.before) & (time >= step.end_ns), np.int32(step.after), clock)
    offsets = alignment.offsets(pl.Series(clock), pl.Series(sure))
    return clock, offsets.fill_null(0).to_numpy(), offsets.is_not_null().to_numpy() & ~is_amid

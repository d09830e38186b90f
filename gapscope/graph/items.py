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
from gapscope.events import Ends
from gapscope.trace import Trace

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NONE = -1
_CORRELATION = ["source", "process", "correlation"]
_THREAD = ["source", "process", "thread"]
_STREAM = ["source", "process", "device", "stream"]
_LAUNCHED = ["op_device", "op_stream", "op_start_ns"]
HOST_RANGES = "^(gloo):"


@dataclass(frozen=True)
class Items:
    """Operations and host items.

    Attributes:
        ops: One row per timed operation, position is number: ``source, process, rank, device, stream, correlation,
            kind, copy_kind, name, size_bytes, raw_start_ns`` (on the file's clock), ``clock``, ``call`` (number of the
            item that launched it; null: unknown), ``is_declared`` (that item is a bracket, not a call), ``enqueued_ns``
            (start of the call, else its own start).
        hosts: One row per host item, position plus `n_ops` is number: ``source, process, rank, thread, correlation,
            name, family, raw_start_ns, clock``.
        start: Start of each item on the common timebase.
        end: End of each item.
        lane: Number of the stream or thread of each item.
        is_placed: Whether the times of each item are known on the common timebase.
    """

    ops: pl.DataFrame
    hosts: pl.DataFrame
    start: Ints
    end: Ints
    lane: Indices
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
    def clock(self) -> Indices:
        """Clock of each item."""
        return np.concatenate([self.ops["clock"].to_numpy(), self.hosts["clock"].to_numpy()]).astype(np.int32)

    @cached_property
    def process(self) -> Indices:
        """Number of the process of each item, over all files."""
        both = pl.concat([self.ops.select("source", "process"), self.hosts.select("source", "process")])
        return both.select(pl.struct("source", "process").rank("dense").cast(pl.Int32)).to_series().to_numpy()

    def by_correlation(self, frame: pl.DataFrame, column: str, into: str, *, last: bool = False) -> pl.DataFrame:
        """Add the number of the operation that has a correlation id; of several (a replayed graph) the first or last.

        Args:
            frame: Has ``source``, ``process`` and ``column``.
            column: Column with correlation ids.
            into: Name of the new column.
            last: Take the operation that ended last instead of the one that started first.
        """
        keys = frame.select("source", "process", correlation=column).drop_nulls().unique()
        ops = self.ops.lazy().select(*_CORRELATION).with_columns(_end=pl.Series(self.end[: self.n_ops]))
        numbers = ops.with_row_index(into).join(keys.lazy(), on=_CORRELATION, how="semi").collect()
        numbers = numbers.sort("_end" if last else into)
        chosen = numbers.unique(_CORRELATION, keep="last" if last else "first").drop("_end")
        chosen = chosen.rename({"correlation": column}).with_columns(pl.col(into).cast(pl.Int32))
        return frame.join(chosen, on=["source", "process", column], how="left", maintain_order="left")

    def calls_by_correlation(self, frame: pl.DataFrame, column: str, into: str) -> pl.DataFrame:
        """Add the number of the call that has a correlation id."""
        keys = frame.select("source", "process", correlation=column).drop_nulls().unique()
        numbers = (
            self.hosts.lazy()
            .select(*_CORRELATION)
            .with_row_index(into, offset=self.n_ops)
            .join(keys.lazy(), on=_CORRELATION, how="semi")
            .sort(into)
            .collect()
            .unique(_CORRELATION, keep="first", maintain_order=True)
            .rename({"correlation": column})
            .with_columns(pl.col(into).cast(pl.Int32))
        )
        return frame.join(numbers, on=["source", "process", column], how="left", maintain_order="left")


def find_items(trace: Trace, alignment: Alignment, ends: Ends | None) -> Items:
    """Return operations and host items of all ranked processes.

    An operation whose call the tool does not record, and which a bracket is known to enclose, was launched somewhere
    between the bracket's begin and its own start: that stretch is a host item, an upper bound, and launches it.
    """
    chosen = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
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
        .sort(*_THREAD, "start_ns", -pl.col("end_ns"), maintain_order=True)
        .collect()
    )
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
    numbers = hosts.select(*_CORRELATION, call_ns="start_ns").with_row_index("call").drop_nulls("correlation")
    joined = ops.join(numbers, on=_CORRELATION, how="left")
    if joined.height > ops.height:  # an id that two calls carry; seldom, and looking for it costs more than joining
        joined = ops.join(numbers.unique(_CORRELATION, keep="first", maintain_order=True), on=_CORRELATION, how="left")
    ops = joined.with_columns(enqueued_ns=pl.coalesce("call_ns", "start_ns"))
    ops = _with_unseen(ops, hosts, unseen)
    # Correlation ids count calls, so they give the order also where a call was not recorded.
    numbered = pl.col("correlation").is_not_null().all().over("source", "process")
    order = pl.when(numbered).then("correlation").otherwise("enqueued_ns")
    ops = ops.sort(*_STREAM, order, "start_ns", "end_ns", maintain_order=True, nulls_last=True)
    ops = ops.with_columns(call=(pl.col("call") + ops.height).cast(pl.Int32))
    ops = alignment.domains.with_domain(ops, "device", "", "clock").drop("call_ns")
    hosts = alignment.domains.with_domain(hosts, None, "", "clock")
    ops, op_start, op_end, op_placed = _moved(ops, alignment)
    hosts, host_start, host_end, host_placed = _moved(hosts, alignment)
    lanes = [
        ops.select(pl.struct(_STREAM).rle_id()).to_series().to_numpy().astype(np.int32),
        hosts.select(pl.struct(_THREAD).rle_id()).to_series().to_numpy().astype(np.int32),
    ]
    lanes[1] = lanes[1] + (lanes[0].max(initial=NONE) + 1)
    return Items(
        ops, hosts, np.concatenate([op_start, host_start]), np.concatenate([op_end, host_end]), np.concatenate(lanes),
        np.concatenate([op_placed, host_placed]),
    )  # fmt: skip


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


def _moved(frame: pl.DataFrame, alignment: Alignment) -> tuple[pl.DataFrame, Ints, Ints, Bools]:
    """Return the rows with ``raw_start_ns`` in place of times, their times, and which of these are known.

    Those of a clock that has no place on the common timebase stay as they were recorded; those in the middle of a jump
    of their clock go on from before it. Within one file both are of use, across files they are not.
    """
    frame = frame.with_columns(pl.col("clock").fill_null(0))
    clock, time = frame["clock"].to_numpy().astype(np.int64), frame["start_ns"].to_numpy()
    sure, is_amid = time.copy(), np.zeros(len(time), np.bool_)
    for step in alignment.domains.steps:
        amid = (clock == step.before) & (time > step.begin_ns) & (time < step.end_ns)
        sure[amid], is_amid = step.begin_ns, is_amid | amid
        clock = np.where((clock == step.before) & (time >= step.end_ns), step.after, clock)
    frame = frame.with_columns(clock=pl.Series(clock))
    offsets = alignment.offsets(frame["clock"], pl.Series(sure))
    shift = offsets.fill_null(0).to_numpy()
    start, end = time + shift, frame["end_ns"].to_numpy() + shift
    known = offsets.is_not_null().to_numpy() & ~is_amid
    return frame.rename({"start_ns": "raw_start_ns"}).drop("end_ns"), start, end, known

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
from gapscope.graph.placing import placed
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


@dataclass(frozen=True)
class Items:
    """Operations and host items.

    There are millions: what all items of a stream or thread have in common stands once, in `lanes`. `ops_at` and
    `hosts_at` put it beside the few that are asked about.

    Attributes:
        ops: One row per timed operation, position is number: ``correlation, kind, copy_kind, name, size_bytes,
            raw_start_ns`` (on the file's clock), ``call`` (number of the item that launched it; null: unknown),
            ``is_declared`` (that item is a bracket, not a call). Those of one stream stand together, in the order in
            which they were enqueued.
        hosts: One row per host item, position plus `n_ops` is number: ``correlation, name, family, raw_start_ns``.
        lanes: One row per stream, then one per thread: ``source, process, rank, device, stream, thread,
            is_host, first, until`` (from which to before which item).
        start: Start of each item on the common timebase.
        end: End of each item.
        lane: Number of the stream or thread of each item.
        clock: Clock of each lane; of one that has jumped, the clock before.
        jumped: Clock of each item, if some clock has jumped; else empty.
        stands: Whether each clock has a place on the common timebase.
        amid: Items in the middle of a jump of their clock, ascending.
    """

    ops: pl.DataFrame
    hosts: pl.DataFrame
    lanes: pl.DataFrame
    start: Ints
    end: Ints
    lane: Indices
    clock: Indices
    jumped: Indices
    stands: Bools
    amid: Indices

    @cached_property
    def streams(self) -> Streams:
        """Operations by stream."""
        table = self.lanes.filter(~pl.col("is_host")).select(*_STREAM, "first", "until")
        return Streams(table, self.ops["correlation"], self.start[: self.n_ops], self.end[: self.n_ops])

    @property
    def n_ops(self) -> int:
        """Number of operations."""
        return self.ops.height

    @property
    def n(self) -> int:
        """Number of items."""
        return self.ops.height + self.hosts.height

    def clock_of(self, numbers: npt.NDArray[np.integer]) -> Indices:
        """Return the clocks of some items."""
        found: Indices = self.jumped[numbers] if len(self.jumped) else self.clock[self.lane[numbers]]
        return found

    @property
    def all_placed(self) -> bool:
        """Whether the times of all items are known on the common timebase."""
        return not len(self.amid) and bool(self.stands[self.jumped if len(self.jumped) else self.clock].all())

    def is_placed(self, numbers: npt.NDArray[np.integer]) -> Bools:
        """Tell of which items the times are known on the common timebase."""
        found: Bools = self.stands[self.clock_of(numbers)]
        return found & ~np.isin(numbers, self.amid)

    def ops_at(self, numbers: pl.Series) -> pl.DataFrame:
        """Return rows of `ops` with ``source, process, rank, device, stream``; no number is null."""
        return self.ops[numbers].hstack(self._lanes_at(numbers, *_STREAM, "rank"))

    def hosts_at(self, numbers: pl.Series) -> pl.DataFrame:
        """Return rows of `hosts` with ``source, process, rank, thread``.

        Args:
            numbers: Numbers of items, none of them null or below `n_ops`.
        """
        return self.hosts[numbers.cast(pl.Int64) - self.n_ops].hstack(self._lanes_at(numbers, *_THREAD, "rank"))

    def _lanes_at(self, numbers: pl.Series, *columns: str) -> list[pl.Series]:
        rows: pl.DataFrame = self.lanes.select(columns)[self.lane[numbers.to_numpy()]]
        return rows.get_columns()

    @cached_property
    def _ops_by_id(self) -> Rows:
        return Rows(self.ops, places=_processes(self.lanes.filter(~pl.col("is_host"))))

    @cached_property
    def _hosts_by_id(self) -> Rows:
        threads = self.lanes.filter("is_host")
        return Rows(self.hosts, places=_processes(threads, self.n_ops))

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


def _processes(lanes: pl.DataFrame, before: int = 0) -> dict[tuple[int, int], slice | Indices]:
    """Return where the items of each process stand: its lanes stand together.

    Args:
        lanes: Some of `Items.lanes`.
        before: What is taken off their numbers.
    """
    spans = lanes.group_by("source", "process").agg(pl.col("first").min() - before, pl.col("until").max() - before)
    return {(source, process): slice(first, until) for source, process, first, until in spans.rows()}


def find_items(trace: Trace, alignment: Alignment, ends: Ends | None) -> Items:
    """Return operations and host items of all ranked processes.

    An operation whose call the tool does not record, and which a bracket is known to enclose, was launched somewhere
    between the bracket's begin and its own start: that stretch is a host item, an upper bound, and launches it.
    """
    hosts, threads, host_lane, unseen = _find_hosts(trace, ends)
    timed = trace.scan("ops", used=True).filter(pl.col("start_ns").is_not_null())
    ops = timed.select(*_STREAM, "start_ns", "end_ns", "correlation").collect()
    call = Rows(hosts, places=_processes(threads)).first(ops)
    # Correlation ids count calls, so they give the order also where a call was not recorded.
    if not ops["correlation"].null_count():
        enqueued = ops["correlation"].to_numpy()
    else:
        numbered = pl.col("correlation").is_not_null().all().over("source", "process")
        began, starts = hosts["start_ns"].to_numpy(), ops["start_ns"].to_numpy()
        at = pl.Series(np.where(call >= 0, began[call], starts) if len(began) else starts)
        enqueued = ops.select(pl.when(numbered).then("correlation").otherwise(at)).to_series().to_numpy()
    ops = _with_unseen(ops.with_columns(call=pl.Series(call).replace(NONE, None)), hosts, threads, host_lane, unseen)
    streams, op_lane = lanes_of(ops, _STREAM, nulls_last=True)
    order = order_by_lane(op_lane, streams.height, [enqueued, *(ops[c].to_numpy() for c in ("start_ns", "end_ns"))])
    del call, enqueued
    ops, op_lane = _taken(ops.drop(_STREAM), order), op_lane[order]
    about = _taken(timed.select("kind", "copy_kind", "name", "size_bytes").collect(), order)
    del order
    clocks = [
        alignment.domains.with_domain(streams, "device", "", "clock")["clock"].fill_null(0).to_numpy(),
        alignment.domains.with_domain(threads, None, "", "clock")["clock"].fill_null(0).to_numpy(),
    ]
    lane = np.concatenate([op_lane, host_lane + np.int32(streams.height)])
    del op_lane, host_lane
    clock = np.concatenate(clocks).astype(np.int32)
    jumped, start, end, amid = placed(lane, clock, [ops, hosts], alignment)
    ops = ops.hstack(about.get_columns()).with_columns(pl.col("call") + ops.height)
    ops, hosts = (frame.rename({"start_ns": "raw_start_ns"}).drop("end_ns") for frame in (ops, hosts))
    return Items(
        ops, hosts, _lanes(trace, streams, threads, lane), start, end, lane, clock, jumped, alignment.placed, amid
    )


def _lanes(trace: Trace, streams: pl.DataFrame, threads: pl.DataFrame, lane: Indices) -> pl.DataFrame:
    """Return `Items.lanes`."""
    at = np.searchsorted(lane, np.arange(streams.height + threads.height + 1))
    ranks = trace.processes.select("source", "process", "rank")
    both = pl.concat([streams.select(_STREAM), threads.select(_THREAD)], how="diagonal")
    both = both.join(ranks, on=["source", "process"], how="left", maintain_order="left")
    is_host = np.arange(both.height) >= streams.height
    return both.with_columns(is_host=pl.Series(is_host), first=pl.Series(at[:-1]), until=pl.Series(at[1:]))


def _find_hosts(trace: Trace, ends: Ends | None) -> tuple[pl.DataFrame, pl.DataFrame, Indices, pl.DataFrame]:
    """Return host items ordered by thread and start, the threads, which each is of, and `_unseen_launches`.

    Host items: ``start_ns, end_ns, correlation, name, family``. Threads: `_THREAD`, ``first``, ``until``.
    """
    calls = trace.scan("calls", used=True).select(
        *_THREAD, "start_ns", "end_ns", "correlation", pl.col("name"), "family"
    )
    schema = calls.collect_schema()
    ranges = (
        trace.scan("ranges", used=True)
        .filter(pl.col("name").str.contains(HOST_RANGES) & pl.col("end_ns").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]))
        .select(
            *_THREAD, "start_ns", "end_ns", correlation=pl.lit(None, dtype=pl.Int64),
            name=pl.col("name").cast(pl.Categorical()), family=pl.lit(None, dtype=schema["family"]),
        )
    )  # fmt: skip
    unseen = _unseen_launches(ends, schema)
    used = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
    stand_ins = unseen.drop(_LAUNCHED).unique(maintain_order=True).join(used, on=["source", "process"], how="semi")
    every = pl.concat([calls, ranges, stand_ins.lazy()])
    every = every.filter(pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
    hosts = every.select(*_THREAD, "start_ns", "end_ns").collect()
    threads, lane = lanes_of(hosts, _THREAD, nulls_last=False)
    hosts = hosts.drop(_THREAD)
    start, end = hosts["start_ns"].to_numpy(), hosts["end_ns"].to_numpy()
    order = order_by_lane(lane, threads.height, [start, -end, end])
    lane = lane[order]
    hosts = _taken(hosts, order)
    about = _taken(every.select("correlation", "name", "family").collect(), order)
    at = np.searchsorted(lane, np.arange(threads.height + 1))
    threads = threads.with_columns(first=pl.Series(at[:-1]), until=pl.Series(at[1:]))
    return hosts.hstack(about.get_columns()), threads, lane, unseen


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
    brackets = ends.brackets.select("mark_id", *_THREAD, "mark", begin="start_ns", until="end_ns")
    inside = inside.select("mark_id", op_device="device", op_stream="stream", op_start_ns="start_ns")
    found = inside.join(brackets, on="mark_id")
    # Of nested brackets the innermost says most.
    found = found.sort("begin").unique(["source", "process", *_LAUNCHED], keep="last", maintain_order=True)
    return found.select(
        *_THREAD, start_ns="begin", end_ns=pl.min_horizontal("until", "op_start_ns"),
        correlation=pl.lit(None, dtype=pl.Int64), name=pl.format("gapscope::{}", "mark").cast(pl.Categorical()),
        family=pl.lit(None, dtype=schema["family"]), op_device="op_device", op_stream="op_stream",
        op_start_ns="op_start_ns",
    ).filter(pl.col("end_ns") >= pl.col("start_ns"))  # fmt: skip


def _with_unseen(
    ops: pl.DataFrame, hosts: pl.DataFrame, threads: pl.DataFrame, lane: Indices, unseen: pl.DataFrame
) -> pl.DataFrame:
    """Fill in ``call`` from host items that stand for calls which are not recorded; add ``is_declared``."""
    place = [*_THREAD, "start_ns", "end_ns", "name"]
    if not unseen.height:
        return ops.with_columns(is_declared=pl.lit(value=False))
    numbers = hosts["family"].is_null().arg_true()
    numbered = hosts[numbers].select("start_ns", "end_ns", "name", unseen=numbers)
    numbered = numbered.hstack(threads.select(_THREAD)[lane[numbers.to_numpy()]].get_columns())
    # Of several tensors' operations some may start in the same nanosecond, on streams of their own.
    started = [*_STREAM, "start_ns"]
    stands = unseen.join(numbered, on=place).select(
        "source", "process", "unseen", device="op_device", stream="op_stream", start_ns="op_start_ns"
    )
    stands = stands.unique(started, maintain_order=True)
    ops = ops.join(stands, on=started, how="left", maintain_order="left", nulls_equal=True)
    declared = pl.col("call").is_null() & pl.col("unseen").is_not_null()
    return ops.with_columns(is_declared=declared, call=pl.coalesce("call", "unseen")).drop("unseen")

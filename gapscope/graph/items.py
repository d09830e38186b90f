"""The things that take time: GPU operations and host calls of all ranks, on one timebase, in arrays.

An item has a start node (twice its number) and an end node (twice its number plus one). Operations come first,
ordered by stream and by when they were enqueued; host items follow, ordered by thread and by start. Host items are
API calls and the ranges of host messages (``gloo:``), which take host time without being API calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks import Alignment
from gapscope.comms.streams import Streams
from gapscope.correlation import Rows, expand, greatest, groups
from gapscope.events import Ends
from gapscope.graph.hosts import IN_ORDER, IS_UNSEEN, STREAM, THREAD, Hosts, find_hosts, with_unseen
from gapscope.graph.kernels import NONE
from gapscope.graph.placing import Numbers, Placed, placed
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.trace import Trace

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Items:
    """Operations and host items.

    There are millions, so columns are narrow, what all items of a stream or thread have in common stands once, in
    `lanes`, and what can be had from something else is not there. `ops_at` and `hosts_at` put all of it together for
    the few that are asked about.

    Attributes:
        ops: One row per timed operation, position is number: ``correlation, kind, copy_kind, name, size_bytes``,
            ``is_declared`` (the item that launched it is a bracket, not a call). Integers are as narrow as their values
            allow. Those of one stream stand together, in the order in which they were enqueued.
        hosts: One row per host item, position plus `n_ops` is number: ``name, family``.
        lanes: One row per stream, then one per thread: ``source, process, rank, device, stream, thread,
            is_host, first, until`` (from which to before which item).
        call: Number of the item that launched each operation; -1: unknown.
        times: Where they stand on the common timebase.
        ids: Correlation ids of host items, until they are forgotten.
    """

    ops: pl.DataFrame
    hosts: pl.DataFrame
    lanes: pl.DataFrame
    call: Indices
    times: Placed
    ids: CallIds

    @property
    def start(self) -> Ints:
        """Start of each item on the common timebase."""
        return self.times.start

    @property
    def end(self) -> Ints:
        """End of each item."""
        return self.times.end

    @property
    def lane(self) -> Indices:
        """Number of the stream or thread of each item."""
        return self.times.lane

    @property
    def stream_table(self) -> pl.DataFrame:
        """The table of `streams`, which takes nothing to make."""
        return self.lanes.filter(~pl.col("is_host")).select(*STREAM, "first", "until")

    @cached_property
    def streams(self) -> Streams:
        """Operations by stream."""
        ids = self.ops["correlation"].cast(pl.Int64)
        return Streams(self.stream_table, ids, self.start[: self.n_ops], self.end[: self.n_ops])

    @property
    def n_ops(self) -> int:
        """Number of operations."""
        return self.ops.height

    @property
    def n(self) -> int:
        """Number of items."""
        return self.ops.height + self.hosts.height

    def clock_of(self, numbers: Numbers) -> Indices:
        """Return the clocks of some items."""
        return self.times.clock_of(numbers)

    def call_of(self, ops: pl.Series) -> pl.Series:
        """Return the numbers of the items that launched some operations; null where that is not known."""
        return pl.Series("call", self.call).gather(ops).replace(NONE, None)

    def ops_at(self, numbers: pl.Series) -> pl.DataFrame:
        """Return rows of `ops` with ``raw_start_ns`` (on the file's clock), ``source, process, rank, device, stream``.

        Args:
            numbers: Numbers of operations, none of them null.
        """
        ops = self.ops[numbers].with_columns(pl.col("correlation", "size_bytes").cast(pl.Int64))
        return ops.hstack([self._raw_start(numbers), *self._lanes_at(numbers, *STREAM, "rank")])

    def hosts_at(self, numbers: pl.Series) -> pl.DataFrame:
        """Return rows of `hosts` with ``raw_start_ns`` (on the file's clock), ``source, process, rank, thread``.

        Args:
            numbers: Numbers of items, none of them null or below `n_ops`.
        """
        hosts = self.hosts[numbers.cast(pl.Int64) - self.n_ops]
        return hosts.hstack([self._raw_start(numbers), *self._lanes_at(numbers, *THREAD, "rank")])

    def _raw_start(self, numbers: pl.Series) -> pl.Series:
        return pl.Series("raw_start_ns", self.times.raw_start(numbers.to_numpy()), dtype=pl.Int64)

    def _lanes_at(self, numbers: pl.Series, *columns: str) -> list[pl.Series]:
        rows: pl.DataFrame = self.lanes.select(columns)[self.lane[numbers.to_numpy()]]
        return rows.get_columns()

    def started(self, asked: pl.DataFrame, among: Ints | None = None) -> tuple[Indices, Ints]:
        """Return the operations that started on some streams at some times: the row that each is of, and its number.

        Args:
            asked: `STREAM`, and ``start_ns`` on the file's clock.
            among: Numbers of the operations that are looked at; None: all.
        """
        streams, numbers = self.stream_table, None if among is None else np.sort(among)
        edges = [*streams["first"], self.n_ops]
        if numbers is None:
            begun = self.times.raw_starts(self.n_ops)
        else:
            begun, edges = self.times.raw_start(numbers), np.searchsorted(numbers, edges).tolist()
        index = Rows(
            pl.DataFrame({"start_ns": begun}),
            "start_ns",
            {(number, 0): slice(*stretch) for number, stretch in enumerate(pairwise(edges))},
        )
        lanes, lane = lanes_of(asked, STREAM, nulls_last=True)
        numbered = streams.with_row_index("number")
        known = lanes.join(numbered, on=STREAM, how="left", nulls_equal=True, maintain_order="left")
        of_stream = known["number"].cast(pl.Int64).fill_null(NONE).to_numpy()[lane]
        times = asked.select("start_ns", source=pl.Series(of_stream), process=pl.lit(0, pl.Int64))
        at, row = expand(*index.spans(times, "start_ns"))
        found = index.at(at)
        return row, found.astype(np.int64) if numbers is None else numbers[found]

    @cached_property
    def _ops_by_id(self) -> Rows:
        ids = self.ops.select(pl.col("correlation").cast(pl.Int64))
        return Rows(ids, places=_processes(self.lanes.filter(~pl.col("is_host"))))

    def forget(self) -> None:
        """Free what only those need who look items up by their correlation id: calls cannot be, after that."""
        for name in ("_ops_by_id", "streams"):
            self.__dict__.pop(name, None)
        self.ids.rows = self.ids.values = None

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
        assert self.ids.rows is not None
        found = pl.Series(into, self.ids.rows.first(frame, column)).replace(NONE, None)
        return frame.with_columns(found + self.n_ops)

    def call_ids(self, hosts: pl.Series) -> pl.Series:
        """Return the correlation ids of host items, of which the numbers are given less `n_ops`."""
        assert self.ids.values is not None
        return self.ids.values.gather(hosts)


@dataclass
class CallIds:
    """Correlation ids of host items: half as many bytes as all else about them, and of use only to some.

    Attributes:
        values: The id of each.
        rows: Them by id.
    """

    values: pl.Series | None
    rows: Rows | None


def _processes(lanes: pl.DataFrame, before: int = 0) -> dict[tuple[int, int], slice | Indices]:
    """Return where the items of each process stand: its lanes stand together.

    Args:
        lanes: Some of `Items.lanes`.
        before: What is taken off their numbers.
    """
    spans = lanes.group_by("source", "process").agg(pl.col("first").min() - before, pl.col("until").max() - before)
    return {(source, process): slice(first, until) for source, process, first, until in spans.rows()}


class Unplaced(NamedTuple):
    """Items before their times are moved onto the common timebase, and who launched which.

    Attributes:
        about: `Items.ops`.
        recorded: Starts and ends of operations, and their order, as `gapscope.graph.placing.Recorded` has them.
        lane: Stream of each operation.
        call: Host item that launched each operation, numbered among these; -1: unknown.
        streams: `STREAM`, ``first``, ``until``.
        hosts: Host items.
        calls: These by correlation id.
    """

    about: pl.DataFrame
    recorded: tuple[Ints, Ints, Indices]
    lane: Indices
    call: Indices
    streams: pl.DataFrame
    hosts: Hosts
    calls: Rows


def find_items(trace: Trace, alignment: Alignment, ends: Ends | None, ready: Unplaced | None = None) -> Items:
    """Return operations and host items of all ranked processes.

    Args:
        trace: The recordings.
        alignment: Where their clocks stand.
        ends: Events of the handoffs that marks name; None: there are none.
        ready: Result of `unplaced` without ``ends``, if it is there; it is used if the ends add nothing to it.
    """
    if ready is None or (ends is not None and ends.launched.filter(IS_UNSEEN).height):
        ready = unplaced(trace, ends)
    about, recorded, lane, call, streams, hosts, calls = ready
    call = np.where(call >= 0, call + np.int32(about.height), call)
    clock = np.concatenate([_clocks(alignment, streams, "device"), _clocks(alignment, hosts.threads, None)])
    lane = np.concatenate([lane, hosts.lane + np.int32(streams.height)])
    lanes = _lanes(trace, streams, hosts.threads, lane)
    times = placed(lane, clock, [recorded, (hosts.start, hosts.end, hosts.order)], alignment)
    return Items(about, hosts.about, lanes, call, times, CallIds(hosts.table["correlation"], calls))


def unplaced(trace: Trace, ends: Ends | None = None) -> Unplaced:
    """Return operations and host items of all ranked processes, without the common timebase.

    An operation whose call the tool does not record, and which a bracket is known to enclose, was launched somewhere
    between the bracket's begin and its own start: that stretch is a host item, an upper bound, and launches it.

    Args:
        trace: The recordings.
        ends: Events of the handoffs that marks name; None: there are none, or none is wanted.
    """
    hosts = find_hosts(trace, ends)
    calls = Rows(hosts.table, places=_processes(hosts.threads))
    scanned = trace.scan("ops", used=True)
    ops = scanned.select("start_ns", "end_ns", "correlation").collect()
    if ops["start_ns"].null_count():  # else nothing is copied
        scanned = scanned.filter(pl.col("start_ns").is_not_null())
        ops = ops.filter(pl.col("start_ns").is_not_null())
    streams, lane = lanes_of(scanned, STREAM, nulls_last=True)
    processes = _by_process(lane, streams)
    began, until = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    call = calls.first(ops, places=processes)
    # Correlation ids count calls, so they give the order also where a call was not recorded.
    enqueued = ops["correlation"].fill_null(0).to_numpy()
    if ops["correlation"].null_count():
        enqueued, unnumbered = enqueued.copy(), ops["correlation"].is_null().to_numpy()
        at = np.where(call >= 0, hosts.start_of(call), began) if len(hosts.start) else began
        for where in processes.values():
            if unnumbered[where].any():
                enqueued[where] = at[where]
    call, declared = with_unseen(scanned, call, hosts)
    ids = ops["correlation"].shrink_dtype()
    del ops
    order = order_by_lane(lane, streams.height, [enqueued, began, until])
    del enqueued
    about = scanned.select("kind", "copy_kind", "name", "size_bytes").collect()
    about = about.with_columns(about["size_bytes"].shrink_dtype(), ids, is_declared=pl.Series(declared))
    if order is None:
        order = IN_ORDER
    else:
        about, lane, call = about.rechunk()[order], lane[order], call[order]
    return Unplaced(about, (began, until, order), lane, call, streams, hosts, calls)


def _by_process(lane: Indices, lanes: pl.DataFrame) -> dict[tuple[int, int], slice | Indices]:
    """Return the rows of each process, by source and process.

    Args:
        lane: Lane of each row.
        lanes: ``source, process`` of each.
    """
    owners = lanes.select("source", "process").unique(maintain_order=True)
    numbered = lanes.join(owners.with_row_index("owner"), on=["source", "process"], how="left", maintain_order="left")
    owner = numbered["owner"].cast(pl.Int32).to_numpy()[lane]
    return {owners.row(k): where for (k, _), where in groups(pl.DataFrame({"source": owner, "process": owner})).items()}


def _clocks(alignment: Alignment, lanes: pl.DataFrame, device: str | None) -> Indices:
    """Return the clock of each lane."""
    clocks = alignment.domains.with_domain(lanes, device, "", "clock")["clock"]
    return clocks.fill_null(0).to_numpy().astype(np.int32)


def _lanes(trace: Trace, streams: pl.DataFrame, threads: pl.DataFrame, lane: Indices) -> pl.DataFrame:
    """Return `Items.lanes`."""
    at = np.searchsorted(lane, np.arange(streams.height + threads.height + 1, dtype=np.int32))
    ranks = trace.processes.select("source", "process", "rank")
    both = pl.concat([streams.select(STREAM), threads.select(THREAD)], how="diagonal")
    both = both.join(ranks, on=["source", "process"], how="left", maintain_order="left")
    is_host = np.arange(both.height) >= streams.height
    return both.with_columns(is_host=pl.Series(is_host), first=pl.Series(at[:-1]), until=pl.Series(at[1:]))

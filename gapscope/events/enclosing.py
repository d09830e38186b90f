"""Which brackets enclose a call: those that are open on its thread, without what belongs to a transfer in them.

All calls of a recording are asked about at once, or a few of them later on: what each bracket encloses is a stretch of
the calls in order of their threads, and found without looking at the calls one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import Rows, constant
from gapscope.events.launches_compiled import innermost_transfers, kept_rows
from gapscope.events.nesting import disjoint_levels
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.trace import Trace

LANE = ["source", "process", "thread"]
PROCESS = ["source", "process"]
BRACKETS = ("produce", "submit", "receive", "consume")
TRANSFER = ("submit", "receive")
STAGE = ("produce", "consume")

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Calls:
    """Calls that launch, by thread and start.

    Attributes:
        table: ``correlation``, ``start_ns``, and what else is known of each.
        lanes: One row per thread: `LANE`, ``first``, ``until`` (from which to before which call).
    """

    table: pl.DataFrame
    lanes: pl.DataFrame

    @property
    def places(self) -> dict[tuple[int, int], slice | Indices]:
        """Where the calls of each process stand: its threads stand together."""
        spans = self.lanes.group_by(PROCESS).agg(pl.col("first").min(), pl.col("until").max())
        return {(source, process): slice(first, until) for source, process, first, until in spans.rows()}


@dataclass(frozen=True)
class Enclosed:
    """One row per call and bracket that encloses it; those of one bracket stand in order of time.

    Attributes:
        mark: ``mark_id`` of the bracket.
        call: Number of the call.
        by_autograd: It is of a backward thread of the bracket's process.
    """

    mark: Indices
    call: Indices
    by_autograd: Bools


def by_thread(calls: pl.DataFrame, threads: pl.DataFrame) -> Calls:
    """Return calls by thread and start.

    Args:
        calls: ``correlation``, ``start_ns``, and anything else.
        threads: ``row``, `LANE`: from which row on the calls are of which thread.
    """
    lanes, code = lanes_of(threads, LANE, nulls_last=False)
    code = np.repeat(code, np.diff(np.append(threads["row"].to_numpy(), np.uint32(calls.height))))
    order = order_by_lane(code, lanes.height, [calls["start_ns"].to_numpy()])
    if order is not None:
        calls, code = calls[order], code[order]
    at = np.searchsorted(code, np.arange(lanes.height + 1, dtype=np.int32))
    return Calls(calls, lanes.with_columns(first=pl.Series(at[:-1]), until=pl.Series(at[1:])))


def enclosed(trace: Trace, marks: pl.DataFrame, nested: pl.DataFrame, calls: Calls) -> Enclosed:
    """Return which brackets enclose which calls.

    Calls inside a ``submit`` or ``receive`` are left out of an enclosing ``produce`` or ``consume``, and of a
    ``consume`` those before the last ``receive`` of its key nested in it.

    Args:
        trace: The recordings.
        marks: Bracket marks with ``mark_id, mark, source, process, thread, start_ns, end_ns`` (closed), and
            the key columns.
        nested: Result of `nested_receives`.
        calls: All calls that launch, or some of them.
    """
    start = constant(calls.table["start_ns"].to_numpy())
    mark, low, high = _stretches(start, calls.lanes, marks, LANE)
    n_own, order = len(mark), np.zeros(0, np.int32)
    backward, of_process = _of_autograd(trace, marks, calls, start)
    if len(backward):
        stages = marks.filter(pl.col("mark").is_in(STAGE))
        more = _stretches(start[backward], of_process, stages, PROCESS)
        order = np.concatenate([np.arange(len(start), dtype=np.int32), backward])
        mark, low, high = (
            np.concatenate([one, other + np.int32(base)])
            for one, other, base in zip((mark, low, high), more, (0, len(start), len(start)), strict=True)
        )
    n_marks = 1 + int(marks["mark_id"].max() or 0)  # type: ignore[arg-type]
    is_transfer, began = np.zeros(n_marks, np.bool_), np.zeros(n_marks, np.int64)
    after = np.full(n_marks, _NEVER, np.int64)
    numbers = marks["mark_id"].to_numpy()
    is_transfer[numbers] = marks["mark"].is_in(TRANSFER).to_numpy()
    began[numbers] = marks["start_ns"].to_numpy()
    received = nested.group_by("mark_id").agg(pl.col("receive_end_ns").max())
    after[received["mark_id"].to_numpy()] = received["receive_end_ns"].to_numpy()
    same = _same(calls)
    innermost = innermost_transfers(mark[:n_own], low[:n_own], high[:n_own], same, is_transfer, began, len(start))
    stretch, call = kept_rows(mark, low, high, order, same, innermost, is_transfer, began, after, start)
    return Enclosed(mark[stretch], call, stretch >= n_own)


def nested_receives(marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, receive_id, receive_end_ns``: receives of a consume's own key that lie within it."""
    key = [*LANE, "job", "src", "dst", "channel", "group", "seq"]
    consume = marks.filter(pl.col("mark") == "consume").select(*key, "mark_id", c_start="start_ns", c_end="end_ns")
    receive = marks.filter(pl.col("mark") == "receive").select(
        *key, receive_id="mark_id", r_start="start_ns", receive_end_ns="end_ns"
    )
    if not _any_within(consume, receive):  # so it is in most recordings: keys need not be compared
        receive = receive.clear()
    return (
        consume.join(receive, on=key, nulls_equal=True)
        .filter((pl.col("r_start") >= pl.col("c_start")) & (pl.col("r_start") <= pl.col("c_end")))
        .select("mark_id", "receive_id", "receive_end_ns")
    )


def _any_within(consume: pl.DataFrame, receive: pl.DataFrame) -> bool:
    """Tell if a receive begins while anything is consumed on its thread."""
    lanes, lane = lanes_of(pl.concat([consume.select(LANE), receive.select(LANE)]), LANE, nulls_last=False)
    of_consume, of_receive = lane[: consume.height], lane[consume.height :]
    for number in range(lanes.height):
        begin, end = consume.filter(pl.Series(of_consume == number)).select("c_start", "c_end").sort("c_start")
        reach = np.maximum.accumulate(np.append(_NEVER, end.to_numpy()))
        times = receive.filter(pl.Series(of_receive == number))["r_start"].to_numpy()
        if (reach[np.searchsorted(begin.to_numpy(), times, side="right")] >= times).any():
            return True
    return False


def _of_autograd(trace: Trace, marks: pl.DataFrame, calls: Calls, start: Ints) -> tuple[Indices, pl.DataFrame]:
    """Return the calls of torch's backward threads by process and start, and where each process stands among them.

    Brackets open anywhere in their process enclose them.
    """
    backward = trace.threads.filter(pl.col("autograd"))
    if backward.height:
        backward = backward.join(marks.select(LANE).unique(), on=LANE, how="anti")
    lanes = calls.lanes.join(backward, on=LANE, how="semi", maintain_order="left")
    if not lanes.height:
        return np.zeros(0, np.int32), lanes
    parts = [np.arange(a, b, dtype=np.int32) for a, b in lanes.select("first", "until").iter_rows()]
    processes, code = lanes_of(lanes, PROCESS, nulls_last=False)
    code, chosen = np.repeat(code, [len(part) for part in parts]), np.concatenate(parts)
    order = order_by_lane(code, processes.height, [start[chosen]])
    if order is not None:
        code, chosen = code[order], chosen[order]
    at = np.searchsorted(code, np.arange(processes.height + 1, dtype=np.int32))
    return chosen, processes.with_columns(first=pl.Series(at[:-1]), until=pl.Series(at[1:]))


def _stretches(
    start: Ints, lanes: pl.DataFrame, marks: pl.DataFrame, lane: list[str]
) -> tuple[Indices, Indices, Indices]:
    """Return for each bracket from which to before which call it encloses, innermost of its kind where they cross.

    Args:
        start: Starts of calls, by lane.
        lanes: ``lane``, ``first``, ``until``.
        marks: Brackets.
        lane: Columns that name a lane.
    """
    empty = np.zeros(0, np.int32)
    found = [(empty, empty, empty)]
    numbered = lanes.select(*lane, "first", "until").with_row_index("lane")
    placed = marks.select(*lane, "mark_id", "mark", "start_ns", "end_ns").join(
        numbered.select(*lane, "lane"), on=lane, maintain_order="left"
    )
    for kind in BRACKETS:
        for level in disjoint_levels(placed.filter(pl.col("mark") == kind).drop(lane), ["lane"]):
            of_level, begin, until = (level[c].to_numpy() for c in ("lane", "start_ns", "until_ns"))
            low, high = np.zeros(level.height, np.int32), np.zeros(level.height, np.int32)
            for number in np.unique(of_level).tolist():
                mine = slice(*np.searchsorted(of_level, [number, number + 1]))
                first, end = numbered.select("first", "until").row(number)
                low[mine] = first + np.searchsorted(start[first:end], begin[mine], side="left")
                high[mine] = first + np.searchsorted(start[first:end], until[mine], side="right")
            found.append((level["mark_id"].to_numpy().astype(np.int32), low, np.maximum(low, high)))
    mark, low, high = (np.concatenate(part) for part in zip(*found, strict=True))
    return mark, low, high


def _same(calls: Calls) -> Indices:
    """Return the first call with the id of each call, -1 where it has none; empty: each has an id of its own.

    A call is told by its id: tools may record one launch as two calls.
    """
    ids, places = calls.table["correlation"], calls.places
    if not ids.null_count():
        numbers = ids.to_numpy()
        if all((numbers[where][1:] > numbers[where][:-1]).all() for where in places.values()):
            return np.zeros(0, np.int32)
    return Rows(calls.table, places=places).first(calls.table, places=places)

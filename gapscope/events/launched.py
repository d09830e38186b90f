"""Which GPU operations were launched inside which mark.

By API call and correlation id on the same process and thread, never by overlap in time on the GPU. Where a
tool records no call for an operation, its own GPU span of the same mark identifies it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import NONE, Rows, expand, groups
from gapscope.events.launches_compiled import operations, outside_transfers
from gapscope.events.nesting import disjoint_levels
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_PROCESS = ["source", "process"]
_CORRELATION = ["source", "process", "correlation"]
_GPU = ["source", "process", "device", "stream"]
BRACKETS = ("produce", "submit", "receive", "consume")
_TRANSFER = ("submit", "receive")
_STAGE = ("produce", "consume")
BY = pl.Enum(["call", "autograd", "span"])
"""How it is known that a bracket launched an operation."""

Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def launched_inside(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (mark, operation launched inside it).

    Args:
        trace: The recordings.
        marks: Bracket marks with ``mark_id, mark, source, process, thread, start_ns, end_ns`` (closed), and
            the key columns.

    Returns:
        ``mark_id, call_ns, call_correlation, start_ns, end_ns, device, stream, kind, copy_kind, name, by``: ``call_ns``
        is the start of the launching call, null where none is recorded; ``start_ns`` and ``end_ns`` are null where
        the operation has no time or, with ``kind`` null too, no record at all. ``by`` is ``call``, ``autograd``
        (launched by a backward thread of the process while the bracket was open) or ``span``.
        Operations launched inside a ``submit`` or ``receive`` are left out of an enclosing ``produce`` or ``consume``,
        and of a ``consume`` those before the last ``receive`` of its key nested in it.
    """
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .select(*_LANE, "correlation", call_ns="start_ns")
        .collect()
    )
    own = _assign(calls, None, marks, _LANE)
    backward = _assign(calls, _of_autograd(trace, calls, marks), marks.filter(pl.col("mark").is_in(_STAGE)), _PROCESS)
    inside = own if not len(backward) else _Inside(*(np.concatenate(both) for both in zip(own, backward, strict=True)))
    by_autograd = np.zeros(len(inside.mark), np.bool_)
    by_autograd[len(own.mark) :] = True
    kept = _after_nested_receive(inside, _without_transfers(inside, calls, marks), calls, marks)
    if not kept.all():
        inside, by_autograd = _Inside(inside.mark[kept], inside.call[kept]), by_autograd[kept]
    by_call = _with_ops(trace, inside, by_autograd, calls)
    by_span = _ops_in_spans(trace, marks, calls, by_call.schema)
    if not by_span.height:
        return by_call
    # Before or after the receive nested in a consume? Without a call nobody can tell: its time cannot be used.
    deferred = pl.col("mark_id").is_in(nested_receives(marks)["mark_id"].implode())
    times = [pl.when(~deferred).then(t).alias(t) for t in ("start_ns", "end_ns")]
    return pl.concat([by_call, by_span.with_columns(times)])


class _Inside(NamedTuple):
    """Calls inside brackets: ``mark_id``, and the row of the call; those of one bracket stand in order of time."""

    mark: Indices
    call: Indices


def _of_autograd(trace: Trace, calls: pl.DataFrame, marks: pl.DataFrame) -> Indices:
    """Return which calls are of torch's backward threads: brackets open anywhere in their process enclose them."""
    backward = trace.threads.filter(pl.col("autograd")).join(marks.select(_LANE).unique(), on=_LANE, how="anti")
    if not backward.height:
        return np.zeros(0, np.int32)
    found = calls.lazy().select(_LANE).with_row_index("call").join(backward.lazy(), on=_LANE, how="semi")
    return found.select(pl.col("call").cast(pl.Int32).sort()).collect().to_series().to_numpy()


def _assign(calls: pl.DataFrame, chosen: Indices | None, marks: pl.DataFrame, lane: list[str]) -> _Inside:
    """Return calls with each bracket of each kind that encloses their start on the same lane.

    Args:
        calls: ``source, process, thread, call_ns``.
        chosen: Rows of ``calls`` that are looked at; None: all.
        marks: Brackets.
        lane: Columns that name a lane.
    """
    empty = np.zeros(0, np.int32)
    if chosen is not None and not len(chosen):
        return _Inside(empty, empty)
    of_calls = calls if chosen is None else calls[chosen]
    lanes, code = lanes_of(of_calls, lane, nulls_last=False)
    times = of_calls["call_ns"].to_numpy()
    order = order_by_lane(code, lanes.height, [times])
    as_they_stand = bool((order[1:] > order[:-1]).all())
    if not as_they_stand:
        times, code = times[order], code[order]
    first = np.searchsorted(code, np.arange(lanes.height + 1))
    if chosen is not None:
        order, as_they_stand = chosen[order], False
    lanes = lanes.with_row_index("lane")
    marked, called = [empty], [empty]
    for mark in BRACKETS:
        for level in disjoint_levels(marks.filter(pl.col("mark") == mark), lane):
            placed = level.join(lanes, on=lane).sort("lane", "start_ns")
            begin, until = placed["start_ns"].to_numpy(), placed["until_ns"].to_numpy()
            low, high = np.zeros(placed.height, np.int32), np.zeros(placed.height, np.int32)
            for number in placed["lane"].unique().to_list():
                mine = slice(*np.searchsorted(placed["lane"].to_numpy(), [number, number + 1]))
                of_lane = times[first[number] : first[number + 1]]
                low[mine] = first[number] + np.searchsorted(of_lane, begin[mine], side="left")
                high[mine] = first[number] + np.searchsorted(of_lane, until[mine], side="right")
            at, span = expand(low, np.maximum(low, high))
            marked.append(placed["mark_id"].to_numpy().astype(np.int32)[span])
            called.append(at if as_they_stand else order[at])
    return _Inside(np.concatenate(marked), np.concatenate(called))


def _without_transfers(inside: _Inside, calls: pl.DataFrame, marks: pl.DataFrame) -> Bools:
    """Return which rows stay: not those of a stage that were launched inside a submit or receive that it encloses."""
    n = 1 + int(marks["mark_id"].max() or 0)  # type: ignore[arg-type]
    is_transfer, began = np.zeros(n, np.bool_), np.zeros(n, np.int64)
    numbers = marks["mark_id"].to_numpy()
    is_transfer[numbers] = marks["mark"].is_in(_TRANSFER).to_numpy()
    began[numbers] = marks["start_ns"].to_numpy()
    # A call is told by its id: tools may record one launch as two calls.
    same = np.zeros(0, np.int32)
    if calls["correlation"].null_count() or _ids_repeat(calls):
        same = Rows(calls).first(calls)
    return outside_transfers(inside.mark, inside.call, same, is_transfer, began)


def _ids_repeat(calls: pl.DataFrame) -> bool:
    """Tell if two calls of a process may have one id."""
    ids = calls["correlation"].to_numpy()
    return any(not (ids[where][1:] > ids[where][:-1]).all() for where in groups(calls).values())


def _after_nested_receive(inside: _Inside, kept: Bools, calls: pl.DataFrame, marks: pl.DataFrame) -> Bools:
    """Return which of the rows stay: of a consume not those before the last receive of its key nested in it."""
    after = nested_receives(marks).group_by("mark_id").agg(after_ns=pl.col("receive_end_ns").max())
    if not after.height:
        return kept
    after_ns = np.full(1 + int(marks["mark_id"].max() or 0), np.iinfo(np.int64).min)  # type: ignore[arg-type]
    after_ns[after["mark_id"].to_numpy()] = after["after_ns"].to_numpy()
    return kept & (calls["call_ns"].to_numpy()[inside.call] >= after_ns[inside.mark])


def _with_ops(trace: Trace, inside: _Inside, by_autograd: Bools, calls: pl.DataFrame) -> pl.DataFrame:
    """Return one row per operation that the calls launched; without a record of any, one with nulls."""
    ops = (
        trace.scan("ops")
        .select(*_CORRELATION, "start_ns", "end_ns", "device", "stream", "kind", "copy_kind", "name")
        .collect()
    )
    rows = Rows(ops)
    ops = ops.drop(_CORRELATION).rechunk()
    row, op = operations(inside.call, *rows.spans(calls), rows.order)
    mark, call = inside
    if len(row) > len(mark):
        mark, call, by_autograd = mark[row], call[row], by_autograd[row]
    of_ops = pl.Series(op)
    of_ops = (of_ops.set(of_ops == NONE, None) if (op == NONE).any() else of_ops).cast(pl.UInt32)
    del rows, row, op
    called = pl.Series(call, dtype=pl.UInt32)
    columns = {
        "mark_id": pl.Series(mark, dtype=pl.UInt32),
        "call_ns": calls["call_ns"].gather(called),
        "call_correlation": calls["correlation"].gather(called),
        **{name: ops[name].gather(of_ops) for name in ops.columns},
    }
    by = pl.when(pl.Series(by_autograd)).then(pl.lit("autograd", BY)).otherwise(pl.lit("call", BY))
    return pl.DataFrame(columns).with_columns(by=by)


def nested_receives(marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, receive_id, receive_end_ns``: receives of a consume's own key that lie within it."""
    key = [*_LANE, "job", "src", "dst", "channel", "group", "seq"]
    consume = marks.filter(pl.col("mark") == "consume").select(*key, "mark_id", c_start="start_ns", c_end="end_ns")
    receive = marks.filter(pl.col("mark") == "receive").select(
        *key, receive_id="mark_id", r_start="start_ns", receive_end_ns="end_ns"
    )
    return (
        consume.join(receive, on=key, nulls_equal=True)
        .filter((pl.col("r_start") >= pl.col("c_start")) & (pl.col("r_start") <= pl.col("c_end")))
        .select("mark_id", "receive_id", "receive_end_ns")
    )


def _ops_in_spans(trace: Trace, marks: pl.DataFrame, launching: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return operations without a recorded call that lie in the tool's GPU span of a mark, on its stream.

    Args:
        trace: The recordings.
        marks: Brackets.
        launching: Calls that launch: ``source, process, correlation``.
        schema: Columns that are returned.
    """
    spans = (
        trace.scan("ranges")
        .filter(pl.col("kind") == "gpu_span")
        .select(*_GPU, text="name", span_start="start_ns", span_end="end_ns")
        .join(marks.select(*_PROCESS, "text", "mark_id", "mark").lazy(), on=[*_PROCESS, "text"])
        .collect()
    )
    if not spans.height:
        return pl.DataFrame(schema=schema)
    orphans = _orphans(trace, launching).join(spans.select(_GPU).unique(), on=_GPU, how="semi", maintain_order="left")
    orphans = orphans.sort("start_ns")
    parts = []
    for mark in BRACKETS:
        of_mark = spans.filter(pl.col("mark") == mark).rename({"span_start": "start_ns", "span_end": "end_ns"})
        for level in disjoint_levels(of_mark, _GPU):
            found = orphans.join_asof(
                level.select(*_GPU, "mark_id", "mark", "until_ns", span_ns="start_ns").sort("span_ns"),
                left_on="start_ns",
                right_on="span_ns",
                by=_GPU,
                strategy="backward",
                check_sortedness=False,
            )
            parts.append(found.filter(pl.col("end_ns") <= pl.col("until_ns")))
    if not parts:
        return pl.DataFrame(schema=schema)
    found = _orphans_without_transfers(pl.concat(parts), marks)
    return found.with_columns(
        call_ns=pl.lit(None, dtype=pl.Int64), call_correlation="correlation", by=pl.lit("span")
    ).select(pl.col(n).cast(t) for n, t in schema.items())


def _orphans(trace: Trace, launching: pl.DataFrame) -> pl.DataFrame:
    """Return timed operations of which no call is recorded."""
    ops = trace.scan("ops").select(_CORRELATION).collect()
    # Nearly all are launched by the calls that launch: only the others are looked for among all calls.
    uncalled = np.flatnonzero(Rows(launching).first(ops) == NONE).astype(np.int32)
    wanted = ops[uncalled]["correlation"].unique().implode()
    calls = trace.scan("calls").select(_CORRELATION).filter(pl.col("correlation").is_in(wanted))
    return (
        trace.scan("ops")
        .with_row_index("row")
        .filter(pl.col("row").is_in(pl.Series(uncalled).cast(pl.UInt32).implode()) & pl.col("start_ns").is_not_null())
        .drop("row")
        .join(calls, on=_CORRELATION, how="anti")
        .collect()
    )


def _orphans_without_transfers(found: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of produce and consume the operations of a submit or receive nested in them on the host."""
    hosts = marks.select("mark_id", *_LANE[2:], h_start="start_ns", h_end="end_ns")
    found = found.join(hosts, on="mark_id", how="left")
    op = [*_GPU, "start_ns", "correlation"]
    stage, transfer = found.filter(pl.col("mark").is_in(_STAGE)), found.filter(pl.col("mark").is_in(_TRANSFER))
    nested = (
        stage.join(
            transfer.select(*op, "thread", t_start="h_start", t_end="h_end"), on=[*op, "thread"], nulls_equal=True
        )
        .filter((pl.col("t_start") >= pl.col("h_start")) & (pl.col("t_end") <= pl.col("h_end")))
        .select(*op, "mark_id")
        .unique()
    )
    return found.join(nested, on=[*op, "mark_id"], how="anti", nulls_equal=True)

"""Which GPU operations were launched inside which mark.

By API call and correlation id on the same process and thread, never by overlap in time on the GPU. Where a
tool records no call for an operation, its own GPU span of the same mark identifies it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import Rows, expand
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
    inside = pl.concat([own.with_columns(by=pl.lit("call", BY)), backward.with_columns(by=pl.lit("autograd", BY))])
    inside = _after_nested_receive(_without_transfers(inside, calls, marks), calls, marks)
    by_call = _with_ops(trace, inside, calls)
    by_span = _ops_in_spans(trace, marks, by_call.schema)
    # Before or after the receive nested in a consume? Without a call nobody can tell: its time cannot be used.
    deferred = pl.col("mark_id").is_in(nested_receives(marks)["mark_id"].implode())
    times = [pl.when(~deferred).then(t).alias(t) for t in ("start_ns", "end_ns")]
    return pl.concat([by_call, by_span.with_columns(times)])


def _of_autograd(trace: Trace, calls: pl.DataFrame, marks: pl.DataFrame) -> Indices:
    """Return which calls are of torch's backward threads: brackets open anywhere in their process enclose them."""
    backward = trace.threads.filter(pl.col("autograd")).join(marks.select(_LANE).unique(), on=_LANE, how="anti")
    if not backward.height:
        return np.zeros(0, np.int32)
    found = calls.lazy().select(_LANE).with_row_index("call").join(backward.lazy(), on=_LANE, how="semi")
    return found.select(pl.col("call").cast(pl.Int32).sort()).collect().to_series().to_numpy()


def _assign(calls: pl.DataFrame, chosen: Indices | None, marks: pl.DataFrame, lane: list[str]) -> pl.DataFrame:
    """Return calls with each bracket of each kind that encloses their start on the same lane.

    Args:
        calls: ``source, process, thread, call_ns``.
        chosen: Rows of ``calls`` that are looked at; None: all.
        marks: Brackets.
        lane: Columns that name a lane.

    Returns:
        ``mark_id`` and ``call`` (position in ``calls``).
    """
    found = [pl.DataFrame(schema={"mark_id": marks.schema["mark_id"], "call": pl.Int32})]
    of_calls = calls if chosen is None else calls[chosen]
    lanes, code = lanes_of(of_calls, lane, nulls_last=False)
    times = of_calls["call_ns"].to_numpy()
    order = order_by_lane(code, lanes.height, [times])
    first = np.searchsorted(code[order], np.arange(lanes.height + 1))
    times = times[order]
    order = order if chosen is None else chosen[order]
    lanes = lanes.with_row_index("lane")
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
            found.append(pl.DataFrame({"mark_id": placed["mark_id"].gather(span), "call": order[at]}))
    return pl.concat(found)


def _without_transfers(inside: pl.DataFrame, calls: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of produce and consume what was launched inside a submit or receive that they enclose."""
    starts = marks.select("mark_id", mark_start_ns="start_ns")
    is_transfer = pl.col("mark_id").is_in(marks.filter(pl.col("mark").is_in(_TRANSFER))["mark_id"].implode())
    transfer = inside.filter(is_transfer).join(starts, on="mark_id")
    transfer = transfer.hstack(calls[transfer["call"]].select(_CORRELATION))
    innermost = transfer.group_by(_CORRELATION).agg(transfer_ns=pl.col("mark_start_ns").max())
    # Few stages enclose transfers: their rows are found by the id alone, and only these are joined.
    within = calls["correlation"].is_in(innermost["correlation"].implode()).fill_null(value=False)
    suspects = inside.with_row_index("row").filter(within.gather(inside["call"]) & ~is_transfer)
    suspects = suspects.join(starts, on="mark_id")
    suspects = suspects.hstack(calls[suspects["call"]].select(_CORRELATION)).join(innermost, on=_CORRELATION)
    enclosed = suspects.filter(pl.col("transfer_ns") >= pl.col("mark_start_ns"))["row"]
    if not len(enclosed):
        return inside
    kept = np.ones(inside.height, np.bool_)
    kept[enclosed.to_numpy()] = False
    return inside.filter(pl.Series(kept))


def _after_nested_receive(inside: pl.DataFrame, calls: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of consume what was launched before the last receive of the same key nested in it."""
    after = nested_receives(marks).group_by("mark_id").agg(after_ns=pl.col("receive_end_ns").max())
    if not after.height:
        return inside
    calls_ns = calls["call_ns"].gather(inside["call"])
    kept = inside.select("mark_id").join(after, on="mark_id", how="left", maintain_order="left")
    return inside.filter((calls_ns >= kept["after_ns"]).fill_null(value=True))


def _with_ops(trace: Trace, inside: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return one row per operation that the calls launched; without a record of any, one with nulls."""
    ops = (
        trace.scan("ops")
        .select(*_CORRELATION, "start_ns", "end_ns", "device", "stream", "kind", "copy_kind", "name")
        .collect()
    )
    rows = Rows(ops)
    ops = ops.drop(_CORRELATION)
    call = inside["call"].to_numpy()
    low, high = (part[call] for part in rows.spans(calls))
    missing = high == low
    at, span = expand(low, high + missing)
    op = pl.Series(rows.order[np.minimum(at, len(rows.order) - 1)]) if len(rows.order) else pl.Series(at)
    if missing.any():
        op = op.set(pl.Series(missing[span]), None)
    del rows, low, high, missing, at
    if len(span) > inside.height:
        inside = inside[span]
    del span
    call_ns, call_correlation = (calls[name].gather(inside["call"]) for name in ("call_ns", "correlation"))
    of_ops = [ops[name].gather(op) for name in ops.columns]
    return pl.DataFrame([inside["mark_id"], call_ns, call_correlation.alias("call_correlation"), *of_ops, inside["by"]])


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


def _ops_in_spans(trace: Trace, marks: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return operations without a recorded call that lie in the tool's GPU span of a mark, on its stream."""
    spans = (
        trace.scan("ranges")
        .filter(pl.col("kind") == "gpu_span")
        .select(*_GPU, text="name", span_start="start_ns", span_end="end_ns")
        .join(marks.select(*_PROCESS, "text", "mark_id", "mark").lazy(), on=[*_PROCESS, "text"])
        .collect()
    )
    if not spans.height:
        return pl.DataFrame(schema=schema)
    calls = trace.scan("calls").filter(pl.col("correlation").is_not_null()).select(_CORRELATION)
    orphans = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null())
        .join(spans.lazy().select(_GPU).unique(), on=_GPU, how="semi")
        .join(calls, on=_CORRELATION, how="anti")
        .sort("start_ns")
        .collect()
    )
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

"""Which GPU operations were launched inside which mark.

By API call and correlation id on the same process and thread, never by overlap in time on the GPU. Where a
tool records no call for an operation, its own GPU span of the same mark identifies it.
"""

from __future__ import annotations

import polars as pl

from gapscope.events.nesting import disjoint_levels
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_PROCESS = ["source", "process"]
_CORRELATION = ["source", "process", "correlation"]
_GPU = ["source", "process", "device", "stream"]
BRACKETS = ("produce", "submit", "receive", "consume")
_TRANSFER = ("submit", "receive")
_STAGE = ("produce", "consume")


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
    own = _calls_inside(trace, marks)
    inside = pl.concat([own, _autograd_calls_inside(trace, marks)])
    inside = _without_transfers(inside, marks)
    inside = _after_nested_receive(inside, marks)
    ops = trace.scan("ops").select(*_CORRELATION, "start_ns", "end_ns", "device", "stream", "kind", "copy_kind", "name")
    by_call = (
        inside.lazy()
        .join(ops, on=_CORRELATION, how="left")
        .select(
            "mark_id",
            "call_ns",
            pl.col("correlation").alias("call_correlation"),
            "start_ns",
            "end_ns",
            "device",
            "stream",
            "kind",
            "copy_kind",
            "name",
            "by",
        )
        .collect()
    )
    by_span = _ops_in_spans(trace, marks, by_call.schema)
    # Before or after the receive nested in a consume? Without a call nobody can tell: its time cannot be used.
    deferred = pl.col("mark_id").is_in(nested_receives(marks)["mark_id"].implode())
    times = [pl.when(~deferred).then(t).alias(t) for t in ("start_ns", "end_ns")]
    return pl.concat([by_call, by_span.with_columns(times)])


def _calls_inside(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, mark, call_ns, source, process, thread, correlation, by`` of launching calls in brackets."""
    lanes = marks.select(_LANE).unique()
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .select(*_LANE, "correlation", call_ns="start_ns")
        .join(lanes.lazy(), on=_LANE, how="semi")
        .sort("call_ns")
        .collect()
    )
    return _assign(calls, marks, _LANE).with_columns(by=pl.lit("call"))


def _autograd_calls_inside(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return the same for torch's backward threads, by brackets open anywhere in their process."""
    backward = trace.threads.filter(pl.col("autograd")).join(marks.select(_LANE).unique(), on=_LANE, how="anti")
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .select(*_LANE, "correlation", call_ns="start_ns")
        .join(backward.select(_LANE).lazy(), on=_LANE, how="semi")
        .sort("call_ns")
        .collect()
    )
    stages = marks.filter(pl.col("mark").is_in(_STAGE))
    return _assign(calls, stages, _PROCESS).with_columns(by=pl.lit("autograd"))


def _assign(calls: pl.DataFrame, marks: pl.DataFrame, lane: list[str]) -> pl.DataFrame:
    """Return the calls with each bracket of each kind that encloses their start on the same lane."""
    parts = [
        calls.clear().with_columns(
            mark_id=pl.lit(None, dtype=marks.schema["mark_id"]), mark=pl.lit(None, dtype=pl.String)
        )
    ]
    for mark in BRACKETS:
        for level in disjoint_levels(marks.filter(pl.col("mark") == mark), lane):
            nearest = calls.join_asof(
                level.select(*lane, "mark_id", "mark", mark_ns="start_ns", until_ns="until_ns").sort("mark_ns"),
                left_on="call_ns",
                right_on="mark_ns",
                by=lane,
                strategy="backward",
                check_sortedness=False,
            )
            parts.append(nearest.filter(pl.col("call_ns") <= pl.col("until_ns")).drop("mark_ns", "until_ns"))
    return pl.concat(parts)


def _without_transfers(inside: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of produce and consume what was launched inside a submit or receive that they enclose."""
    starts = marks.select("mark_id", mark_start_ns="start_ns")
    inside = inside.join(starts, on="mark_id", how="left")
    transfer = inside.filter(pl.col("mark").is_in(_TRANSFER))
    innermost = transfer.group_by(_CORRELATION).agg(transfer_ns=pl.col("mark_start_ns").max())
    enclosed = pl.col("mark").is_in(_STAGE) & (pl.col("transfer_ns") >= pl.col("mark_start_ns"))
    return (
        inside.join(innermost, on=_CORRELATION, how="left")
        .filter(~enclosed.fill_null(value=False))
        .drop("mark_start_ns", "transfer_ns")
    )


def _after_nested_receive(inside: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Leave out of consume what was launched before the last receive of the same key nested in it."""
    after = nested_receives(marks).group_by("mark_id").agg(after_ns=pl.col("receive_end_ns").max())
    inside = inside.join(after, on="mark_id", how="left")
    kept = pl.col("after_ns").is_null() | (pl.col("call_ns") >= pl.col("after_ns"))
    return inside.filter(kept).drop("after_ns")


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

"""Messages between hosts (gloo) without marks.

Where the rank has GPU work, a send comes after the last operation that its thread had waited for, and the consumer is
the first operation that the thread launched after the message was there. Without GPU work, a pipeline schedule's own
range tells where the producing stage ended; else the host asked for the send when it was done: the begin of the send
call stands for the producer's end, and the return of the receive for the consumer's start, both ``estimated``.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.host import host_message_ends
from gapscope.comms.waits import blocking_copies, host_waits
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace
from gapscope.unmarked.keys import keyed

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
_COMPUTE = r"^PP:(\d+)[FBIW](\d+)$"


def host_transfers(trace: Trace) -> pl.DataFrame:
    """Return the ends of all messages of gloo, columns `gapscope.unmarked.ends.SIDE`."""
    rows = host_message_ends(trace).rename({"who": "rank", "end_ns": "host_end"})
    rows = rows.with_columns(is_send=pl.col("op") == "send", host_ns=pl.coalesce("asked_ns", "start_ns"))
    rows = rows.sort("host_ns", maintain_order=True)
    rows = rows.join(
        trace.processes.select("source", "process", "has_ops"), on=["source", "process"], maintain_order="left"
    )
    rows = _after_stage(trace, _after_wait(trace, _before_launch(trace, rows)))
    is_send, on_gpu = pl.col("is_send"), pl.col("has_ops")
    staged = pl.col("stage_end").is_not_null()
    rows = rows.with_columns(
        before_end_ns=pl.when(on_gpu).then("before_end_ns").otherwise(pl.coalesce("stage_end", "host_ns")),
        before_ns=pl.when(on_gpu).then("before_ns").otherwise(pl.coalesce("stage_begin", "host_ns")),
        before_source=_source(on_gpu, pl.when(staged).then(pl.lit("emitted")).otherwise(pl.lit("estimated"))),
        after_ns=pl.when(on_gpu).then("after_ns").otherwise("host_end"),
        after_end_ns=pl.when(on_gpu).then("after_end_ns").otherwise("host_end"),
        after_source=_source(on_gpu, pl.lit("estimated")),
        op_start="host_ns",
        op_end=pl.when(is_send).then("host_ns").otherwise("host_end"),
        time_source=pl.lit("emitted"),
        transport=pl.lit("gloo"),
        origin="by",
        evidence=pl.lit("inferred"),
    )
    return keyed(trace, rows, separate=[])


def _source(on_gpu: pl.Expr, on_host: pl.Expr) -> pl.Expr:
    return pl.when(on_gpu).then(pl.lit("derived")).otherwise(on_host)


def _after_wait(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``before_*``: the operation that the thread had waited for last when it asked."""
    waits = pl.concat([host_waits(trace), blocking_copies(trace)])
    calls = (
        trace.scan("calls")
        .select(*_CORRELATION, "thread")
        .join(waits.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
    )
    waits = waits.join(calls.collect(), on=_CORRELATION).sort("later_ns")
    ops = (
        trace.scan("ops")
        .join(waits.lazy().select("source", "process", correlation="op"), on=_CORRELATION, how="semi")
        .select(*_CORRELATION, before_ns="start_ns", before_device="device", before_stream="stream")
        .collect()
        .unique(_CORRELATION, keep="first")
    )
    waits = waits.select(*_LANE, "later_ns", before_end_ns="earlier_ns", before_correlation="op")
    found = rows.join_asof(waits, left_on="host_ns", right_on="later_ns", by=_LANE, check_sortedness=False)
    return found.drop("later_ns", strict=False).join(
        ops.rename({"correlation": "before_correlation"}),
        on=["source", "process", "before_correlation"],
        how="left",
        maintain_order="left",
    )


def _before_launch(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``after_*``: the first operation that the thread launched after the message was there."""
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .join(rows.lazy().select(_LANE).unique(), on=_LANE, how="semi")
        .select(*_LANE, "correlation", call_ns="start_ns")
    )
    ops = trace.scan("ops").filter(pl.col("start_ns").is_not_null())
    ops = ops.select(
        *_CORRELATION, after_ns="start_ns", after_end_ns="end_ns", after_device="device", after_stream="stream"
    )
    launches = calls.join(ops, on=_CORRELATION).sort("call_ns").collect().rename({"correlation": "after_correlation"})
    return (
        rows.sort("host_end")
        .join_asof(
            launches, left_on="host_end", right_on="call_ns", by=_LANE, strategy="forward", check_sortedness=False
        )
        .drop("call_ns", strict=False)
        .sort("host_ns", maintain_order=True)
    )


def _after_stage(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``stage_begin`` and ``stage_end``: the schedule's range of the stage and microbatch that a send is of."""
    parts = pl.col("name").str.extract_groups(_COMPUTE)
    stages = (
        trace.scan("ranges")
        .filter(pl.col("name").str.contains(_COMPUTE) & pl.col("end_ns").is_not_null())
        .select(
            *_LANE,
            stage=parts.struct.field("1").cast(pl.Int64, strict=False),
            microbatch=parts.struct.field("2").cast(pl.Int64, strict=False),
            stage_begin="start_ns",
            stage_end="end_ns",
        )
        .sort("stage_end")
        .collect()
    )
    by = [*_LANE, "stage", "microbatch"]
    return rows.join_asof(
        stages, left_on="host_ns", right_on="stage_end", by=by, check_sortedness=False, coalesce=False
    )

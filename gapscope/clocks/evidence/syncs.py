"""A synchronizing call cannot return before the operation that it waited for ended.

Which operation that was is known without guessing: correlation ids count calls, so on one stream (for a device sync:
on all) the operation with the largest id below that of the sync was enqueued last before it. Its own call must have
returned before the sync began. Event queries are left out: nothing tells which of them succeeded.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.observations import Evidence

_CORRELATION = ["source", "process", "correlation"]
_PROCESS = ["source", "process"]


def syncs(context: Context) -> Evidence:
    """Return what synchronizing calls say."""
    trace = context.trace
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(["stream_sync", "device_sync"]) & pl.col("correlation").is_not_null())
        .select(*_CORRELATION, "family", call="name", sync_start="start_ns", later_ns="end_ns")
        .collect()
    )
    if not calls.height:
        return nothing()
    rows = trace.scan("syncs").filter(pl.col("kind") == "stream_sync").select(*_CORRELATION, "stream").collect()
    waits = calls.join(rows.drop_nulls().unique(_CORRELATION), on=_CORRELATION, how="left")
    ops = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null() & pl.col("correlation").is_not_null())
        .join(calls.lazy().select(_PROCESS).unique(), on=_PROCESS, how="semi")
        .select(*_CORRELATION, "device", "stream", "name", earlier_ns="end_ns")
        .collect()
    )
    # The same stream number may be another stream on another device: only processes with one device are sure.
    single = ops.group_by(_PROCESS).agg(n=pl.col("device").n_unique()).filter(pl.col("n") == 1)
    ops = ops.join(single, on=_PROCESS, how="semi").sort("correlation", "earlier_ns")
    ops = ops.with_columns(op="correlation")
    device = waits.filter(pl.col("family") == "device_sync").sort("correlation")
    stream = waits.filter((pl.col("family") == "stream_sync") & pl.col("stream").is_not_null()).sort("correlation")
    found = pl.concat(
        [
            device.drop("stream").join_asof(ops.drop("stream"), on="correlation", by=_PROCESS, check_sortedness=False),
            stream.join_asof(ops, on="correlation", by=[*_PROCESS, "stream"], check_sortedness=False).drop("stream"),
        ],
        how="diagonal",
    )
    returned = (
        trace.scan("calls")
        .select(*_PROCESS, op="correlation", op_call_end="end_ns")
        .join(found.lazy().select(*_PROCESS, "op").drop_nulls().unique(), on=[*_PROCESS, "op"], how="semi")
        .collect()
    )
    found = found.join(returned, on=[*_PROCESS, "op"]).filter(pl.col("op_call_end") <= pl.col("sync_start"))
    found = context.domains.with_domain(found, "device", "", "earlier")
    found = context.domains.with_domain(found, None, "", "later")
    number = pl.format("{} of process {}", "correlation", "process")
    texts = (
        pl.format("end of {} {} of process {}", pl.col("name").cast(pl.String).str.slice(0, 40), "op", "process"),
        pl.format("return of {} {}", pl.col("call").cast(pl.String), number),
    )
    return context.evidence(found, "sync", texts, number)

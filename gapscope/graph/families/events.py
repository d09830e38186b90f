"""A stream, or a host, that waits for an event goes on when the last operation before the event's record has ended."""

from __future__ import annotations

import polars as pl

from gapscope import comms
from gapscope.graph.context import Context
from gapscope.graph.edges import edges


def event_waits(context: Context) -> pl.DataFrame:
    """Return edges from the end of the operation that an event stands for to what waited for it."""
    items = context.items
    ops = items.ops.with_row_index("op").select("source", "process", "device", "stream", "correlation", "op")
    waits = comms.event_waits(context.trace, ops)
    end = pl.Series(items.end)
    waits = waits.with_columns(ready_ns=end.gather(waits["op"]), **{"from": pl.col("op") * 2 + 1})
    streams = waits.filter(pl.col("kind") == "stream_wait")
    hosts = items.calls_by_correlation(waits.filter(pl.col("kind") == "event_sync"), "correlation", "call")
    return pl.concat(
        [
            edges(streams.with_columns(to=pl.col("behind") * 2), "event", pl.col("evidence")),
            edges(hosts.with_columns(to=pl.col("call").cast(pl.Int64) * 2 + 1), "sync", pl.col("evidence")),
        ]
    )

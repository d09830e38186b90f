"""A host call that waits for the GPU returns when the operation has ended; until then it takes no time of its own."""

from __future__ import annotations

import polars as pl

from gapscope.comms import blocking_copies, host_waits
from gapscope.graph.context import Context
from gapscope.graph.edges import edges


def syncs(context: Context) -> pl.DataFrame:
    """Return edges from the end of an operation to the return of the call that waited for it."""
    return pl.concat(
        [
            _edges(context, host_waits(context.trace), "structural"),
            _edges(context, blocking_copies(context.trace), "recorded"),
        ]
    )


def _edges(context: Context, waits: pl.DataFrame, evidence: str) -> pl.DataFrame:
    items = context.items
    waits = items.by_correlation(waits, "op", "item", last=True)
    waits = items.calls_by_correlation(waits, "correlation", "host").drop_nulls(["item", "host"])
    ready = pl.Series(items.end).gather(waits["item"])
    to, source = pl.col("host").cast(pl.Int64) * 2 + 1, pl.col("item").cast(pl.Int64) * 2 + 1
    return edges(waits.with_columns(ready_ns=ready, to=to, **{"from": source}), "sync", evidence)

"""Kernels that move data between two ranks (NCCL, RCCL): a receive ends after its send has begun.

Which send belongs to which receive the marks say, or torch's metadata. Until the send begins, the receive waits: that
is elastic, and only what follows is transfer.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms import sends_and_receives
from gapscope.events.pairing import KEY
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges


def transfers(context: Context) -> pl.DataFrame:
    """Return edges from the start of a send to the end of its receive."""
    return pl.concat([_marked(context), _recorded(context)])


def _marked(context: Context) -> pl.DataFrame:
    ops = context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    nccl = ops.filter(pl.col("is_nccl") & pl.col("group").is_null())
    sent = nccl.filter(pl.col("mark") == "submit").unique([*KEY, "slot"], keep="first", maintain_order=True)
    received = nccl.filter(pl.col("mark") == "receive").unique([*KEY, "slot"], keep="last", maintain_order=True)
    both = sent.join(received, on=[*KEY, "slot"], nulls_equal=True, suffix="_2")
    return edges(
        both.with_columns(ready_ns="start", to=pl.col("item_2") * 2 + 1, **{"from": pl.col("item") * 2}),
        "send_recv",
        "declared",
    )


def _recorded(context: Context) -> pl.DataFrame:
    items = context.items
    rows = items.by_correlation(sends_and_receives(context.trace), "correlation", "item")
    other = rows.select("item", source="source_2", process="process_2", correlation="correlation_2")
    rows = items.by_correlation(other, "correlation", "item_2").drop_nulls(["item", "item_2"])
    ready = pl.Series(items.start).gather(rows["item"])
    to, source = pl.col("item_2").cast(pl.Int64) * 2 + 1, pl.col("item").cast(pl.Int64) * 2
    return edges(rows.with_columns(ready_ns=ready, to=to, **{"from": source}), "send_recv", "inferred")

"""Kernels that move data between two ranks (NCCL, RCCL): a receive ends after its send has begun.

Which send belongs to which receive the marks say, or torch's metadata. Until the send begins, the receive waits: that
is elastic, and only what follows is transfer.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms import sends_and_receives
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges
from gapscope.graph.pairs import by_slot

_PAIR = ["item", "item_2", "start", "evidence"]


def transfers(context: Context) -> pl.DataFrame:
    """Return edges from the start of a send to the end of its receive."""
    return pl.concat([_marked(context), _recorded(context)])


def _marked(context: Context) -> pl.DataFrame:
    ops = context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    nccl = ops.filter(pl.col("is_nccl") & pl.col("group").is_null())
    sent, received = nccl.filter(pl.col("mark") == "submit"), nccl.filter(pl.col("mark") == "receive")
    # NCCL sends and receives one for one, in one order, whether each has a mark of its own or not.
    k = pl.int_range(pl.len()).over("handoff", order_by=["slot", "start", "item"])
    sent, received = (side.with_columns(k=k, n=pl.len().over("handoff")) for side in (sent, received))
    one_for_one = sent.join(received, on=["handoff", "k", "n"], suffix="_2")
    sent, received = (
        side.join(one_for_one.select("handoff").unique(), on="handoff", how="anti", maintain_order="left")
        for side in (sent, received)
    )
    sent = sent.unique(["handoff", "slot"], keep="first", maintain_order=True)
    received = received.unique(["handoff", "slot"], keep="last", maintain_order=True)
    rest = by_slot(sent, received)
    both = pl.concat([one_for_one.select(_PAIR), rest.select(_PAIR)])
    return edges(
        both.with_columns(ready_ns="start", to=pl.col("item_2") * 2 + 1, **{"from": pl.col("item") * 2}),
        "send_recv",
        pl.col("evidence"),
    )


def _recorded(context: Context) -> pl.DataFrame:
    items = context.items
    rows = items.by_correlation(sends_and_receives(context.trace), "correlation", "item")
    other = rows.select("item", source="source_2", process="process_2", correlation="correlation_2")
    rows = items.by_correlation(other, "correlation", "item_2").drop_nulls(["item", "item_2"])
    ready = pl.Series(items.start).gather(rows["item"])
    to, source = pl.col("item_2").cast(pl.Int64) * 2 + 1, pl.col("item").cast(pl.Int64) * 2
    return edges(rows.with_columns(ready_ns=ready, to=to, **{"from": source}), "send_recv", "inferred")

"""Collectives: no rank's kernel ends before the last rank's has begun. Until then the others wait.

Of all ranks, only the last and the second to last to arrive can bind, so only these get edges.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms import collective_members
from gapscope.comms.collectives import FULL
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges

_LATEST = 2


def collectives(context: Context) -> pl.DataFrame:
    """Return edges from the start of the last ranks to arrive to the end on every other rank."""
    return pl.concat([_marked(context), _recorded(context)])


def _marked(context: Context) -> pl.DataFrame:
    ops = context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    group = ops.filter(pl.col("group").is_not_null() & pl.col("side_rank").is_not_null())
    group = group.with_columns(instance="handoff", who="side_rank")
    entered = group.filter(pl.col("mark") == "submit").unique(["instance", "who"], keep="first", maintain_order=True)
    # What waits for the others: of NCCL the kernel, wherever it was launched; else what the receive launched last, or
    # where it launched nothing the submit.
    left = group.sort(pl.col("is_nccl"), pl.col("mark").cast(pl.String) == "receive", "start", "item")
    left = left.filter(pl.col("mark").is_in(["submit", "receive"]))
    left = left.unique(["instance", "who"], keep="last", maintain_order=True)
    return _edges(entered, left, pl.col("evidence"))


def _recorded(context: Context) -> pl.DataFrame:
    members = collective_members(context.trace).filter(pl.col("op").is_in(FULL))
    members = context.items.by_correlation(members, "correlation", "item").drop_nulls("item")
    start = pl.Series("start", context.items.start).gather(members["item"])
    members = members.with_columns(start, pl.col("item").cast(pl.Int64))
    level = pl.when(pl.col("seq").is_null()).then(pl.lit("inferred")).otherwise(pl.lit("recorded"))
    return _edges(members, members, level)


def _edges(entered: pl.DataFrame, left: pl.DataFrame, evidence: str | pl.Expr) -> pl.DataFrame:
    late = entered.sort("start", "item", descending=True).group_by("instance", maintain_order=True).head(_LATEST)
    both = late.join(left, on="instance", suffix="_2").filter(pl.col("who") != pl.col("who_2"))
    return edges(
        both.with_columns(ready_ns="start", to=pl.col("item_2") * 2 + 1, **{"from": pl.col("item") * 2}),
        "collective",
        evidence,
    )

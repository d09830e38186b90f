"""What handoffs the operations of a chain belong to."""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.facts import handoff_name
from gapscope.graph import Graph

MOVES = ("submit", "receive")


def transfers_of(graph: Graph) -> pl.DataFrame:
    """Return the brackets of all operations that a submit or receive launched: ``item, mark, handoff``.

    Returns:
        One row per operation and bracket (of any kind), in order of time.
    """
    ops = graph.context.deciding_ops
    moved = ops.filter(pl.col("mark").is_in(MOVES))["item"]
    found = graph.context.brackets_of(moved)
    return found.select(pl.col("item").cast(pl.Int64), "mark", handoff=handoff_name())


def with_membership(graph: Graph, transfers: pl.DataFrame, facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add what handoffs the operations of the steps belong to.

    That is ``moves`` (a submit or receive of this handoff launched it), ``other_handoff`` (another one whose transfer
    it is), ``stage_of`` (where a slot was waited for: of which handoff it is the consuming stage) and ``passes_own``
    (seen from the consumer, the chain passes the handoff's own transfer before).

    Args:
        graph: The graph.
        transfers: Result of `transfers_of`.
        facts: Result of `gapscope.causes.facts.handoff_facts`.
        steps: By walk, in order of time.
    """
    moves = np.zeros(steps.height, np.bool_)
    other, stage = (pl.Series([None], dtype=pl.String).new_from_index(0, steps.height) for _ in range(2))
    if transfers.height:
        rows = steps["item"].is_in(transfers["item"].unique().implode()).fill_null(value=False).arg_true()
        of_rows = pl.DataFrame({"item": steps["item"].gather(rows), "walk": steps["walk"].gather(rows)})
        of_rows = of_rows.with_columns(handoff=facts["key_text"].gather(of_rows["walk"]))
        own = transfers.unique(["item", "handoff"], keep="first", maintain_order=True)
        first = transfers.filter(pl.col("mark").is_in(MOVES)).unique("item", keep="first", maintain_order=True)
        of_rows = of_rows.join(own, on=["item", "handoff"], how="left", maintain_order="left").join(
            first.select("item", other="handoff"), on="item", how="left", maintain_order="left"
        )
        # One kernel may carry the messages of several handoffs; of this one's own transfer no other is named.
        is_own = of_rows["mark"].is_in(MOVES).fill_null(value=False)
        moves[rows.to_numpy()] = is_own.to_numpy()
        named = of_rows.select(pl.when((pl.col("other") != pl.col("handoff")) & ~is_own).then("other")).to_series()
        other.scatter(rows, named)
    waits = (steps["is_slot"] & steps["item"].is_not_null()).arg_true()
    if len(waits):
        of_rows = pl.DataFrame({"item": steps["item"].gather(waits)})
        ops = graph.context.brackets_of(of_rows["item"])
        ops = ops.filter((pl.col("mark") == "consume") & pl.col("group").is_null())
        ops = ops.with_columns(pl.col("item").cast(pl.Int64), stage_of=handoff_name())
        ops = ops.unique("item", keep="first", maintain_order=True).select("item", "stage_of")
        stage.scatter(waits, of_rows.join(ops, on="item", how="left", maintain_order="left")["stage_of"])
    # The source's work is ahead of this transfer only if the chain passes the transfer on its way to it; else the
    # consumer needed the result of that work as well.
    walk = steps["walk"].to_numpy()
    row = np.arange(len(walk))
    last = np.full(walk.max(initial=-1) + 1, -1, np.int64)
    last[walk[moves]] = row[moves]
    return steps.with_columns(
        moves=pl.Series(moves), other_handoff=other, stage_of=stage, passes_own=pl.Series(row <= last[walk])
    )

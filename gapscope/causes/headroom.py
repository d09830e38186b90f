"""The other half of the answer: what it would bring if the dominant cause alone had vanished, and what would hold then.

The handoff's own part of the graph is replayed with that cause's tiles at zero; waits are elastic and residuals stay as
measured. A transfer by kernels is one thing on all its ranks: where it vanishes, it does so on each of them. A cause
with a large tile and little headroom is not where to work.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.names import CAUSE
from gapscope.causes.naming import named
from gapscope.graph import Graph, replay_without
from gapscope.graph.edges import TYPE
from gapscope.graph.kernels import BODY, LEAD, RESIDUAL
from gapscope.graph.walks import STEP, Walks


def about_causes(graph: Graph, facts: pl.DataFrame, walks: Walks, steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per walked handoff.

    Args:
        graph: The graph.
        facts: Result of `gapscope.causes.facts.handoff_facts`.
        walks: Where the walks begin and end.
        steps: Result of `gapscope.causes.naming.named`.

    Returns:
        ``handoff_id, dominant_cause, dominant_ns, removable_ns, next_cause, consumer_bound, slack_ns``.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    sums = steps.group_by("walk", "cause").agg(total=length.sum())
    dominant = (
        sums.sort("total", pl.col("cause").cast(pl.String), descending=[True, False])
        .unique("walk", keep="first", maintain_order=True)
        .rename({"cause": "dominant_cause", "total": "dominant_ns"})
    )
    marked = steps.join(dominant, on="walk", maintain_order="left")
    removed = marked.filter((pl.col("cause") == pl.col("dominant_cause")) & pl.col("item").is_not_null()).select(
        "walk",
        node=pl.when(pl.col("what") != LEAD).then(
            pl.col("item") * 2 + pl.when(pl.col("what") == BODY).then(1).otherwise(0)
        ),
        duration_ns=length,
    )
    starts, chains = replay_without(graph, walks, on_all_ranks(graph, removed))
    after = _next_causes(graph, facts, chains, dominant)

    def last(column: str | pl.Expr) -> pl.Expr:
        return (pl.col(column) if isinstance(column, str) else column).sort_by("end_ns").last()

    # Only a residual is the price of what came before it; its tiles are cut, and it began where the first of them does.
    is_price = pl.col("what") == RESIDUAL
    cut = steps.with_columns(held_ns=pl.col("start_ns").min().over("walk", "item", "what"))
    bound = cut.group_by("walk").agg(
        consumer_bound=(pl.col("item_rank") != pl.col("src_rank")).all() & pl.col("item_rank").is_not_null().all(),
        ready_ns=pl.when(last(is_price)).then(last("held_ns")).otherwise(last("end_ns")),
    )
    return (
        facts.select("walk", "handoff_id", "consumer_start_ns", "available_ns")
        .join(dominant, on="walk", how="left")
        .join(after, on="walk", how="left")
        .join(bound, on="walk", how="left")
        .sort("walk")
        .with_columns(removable_ns=pl.col("consumer_start_ns") - pl.Series(starts))
        .with_columns(
            slack_ns=pl.when(pl.col("consumer_bound") & (pl.col("ready_ns") >= pl.col("available_ns"))).then(
                pl.col("ready_ns") - pl.col("available_ns")
            )
        )
        .select(
            "handoff_id", "dominant_cause", "dominant_ns", "removable_ns", "next_cause", "consumer_bound", "slack_ns"
        )
    )


def _next_causes(graph: Graph, facts: pl.DataFrame, chains: pl.DataFrame, dominant: pl.DataFrame) -> pl.DataFrame:
    """Return ``walk, next_cause``: the cause with the most time on the chain that would hold the gap then."""
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in STEP.items() if n not in chains.columns]
    steps = named(graph, facts, chains.with_columns(missing))
    left = steps.join(dominant.select("walk", "dominant_cause"), on="walk")
    left = left.filter(pl.col("cause") != pl.col("dominant_cause"))
    part = pl.min_horizontal("length_ns", pl.col("end_ns") - pl.col("start_ns"))
    return (
        left.group_by("walk", "cause")
        .agg(total=part.sum())
        .sort("total", pl.col("cause").cast(pl.String), descending=[True, False])
        .unique("walk", keep="first", maintain_order=True)
        .select("walk", next_cause=pl.col("cause").cast(CAUSE))
    )


def on_all_ranks(graph: Graph, removed: pl.DataFrame) -> pl.DataFrame:
    """Add to the parts that vanish what moved the same bytes on other ranks: a send, a receive, the same collective.

    Else the next operation on that stream of theirs would still wait for a transfer that is gone.

    Args:
        graph: The graph.
        removed: ``walk, node, duration_ns``.
    """
    arrays, items = graph.edges, graph.items
    between = np.flatnonzero(np.isin(arrays.kind, [TYPE["send_recv"], TYPE["collective"]]))
    if not len(between):
        return removed
    node = np.searchsorted(arrays.first, between, side="right") - 1
    one, other = node // 2, arrays.source[between] // 2
    pairs = pl.DataFrame({"item": np.concatenate([one, other]), "peer": np.concatenate([other, one])}).unique()
    vanished = removed.filter((pl.col("node") % 2 == 1).fill_null(value=False))
    peers = (
        vanished.with_columns(item=pl.col("node").cast(pl.Int64) // 2)
        .join(pairs, on="item")
        .group_by("walk", node=pl.col("peer").cast(removed.schema["node"]) * 2 + 1)
        .agg(pl.col("duration_ns").max())
        .join(vanished, on=["walk", "node"], how="anti")
    )
    # What a peer's kernel waited for it still waits for: only the rest of it is transfer.
    waits = pl.DataFrame({"node": node, "ready_ns": arrays.ready[between]}).cast({"node": removed.schema["node"]})
    numbers = peers["node"].to_numpy() // 2
    peers = peers.with_columns(start=pl.Series(items.start[numbers]), end=pl.Series(items.end[numbers]))
    held = peers.join(waits, on="node").filter(pl.col("ready_ns") <= pl.col("end"))
    held = held.group_by("walk", "node").agg(pl.col("ready_ns").max())
    peers = peers.join(held, on=["walk", "node"], how="left").select(
        "walk",
        "node",
        duration_ns=pl.min_horizontal("duration_ns", pl.col("end") - pl.max_horizontal("start", "ready_ns")),
    )
    return pl.concat([removed, peers.select(removed.columns).cast(removed.schema)])

"""Handoffs of many messages: were bytes moving all the time, or did the next message come too late?

A fragmented KV transfer is many small copies (or sends) under one key. What counts then is not how fast bytes moved but
how much of the time none did. The time between messages (holes) is split by what the next message waited for: its
launch call had not returned yet (*unlaunched*), it sat behind other work of its stream (*queued*), or neither is
recorded (*latency*: the price of an edge, or something it waited for that no record shows). Where the handoff's own
chain passes the next message, the tiles inside the hole say more.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.movements import handoff_movements
from gapscope.causes.tiles import Explained
from gapscope.events.pairing import KEY
from gapscope.graph import Graph
from gapscope.schema import MESSAGES, dtypes

BANDWIDTH_SHARE = 0.8
"""Bytes moved for at least this share of the time from first movement to last end: bandwidth-bound."""

HOLDING_SHARE = 0.5
"""Else what holds at least this share of that time gives the verdict; nothing does: mixed."""

PARTS = ("unlaunched", "queued", "latency", "unknown")
_HOLE = [f"{part}_ns" for part in PARTS]


def verdict() -> pl.Expr:
    """Return in a word what bound a transfer, from ``span_ns``, ``moving_ns`` and the parts of its holes."""
    span = pl.col("span_ns")
    return (
        pl.when(pl.col("moving_ns") >= BANDWIDTH_SHARE * span)
        .then(pl.lit("bandwidth-bound"))
        .when(pl.col("unlaunched_ns") >= HOLDING_SHARE * span)
        .then(pl.lit("submission-bound"))
        .when(pl.col("queued_ns") >= HOLDING_SHARE * span)
        .then(pl.lit("queue-bound"))
        .when(pl.col("latency_ns") >= HOLDING_SHARE * span)
        .then(pl.lit("latency-bound"))
        .otherwise(pl.lit("mixed"))
    )


def fragmented(graph: Graph, explained: Explained) -> pl.DataFrame:
    """Return table ``messages``: handoffs between two ranks whose bytes moved in two messages or more.

    Args:
        graph: The graph.
        explained: Result of `gapscope.causes.tiles.explain`.
    """
    keys = explained.handoffs.select("handoff_id", *[k for k in KEY if k not in ("src", "dst")], src="src_rank",
                                     dst="dst_rank", size="size_bytes")  # fmt: skip
    moves = handoff_movements(graph)
    if not moves.height:
        return pl.DataFrame(schema=dtypes(MESSAGES))
    moves = moves.join(keys.filter(pl.col("group").is_null()), on=KEY, nulls_equal=True)
    # Staged transfers move each message twice; they are counted where they are sent, if that is recorded.
    at_source = (pl.col("mark") == "submit") | pl.col("is_nccl")
    counted = at_source | ~at_source.any().over("handoff_id")
    moves = moves.with_columns(is_message=counted)
    moves = moves.filter(pl.col("is_message").sum().over("handoff_id") > 1)
    if not moves.height:
        return pl.DataFrame(schema=dtypes(MESSAGES))
    moves = _with_launches(graph, moves).sort("handoff_id", "start_ns", "end_ns", "item")
    reached = pl.col("end_ns").cum_max().over("handoff_id")
    moves = moves.with_columns(reached_ns=reached).with_columns(
        reached_ns=pl.col("reached_ns").shift().over("handoff_id")
    )
    holes = _holes(moves.filter(pl.col("start_ns") > pl.col("reached_ns")))
    sums = holes.group_by("handoff_id").agg(holes=pl.len(), **{c: pl.col(c).sum() for c in (*_HOLE, "hole_ns")})
    longest = pl.col("launched_ns").filter("is_message")
    sizes = pl.col("size_bytes").filter("is_message")
    table = moves.group_by("handoff_id", maintain_order=True).agg(
        messages=pl.col("is_message").sum(),
        moved_bytes=pl.when(sizes.is_not_null().all()).then(sizes.cast(pl.Int128).sum().cast(pl.Int64, strict=False)),
        size=pl.col("size").first(),
        first_ns=pl.col("start_ns").min(),
        last_ns=pl.col("end_ns").max(),
        launch_span_ns=pl.when(longest.is_not_null().all()).then(longest.max() - longest.min()),
        launch_uncertainty_ns=pl.when(pl.col("bound_ns").is_not_null().all()).then(pl.col("bound_ns").max()),
    )
    table = table.join(sums, on="handoff_id", how="left")
    table = table.join(_on_chain(holes, explained), on="handoff_id", how="left")
    table = table.with_columns(
        pl.col("holes", "hole_ns", *_HOLE).fill_null(0), span_ns=pl.col("last_ns") - pl.col("first_ns")
    )
    table = table.with_columns(
        moving_ns=pl.col("span_ns") - pl.col("hole_ns"), size_bytes=pl.coalesce("moved_bytes", "size")
    ).with_columns(verdict=verdict())
    edge = explained.handoffs.select("handoff_id", "src_rank", "dst_rank", "channel", "direction", "transport")
    table = edge.join(table, on="handoff_id", maintain_order="left")
    return table.select(pl.col(n).cast(t) for n, t in dtypes(MESSAGES).items())


def _with_launches(graph: Graph, moves: pl.DataFrame) -> pl.DataFrame:
    """Add ``launched_ns`` (end of the call that enqueued it), ``bound_ns`` (of the clocks between) and ``before_ns``.

    ``before_ns`` is when the operation before it on its stream ended; null: none is recorded.
    """
    items = graph.items
    began = moves["began"].to_numpy()
    call = graph.call[began].astype(np.int64)
    has_call = call >= 0
    launched = pl.Series(items.end[np.maximum(call, 0)]).zip_with(
        pl.Series(has_call), pl.Series([None], dtype=pl.Int64)
    )
    clocks = (pl.Series(items.clock_of(np.maximum(call, 0))), pl.Series(items.clock_of(began)))
    bound = graph.context.alignment.uncertainty(*clocks, moves["start_ns"])
    last = np.maximum(began - 1, 0)
    has_before = (began > 0) & (items.lane[last] == items.lane[began])
    before = pl.Series(items.end[last]).zip_with(pl.Series(has_before), pl.Series([None], dtype=pl.Int64))
    return moves.with_columns(launched_ns=launched, bound_ns=bound, before_ns=before)


def _holes(moves: pl.DataFrame) -> pl.DataFrame:
    """Return one row per hole: ``handoff_id, start_ns, end_ns, hole_ns, began`` and its parts; they sum to it."""
    start, end = pl.col("reached_ns"), pl.col("start_ns")
    launched = pl.min_horizontal(pl.max_horizontal("launched_ns", start), end)
    free = pl.min_horizontal(pl.max_horizontal(launched, "before_ns"), end)
    known = pl.col("launched_ns").is_not_null()
    return moves.select(
        "handoff_id",
        "began",
        start_ns=start,
        end_ns=end,
        hole_ns=end - start,
        unlaunched_ns=pl.when(known).then(launched - start).otherwise(0),
        queued_ns=pl.when(known).then(free - launched).otherwise(0),
        latency_ns=pl.when(known).then(end - free).otherwise(0),
        unknown_ns=pl.when(known).then(0).otherwise(end - start),
    )


def _on_chain(holes: pl.DataFrame, explained: Explained) -> pl.DataFrame:
    """Return ``handoff_id, hole_cause, hole_cause_ns``: what holds most of the holes that the chain passes.

    The chain passes a hole if it passes the message behind it. Holes of a handoff are disjoint, so the time of holes up
    to any moment is a sum over earlier ones: no tile is compared with every hole.
    """
    ids = explained.handoffs.select("handoff_id", handoff=pl.int_range(pl.len(), dtype=pl.Int32))
    passed = explained.passed.join(holes.join(ids, on="handoff_id").select("handoff"), on="handoff", how="semi")
    mine = holes.join(ids, on="handoff_id").join(
        passed.select("handoff", began="item").unique(), on=["handoff", "began"], how="semi"
    ).sort("handoff", "start_ns")  # fmt: skip
    schema = {"handoff_id": pl.String, "hole_cause": pl.String, "hole_cause_ns": pl.Int64}
    tiles = passed.join(mine.select("handoff").unique(), on="handoff", how="semi")
    if not tiles.height:
        return pl.DataFrame(schema=schema)
    # One axis for all handoffs: theirs lie on it one behind the other.
    spans = pl.concat([f.select("handoff", "start_ns", "end_ns") for f in (mine, tiles)]).group_by("handoff").agg(
        zero=pl.col("start_ns").min(), length=pl.col("end_ns").max() - pl.col("start_ns").min()
    ).sort("handoff")  # fmt: skip
    spans = spans.with_columns(base=pl.col("length").cum_sum() - pl.col("length") - pl.col("zero"))
    mine, tiles = (
        f.join(spans.select("handoff", "base"), on="handoff", maintain_order="left").with_columns(
            low=pl.col("start_ns") + pl.col("base"), high=pl.col("end_ns") + pl.col("base")
        )
        for f in (mine, tiles)
    )
    low, high = (mine[c].to_numpy() for c in ("low", "high"))
    before = np.concatenate([[0], np.cumsum(high - low)])

    def up_to(at: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        i = np.searchsorted(low, at.to_numpy(), side="right") - 1
        inside = np.minimum(at.to_numpy(), high[np.maximum(i, 0)]) - low[np.maximum(i, 0)]
        return np.where(i < 0, 0, before[np.maximum(i, 0)] + inside)

    held = tiles.with_columns(held_ns=pl.Series(up_to(tiles["high"]) - up_to(tiles["low"])).cast(pl.Int64))
    sums = held.group_by("handoff", hole_cause=pl.col("cause").cast(pl.String)).agg(
        hole_cause_ns=pl.col("held_ns").sum()
    )
    return (
        sums.filter(pl.col("hole_cause_ns") > 0)
        .sort("hole_cause_ns", "hole_cause", descending=[True, False])
        .unique("handoff", keep="first", maintain_order=True)
        .join(ids, on="handoff", maintain_order="left")
        .select(pl.col(n).cast(t) for n, t in schema.items())
    )


def summarize_messages(handoffs: pl.DataFrame, messages: pl.DataFrame) -> list[dict[str, object]]:
    """Return one entry per edge, transport and verdict with handoffs of many messages, over those that count.

    What bound one handoff and what bound another are two populations: their sums would describe neither.

    Returns:
        ``src_rank, dst_rank, channel, direction, transport, handoffs``; sums over them of ``messages, size_bytes``
        (null: unknown of one), ``span_ns, moving_ns, holes``, the parts of holes and ``launch_span_ns`` (null: not
        recorded of one); ``launch_uncertainty_ns`` (the largest); ``hole_cause`` (of most time in holes that chains
        pass) and ``hole_cause_ns``; ``verdict`` (of each of them).
    """
    edge = ["src_rank", "dst_rank", "channel", "direction", "transport", "verdict"]
    counted = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")
    rows = messages.join(handoffs.filter(counted).select("handoff_id"), on="handoff_id", how="semi")
    whole = [
        pl.when(pl.col(c).is_not_null().all())
        .then(pl.col(c).cast(pl.Int128).sum().cast(pl.Int64, strict=False))
        .alias(c)
        for c in ("size_bytes", "launch_span_ns")
    ]
    bound = pl.col("launch_uncertainty_ns")
    sums = rows.group_by(edge).agg(
        pl.len().alias("handoffs"),
        *(pl.col(c).sum() for c in ("messages", "span_ns", "moving_ns", "holes", *_HOLE)),
        *whole,
        pl.when(bound.is_not_null().all()).then(bound.max()).alias("launch_uncertainty_ns"),
    )
    causes = rows.drop_nulls("hole_cause").group_by(*edge, "hole_cause").agg(pl.col("hole_cause_ns").sum())
    causes = causes.sort("hole_cause_ns", "hole_cause", descending=[True, False]).unique(edge, keep="first")
    joined = sums.join(causes, on=edge, how="left", nulls_equal=True)
    return joined.sort(edge, nulls_last=True).to_dicts()

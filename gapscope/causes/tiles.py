"""Tables of what held each gap: tiles with cause, lane, occupant and evidence, and handoffs with theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from gapscope.causes.facts import handoff_facts, item_facts
from gapscope.causes.headroom import about_causes
from gapscope.causes.names import CAUSE
from gapscope.causes.naming import named
from gapscope.causes.overhead import beside_profiler
from gapscope.graph import Graph, find_walks, walk_handoffs
from gapscope.graph.edges import EVIDENCE, LEVEL
from gapscope.graph.kernels import HOST_GAP, LEAD
from gapscope.schema import HANDOFFS, TILES, dtypes

_NO_RECORD = "uninstrumented host time"

PASSED: dict[str, pl.DataType | type[pl.DataType]] = {
    "handoff_id": pl.String,
    **dict.fromkeys(("start_ns", "end_ns", "what", "item"), pl.Int64),
    "cause": CAUSE,
    "rank": pl.Int64,
}
"""What a tile is of: columns of `gapscope.graph.STEP`, its cause, and the rank of its item."""


@dataclass(frozen=True)
class Explained:
    """Why the gaps are there.

    Attributes:
        tiles: Table ``tiles`` of `gapscope.schema`.
        handoffs: Table ``handoffs`` with its columns about causes.
        passed: What each tile is of: ``handoff_id, start_ns, end_ns, what, item, cause, rank``.
    """

    tiles: pl.DataFrame
    handoffs: pl.DataFrame
    passed: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PASSED))


def explain(graph: Graph, handoffs: pl.DataFrame) -> Explained:
    """Return tiles and causes of handoffs; those out of order, or without a gap, have none.

    Args:
        graph: The graph.
        handoffs: Table ``handoffs``.
    """
    walked = handoffs.filter((pl.col("gap_ns") >= 0).fill_null(value=False) & (pl.col("order") == "ok"))
    if not walked.height:
        return Explained(pl.DataFrame(schema=dtypes(TILES)), handoffs)
    walks = find_walks(graph, walked)
    facts = handoff_facts(graph, walked)
    steps = named(graph, facts, walk_handoffs(graph, walked, walks))
    about = about_causes(graph, facts, walks, steps)
    empty = [c for c in about.columns if c != "handoff_id"]
    joined = handoffs.drop(empty).join(about, on="handoff_id", how="left", maintain_order="left")
    passed = steps.with_columns(rank="item_rank").select(pl.col(n).cast(t) for n, t in PASSED.items())
    table = joined.select(pl.col(n).cast(t) for n, t in dtypes(HANDOFFS).items())
    return Explained(_finish(graph, steps), table, passed)


def _rate() -> pl.Expr:
    """Return bytes and rate of a transfer in words; null: not known, or one operation carries several messages."""
    moved = pl.coalesce("item_bytes", pl.when(pl.col("messages") == 1).then("size_bytes"))
    is_moving = pl.col("cause").cast(pl.String) == "movement"
    took = (pl.col("end_ns") - pl.col("start_ns")).filter(is_moving).sum().over("walk", "item")
    rate = (moved / took).round(3)  # bytes in a nanosecond are gigabytes in a second
    return pl.when(is_moving & (took > 0) & pl.col("item").is_not_null()).then(
        pl.format("{} bytes at {} GB/s", moved, rate)
    )


def _profiler() -> pl.Expr:
    """Return in words that the profiler worked on another thread for most of a stretch of host time."""
    words = pl.format("; the profiler worked on another thread for {} µs of it", pl.col("profiler_ns") // 1_000)
    most = 2 * pl.col("profiler_ns") > pl.col("end_ns") - pl.col("start_ns")
    return pl.when(most).then(words).otherwise(pl.lit(""))


def _finish(graph: Graph, steps: pl.DataFrame) -> pl.DataFrame:
    """Return table ``tiles``."""
    levels = dict(enumerate(EVIDENCE))
    # A cause is known no better than what its name rests on, however well the edge that the walk took is.
    cause = pl.col("cause").cast(pl.String)
    at_best = (
        pl.when(cause == "unexplained")
        .then(LEVEL["unknown"])
        .when(cause.is_in(["device_sharing", "slot_wait"]) | pl.col("unpaired").is_not_null())
        .then(LEVEL["inferred"])
        .otherwise(0)
    )
    submitted, moved, arrived = (pl.col(c) for c in ("submit_ns", "movement_start_ns", "available_ns"))
    begin = pl.col("start_ns")
    phase = (
        pl.when(submitted.is_null() | moved.is_null() | arrived.is_null())
        .then(None)
        .when(begin >= pl.max_horizontal(submitted, moved, arrived))
        .then(pl.lit("consumer_wait"))
        .when(begin >= pl.max_horizontal(submitted, moved))
        .then(pl.lit("movement"))
        .when(begin >= submitted)
        .then(pl.lit("start_wait"))
        .otherwise(pl.lit("submission"))
    )
    steps = steps.with_columns(profiler_ns=beside_profiler(graph, steps))
    steps = steps.with_columns(runner_item=(pl.col("runner_up") // 2).cast(pl.Int64))
    names = item_facts(graph, steps["runner_item"]).select(runner_item="item", runner_name="label")
    steps = steps.join(names, on="runner_item", how="left", maintain_order="left")
    return steps.with_columns(
        phase=phase,
        duration_ns=pl.col("end_ns") - begin,
        op=pl.col("name"),
        rank=pl.col("item_rank"),
        evidence=pl.coalesce("overhead_level", pl.max_horizontal("evidence", at_best)).replace_strict(
            levels, return_dtype=pl.String
        ),
        runner_up=pl.when(pl.col("runner_up").is_not_null()).then("runner_name"),
        detail=pl.coalesce(
            "overhead",
            pl.when(pl.col("unpaired") == "not split").then(pl.lit("peer not known: wait and transfer, not split")),
            pl.when(cause == "peer_wait").then(pl.lit("peer not known")),
            pl.when(pl.col("sharer").is_not_null()).then(pl.format("after {}", "sharer")),
            pl.when(cause == "schedule").then(pl.format("the stage of handoff {} first", "put_first")),
            pl.when(pl.col("other_handoff").is_not_null()).then(pl.format("of handoff {}", "other_handoff")),
            pl.when((cause == "slot_wait") & pl.col("stage_of").is_not_null()).then(
                pl.format("consuming handoff {}", "stage_of")
            ),
            _rate(),
            pl.when(pl.col("what") == HOST_GAP).then(
                pl.format("uninstrumented host time before {}{}", "name", _profiler())
            ),
            pl.when(pl.col("what") == LEAD).then(pl.format("uninstrumented host time after {} began", "name")),
        ),
    ).select(pl.col(n).cast(t) for n, t in dtypes(TILES).items())

"""Tables of what held each gap: tiles with cause, lane, occupant and evidence, and handoffs with theirs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.details import details
from gapscope.causes.facts import handoff_facts, item_facts
from gapscope.causes.headroom import about_causes
from gapscope.causes.names import CAUSE
from gapscope.causes.naming import Known, named
from gapscope.graph import Graph, find_walks, walk_handoffs
from gapscope.graph.edges import EVIDENCE, LEVEL
from gapscope.graph.walks import Walks
from gapscope.schema import HANDOFFS, TILES, dtypes

_PHASE = pl.Enum(["consumer_wait", "movement", "start_wait", "submission"])

PASSED: dict[str, pl.DataType | type[pl.DataType]] = {
    "handoff_id": pl.String,
    **dict.fromkeys(("start_ns", "end_ns", "what", "item"), pl.Int64),
    "cause": CAUSE,
    "rank": pl.Int64,
}
"""What a tile is of: columns of `gapscope.graph.STEP`, its cause, and the rank of its item."""


_AT_ONCE = 16_384
"""Handoffs that are explained at a time: while causes are named, a step takes many times the room of its tile."""

_WORKERS = 2


@dataclass(frozen=True)
class Explained:
    """Why the gaps are there.

    Attributes:
        tiles: Table ``tiles`` of `gapscope.schema`.
        handoffs: Table ``handoffs`` with its columns about causes.
        passed: What each tile is of: ``handoff_id, start_ns, end_ns, what, item, cause, rank``.
        begin: Node of the graph that the walk of each handoff with a gap begins at, in their order; -1: unknown.
    """

    tiles: pl.DataFrame
    handoffs: pl.DataFrame
    passed: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PASSED))
    begin: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def without_tiles(self) -> Explained:
        """Return the same with no more of the tiles than what-if needs: it takes an eighth of the memory."""
        return replace(self, tiles=self.tiles.select("phase"))


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
    known = Known.of(graph, handoff_facts(graph, walked))
    stretches = [slice(first, first + _AT_ONCE) for first in range(0, walked.height, _AT_ONCE)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        found = pool.map(lambda rows: _explained(known.part(rows), walked[rows], walks.part(rows)), stretches)
        parts = list(found)
    about, tiles, passed = (pl.concat(frames) for frames in zip(*parts, strict=True))
    empty = [c for c in about.columns if c != "handoff_id"]
    joined = handoffs.drop(empty).join(about, on="handoff_id", how="left", maintain_order="left")
    table = joined.select(pl.col(n).cast(t) for n, t in dtypes(HANDOFFS).items())
    return Explained(tiles, table, passed, walks.begin)


def _explained(known: Known, walked: pl.DataFrame, walks: Walks) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return what `gapscope.causes.headroom.about_causes` says of some handoffs, their tiles, and what these are of."""
    steps = named(known, walk_handoffs(known.graph, walked, walks))
    tiles = _tiles(known, steps)
    # What both have in common is there once.
    passed = tiles.select("handoff_id", "start_ns", "end_ns", "rank").hstack(steps.select("what", "item", "cause"))
    passed = passed.select(pl.col(n).cast(t) for n, t in PASSED.items())
    return about_causes(known, walks, steps), tiles, passed


def _tiles(known: Known, steps: pl.DataFrame) -> pl.DataFrame:
    """Return table ``tiles``."""
    begin, cause = pl.col("start_ns"), pl.col("cause")
    # A cause is known no better than what its name rests on, however well the edge that the walk took is.
    at_best = (
        pl.when(cause == "unexplained")
        .then(LEVEL["unknown"])
        .when(cause.is_in(["device_sharing", "slot_wait"]) | pl.col("unpaired").is_not_null())
        .then(LEVEL["inferred"])
        .otherwise(0)
    )
    of_activity = known.activity.table["overhead_level"].gather(steps["overhead"])
    level = pl.coalesce(of_activity, pl.max_horizontal("evidence", at_best))
    evidence, lanes = pl.Series(EVIDENCE), known.lanes["label"]
    of_walks = known.facts.select(
        "handoff_id", "src_rank", "dst_rank", "channel", "seq", "uncertainty_ns", "submit_ns", "movement_start_ns",
        "available_ns",
    )  # fmt: skip
    tiles = steps.hstack(of_walks[steps["walk"]]).select(
        "handoff_id", "src_rank", "dst_rank", "channel", "seq", "uncertainty_ns", "start_ns", "end_ns", cause,
        duration_ns=pl.col("end_ns") - begin,
        phase=_phase(),
        rank="item_rank",
        op="name",
        level=level,
    )  # fmt: skip
    tiles = tiles.with_columns(
        lane=lanes.gather(steps["lane"]),
        detail=details(known, steps),
        evidence=evidence.gather(tiles["level"]),
        runner_up=_runner_up(known, steps),
    )
    return tiles.select(pl.col(n).cast(t) for n, t in dtypes(TILES).items())


def _phase() -> pl.Expr:
    """Return the phase of the gap that a step lies in."""
    submitted, moved, arrived = (pl.col(c) for c in ("submit_ns", "movement_start_ns", "available_ns"))
    begin = pl.col("start_ns")
    consumer_wait, movement, start_wait, submission = (pl.lit(p, dtype=_PHASE) for p in _PHASE.categories)
    return (
        pl.when(submitted.is_null() | moved.is_null() | arrived.is_null())
        .then(None)
        .when(begin >= pl.max_horizontal(submitted, moved, arrived))
        .then(consumer_wait)
        .when(begin >= pl.max_horizontal(submitted, moved))
        .then(movement)
        .when(begin >= submitted)
        .then(start_wait)
        .otherwise(submission)
    )


def _runner_up(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return in words the item of the node that the clocks cannot tell from the binding one."""
    row = steps["runner_up"].is_not_null().arg_true()
    item = steps["runner_up"].gather(row) // 2
    names = item.to_frame("item").join(item_facts(known.graph, item), on="item", how="left", maintain_order="left")
    return pl.Series([None], dtype=pl.String).new_from_index(0, steps.height).scatter(row, names["label"])

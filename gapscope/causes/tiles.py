"""Tables of what held each gap: tiles with cause, lane, occupant and evidence, and handoffs with theirs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.cause_names import CAUSE, CAUSES
from gapscope.causes.details import details
from gapscope.causes.facts import handoff_facts, item_facts
from gapscope.causes.headroom import about_causes
from gapscope.causes.naming import Known, named
from gapscope.graph import Graph, find_walks, walk_handoffs
from gapscope.graph.edges import EVIDENCE, LEVEL
from gapscope.graph.kernels import fixed, leaf
from gapscope.graph.walks import Walks
from gapscope.schema import HANDOFFS, TILES, dtypes

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]

_PHASES = ["submission", "start_wait", "movement", "consumer_wait"]
"""In the order in which a gap passes them."""

PASSED: dict[str, pl.DataType | type[pl.DataType]] = {
    "handoff": pl.Int32,
    **dict.fromkeys(("start_ns", "end_ns", "what", "item"), pl.Int64),
    "cause": CAUSE,
    "rank": pl.Int64,
}
"""What a tile is of: the row of its handoff, columns of `gapscope.graph.STEP`, its cause, and the rank of its item."""


_AT_ONCE = 16_384
"""Handoffs that are explained at a time: while causes are named, a step takes many times the room of its tile."""

_WORKERS = 2


@dataclass(frozen=True)
class Explained:
    """Why the gaps are there.

    Attributes:
        tiles: Table ``tiles`` of `gapscope.schema`.
        handoffs: Table ``handoffs`` with its columns about causes.
        passed: What each tile is of: ``handoff`` (its row in ``handoffs``), ``start_ns, end_ns, what, item, cause,
            rank``. Those of one handoff stand together, in the order of the handoffs.
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
    is_walked = (pl.col("gap_ns") >= 0).fill_null(value=False) & (pl.col("order") == "ok")
    walked, row = handoffs.filter(is_walked), handoffs.select(is_walked.arg_true()).to_series().cast(pl.Int32)
    if not walked.height:
        return Explained(pl.DataFrame(schema=dtypes(TILES)), handoffs)
    walks = find_walks(graph, walked)
    known = Known.of(graph, handoff_facts(graph, walked))
    turns = -(-walked.height // (_AT_ONCE * _WORKERS))
    borders = np.linspace(0, walked.height, turns * _WORKERS + 1).astype(int).tolist()  # no worker is done long before
    stretches = [slice(first, until) for first, until in pairwise(borders) if first < until]
    with ThreadPoolExecutor(_WORKERS) as pool:
        found = pool.map(
            lambda rows: _explained(known.part(rows), walked[rows], walks.part(rows), row[rows]), stretches
        )
        parts = list(found)
    about, tiles, passed = (pl.concat(frames) for frames in zip(*parts, strict=True))
    empty = [c for c in about.columns if c != "handoff_id"]
    joined = handoffs.drop(empty).join(about, on="handoff_id", how="left", maintain_order="left")
    table = joined.select(pl.col(n).cast(t) for n, t in dtypes(HANDOFFS).items())
    return Explained(tiles, table, passed, walks.begin)


def _explained(
    known: Known, walked: pl.DataFrame, walks: Walks, row: pl.Series
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return what `gapscope.causes.headroom.about_causes` says of some handoffs, their tiles, and what these are of.

    Args:
        known: What causes are named by.
        walked: The handoffs,
        walks: and their walks.
        row: Where they stand among all handoffs.
    """
    steps = named(known, walk_handoffs(known.graph, walked, walks))
    tiles = _tiles(known, steps)
    # What both have in common is there once.
    passed = tiles.select("start_ns", "end_ns", "rank").hstack(steps.select("what", "item", "cause"))
    passed = passed.with_columns(handoff=row.gather(steps["walk"])).select(pl.col(n).cast(t) for n, t in PASSED.items())
    return about_causes(known, walks, steps), tiles, passed


def _tiles(known: Known, steps: pl.DataFrame) -> pl.DataFrame:
    """Return table ``tiles``."""
    evidence, labels, phases = pl.Series(EVIDENCE), known.lanes["label"], pl.Series(_PHASES)
    level = _level(known, steps)
    of_walks = known.facts.select("handoff_id", "src_rank", "dst_rank", "channel", "seq", "uncertainty_ns")
    tiles = steps.select("start_ns", "end_ns", "cause", rank="item_rank", op="name").hstack(of_walks[steps["walk"]])
    tiles = tiles.with_columns(
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        phase=phases.gather(_phase(known.facts, steps)),
        lane=labels.gather(steps["lane"]),
        detail=details(known, steps),
        evidence=evidence.gather(level),
        runner_up=_runner_up(known, steps),
    )
    return tiles.select(pl.col(n).cast(t) for n, t in dtypes(TILES).items())


def _level(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return how each step and its cause are known, a number of `gapscope.graph.edges.EVIDENCE`."""
    # A cause is known no better than what its name rests on, however well the edge that the walk took is.
    at_best = np.zeros(len(CAUSES), np.int8)
    at_best[[list(CAUSES).index(cause) for cause in ("device_sharing", "slot_wait")]] = LEVEL["inferred"]
    at_best[list(CAUSES).index("unexplained")] = LEVEL["unknown"]
    level = np.maximum(steps["evidence"].to_numpy(), at_best[steps["cause"].to_physical().to_numpy()])
    unpaired = steps["unpaired"].is_not_null().to_numpy()
    level[unpaired] = np.maximum(level[unpaired], LEVEL["inferred"])
    of_activity = steps["overhead"].is_not_null().arg_true()
    own = known.activity.table["overhead_level"].gather(steps["overhead"].gather(of_activity))
    return pl.Series(level).scatter(of_activity, own.cast(pl.Int8))


def _phase(facts: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return the phase of the gap that each step lies in, a position in `_PHASES`; null: an event is missing."""
    events = np.stack([facts[c].fill_null(0).to_numpy() for c in ("submit_ns", "movement_start_ns", "available_ns")])
    begins = np.maximum.accumulate(events)  # the phases do not overlap
    is_known = facts.select(pl.all_horizontal(pl.col("submit_ns", "movement_start_ns", "available_ns").is_not_null()))
    found = np.empty(steps.height, np.int8)
    _find_phases(*(fixed(steps[c].to_numpy()) for c in ("walk", "start_ns")), fixed(begins), found)
    phases, missing = pl.Series(found), ~is_known.to_series()
    return phases.set(missing.gather(steps["walk"]), None) if missing.any() else phases


@leaf
def _find_phases(walk: Ints, start: Ints, begins: Ints, found: Bytes) -> None:
    """Write down how many of the phases of its gap each step has left behind."""
    for s in range(len(found)):
        found[s] = 0
        while found[s] < len(begins) and start[s] >= begins[found[s], walk[s]]:
            found[s] += 1


def _runner_up(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return in words the item of the node that the clocks cannot tell from the binding one."""
    row = steps["runner_up"].is_not_null().arg_true()
    item = steps["runner_up"].gather(row) // 2
    names = item.to_frame("item").join(item_facts(known.graph, item), on="item", how="left", maintain_order="left")
    return pl.Series([None], dtype=pl.String).new_from_index(0, steps.height).scatter(row, names["label"])

"""What of a step's or request's own time each cause holds: the only total that is a share of latency.

One walk per unit, over all ranks, from its end back to its start along what was satisfied last. What
of that path lies in tiles of handoffs (of the same item, at the same time) is exposure of their causes; a nanosecond of
the path counts once. The rest of the path lies in no handoff's gap, and is said for what it is. Sums over handoffs
(handoff time, wall time) are other totals: what they add may never have delayed the unit's end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.cause_names import OUTSIDE
from gapscope.causes.facts import graph_lanes
from gapscope.causes.owners import Tiles, owned_pieces
from gapscope.causes.tiles import Explained
from gapscope.causes.units import Units
from gapscope.graph import Graph, walks_between
from gapscope.graph.kernels import BODY, LEAD, UNKNOWN, fixed
from gapscope.graph.paths import walk_paths
from gapscope.graph.walks import Walks
from gapscope.schema import EXPOSURE, dtypes

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

EDGE = ["kind", "group", "src_rank", "dst_rank", "channel", "direction"]
_PLACE = ["unit", "id", "job"]
_PART = pl.Enum(["gap", *OUTSIDE])

_AT_ONCE = 16_384
"""Units whose paths are walked at a time."""


def unit_exposure(graph: Graph, units: Units, explained: Explained) -> pl.DataFrame:
    """Return table ``exposure``; units without both ends, or that no time passes in, have no rows.

    Args:
        graph: The graph.
        units: Result of `gapscope.causes.units.find_units`.
        explained: Result of `gapscope.causes.tiles.explain`.
    """
    table = units.table.with_columns(begin=pl.Series(units.last))
    walked = table.filter((pl.col("end_ns") > pl.col("start_ns")).fill_null(value=False))
    if not walked.height:
        return pl.DataFrame(schema=dtypes(EXPOSURE))
    finish, end = (walked[c].to_numpy().astype(np.int64) for c in ("start_ns", "end_ns"))
    walks = walks_between(graph, walked["begin"].to_numpy().astype(np.int64), finish, end)
    passed, tiles = _by_item(graph, explained)
    edges = explained.handoffs.select(EDGE).unique(maintain_order=True).with_row_index("edge")
    of_handoffs = explained.handoffs.select(EDGE).join(
        edges, on=EDGE, how="left", nulls_equal=True, maintain_order="left"
    )
    passed = passed.select("cause", "rank", edge=of_handoffs["edge"].gather(passed["handoff"]))
    groups = _groups(graph)
    stretches = [slice(first, first + _AT_ONCE) for first in range(0, walked.height, _AT_ONCE)]
    parts = [
        _sums(graph, walks.part(rows), passed, tiles, groups).with_columns(pl.col("walk") + rows.start)
        for rows in stretches
    ]
    sums = pl.concat(parts).with_columns(pl.col("part").cast(pl.String))
    _assert_exact(sums, walked.select(gap_ns=pl.col("end_ns") - pl.col("start_ns")))
    sums = sums.join(edges, on="edge", how="left")
    keys = ["part", *EDGE, "cause", "rank"]
    sums = sums.sort("walk", "exposure_ns", *keys, descending=[False, True, *[False] * len(keys)])
    found = sums.hstack(walked.select(_PLACE)[sums["walk"]])
    return found.select(pl.col(n).cast(t) for n, t in dtypes(EXPOSURE).items())


def _sums(graph: Graph, walks: Walks, passed: pl.DataFrame, tiles: Tiles, groups: _Groups) -> pl.DataFrame:
    """Return what some paths pass: ``walk, part, edge, cause, rank, exposure_ns``; edge and cause of gaps alone.

    Args:
        graph: The graph.
        walks: Where the paths begin and end.
        passed: ``cause, rank, edge`` of the tiles.
        tiles: The tiles.
        groups: What tells items apart outside of gaps.
    """
    steps, others = walk_paths(graph, walks, tiles.place, groups.of_lane, groups.computes)
    pieces, inside = owned_pieces(steps, tiles)
    in_gaps = pl.DataFrame({"walk": pieces[:, 0], "length_ns": pieces[:, 2]}).hstack(passed[pl.Series(pieces[:, 1])])
    left, item = steps[:, 2] - steps[:, 1] - inside, steps[:, 4]
    group = groups.of_lane[graph.items.lane[item]]
    is_op = item < graph.items.n_ops
    group[is_op] += groups.computes[item[is_op]]
    rest = np.concatenate([others, np.column_stack([steps[:, 0], group, steps[:, 3], left])[left > 0]])
    in_gaps = in_gaps.with_columns(part=pl.lit("gap", dtype=_PART))
    parts = pl.concat([in_gaps, _outside(rest, groups.ranks)], how="diagonal")
    return parts.group_by("walk", "part", "edge", "cause", "rank").agg(exposure_ns=pl.col("length_ns").sum())


def _by_item(graph: Graph, explained: Explained) -> tuple[pl.DataFrame, Tiles]:
    """Return tiles ordered by item: as they were passed, and as the loop takes them."""
    passed, handoffs = explained.passed, explained.handoffs
    there = passed["item"].is_not_null().arg_true()
    order = there.gather(np.argsort(passed["item"].gather(there).to_numpy(), kind="stable"))
    passed = passed[order]
    item = passed["item"].to_numpy()
    place = np.zeros(graph.items.n, np.int32)
    place[item[::-1]] = np.arange(len(item), 0, -1, dtype=np.int32)
    what, start, end = (passed[c].to_numpy() for c in ("what", "start_ns", "end_ns"))
    handoff, consumer = (c.to_numpy() for c in (passed["handoff"], handoffs["consumer_start_ns"].fill_null(0)))
    given = (place, item, what, start, end, handoff, consumer)
    return passed, Tiles(*(fixed(values) for values in given))


class _Groups(NamedTuple):
    """What tells items apart outside of gaps.

    Attributes:
        ranks: Ranks.
        of_lane: The group of each lane: four times the number of its rank, and two more for operations.
        computes: Which operations compute: these are in the next group.
    """

    ranks: pl.Series
    of_lane: Indices
    computes: Bools


def _groups(graph: Graph) -> _Groups:
    items = graph.items
    lanes = graph_lanes(graph)
    ranks = lanes["rank"].unique(maintain_order=True)
    number = lanes.select(pl.col("rank").replace_strict(ranks, pl.int_range(len(ranks), eager=True))).to_series()
    group = 4 * number.to_numpy().astype(np.int32) + 2 * (~lanes["is_host"]).to_numpy()
    computes = items.ops["kind"].is_in(["kernel", "graph"]).to_numpy() & ~graph.context.communicates
    return _Groups(ranks.cast(pl.Int64), fixed(group.astype(np.int32)), fixed(computes))


def _outside(rest: Ints, ranks: pl.Series) -> pl.DataFrame:
    """Return what of each path lies in no gap: ``walk, part, rank, length_ns``.

    Args:
        rest: Rows of walk, group (see `_groups`; -1: no item), kind of step, length.
        ranks: See there.
    """
    walk, group, what, length = (pl.Series(rest[:, k]) for k in range(4))
    frame = pl.DataFrame({"walk": walk, "group": group, "what": what, "length_ns": length})
    is_op = pl.col("group") % 4 >= 2
    part = (
        pl.when((pl.col("what") == UNKNOWN) | (pl.col("group") < 0))
        .then(pl.lit("unknown", dtype=_PART))
        .when(~is_op | (pl.col("what") == LEAD))
        .then(pl.lit("host", dtype=_PART))
        .when(pl.col("what") != BODY)
        .then(pl.lit("latency", dtype=_PART))
        .when(pl.col("group") % 2 == 1)
        .then(pl.lit("compute", dtype=_PART))
        .otherwise(pl.lit("transfer", dtype=_PART))
    )
    of_rank = pl.when(pl.col("group") >= 0).then(pl.col("group") // 4)
    found = frame.select("walk", "length_ns", part=part, number=of_rank)
    return found.select("walk", "part", "length_ns", rank=ranks.gather(found["number"]))


def _assert_exact(sums: pl.DataFrame, spans: pl.DataFrame) -> None:
    """Check that the parts of each unit sum to its length."""
    per_unit = sums.group_by("walk").agg(total=pl.col("exposure_ns").sum())
    both = (
        spans.with_row_index("walk").with_columns(pl.col("walk").cast(pl.Int64)).join(per_unit, on="walk", how="left")
    )
    wrong = both.filter(pl.col("total").fill_null(0) != pl.col("gap_ns"))
    assert not wrong.height, f"exposure does not sum to the unit: {wrong.head(3)}"

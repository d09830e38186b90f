"""What of a step's or request's own time each cause holds: the only total that is a share of latency.

One walk per unit, over all ranks, from its end back to its start along what was satisfied last. What
of that path lies in tiles of handoffs (of the same item, at the same time) is exposure of their causes; a nanosecond of
the path counts once. The rest of the path lies in no handoff's gap, and is said for what it is. Sums over handoffs
(handoff time, wall time) are other totals: what they add may never have delayed the unit's end.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.tiles import Explained
from gapscope.causes.units import Units
from gapscope.graph import Graph, walk_handoffs, walks_between
from gapscope.graph.kernels import BODY, LEAD, UNKNOWN
from gapscope.schema import EXPOSURE, dtypes

EDGE = ["kind", "group", "src_rank", "dst_rank", "channel", "direction"]
_PLACE = ["unit", "id", "job"]


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
    spans = walked.select(
        producer_finish_ns="start_ns", consumer_start_ns="end_ns", gap_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    path = walk_handoffs(graph, spans, walks).with_row_index("part_id").select(
        pl.col("part_id").cast(pl.Int64), "walk", "start_ns", "end_ns", "what", "item"
    )  # fmt: skip
    in_gaps = _in_gaps(path, explained)
    parts = pl.concat([in_gaps, _outside(graph, path, in_gaps)], how="diagonal_relaxed")
    of_units = walked.select(*_PLACE).with_row_index("walk").with_columns(pl.col("walk").cast(pl.Int64))
    keys = ["walk", "part", *EDGE, "cause", "rank"]
    sums = parts.group_by(keys).agg(exposure_ns=pl.col("length_ns").sum())
    _assert_exact(sums, spans)
    sums = sums.sort("walk", "exposure_ns", *keys[1:], descending=[False, True, *[False] * (len(keys) - 1)])
    found = sums.join(of_units, on="walk", how="left", maintain_order="left")
    return found.select(pl.col(n).cast(t) for n, t in dtypes(EXPOSURE).items())


def _in_gaps(path: pl.DataFrame, explained: Explained) -> pl.DataFrame:
    """Return the pieces of paths that lie in tiles: ``part_id, walk, part, length_ns``, edge, cause and rank.

    Where tiles of several handoffs lie, the path's own come first: those of handoffs whose consumer it passed, of these
    of the one that it met first, from the unit's end back. Else the handoff whose consumer started next owns the piece.
    """
    order = explained.handoffs.select("handoff_id", *EDGE, "consumer_start_ns").with_row_index("position")
    tiles = explained.passed.join(order, on="handoff_id").rename({"start_ns": "tile_ns", "end_ns": "tile_end_ns"})
    both = path.filter(pl.col("item").is_not_null()).join(tiles, on=["item", "what"]).with_columns(
        low=pl.max_horizontal("start_ns", "tile_ns"), high=pl.min_horizontal("end_ns", "tile_end_ns")
    ).filter(pl.col("low") < pl.col("high"))  # fmt: skip
    met = (pl.col("tile_end_ns") == pl.col("consumer_start_ns")) & (pl.col("end_ns") == pl.col("consumer_start_ns"))
    both = both.with_columns(is_met=met.any().over("walk", "position"))
    first = pl.when("is_met").then(-pl.col("consumer_start_ns")).otherwise(pl.col("consumer_start_ns"))
    both = both.sort(~pl.col("is_met"), first, "position").with_row_index("preference")
    both = both.unique(["part_id", "low", "high"], keep="first", maintain_order=True)
    # Cut at every border, so that each piece lies wholly within each tile that has a part in it.
    borders = pl.concat([both.select("part_id", at="low"), both.select("part_id", at="high")]).unique()
    pieces = borders.sort("part_id", "at").with_columns(until=pl.col("at").shift(-1).over("part_id"))
    owned = pieces.drop_nulls("until").join(both, on="part_id").filter(
        (pl.col("low") <= pl.col("at")) & (pl.col("high") >= pl.col("until"))
    )  # fmt: skip
    owned = owned.sort("preference").unique(["part_id", "at"], keep="first", maintain_order=True)
    return owned.select(
        "part_id", "walk", *EDGE, "cause", "rank", part=pl.lit("gap"), length_ns=pl.col("until") - pl.col("at")
    )


def _outside(graph: Graph, path: pl.DataFrame, in_gaps: pl.DataFrame) -> pl.DataFrame:
    """Return what of each path lies in no gap: ``walk, part, rank, length_ns``."""
    items = graph.items
    inside = in_gaps.group_by("part_id").agg(inside_ns=pl.col("length_ns").sum())
    rest = path.join(inside, on="part_id", how="left", maintain_order="left").with_columns(
        length_ns=pl.col("end_ns") - pl.col("start_ns") - pl.col("inside_ns").fill_null(0)
    )
    rest = rest.filter(pl.col("length_ns") > 0)
    is_op = (pl.col("item") < items.n_ops).fill_null(value=False)
    of_ops = rest.filter(is_op)["item"].unique()
    # Only what is passed is looked at: the tables hold every operation of the run.
    communicates = pl.col("name").cast(pl.String).str.contains("(?i)nccl|rccl")
    is_compute = pl.col("kind").is_in(["kernel", "graph"]) & ~communicates
    ops = items.ops[of_ops].select(item=of_ops, op_rank="rank", is_compute=is_compute)
    of_hosts = rest.filter(~is_op)["item"].drop_nulls().unique()
    hosts = items.hosts[of_hosts - items.n_ops].select(item=of_hosts, host_rank="rank")
    rest = rest.join(ops, on="item", how="left").join(hosts, on="item", how="left")
    body = pl.when(pl.col("is_compute")).then(pl.lit("compute")).otherwise(pl.lit("transfer"))
    part = (
        pl.when((pl.col("what") == UNKNOWN) | pl.col("item").is_null())
        .then(pl.lit("unknown"))
        .when(~is_op | (pl.col("what") == LEAD))
        .then(pl.lit("host"))
        .when(pl.col("what") == BODY)
        .then(body)
        .otherwise(pl.lit("latency"))
    )
    return rest.select("walk", "length_ns", part=part, rank=pl.coalesce("op_rank", "host_rank").cast(pl.Int64))


def _assert_exact(sums: pl.DataFrame, spans: pl.DataFrame) -> None:
    """Check that the parts of each unit sum to its length."""
    per_unit = sums.group_by("walk").agg(total=pl.col("exposure_ns").sum())
    both = (
        spans.with_row_index("walk").with_columns(pl.col("walk").cast(pl.Int64)).join(per_unit, on="walk", how="left")
    )
    wrong = both.filter(pl.col("total").fill_null(0) != pl.col("gap_ns"))
    assert not wrong.height, f"exposure does not sum to the unit: {wrong.head(3)}"

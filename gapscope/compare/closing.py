"""What a change of gaps is made of: the changes of its causes, which add up to it exactly.

Medians do not add, so this is in means: of the gaps that are explained, and of what each cause holds of them, over the
handoffs of a run; then over the runs of an arm. A gap is the sum of its tiles, so nothing is left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.compare.runs import Arm, Run
from gapscope.summary import COUNTED
from gapscope.views.gaps import with_edge_names

CLOSURE = {
    "edge": pl.String,
    "cause": pl.String,
    "rank": pl.Int64,
    "a_mean_ns": pl.Float64,
    "b_mean_ns": pl.Float64,
    "difference_ns": pl.Float64,
}
"""One row per edge, cause and rank, the largest change first, and one per edge with ``cause`` null: the gap itself. The
differences of an edge's causes sum to that of its gap."""


def closure(a: Arm, b: Arm, schema: Mapping[str, Any] = CLOSURE) -> pl.DataFrame:
    """Return table `CLOSURE` for the edges that have explained gaps in all runs of both arms."""
    first, second = (pl.concat([_means(run) for run in arm.runs]) for arm in (a, b))
    runs = {"a": len(a.runs), "b": len(b.runs)}
    keys = ["edge", "cause", "rank"]
    # A cause that a run lacks is 0 there: sums over the runs that have it, by the number of all.
    one, two = (
        frame.group_by(keys).agg(pl.col("mean_ns").sum() / runs[arm], runs=pl.len())
        for frame, arm in ((first, "a"), (second, "b"))
    )
    both = one.join(two, on=keys, how="full", coalesce=True, nulls_equal=True, suffix="_b").with_columns(
        a_mean_ns=pl.col("mean_ns").fill_null(0.0), b_mean_ns=pl.col("mean_ns_b").fill_null(0.0)
    )
    is_gap = pl.col("cause").is_null()
    whole = both.filter(is_gap & (pl.col("runs") == runs["a"]) & (pl.col("runs_b") == runs["b"]))["edge"]
    both = both.filter(pl.col("edge").is_in(whole.implode()))
    both = both.with_columns(difference_ns=pl.col("b_mean_ns") - pl.col("a_mean_ns"))
    both = both.sort("edge", ~is_gap, -pl.col("difference_ns").abs(), "cause", "rank", nulls_last=True)
    return both.select(pl.col(n).cast(t) for n, t in schema.items())


def _means(run: Run) -> pl.DataFrame:
    """Return ``edge, cause, rank, mean_ns`` over the explained handoffs of a run; ``cause`` null: the gap."""
    tiles = run.tiles.select("handoff_id", "cause", "rank", "duration_ns")
    explained = run.handoffs.filter(COUNTED).join(tiles.select("handoff_id").unique(), on="handoff_id", how="semi")
    explained = with_edge_names(explained).select("handoff_id", "edge", "gap_ns")
    n = explained.group_by("edge").agg(n=pl.len(), gap_ns=pl.col("gap_ns").sum())
    sums = tiles.join(explained, on="handoff_id").group_by("edge", "cause", "rank").agg(pl.col("duration_ns").sum())
    causes = sums.join(n, on="edge").select("edge", "cause", "rank", mean_ns=pl.col("duration_ns") / pl.col("n"))
    gaps = n.select(
        "edge",
        cause=pl.lit(None, pl.String),
        rank=pl.lit(None, pl.Int64),
        mean_ns=pl.col("gap_ns") / pl.col("n"),
    )
    return pl.concat([gaps, causes])

"""Steps cut where spans of time on their lane begin and end."""

from __future__ import annotations

import polars as pl

LANE = ["item_source", "item_process", "item_thread"]
"""The thread of a step's item; the thread is null for operations."""


def on_lanes(spans: pl.DataFrame) -> pl.DataFrame:
    """Return spans with the columns of `LANE` in place of ``source``, ``process``, ``thread``."""
    return spans.rename({c.removeprefix("item_"): c for c in LANE})


def cut_by_spans(steps: pl.DataFrame, spans: pl.DataFrame, keep: pl.Expr | None = None) -> pl.DataFrame:
    """Cut steps by spans, and say of each part which span it lies in.

    Args:
        steps: Has ``walk``, ``start_ns``, ``end_ns`` and `LANE`; where one of these is null, the step stays whole.
        spans: `LANE`, ``begin``, ``until`` and what a part gets of its span; no two on one lane overlap.
        keep: Of a step and a span, whether it counts; null: not.

    Returns:
        The steps with the other columns of the spans, null outside of all.
    """
    told = [c for c in spans.columns if c not in {*LANE, "begin", "until"}]
    if not spans.height:
        return steps.with_columns(pl.lit(None, dtype=spans.schema[c]).alias(c) for c in told)
    steps = steps.with_row_index("_step")
    spans = spans.sort(*LANE, "begin").with_row_index("_span")
    ends, begins = spans.select(*LANE, "until", _low="_span"), spans.select(*LANE, "begin", _high="_span")
    met = steps.sort("start_ns").join_asof(
        ends.sort("until"), left_on="start_ns", right_on="until", by=LANE, strategy="forward",
        allow_exact_matches=False, check_sortedness=False,
    )  # fmt: skip
    met = met.drop("until", strict=False).sort("end_ns")
    met = met.join_asof(
        begins.sort("begin"), left_on="end_ns", right_on="begin", by=LANE, allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    low, high = pl.col("_low").cast(pl.Int64), pl.col("_high").cast(pl.Int64)
    met = met.drop("begin", strict=False).filter((low <= high).fill_null(value=False))
    met = (
        met.with_columns(_span=pl.int_ranges(low, high + 1))
        .explode("_span")
        .with_columns(pl.col("_span").cast(pl.UInt32))
    )
    met = met.join(spans.drop(LANE), on="_span")
    met = met.filter(keep.fill_null(value=False)) if keep is not None else met
    met = met.sort("_step", "begin").select(
        "_step", *told, step_start="start_ns", step_end="end_ns",
        start_ns=pl.max_horizontal("start_ns", "begin"), end_ns=pl.min_horizontal("end_ns", "until"),
    )  # fmt: skip
    before = met.select(
        "_step", start_ns=pl.coalesce(pl.col("end_ns").shift().over("_step"), "step_start"), end_ns="start_ns"
    )
    after = met.group_by("_step", maintain_order=True).agg(
        start_ns=pl.col("end_ns").last(), end_ns=pl.col("step_end").last()
    )
    parts = pl.concat([met.drop("step_start", "step_end"), before, after], how="diagonal")
    parts = parts.filter(pl.col("start_ns") < pl.col("end_ns"))
    whole = steps.join(parts.select("_step"), on="_step", how="anti")
    cut = steps.drop("start_ns", "end_ns").join(parts, on="_step")
    return pl.concat([whole, cut], how="diagonal").select(*steps.columns, *told).drop("_step").sort("walk", "start_ns")

"""Gaps as figures show them: every handoff that has one, with the edge it belongs to."""

from __future__ import annotations

import polars as pl

from gapscope.wording import edge_name

EDGE = ("kind", "group", "src_rank", "dst_rank", "channel", "direction")
"""Columns that name an edge, as in ``edges`` of ``summary.json``."""


def with_edge_names(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Add column ``edge``: the name of each row's edge (``0 → 1``, ``tp: 1 → 0``), as reports write it.

    Args:
        handoffs: Has the columns of `EDGE`.
    """
    edges = handoffs.select(EDGE).unique()
    named = edges.with_columns(edge=pl.Series([edge_name(e) for e in edges.iter_rows(named=True)], dtype=pl.String))
    return handoffs.join(named, on=EDGE, how="left", nulls_equal=True, maintain_order="left")


def gaps_of(handoffs: pl.DataFrame, counted: pl.Expr) -> pl.DataFrame:
    """Return one row per handoff whose gap is known, in order of time.

    Args:
        handoffs: Table ``handoffs``.
        counted: Which of them percentiles are over.

    Returns:
        ``edge, handoff_id, at_ns`` (when the consumer started, Unix ns), ``step`` (null: not said), ``gap_ns``,
        ``error_ns`` (bound of the clock error of the gap; null: none is known), ``is_counted``, ``cause`` (dominant;
        null: not explained).
    """
    known = with_edge_names(handoffs.filter(pl.col("gap_ns").is_not_null()))
    return known.sort("consumer_start_ns", "handoff_id").select(
        "edge", "handoff_id", at_ns="consumer_start_ns", step="step", gap_ns="gap_ns",
        error_ns="gap_uncertainty_ns", is_counted=counted.fill_null(value=False), cause="dominant_cause",
    )  # fmt: skip

"""Nested ranges taken apart into levels of ranges that do not overlap."""

from __future__ import annotations

import polars as pl


def disjoint_levels(ranges: pl.DataFrame, lane: list[str]) -> list[pl.DataFrame]:
    """Return the ranges as levels; within a level no two ranges of a lane overlap.

    Args:
        ranges: ``start_ns``, ``end_ns`` (not null) and the columns of ``lane``.
        lane: Columns that name the line on which ranges nest (process and thread, or device and stream).

    Returns:
        One frame per level, outermost first, each with ``until_ns``: the end of the range, or, where a deeper
        range begins inside and ends outside (they cross), just before that one begins: what lies in both belongs
        to the range that started last.
    """
    rest = ranges.sort(*lane, "start_ns", "end_ns", descending=[False] * len(lane) + [False, True])
    levels: list[pl.DataFrame] = []
    while rest.height:
        reach = pl.col("end_ns").cum_max().shift(1).over(lane)
        outer = rest.select((pl.col("start_ns") > reach).fill_null(value=True)).to_series()
        if outer.all():  # marks of one kind seldom nest
            return [*levels, rest.with_columns(until_ns="end_ns")]
        level, rest = rest.filter(outer), rest.filter(~outer)
        levels.append(level.with_columns(until_ns=_until(level, rest, lane)))
    return levels


def _until(level: pl.DataFrame, deeper: pl.DataFrame, lane: list[str]) -> pl.Series:
    """Return where each range of a level stops to own what lies in it."""
    numbered = level.select(*lane, "start_ns", "end_ns").with_row_index("_row")
    crossing = (
        deeper.select(*lane, deep_start="start_ns", deep_end="end_ns")
        .sort("deep_start")
        .join_asof(
            numbered.sort("start_ns"), left_on="deep_start", right_on="start_ns", by=lane, check_sortedness=False
        )
        .filter((pl.col("deep_start") <= pl.col("end_ns")) & (pl.col("deep_end") > pl.col("end_ns")))
        .group_by("_row")
        .agg(cut=pl.col("deep_start").min() - 1)
    )
    return (
        numbered.join(crossing, on="_row", how="left", maintain_order="left")
        .select(pl.min_horizontal("end_ns", "cut"))
        .to_series()
    )

"""Levels of nested ranges, against a plain search."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from gapscope.events.nesting import disjoint_levels

RANGES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=14)


@given(RANGES)
def test_each_range_is_in_one_level_and_levels_do_not_overlap(rows):
    frame = pl.DataFrame(
        [(i, lane, s, s + d) for i, (lane, s, d) in enumerate(rows)],
        schema=["id", "lane", "start_ns", "end_ns"],
        orient="row",
    )
    levels = disjoint_levels(frame, ["lane"])
    assert sorted(i for level in levels for i in level["id"]) == list(range(len(rows)))
    for level in levels:
        for _, part in level.sort("start_ns").group_by("lane"):
            ends, starts = part["end_ns"].to_list()[:-1], part["start_ns"].to_list()[1:]
            assert all(e < s for e, s in zip(ends, starts, strict=True))


def test_crossing_ranges_are_cut_where_the_later_one_begins():
    frame = pl.DataFrame({"lane": [1, 1, 1], "start_ns": [0, 10, 95], "end_ns": [100, 20, 120]})
    outer, inner = disjoint_levels(frame, ["lane"])
    assert outer["until_ns"].to_list() == [94]
    assert inner["until_ns"].to_list() == [20, 120]

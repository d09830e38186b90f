"""Pairs by key, and what has no counterpart."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gapscope.errors import UsageError
from gapscope.statistics.pairing import pair

EXAMPLES = settings(max_examples=60, deadline=None)

KEY = ["src_rank", "seq"]


def arm(values, first=0):
    return pl.DataFrame(
        {"src_rank": [0] * len(values), "seq": range(first, first + len(values)), "gap_ns": values},
        schema={"src_rank": pl.Int32, "seq": pl.Int64, "gap_ns": pl.Int64},
    )


def test_pairs_by_key_in_the_order_of_arm_a():
    a, b = arm([10, 20, 30]), arm([11, 22, 33]).reverse()
    found = pair(a.select(pl.all().gather([2, 0, 1])), b, KEY, "gap_ns")
    assert found.rows.rows() == [(0, 2, 30, 33), (0, 0, 10, 11), (0, 1, 20, 22)]
    assert (found.paired, found.unpaired_share, found.note) == (True, 0, "")
    assert [list(one) for one in found.series()] == [[30, 10, 20], [33, 11, 22]]


def test_what_is_missing_is_listed_with_its_reason():
    a, b = arm([10, None, 30, None, 50]), arm([11, 22, None, None, 55], first=0)
    b = pl.concat([b.filter(pl.col("seq") != 4), arm([66], first=9)])
    found = pair(a, b, KEY, "gap_ns")
    assert found.rows.rows() == [(0, 0, 10, 11)]
    assert found.missing_in_a.rows() == [(0, 1, "null"), (0, 9, "absent")]
    assert found.missing_in_b.rows() == [(0, 2, "null"), (0, 4, "absent")]
    assert (found.without_value, found.unpaired_share) == (1, 5 / 6)
    assert found.note == (
        "1 of 6 paired, 2 missing in A, 2 missing in B, 1 without a value in both; "
        "compared without pairs (more than 1% unpaired)"
    )


@pytest.mark.parametrize(("lost", "paired"), [(1, True), (2, False)])
def test_beyond_one_percent_there_are_no_pairs(lost, paired):
    found = pair(arm(range(100)), arm(range(100 - lost)), KEY, "gap_ns")
    assert found.paired is paired
    assert f"{100 - lost} of 100 paired, {lost} missing in B" in found.note
    assert ("compared without pairs" in found.note) is not paired
    assert [len(one) for one in found.series()] == ([99, 99] if paired else [100, 98])


def test_a_missing_value_is_no_zero_without_pairs_either():
    a, b = found = pair(arm([1, None, 3]), arm([None, None, 5, 7]), KEY, "gap_ns").series()
    assert len(found) == 2
    assert (list(a), list(b)) == ([1, 3], [5, 7])


def test_a_row_without_a_key_is_no_pair():
    a = pl.DataFrame({"request": ["x", None, None], "latency_ns": [1, 2, 3]})
    b = pl.DataFrame({"request": ["x", None], "latency_ns": [4, 5]})
    found = pair(a, b, ["request"], "latency_ns")
    assert (found.rows.height, found.without_key, found.unpaired_share, found.paired) == (1, 3, 0.75, False)
    assert "3 without a key" in found.note


@pytest.mark.parametrize(("a", "b"), [([], []), ([1], []), ([], [1]), ([None], [None])])
def test_without_pairs(a, b):
    found = pair(arm(a), arm(b), KEY, "gap_ns")
    assert (found.rows.height, found.paired) == (0, False)
    assert found.note
    assert found.unpaired_share == (1 if a or b else None)
    assert [len(one) for one in found.series()] == [len([v for v in values if v is not None]) for values in (a, b)]


def test_keys_of_different_width_or_wrapping_are_the_same():
    a, b = arm([1, 2]), arm([3, 4]).with_columns(pl.col("src_rank").cast(pl.Int64), pl.col("seq").cast(pl.UInt32))
    assert pair(a, b, KEY, "gap_ns").rows.height == 2
    a = pl.DataFrame({"kind": ["p2p"], "n": [1]}, schema={"kind": pl.Enum(["p2p"]), "n": pl.Int64})
    b = pl.DataFrame({"kind": ["p2p"], "n": [2]})
    assert pair(a, b, ["kind"], "n").rows.rows() == [("p2p", 1, 2)]


@EXAMPLES
@given(
    st.dictionaries(st.integers(0, 30), st.none() | st.integers(0, 9)),
    st.dictionaries(st.integers(0, 30), st.integers(0, 9)),
)
def test_swapping_arms_swaps_the_answer(a, b):
    def frame(values):
        return pl.DataFrame({"step": list(values), "v": list(values.values())}, {"step": pl.Int64, "v": pl.Int64})

    there, back = pair(frame(a), frame(b), ["step"], "v"), pair(frame(b), frame(a), ["step"], "v")
    assert_frame_equal(there.rows, back.rows.select("step", a_ns="b_ns", b_ns="a_ns"), check_row_order=False)
    assert_frame_equal(there.missing_in_a, back.missing_in_b, check_row_order=False)
    assert (there.paired, there.unpaired_share) == (back.paired, back.unpaired_share)
    known = {key for key in a if a[key] is not None}
    assert dict(there.rows.select("step", "a_ns").iter_rows()) == {key: a[key] for key in known & set(b)}


@pytest.mark.parametrize(
    ("a", "b", "key", "value", "words"),
    [
        (
            arm([1, 2]),
            pl.concat([arm([1, 2]), arm([3])]),
            KEY,
            "gap_ns",
            r"Arm B has 1 keys more than once, .*seq=0 \(2",
        ),
        (pl.concat([arm([1])] * 3), arm([1]), KEY, "gap_ns", r"Arm A has 1 keys .*src_rank=0, seq=0 \(3 times\)"),
        (arm([1]), arm([1]), ["step"], "gap_ns", "Arm A has no column step. It has src_rank, seq, gap_ns"),
        (arm([1]), arm([1]).drop("gap_ns"), KEY, "gap_ns", "Arm B has no column gap_ns"),
        (arm([1]), arm([1]), [], "gap_ns", "need a key"),
        (arm([1]), arm([1]).cast({"seq": pl.String}), KEY, "gap_ns", "seq is Int64 in arm A and String in arm B"),
    ],
)
def test_what_cannot_be_paired_is_refused(a, b, key, value, words):
    with pytest.raises(UsageError, match=words):
        pair(a, b, key, value)

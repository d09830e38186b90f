"""Slices on tracks: nothing crosses, everything begins and ends once, and the first track that can takes a slice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapscope.exports.protobuf import put_varint, varint, varint_size
from gapscope.exports.stacking import NEVER, stack_up

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6)), max_size=30)


def stacked(spans, nested=True):
    rows = sorted((lane, start, -(start + length)) for lane, start, length in spans)
    lane, start, end = (
        np.array(c, t) for c, t in zip(list(zip(*rows, strict=True)) or [(), (), ()], ("i4", "i8", "i8"), strict=True)
    )
    for column in (lane, start, end):
        column.flags.writeable = False
    end = -end
    end.flags.writeable = False
    track, moments = stack_up(lane, start, end, nested)
    return lane, start, end, track, moments


@given(SPANS, st.booleans())
def test_slices_of_a_track_nest_and_their_moments_are_in_order(spans, nested):
    lane, start, end, track, moments = stacked(spans, nested)
    assert sorted(moments.tolist()) == list(range(2 * len(lane)))
    open_, last = {}, {}
    for moment in moments.tolist():
        item, closes = divmod(moment, 2)
        on = (int(lane[item]), int(track[item]))
        at = int(end[item] if closes else start[item])
        assert at >= last.get(on, 0)
        last[on] = at
        stack = open_.setdefault(on, [])
        if closes:
            assert stack.pop() == item
            continue
        assert nested or not stack
        assert all(start[item] < end[outer] and end[item] <= end[outer] for outer in stack)
        stack.append(item)
    assert not any(open_.values())


@given(SPANS)
def test_what_nests_is_all_on_the_first_track(spans):
    lane, start, end, track, _ = stacked(spans)
    crossing = any(
        lane[i] == lane[j] and start[i] < start[j] < end[i] < end[j] for i in range(len(lane)) for j in range(len(lane))
    )
    assert (track == 0).all() != crossing


def test_what_never_closes_has_no_end():
    lane, start = np.zeros(3, np.int32), np.array([0, 5, 6])
    end = np.array([NEVER, NEVER, 7])
    for column in (lane, start, end):
        column.flags.writeable = False
    track, moments = stack_up(lane, start, end, nested=True)
    assert (track.tolist(), moments.tolist()) == ([0, 0, 0], [0, 2, 4, 5])


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_written_as_one_at_a_time(value):
    out = np.zeros(10, np.uint8)
    assert put_varint(out, 0, value) == varint_size(value) == len(varint(value))
    assert out[: varint_size(value)].tobytes() == varint(value)


@pytest.mark.parametrize(("value", "size"), [(0, 1), (127, 1), (128, 2), (2**63 - 1, 9), (-1, 10)])
def test_sizes_of_numbers(value, size):
    assert len(varint(value)) == size

"""Lengths of time in 32 bits give back what was put there, whatever it was."""

from __future__ import annotations

import numba as nb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.graph.narrow import WIDE, filled, length_at, lengths_of, narrow, put_length, room_for

WIDEST = st.sampled_from([WIDE - 1, WIDE, WIDE + 1, -1, -(2**62), 2**62])
LENGTHS = st.lists(st.one_of(st.integers(0, 9), WIDEST, st.integers(-9, 2**40)))


@nb.njit
def put(room, lengths):
    for i in range(len(lengths)):
        put_length(room, i, lengths[i])


@nb.njit
def got(narrowed, found):
    for i in range(len(found)):
        found[i] = length_at(narrowed, i)


@settings(deadline=None)  # compiled on the way
@given(LENGTHS)
def test_lengths_come_back(lengths):
    lengths = np.array(lengths, np.int64)
    room = room_for(len(lengths) + 3)
    put(room, lengths)
    for narrowed in (narrow(lengths), filled(room, len(lengths)), room):
        found = np.zeros(len(lengths), np.int64)
        got(narrowed, found)
        assert found.tolist() == lengths.tolist()
    assert lengths_of(narrow(lengths)).tolist() == lengths.tolist()
    assert lengths_of(filled(room, len(lengths))).tolist() == lengths.tolist()

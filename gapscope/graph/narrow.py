"""Lengths of time in 32 bits each; the few that are longer than four seconds, or negative, stand beside them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.kernels import part

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

WIDE = 2**32 - 1
"""What stands for a length that has no place in 32 bits."""


class Narrow(NamedTuple):
    """Lengths of time, in nanoseconds.

    Attributes:
        value: Each, or `WIDE`.
        at: Which are wide, ascending; room for more.
        ns: Those.
        n: How many there are, one element.
    """

    value: npt.NDArray[np.uint32]
    at: Indices
    ns: Ints
    n: Ints


def room_for(most: int) -> Narrow:
    """Return room for so many lengths, to be put there in ascending order of their numbers."""
    return Narrow(
        np.empty(most, np.uint32), np.empty(most, np.int32), np.empty(most, np.int64), np.zeros(1, np.int64)
    )  # fmt: skip


def filled(room: Narrow, count: int) -> Narrow:
    """Return the part of some room that was put to use."""
    wide = int(room.n[0])
    return Narrow(room.value[:count], room.at[:wide], room.ns[:wide], room.n)


def narrow(lengths: Ints) -> Narrow:
    """Return lengths of time in 32 bits each.

    >>> lengths_of(narrow(np.array([0, 7, -1, 2**40]))).tolist()
    [0, 7, -1, 1099511627776]
    """
    is_wide = (lengths < 0) | (lengths >= WIDE)
    at = np.flatnonzero(is_wide)
    return Narrow(np.where(is_wide, WIDE, lengths).astype(np.uint32), at.astype(np.int32), lengths[at],
                  np.array([len(at)], np.int64))  # fmt: skip


def lengths_of(narrowed: Narrow) -> Ints:
    """Return lengths of time as they were."""
    lengths = narrowed.value.astype(np.int64)
    lengths[narrowed.at] = narrowed.ns
    return lengths


@part
def put_length(room: Narrow, i: int, length: int) -> None:
    """Put one length into its place; longer ones only behind those that are there."""
    if 0 <= length < WIDE:
        room.value[i] = length
    else:
        room.value[i] = WIDE
        room.at[room.n[0]], room.ns[room.n[0]] = i, length
        room.n[0] += 1


@part
def length_at(narrowed: Narrow, i: int) -> int:
    """Return one length."""
    short = np.int64(narrowed.value[i])
    if short != WIDE:
        return short  # type: ignore[return-value] # compiled, it is an integer
    low, high = np.int64(0), narrowed.n[0]
    while low < high:
        middle = (low + high) // 2
        if narrowed.at[middle] < i:
            low = middle + 1
        else:
            high = middle
    return int(narrowed.ns[low])

"""How much of some windows others spend in them; what runs twice counts twice.

Up to any moment that is a sum over what began before it minus one over what ended before it. Sums may wrap around,
their differences do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.kernels import fixed, leaf, part

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_NEAR = 16
"""Others from the last place on that are looked at one by one."""


class Others(NamedTuple):
    """Others of one group, of which there are few.

    Attributes:
        begins: Their starts, ordered.
        ends: Their ends, ordered.
        begun: Sum of the starts before each, and of all.
        ended: The same of the ends.
    """

    begins: Ints
    ends: Ints
    begun: Ints
    ended: Ints

    @classmethod
    def of(cls, frame: pl.DataFrame) -> dict[int, Others]:
        """Return those of each group.

        Args:
            frame: ``group, start_ns, end_ns``.
        """
        found = {}
        for (number,), rows in frame.group_by("group"):
            begins, ends = (np.sort(rows[c].to_numpy()) for c in ("start_ns", "end_ns"))
            sums = (np.concatenate([[0], np.cumsum(v)]) for v in (begins, ends))
            found[int(number)] = cls(*(fixed(v) for v in (begins, ends, *sums)))
        return found


def overlap(group: Ints, start: Ints, end: Ints, beside: Mapping[int, Others]) -> Ints:
    """Return for windows how much time others of the same group spend in them.

    Args:
        group: Number of the group of each window: a GPU, a process.
        start: Start of each window.
        end: End of each window.
        beside: The others of each group.
    """
    found = np.zeros(len(start), np.int64)
    for number, others in beside.items():
        mine = np.flatnonzero(group == number)
        low, high = fixed(start[mine]), fixed(end[mine])
        of_group = np.empty(len(mine), np.int64)
        _overlap(low, high, others, of_group)
        found[mine] = of_group
    return found


@leaf
def _overlap(start: Ints, end: Ints, others: Others, found: Ints) -> None:
    at = (0, 0, 0, 0)
    for w in range(len(found)):
        found[w], at = inside(others, at, start[w], end[w])


Places = tuple[int, int, int, int]


@part
def inside(others: Others, at: Places, low: int, high: int) -> tuple[int, Places]:
    """Return how much time others spend in a window, and where its ends stand among theirs.

    Args:
        others: The others.
        at: Where the ends of the window before stand.
        low: Start of the window.
        high: Its end.
    """
    begins, ends, begun, ended = others
    i, j = place(begins, at[0], low), place(ends, at[1], low)
    k, m = place(begins, at[2], high), place(ends, at[3], high)
    before = (i * low - begun[i]) - (j * low - ended[j])
    return (k * high - begun[k]) - (m * high - ended[m]) - before, (i, j, k, m)


@part
def place(keys: Ints, at: int, key: int) -> int:
    """Return how many of the ordered keys are less, looked for from a place on."""
    steps = 0
    while at < len(keys) and keys[at] < key and steps < _NEAR:
        at, steps = at + 1, steps + 1
    while at > 0 and keys[at - 1] >= key and steps < _NEAR:
        at, steps = at - 1, steps + 1
    return at if steps < _NEAR else int(np.searchsorted(keys, key))


def overlap_of_few(start: Ints, end: Ints, begins: Ints, ends: Ints, kind: Indices) -> Ints:
    """Return for windows how much time others spend in them, of whom there are many more.

    Args:
        start: Start of each window.
        end: End of each window.
        begins: Start of each of the others.
        ends: End of each of them.
        kind: Negative: it does not count.
    """
    moments, at = np.unique(np.concatenate([start, end]), return_inverse=True)
    begun, ended = np.zeros((2, len(moments) + 1), np.int64), np.zeros((2, len(moments) + 1), np.int64)
    _count(fixed(moments), fixed(begins), fixed(ends), fixed(kind), begun, ended)
    number, total = np.cumsum(begun - ended, axis=1)[:, :-1]
    until: Ints = number * moments - total
    low, high = until[at[: len(start)]], until[at[len(start) :]]
    return np.asarray(high - low, np.int64)


@leaf
def _count(  # noqa: PLR0917 - moments, others and room for the answer
    moments: Ints, begins: Ints, ends: Ints, kind: Indices, begun: Ints, ended: Ints
) -> None:
    """Write down how many begin, and end, from each moment to the next, and the sum of these times."""
    i = j = 0
    for other in range(len(kind)):
        if kind[other] < 0:
            continue
        i, j = place(moments, i, begins[other]), place(moments, j, ends[other])
        begun[0, i] += 1
        begun[1, i] += begins[other]
        ended[0, j] += 1
        ended[1, j] += ends[other]

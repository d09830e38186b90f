"""How much of some windows others spend in them: one compiled pass over the windows."""

from __future__ import annotations

from collections.abc import Iterable

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_NEAR = 16
"""Others from the last place on that are looked at one by one."""


def overlap(group: Ints, start: Ints, end: Ints, beside: pl.DataFrame) -> Ints:
    """Return for windows how much time others of the same group spend in them; what runs twice counts twice.

    Args:
        group: Number of the group of each window: a GPU, a process.
        start: Start of each window.
        end: End of each window.
        beside: ``group, start_ns, end_ns`` of the others.
    """
    parts = (
        (int(number), others["start_ns"].to_numpy(), others["end_ns"].to_numpy())
        for (number,), others in beside.group_by("group")
    )
    return overlap_with(group, start, end, parts)


def overlap_with(group: Ints | Indices, start: Ints, end: Ints, parts: Iterable[tuple[int, Ints, Ints]]) -> Ints:
    """Return the same as `overlap`, of others that stand in arrays.

    Up to any moment that is a sum over what began before it minus one over what ended before it; sums may wrap around,
    their differences do not.

    Args:
        group: Number of the group of each window.
        start: Start of each window.
        end: End of each window.
        parts: Group, starts and ends of others. A group may have several parts; one that is in order costs no sort.
    """
    found = np.zeros(len(start), np.int64)
    for number, starts, stops in parts:
        begins, ends = (v if (v[1:] >= v[:-1]).all() else np.sort(v) for v in (starts, stops))
        _add(found, group == number, start, end, (_fixed(begins), _fixed(ends), _sums(begins), _sums(ends)))
    return found


def _sums(values: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(values)])


def _fixed(values: Ints) -> Ints:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = values.view()
    values.flags.writeable = False
    return values


@nb.njit(cache=True, nogil=True)
def _place(keys: Ints, at: int, key: int) -> int:
    """Return how many of the ordered keys are less, looked for from a place on."""
    n = len(keys)
    steps = 0
    while at < n and keys[at] < key:
        at, steps = at + 1, steps + 1
        if steps == _NEAR:
            return int(at + np.searchsorted(keys[at:], key))
    while at > 0 and keys[at - 1] >= key:
        at, steps = at - 1, steps + 1
        if steps == _NEAR:
            return int(np.searchsorted(keys[:at], key))
    return at


@nb.njit(cache=True, nogil=True)
def _add(
    found: Ints, chosen: npt.NDArray[np.bool_], start: Ints, end: Ints, others: tuple[Ints, Ints, Ints, Ints]
) -> None:
    """Add what others, by their ordered starts and ends and the sums of these, spend in the chosen windows."""
    begins, ends, begun, ended = others
    i = j = k = m = 0
    for w in range(len(chosen)):
        if chosen[w]:
            low, high = start[w], end[w]
            i, j = _place(begins, i, low), _place(ends, j, low)
            k, m = _place(begins, k, high), _place(ends, m, high)
            before = (i * low - begun[i]) - (j * low - ended[j])
            found[w] += (k * high - begun[k]) - (m * high - ended[m]) - before

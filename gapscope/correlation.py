"""Rows by correlation id, without a hash table: ids count calls, so tables are in their order, or nearly.

A sort of what is nearly sorted and a binary search cost some bytes a row and little time, where a join of two large
tables on three columns costs hundreds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

NONE = -1

_NEAR = 16
"""Rows from the last id on that are looked at one by one."""

_FEW = 4096
"""Stretches of rows of one process that are looked at one by one; more are rows of several processes by turns."""


class Rows:
    """Rows of a table by ``source``, ``process`` and one more column (by default ``correlation``).

    Args:
        frame: Has ``source``, ``process`` and ``column``; rows with a null in it are found by nothing.
        column: Column of integers.
        places: Where the rows of each process stand, by source and process, if the frame lacks these two.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        column: str = "correlation",
        places: Mapping[tuple[int, int], slice | Indices] | None = None,
    ) -> None:
        values = frame[column]
        known = None if not values.null_count() else values.is_not_null().to_numpy()
        numbers = values.fill_null(0).to_numpy()
        self._rows: list[slice | Indices] = []
        self._sorted: dict[tuple[int, int], tuple[int, Ints]] = {}
        self._n = 0
        for key, where in (groups(frame) if places is None else places).items():
            of_key, keys = where, numbers[where]
            if known is not None and not known[where].all():
                of_key = np.arange(frame.height, dtype=np.int32)[where][known[where]]
                keys = numbers[of_key]
            if not (keys[1:] >= keys[:-1]).all():  # else nothing is copied
                order = np.argsort(keys, kind="stable")
                of_key, keys = np.arange(frame.height, dtype=np.int32)[of_key][order], keys[order]
            self._sorted[key] = (self._n, keys)
            self._rows.append(of_key)
            self._n += len(keys)

    @cached_property
    def order(self) -> Indices:
        """Row numbers by process and id; rows with one id keep their order."""
        parts = [np.arange(p.start, p.stop, dtype=np.int32) if isinstance(p, slice) else p for p in self._rows]
        return np.concatenate([*parts, np.zeros(0, np.int32)])

    def at(self, places: Indices) -> Indices:
        """Return the rows at some places of `order`, without making it."""
        first = np.cumsum([0, *(p.stop - p.start if isinstance(p, slice) else len(p) for p in self._rows)])
        part = np.searchsorted(first, places, side="right") - 1
        found = np.empty(len(places), np.int32)
        for number, rows in enumerate(self._rows):
            mine = part == number
            inside = places[mine] - first[number]
            found[mine] = rows.start + inside if isinstance(rows, slice) else rows[inside]
        return found

    def spans(
        self,
        frame: pl.DataFrame,
        column: str = "correlation",
        places: Mapping[tuple[int, int], slice | Indices] | None = None,
    ) -> tuple[Indices, Indices]:
        """Return where in `order` the rows with each id stand: from the first to before the second number.

        Args:
            frame: Has ``source``, ``process`` and ``column``.
            column: Column of ids; a null has no rows.
            places: Where the rows of each process stand in it, by source and process, if it lacks these two.
        """
        low, high = np.zeros(frame.height, np.int32), np.zeros(frame.height, np.int32)
        wanted = frame[column]
        numbers = wanted.fill_null(0).to_numpy()
        for key, where in (groups(frame) if places is None else places).items():
            if key in self._sorted:
                base, keys = self._sorted[key]
                low[where], high[where] = _spans(constant(keys), constant(numbers[where]), base)
        if wanted.null_count():
            unknown = wanted.is_null().to_numpy()
            low[unknown] = high[unknown] = 0
        return low, high

    def first(
        self,
        frame: pl.DataFrame,
        column: str = "correlation",
        places: Mapping[tuple[int, int], slice | Indices] | None = None,
    ) -> Indices:
        """Return the first row with each id; -1: there is none. Arguments as of `spans`."""
        low, high = self.spans(frame, column, places)
        return _first(low, high, self.order)


def constant(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = values.view()
    values.flags.writeable = False
    return values


@loop
def _spans(keys: Ints, wanted: Ints, base: int) -> tuple[Indices, Indices]:
    """Return where each wanted key stands among ordered keys; the next one is looked for from the last one on."""
    low, high = np.empty(len(wanted), np.int32), np.empty(len(wanted), np.int32)
    begin, end, n = 0, 0, len(keys)
    for i in range(len(wanted)):
        key = wanted[i]
        if end > begin and keys[begin] == key:
            pass  # once more
        else:
            if end > 0 and keys[end - 1] >= key:
                begin = np.searchsorted(keys[:end], key)
            else:
                begin, step = end, _NEAR  # ids count calls: the next one asked for is seldom far
                while begin + step < n and keys[begin + step] < key:
                    begin, step = begin + step, 2 * step
                until = min(n, begin + step)
                if step == _NEAR:
                    while begin < until and keys[begin] < key:
                        begin += 1
                else:
                    begin += np.searchsorted(keys[begin:until], key)
            end = begin
            until = min(n, end + _NEAR)
            while end < until and keys[end] == key:
                end += 1
            if end == until and end < n and keys[end] == key:
                end += np.searchsorted(keys[end:], key, side="right")
        low[i], high[i] = base + begin, base + end
    return low, high


@loop
def _first(low: Indices, high: Indices, order: Indices) -> Indices:
    """Return what stands first in each span of ``order``."""
    found = np.empty(len(low), np.int32)
    for i in range(len(low)):
        found[i] = order[low[i]] if high[i] > low[i] else NONE
    return found


def expand(low: Ints | Indices, high: Ints | Indices) -> tuple[Indices, Indices]:
    """Return all numbers of several spans, and the span that each is of."""
    counts = high - low
    span = np.repeat(np.arange(len(low), dtype=np.int32), counts)
    before = (np.cumsum(counts) - counts).astype(np.int32)
    return np.arange(len(span), dtype=np.int32) + (low.astype(np.int32) - before)[span], span


def greatest(low: Ints | Indices, high: Ints | Indices, values: Ints) -> Ints | Indices:
    """Return for each span (none is empty) where its greatest value stands; of equal ones the last."""
    found = high - 1
    several = np.flatnonzero(high - low > 1)
    if len(several):
        at, span = expand(low[several], high[several])
        order = np.lexsort((at, values[at], span))
        ends = np.cumsum((high - low)[several]) - 1
        found[several] = at[order[ends]]
    return found


def groups(frame: pl.DataFrame) -> dict[tuple[int, int], slice | Indices]:
    """Return the rows of each process, by source and process: a slice where they stand together, else their numbers."""
    if not frame.height:
        return {}
    source, process = frame["source"].to_numpy(), frame["process"].to_numpy()
    cuts = np.flatnonzero((source[1:] != source[:-1]) | (process[1:] != process[:-1])) + 1
    if len(cuts) < _FEW:
        first = [0, *cuts.tolist()]
        return _joined([(int(source[a]), int(process[a])) for a in first], [*first, frame.height])
    keys = frame.select("source", "process").unique(maintain_order=True).rows()
    return {(s, p): np.flatnonzero((source == s) & (process == p)).astype(np.int32) for s, p in keys}


def places(rows: pl.LazyFrame, n: int) -> dict[tuple[int, int], slice | Indices]:
    """Return `groups` of a large table without making its columns, which tell little: processes seldom take turns.

    Args:
        rows: Has ``source`` and ``process``.
        n: Number of rows.
    """
    found = stretches(rows, ["source", "process"])
    if found.height >= _FEW:
        return groups(rows.select("source", "process").collect())
    return _joined(found.select("source", "process").rows(), [*found["row"].to_list(), n])


def stretches(rows: pl.LazyFrame, columns: list[str]) -> pl.DataFrame:
    """Return ``row`` and the columns: from which row on they have which values."""
    other = pl.any_horizontal(pl.col(c) != pl.col(c).shift() for c in columns).fill_null(value=True)
    return rows.select(columns).with_row_index("row").filter(other).collect()


def _joined(keys: list[tuple[int, int]], edges: list[int]) -> dict[tuple[int, int], slice | Indices]:
    """Return the rows of each key: keys of stretches of rows, and the edges of these."""
    parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for key, stretch in zip(keys, pairwise(edges), strict=True):
        parts.setdefault(key, []).append(stretch)
    return {
        key: slice(*of_key[0])
        if len(of_key) == 1
        else np.concatenate([np.arange(*stretch, dtype=np.int32) for stretch in of_key])
        for key, of_key in parts.items()
    }

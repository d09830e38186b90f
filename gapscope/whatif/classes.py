"""Tiles of one cause on one rank, and what each handoff spends on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.kernels import fixed, leaf

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Classes:
    """Which tiles are of one cause on one rank: a class.

    Attributes:
        table: ``cause, rank``; position is the number of a class.
        number: Class of each tile.
        total_ns: What its handoff spends on that class in all.
        is_first: Whether it is its handoff's first tile of that class.
    """

    table: pl.DataFrame
    number: Indices
    total_ns: Ints
    is_first: Bools

    @classmethod
    def of(cls, parts: pl.DataFrame) -> Classes:
        """Return those of some tiles.

        Args:
            parts: ``handoff, cause, rank, length_ns``; those of one handoff stand together.
        """
        causes, ranks = (_numbered(parts[name].to_physical()) for name in ("cause", "rank"))
        both = causes * np.int32(int(ranks.max(initial=0)) + 1) + ranks
        there = np.bincount(both) > 0
        number = (np.cumsum(there, dtype=np.int32) - np.int32(1))[both]
        one_of_each = np.zeros(int(there.sum()), np.int64)
        one_of_each[number] = np.arange(len(number))
        handoff, length_ns = (fixed(parts[name].to_numpy()) for name in ("handoff", "length_ns"))
        total_ns, is_first = np.empty(len(number), np.int64), np.empty(len(number), np.bool_)
        last, sums = np.full(len(one_of_each), -1, np.int64), np.zeros(len(one_of_each), np.int64)
        _add_up(handoff, number, length_ns, last, sums, total_ns, is_first)
        return cls(parts.select("cause", "rank")[one_of_each], number, total_ns, is_first)


def _numbered(values: pl.Series) -> Indices:
    """Return numbers from 0 on for whole numbers: 0 is of nulls."""
    known = values.drop_nulls().unique().sort().to_numpy()
    numbers = np.searchsorted(known, values.fill_null(0).to_numpy()).astype(np.int32) + np.int32(1)
    numbers[values.is_null().to_numpy()] = 0
    return numbers


@leaf
def _add_up(  # noqa: PLR0917 - columns
    handoff: npt.NDArray[np.uint32],
    number: Indices,
    length_ns: Ints,
    last: Ints,
    sums: Ints,
    total_ns: Ints,
    is_first: Bools,
) -> None:
    """Fill in the totals of each handoff; ``last`` is the handoff that each sum is of."""
    n, low = len(number), 0
    while low < n:
        high = low
        while high < n and handoff[high] == handoff[low]:
            k = number[high]
            is_first[high] = last[k] != handoff[low]
            if is_first[high]:
                last[k], sums[k] = handoff[low], 0
            sums[k] += length_ns[high]
            high += 1
        for i in range(low, high):
            total_ns[i] = sums[number[i]]
        low = high

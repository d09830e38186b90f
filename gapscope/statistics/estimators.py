"""Point estimates of a difference: median, Hodges-Lehmann, quantiles.

They answer different questions. The median of the paired differences is the primary one. Hodges and Lehmann
(*Estimates of location based on rank tests*, Annals of Mathematical Statistics 1963) take the median of the means of
all pairs of differences: steadier, but equal to the median only where the differences are symmetric. A difference of
quantiles compares the two distributions: the difference of the p99s is not the p99 of the differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gapscope.statistics.arrays import Floats, Ints, observed, same_length
from gapscope.statistics.counted import HarrellDavis, OrderStatistic, Statistic, check_share, median, once

TAIL = 10
"""Harrell-Davis needs so many values beyond the quantile: with fewer it leans on the extreme alone."""

_FEW_SUMS = 20_000
"""From here on the sums that are left are cheaper sorted than searched."""


@dataclass(frozen=True)
class Location:
    """Where a series of paired differences lies.

    Attributes:
        n: Differences.
        smaller: How many are below zero: B took less time.
        larger: How many are above zero.
        median_ns: Their median; None without any.
        hodges_lehmann_ns: Their pseudo-median; None without any.
        shape_change: Whether the two differ in sign: the distribution changed its shape rather than moved, and neither
            number is a shift.
    """

    n: int
    smaller: int
    larger: int
    median_ns: float | None
    hodges_lehmann_ns: float | None
    shape_change: bool


@dataclass(frozen=True)
class QuantileDifference:
    """A quantile of each arm.

    Attributes:
        p: The share below the quantile.
        n_a: Values of arm A.
        n_b: Values of arm B.
        a_ns: Quantile of arm A; None without values.
        b_ns: Quantile of arm B; None without values.
        difference_ns: B minus A; None where one of them is.
        method: ``harrell_davis``, or ``order_statistic`` where fewer than `TAIL` values lie beyond the quantile in one
            arm: then it is one recorded value, and no interval can be given.
    """

    p: float
    n_a: int
    n_b: int
    a_ns: float | None
    b_ns: float | None
    difference_ns: float | None
    method: Literal["harrell_davis", "order_statistic"]


def differences(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return B minus A of each pair.

    Args:
        a: Durations of arm A.
        b: Durations of arm B, in the same order.

    Raises:
        UsageError: If lengths differ or values are missing.
    """
    first, second = observed(a), observed(b)
    same_length(first, second)
    return second - first


def log_ratios(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats | None:
    """Return the natural logarithm of B / A of each pair, for relative statements.

    None where a duration is not positive: a consumer that did not wait has no ratio.

    Args:
        a: Durations of arm A.
        b: Durations of arm B, in the same order.

    Raises:
        UsageError: If lengths differ or values are missing.
    """
    first, second = observed(a), observed(b)
    same_length(first, second)
    if np.any(first <= 0) or np.any(second <= 0):
        return None
    return np.asarray(np.log(second) - np.log(first))


def locate(values: npt.ArrayLike) -> Location:
    """Return where a series of differences lies.

    Args:
        values: The differences, B minus A.

    >>> locate([-300, -200, -100, 50])
    Location(n=4, smaller=3, larger=1, median_ns=-150.0, hodges_lehmann_ns=-137.5, shape_change=False)
    """
    series = observed(values)
    middle = float(median(np.sort(series), once(series))[0]) if len(series) else None
    pseudo = hodges_lehmann(series)
    return Location(
        len(series),
        int(np.count_nonzero(series < 0)),
        int(np.count_nonzero(series > 0)),
        middle,
        pseudo,
        middle is not None and pseudo is not None and middle * pseudo < 0,
    )


def hodges_lehmann(values: npt.ArrayLike) -> float | None:
    """Return the median of the means of all pairs of values (each with itself, too); None without values.

    Exact for whole numbers, whatever n is: the pairs are searched, not listed. Other numbers are taken to 52 bits of
    the largest.

    Args:
        values: The differences.

    >>> hodges_lehmann([0, 1, 5])
    1.75
    """
    series = np.sort(observed(values))
    if not len(series):
        return None
    whole, scale = _whole(series)
    pairs = len(whole) * (len(whole) + 1) // 2
    return _middle_sum(whole, whole, np.arange(len(whole)), pairs) / 2 / scale


def hodges_lehmann_shift(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Return the median of all differences between a value of B and a value of A, for arms without pairs.

    None where an arm has no values. Exact as `hodges_lehmann` is.

    Args:
        a: Durations of arm A.
        b: Durations of arm B.
    """
    first, second = observed(a), observed(b)
    if not len(first) or not len(second):
        return None
    whole, scale = _whole(np.concatenate([-first, second]))
    rows, columns = np.sort(whole[: len(first)]), np.sort(whole[len(first) :])
    return _middle_sum(rows, columns, np.zeros(len(rows), np.int64), len(rows) * len(columns)) / scale


def quantile_statistic(p: float, smallest_n: int) -> Statistic:
    """Return how a quantile is estimated: Harrell-Davis, or the order statistic where that would lean on the extreme.

    Args:
        p: The share below the quantile.
        smallest_n: Values in the smaller arm.
    """
    return HarrellDavis(p) if has_tail(p, smallest_n) else OrderStatistic(p)


def has_tail(p: float, n: int) -> bool:
    """Return whether enough values lie beyond a quantile for Harrell-Davis and for an interval.

    >>> has_tail(0.99, 999), has_tail(0.99, 1000)
    (False, True)
    """
    check_share(p)
    return round(n * min(p, 1 - p), 9) >= TAIL  # 100 * (1 - 0.9) is a little less than 10


def quantile(values: npt.ArrayLike, p: float) -> float | None:
    """Return a quantile of one series: Harrell-Davis, near the extremes the order statistic; None without values.

    Args:
        values: The durations.
        p: The share below the quantile.
    """
    series = np.sort(observed(values))
    if not len(series):
        return None
    return float(quantile_statistic(p, len(series))(series, once(series))[0])


def quantile_difference(a: npt.ArrayLike, b: npt.ArrayLike, p: float) -> QuantileDifference:
    """Return the difference between a quantile of B and the same of A, both estimated the same way.

    Args:
        a: Durations of arm A.
        b: Durations of arm B; pairs are not needed.
        p: The share below the quantile.
    """
    arms = [np.sort(observed(a)), np.sort(observed(b))]
    smallest = min(len(arm) for arm in arms)
    statistic = quantile_statistic(p, smallest)
    first, second = (float(statistic(arm, once(arm))[0]) if len(arm) else None for arm in arms)
    return QuantileDifference(
        p,
        len(arms[0]),
        len(arms[1]),
        first,
        second,
        None if first is None or second is None else second - first,
        "harrell_davis" if has_tail(p, smallest) else "order_statistic",
    )


def values_needed(p: float, confidence: float = 0.95) -> int:
    """Return how many independent values it takes until smallest and largest enclose a quantile that surely.

    Of fewer values nothing can be said about the quantile, whatever its distribution.

    Args:
        p: The share below the quantile.
        confidence: The probability.

    >>> [values_needed(p) for p in (0.5, 0.9, 0.95, 0.99)]
    [6, 29, 59, 299]
    """
    check_share(p)
    n = max(2, math.floor(math.log(1 - confidence) / math.log(max(p, 1 - p))))
    while 1 - p**n - (1 - p) ** n < confidence:
        n += 1
    return n


def _whole(series: Floats) -> tuple[Ints, float]:
    """Return a series times a power of two as whole numbers whose sums fit into 64 bits, and the power."""
    if np.all(series == np.floor(series)):
        return series.astype(np.int64), 1.0
    scale = 2.0 ** min(1000, 52 - math.frexp(float(np.abs(series).max()))[1])
    return np.rint(series * scale).astype(np.int64), scale


def _middle_sum(rows: Ints, columns: Ints, first: Ints, pairs: int) -> float:
    """Return the median of the sums of a row and a column."""
    low = _kth_sum(rows, columns, first, (pairs - 1) // 2)
    return low if pairs % 2 else (low + _kth_sum(rows, columns, first, pairs // 2)) / 2


def _kth_sum(rows: Ints, columns: Ints, first: Ints, k: int) -> int:
    """Return the k-th smallest (from 0) of the sums ``rows[i] + columns[j]`` with ``j >= first[i]``.

    Every row of sums is ascending, so what is still possible is one stretch of each. The weighted median of the middles
    of the stretches splits off a quarter of what is left or more (Johnson and Mizoguchi, SIAM J. Computing 1978).

    Args:
        rows: Whole numbers.
        columns: Whole numbers, ascending.
        first: Where each row begins.
        k: Which sum.
    """
    start, stop = first.copy(), np.full(len(rows), len(columns))
    while (left := int((stop - start).sum())) > _FEW_SUMS:
        open_rows = np.flatnonzero(stop > start)
        middles = rows[open_rows] + columns[(start[open_rows] + stop[open_rows] - 1) // 2]
        order = np.argsort(middles)
        weight = np.cumsum((stop - start)[open_rows][order])
        pivot = middles[order[np.searchsorted(weight, left / 2)]]
        below = np.maximum(first, np.searchsorted(columns, pivot - rows, side="left"))
        up_to = np.maximum(first, np.searchsorted(columns, pivot - rows, side="right"))
        if k < int((below - first).sum()):
            stop = np.minimum(stop, below)
        elif k >= int((up_to - first).sum()):
            start = np.maximum(start, up_to)
        else:
            return int(pivot)
    lengths = stop - start
    row = np.repeat(np.arange(len(rows)), lengths)
    column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + start[row]
    before = int((start - first).sum())
    return int(np.partition(rows[row] + columns[column], k - before)[k - before])

"""How much neighbors in time resemble each other, and what that costs.

Requests that queue together are slow together, so n of them say less than n independent ones would. Effective size:
the sum of autocorrelations, cut off by Geyer's initial positive sequence (*Practical Markov chain Monte Carlo*,
Statistical Science 1992). Block length: Politis and White, *Automatic block-length selection for the dependent
bootstrap* (Econometric Reviews 2004), with the correction by Patton, Politis and White (2009), for circular blocks.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from gapscope.statistics.arrays import Floats, observed

_INSIGNIFICANT_IN_A_ROW = 5
"""K_N of the paper, ``max(5, sqrt(log10 n))``: 5 for every n that fits into memory."""

_FEWEST = 4
"""Shorter series have no autocorrelation worth the name."""


def autocovariances(values: npt.ArrayLike) -> Floats:
    """Return the autocovariance of each lag from 0 on, divided by n (not by n - lag), in the square of the unit.

    Args:
        values: The series in order of time.
    """
    series = observed(values)
    n = len(series)
    if n == 0 or np.all(series == series[0]):
        return np.zeros(n)
    series = series - np.median(series)  # exact for whole numbers, so that a shift changes no digit of the result
    series = series - series.mean()
    size = fft.next_fast_len(2 * n, real=True)
    spectrum = fft.rfft(series, size)
    return np.asarray(fft.irfft(np.abs(spectrum) ** 2, size)[:n] / n)


def effective_size(values: npt.ArrayLike) -> float:
    """Return n / (1 + 2 times the sum of autocorrelations): how many independent values would say as much.

    Never more than n: that neighbors alternate is not taken as a gain. A series without any variation shows no
    dependence and counts as n, as does one of fewer than four values.

    Args:
        values: The series in order of time.
    """
    covariances = autocovariances(values)
    n = len(covariances)
    if n < _FEWEST or covariances[0] <= 0:
        return float(n)
    correlations = covariances / covariances[0]
    pairs = correlations[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    pairs = pairs[: negative[0]] if len(negative) else pairs
    inflation = 2 * float(pairs.sum()) - 1
    return n / max(1.0, inflation)


def block_length(values: npt.ArrayLike, concurrency: int = 1) -> int:
    """Return how many neighbors a block of the bootstrap keeps together.

    The length by Politis, White and Patton, but no less than the cube root of n and than the concurrency, and no more
    than n.

    Args:
        values: The series in order of time.
        concurrency: How many requests were in flight at once (95th percentile); 1 where nothing overlaps.
    """
    covariances = autocovariances(values)
    n = len(covariances)
    return max(shortest_block(n, concurrency), min(n, _automatic_length(covariances)))


def shortest_block(n: int, concurrency: int = 1) -> int:
    """Return the least length of a block: the cube root of n, or the concurrency; no more than n.

    Args:
        n: Values.
        concurrency: How many requests were in flight at once (95th percentile).
    """
    return max(1, min(n, max(math.ceil(round(math.cbrt(n), 9)), concurrency)))


def _automatic_length(covariances: Floats) -> int:
    """Return the block length by Politis, White and Patton; 1 where the series tells nothing."""
    n = len(covariances)
    if n < _FEWEST or covariances[0] <= 0:
        return 1
    most_lags = min(math.ceil(math.sqrt(n)) + _INSIGNIFICANT_IN_A_ROW, n - 1)
    small = np.abs(covariances[1 : most_lags + 1] / covariances[0]) < 2 * math.sqrt(math.log10(n) / n)
    lags = min(2 * max(1, _last_significant(small)), most_lags)
    k = np.arange(1, lags + 1)
    weighted = np.clip(2 * (1 - k / lags), 0, 1) * covariances[1 : lags + 1]  # flat top, then down to zero
    long_run = covariances[0] + 2 * float(weighted.sum())
    slope = 2 * float((k * weighted).sum())
    longest = math.ceil(min(3 * math.sqrt(n), n / 3))
    if long_run == 0:
        return longest
    return min(longest, math.ceil(math.cbrt(1.5 * (slope / long_run) ** 2 * n)))


def _last_significant(small: npt.NDArray[np.bool_]) -> int:
    """Return the lag after which autocorrelations stay insignificant.

    Args:
        small: Whether the autocorrelation is insignificant, lags from 1 on.
    """
    runs = np.convolve(small, np.ones(_INSIGNIFICANT_IN_A_ROW, np.int64), mode="valid")
    quiet = np.flatnonzero(runs == _INSIGNIFICANT_IN_A_ROW)
    if len(small) >= _INSIGNIFICANT_IN_A_ROW and len(quiet):
        return int(quiet[0])
    significant = np.flatnonzero(~small)
    return int(significant[-1]) + 1 if len(significant) else 0

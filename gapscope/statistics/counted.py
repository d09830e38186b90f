"""Statistics of samples in which each value occurs some number of times.

A resample of a bootstrap is such a sample. Told as counts of the sorted values it needs no sorting of its own, a
cluster is one number, and thousands of resamples are a few operations on a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from gapscope.errors import UsageError
from gapscope.statistics.arrays import Floats

Counts = npt.NDArray[np.int32]
"""``[sample, value]``: how often each sorted value occurs in each sample; every sample holds something."""


class Statistic(Protocol):
    """A number per sample."""

    def __call__(self, ordered: Floats, counts: Counts) -> Floats:
        """Return one number per sample.

        Args:
            ordered: The values, ascending.
            counts: How often each occurs.
        """
        ...


def once(ordered: Floats) -> Counts:
    """Return the counts of the sample itself: each value once."""
    return np.ones((1, len(ordered)), np.int32)


def mean(ordered: Floats, counts: Counts) -> Floats:
    """Return the mean of each sample."""
    return np.asarray(ordered[0] + counts @ (ordered - ordered[0]) / counts.sum(axis=1))


def median(ordered: Floats, counts: Counts) -> Floats:
    """Return the median of each sample: of an even number of values the middle between the two in the middle."""
    ends = _ends(counts)
    total = ends[:, -1]
    low, high = ordered[_at_rank(ends, (total - 1) // 2)], ordered[_at_rank(ends, total // 2)]
    return np.asarray(low + (high - low) / 2)


@dataclass(frozen=True)
class OrderStatistic:
    """The smallest value that at least the share `p` of the sample does not exceed.

    Attributes:
        p: The share, between 0 and 1.
    """

    p: float

    def __post_init__(self) -> None:
        check_share(self.p)

    def __call__(self, ordered: Floats, counts: Counts) -> Floats:
        """Return the order statistic of each sample."""
        ends = _ends(counts)
        rank = np.ceil(np.round(ends[:, -1] * self.p, 9)).astype(np.int32) - 1  # 100 * 0.07 is a little more than 7
        return ordered[_at_rank(ends, np.maximum(rank, 0))]


@dataclass(frozen=True)
class HarrellDavis:
    """The quantile as a mean of all order statistics, weighted by how likely each is the quantile.

    Harrell and Davis, *A new distribution-free quantile estimator* (Biometrika 1982): the weights are increments of the
    beta distribution with parameters (n + 1) p and (n + 1) (1 - p).

    Attributes:
        p: The share, between 0 and 1.
    """

    p: float

    def __post_init__(self) -> None:
        check_share(self.p)

    def __call__(self, ordered: Floats, counts: Counts) -> Floats:
        """Return the quantile of each sample."""
        ends = _ends(counts)
        total = ends[:, -1]
        if np.all(total == total[0]):  # the rule: only clusters of different sizes make samples of different sizes
            n = int(total[0])
            below = special.betainc((n + 1) * self.p, (n + 1) * (1 - self.p), np.arange(n + 1) / n)[ends[:, :-1]]
        else:
            a = ((total + 1) * self.p)[:, None]
            below = special.betainc(a, (total + 1)[:, None] - a, ends[:, :-1] / total[:, None])
        return np.asarray(ordered[-1] - below @ np.diff(ordered))


def check_share(p: float) -> None:
    """Check that a quantile is one.

    Raises:
        UsageError: If it is not between 0 and 1.
    """
    if not 0 < p < 1:
        raise UsageError(f"A quantile is between 0 and 1, not {p:g}. The 99th percentile is 0.99.")


def _ends(counts: Counts) -> Counts:
    """Return how many values there are up to each, of each sample."""
    return np.cumsum(counts, axis=1, dtype=np.int32)


def _at_rank(ends: Counts, rank: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Return the position of the value that holds a rank (from 0) in each sample.

    Args:
        ends: ``[sample, value]``: how many there are up to each value.
        rank: One per sample.
    """
    return np.asarray(np.count_nonzero(ends <= rank[:, None], axis=1))

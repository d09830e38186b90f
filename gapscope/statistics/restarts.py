"""Across restarts: the only level that supports a claim.

Requests of one restart share one draw of processes, memory, placement and clocks, so the unit of replication is the
restart (Kalibera and Jones, *Rigorous benchmarking in reasonable time*, ISMM 2013). From one estimate per pair of
restarts Student's t interval, without pairs Welch's (*The generalization of "Student's" problem when several different
population variances are involved*, Biometrika 1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from gapscope.errors import UsageError
from gapscope.statistics.arrays import Floats, observed


@dataclass(frozen=True)
class Across:
    """What restarts say about a difference, B minus A.

    Attributes:
        estimate: Mean over pairs, or difference of the means of both arms, in the unit of what was given.
        standard_error: Of the estimate; None with one restart.
        degrees_of_freedom: Pairs minus one; without pairs by Welch and Satterthwaite; None with one restart.
        s_between: Standard deviation of the pair estimates, without pairs pooled over both arms; None with one restart.
        restarts_a: Restarts of arm A.
        restarts_b: Restarts of arm B.
        paired: Whether restarts were paired by slot.
    """

    estimate: float
    standard_error: float | None
    degrees_of_freedom: float | None
    s_between: float | None
    restarts_a: int
    restarts_b: int
    paired: bool

    @property
    def fewest(self) -> int:
        """Restarts of the arm that has fewer."""
        return min(self.restarts_a, self.restarts_b)

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """Return the t interval; None with one restart.

        Args:
            confidence: How surely it holds the true difference.
        """
        if self.standard_error is None or self.degrees_of_freedom is None:
            return None
        half = float(stats.t.isf((1 - confidence) / 2, self.degrees_of_freedom)) * self.standard_error
        return self.estimate - half, self.estimate + half

    def p_value(self) -> float | None:
        """Return the p of the t test against no difference, two-sided; None with one restart."""
        if self.standard_error is None or self.degrees_of_freedom is None:
            return None
        if self.standard_error == 0:
            return 1.0 if self.estimate == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.estimate) / self.standard_error, self.degrees_of_freedom))


def across_pairs(estimates: npt.ArrayLike) -> Across:
    """Return what pairs of restarts say: t with k - 1 degrees of freedom.

    Args:
        estimates: One difference (or log ratio) per pair, B minus A.

    Raises:
        UsageError: If there are none, or one is missing.

    >>> low, high = across_pairs([-120.0, -100.0, -80.0]).interval()
    >>> round(low), round(high)
    (-150, -50)
    """
    pairs = observed(estimates)
    k = len(pairs)
    _some(k, k)
    if k == 1:
        return Across(float(pairs[0]), None, None, None, 1, 1, paired=True)
    s = _deviation(pairs)
    return Across(_mean(pairs), s / math.sqrt(k), k - 1.0, s, k, k, paired=True)


def across_arms(a: npt.ArrayLike, b: npt.ArrayLike) -> Across:
    """Return what restarts without pairs say: Welch's t.

    Args:
        a: One estimate per restart of arm A.
        b: One estimate per restart of arm B.

    Raises:
        UsageError: If an arm has none, or one is missing.
    """
    first, second = observed(a), observed(b)
    k_a, k_b = len(first), len(second)
    _some(k_a, k_b)
    estimate = _mean(second) - _mean(first)
    if min(k_a, k_b) == 1:
        return Across(estimate, None, None, None, k_a, k_b, paired=False)
    s_a, s_b = _deviation(first), _deviation(second)
    v_a, v_b = s_a**2 / k_a, s_b**2 / k_b
    df = k_a + k_b - 2.0
    pooled = math.sqrt(((k_a - 1) * s_a**2 + (k_b - 1) * s_b**2) / df)
    if v_a + v_b > 0:
        share = v_a / (v_a + v_b)
        df = 1 / (share**2 / (k_a - 1) + (1 - share) ** 2 / (k_b - 1))
    return Across(estimate, math.sqrt(v_a + v_b), df, pooled, k_a, k_b, paired=False)


def ratio(logs: Across, confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """Return B / A with its interval, from what restarts say about log ratios.

    Args:
        logs: From `across_pairs` of `gapscope.statistics.estimators.log_ratios`, or of their medians.
        confidence: Of the interval.

    Returns:
        Ratio, low, high; the interval is None with one restart.
    """
    interval = logs.interval(confidence)
    low, high = (None, None) if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    return math.exp(logs.estimate), low, high


def _mean(values: Floats) -> float:
    """Return the mean; of equal values the value itself, to the last digit."""
    return float(values[0] + np.mean(values - values[0]))


def _deviation(values: Floats) -> float:
    """Return the standard deviation, n - 1; of equal values exactly zero."""
    return float(np.std(values - values[0], ddof=1))


def _some(restarts_a: int, restarts_b: int) -> None:
    """Check that there is something to compare.

    Raises:
        UsageError: If an arm has no restart.
    """
    if min(restarts_a, restarts_b) == 0:
        raise UsageError(f"Arm A has {restarts_a} restarts with a number, arm B {restarts_b}. Both need one at least.")

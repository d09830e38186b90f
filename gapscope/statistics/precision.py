"""How small a change a study can see: where its variance is, the smallest detectable change, the noise floor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from gapscope.errors import UsageError
from gapscope.statistics.arrays import observed, same_length
from gapscope.statistics.restarts import across_pairs

MUCH_MORE = 2.0
"""So many times the spread that requests alone would make, and more requests would not help."""


@dataclass(frozen=True)
class Spread:
    """Where the variance is.

    Attributes:
        between: Standard deviation of the estimates of the restarts; None with one restart.
        within: What it would be if restarts did not differ: root mean square of s_within / sqrt(n_eff); None without
            requests.
        more_restarts: Whether `between` is more than `MUCH_MORE` times `within`; None where one of them is.
        advice: What to take more of, in words; empty where nothing can be said.
    """

    between: float | None
    within: float | None
    more_restarts: bool | None
    advice: str


@dataclass(frozen=True)
class NoiseFloor:
    """How far arm A is from itself. No difference that is not larger is called real.

    Attributes:
        floor: Largest absolute difference between two restarts of one arm; None without any.
        pairs: How many differences it comes from.
        note: What is missing to trust it, in words; empty from two pairs on.
    """

    floor: float | None
    pairs: int
    note: str


def spread(estimates: npt.ArrayLike, s_within: npt.ArrayLike, n_eff: npt.ArrayLike) -> Spread:
    """Return whether restarts or requests carry the variance.

    Args:
        estimates: One estimate per restart or pair of restarts.
        s_within: Standard deviation of its requests (of the paired differences), one per estimate.
        n_eff: Effective size of its requests, one per estimate.

    Raises:
        UsageError: If lengths differ or values are missing.
    """
    values, deviations, sizes = observed(estimates), observed(s_within), observed(n_eff)
    same_length(values, deviations)
    same_length(values, sizes)
    between = across_pairs(values).s_between if len(values) else None
    within = math.sqrt(float(np.mean(deviations**2 / sizes))) if len(values) and np.all(sizes > 0) else None
    if between is None or within is None:
        return Spread(between, within, None, "")
    if between > MUCH_MORE * within:
        return Spread(between, within, True, "restarts differ more than requests explain: take more restarts")
    return Spread(between, within, False, "requests explain how restarts differ: longer runs help as well")


def noise_floor(same_arm: npt.ArrayLike) -> NoiseFloor:
    """Return the noise floor from comparisons of A with A.

    Args:
        same_arm: Differences of pairs of restarts of one arm, as `same_arm_differences` or a study of A against A give
            them.
    """
    differences = observed(same_arm)
    pairs = len(differences)
    if pairs == 0:
        return NoiseFloor(None, 0, "no two restarts of one arm: how far A is from A is unknown")
    note = "" if pairs > 1 else "one pair of A with A: two or more show whether it was typical"
    return NoiseFloor(float(np.abs(differences).max()), pairs, note)


def same_arm_differences(estimates: npt.ArrayLike) -> list[float]:
    """Return the differences of the first and second restart of an arm, the third and fourth, and so on.

    Each restart is used once, so that one odd restart counts once.

    Args:
        estimates: One estimate per restart of one arm, in the order in which they ran.
    """
    values = observed(estimates)
    even = len(values) // 2 * 2
    return [float(difference) for difference in values[1:even:2] - values[0:even:2]]


def minimum_detectable(
    s_between: float,
    restarts: int,
    restarts_b: int | None = None,
    power: float = 0.8,
    confidence: float = 0.95,
) -> float | None:
    """Return the smallest true change that a study of so many restarts finds with the stated power.

    Found means that the whole interval lies on the side of the true change (noncentral t distribution). None with one
    restart.

    Args:
        s_between: Standard deviation of the pair estimates, or without pairs of the restarts of an arm.
        restarts: Pairs, or without pairs restarts of arm A.
        restarts_b: Restarts of arm B where there are no pairs.
        power: Probability to find it if the change is that large.
        confidence: Of the interval.

    Raises:
        UsageError: If the power is not above what no change at all would give, or a number is negative.

    >>> round(minimum_detectable(100.0, 8), 1)
    115.6
    """
    if not 0 < confidence < 1 or not (1 - confidence) / 2 < power < 1 or not s_between >= 0:
        raise UsageError("A power between half of 1 - confidence and 1 and a spread of 0 or more are needed.")
    if min(restarts, restarts if restarts_b is None else restarts_b) < 2:
        return None
    if restarts_b is None:
        df, scale = restarts - 1, math.sqrt(1 / restarts)
    else:
        df, scale = restarts + restarts_b - 2, math.sqrt(1 / restarts + 1 / restarts_b)
    critical = float(stats.t.isf((1 - confidence) / 2, df))

    def short_of_power(shift: float) -> float:
        return float(stats.nct.sf(critical, df, shift)) - power

    most = critical
    while short_of_power(most) < 0:
        most *= 2
    return float(optimize.brentq(short_of_power, 0.0, most)) * scale * s_between

"""Exact tests across restarts: every arrangement of them is listed (Fisher 1935, Pitman 1937).

They assume no distribution, and so few restarts have few arrangements: each test has a floor, the smallest p it can
reach. Above 0.05 it cannot say anything, and says that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from gapscope.statistics.arrays import Floats, observed

MOST_ARRANGEMENTS = 200_000
"""So many are listed: the signs of 17 pairs, or 10 restarts per arm."""

LEVEL = 0.05
"""A test whose floor is above cannot reject at the usual level."""


@dataclass(frozen=True)
class ExactTest:
    """A test that lists every arrangement of the restarts.

    Attributes:
        p_value: Two-sided; None where nothing can be rearranged, or too much.
        floor: The smallest p that so many restarts can reach.
        note: Why there is no p, or why it could not have been small; else empty.
    """

    p_value: float | None
    floor: float
    note: str


def sign_flip_test(estimates: npt.ArrayLike) -> ExactTest:
    """Return the test for pairs: without a difference, each could as well have had the other sign.

    Six pairs or more can reach 0.05.

    Args:
        estimates: One difference per pair.

    >>> sign_flip_test([-9, -7, -8, -5, -6, -4])
    ExactTest(p_value=0.03125, floor=0.03125, note='')
    """
    pairs = observed(estimates)
    return _test((pairs,), "samples", 2 ** len(pairs), f"{len(pairs)} pairs, six are needed")


def permutation_test(a: npt.ArrayLike, b: npt.ArrayLike) -> ExactTest:
    """Return the test without pairs: without a difference, any restart could have been one of the other arm.

    Four restarts per arm or more can reach 0.05.

    Args:
        a: One estimate per restart of arm A.
        b: One estimate per restart of arm B.

    >>> permutation_test([1, 2, 3], [7, 8, 9])
    ExactTest(p_value=0.1, floor=0.1, note='p cannot be below 0.1 with 3 and 3 restarts, four per arm are needed')
    """
    first, second = observed(a), observed(b)
    arrangements = math.comb(len(first) + len(second), len(first))
    words = f"{len(first)} and {len(second)} restarts, four per arm are needed"
    return _test((first, second), "independent", arrangements, words)


def _test(
    arms: tuple[Floats, ...], kind: Literal["samples", "independent"], arrangements: int, words: str
) -> ExactTest:
    """Return the test of the mean, or of the difference of means."""
    floor = min(1.0, 2 / arrangements)
    if min(len(arm) for arm in arms) < 2:
        return ExactTest(None, floor, f"nothing to rearrange: {words}")
    if arrangements > MOST_ARRANGEMENTS:
        return ExactTest(None, floor, f"{arrangements:,} arrangements are too many to list; the t interval stands")

    def statistic(*samples: Floats, axis: int) -> Floats:
        means = [np.mean(sample, axis=axis) for sample in samples]
        return np.asarray(means[0] if len(means) == 1 else means[1] - means[0])

    found = stats.permutation_test(arms, statistic, permutation_type=kind, vectorized=True, n_resamples=np.inf)
    note = "" if floor <= LEVEL else f"p cannot be below {floor:.3g} with {words}"
    return ExactTest(float(found.pvalue), floor, note)

"""Where two transports change places over a parameter: an interval between values, never one winner for all.

Each value has a log ratio and draws of it: what it could as well have been. Of every draw the values at which its sign
changes are looked up; between two values the log ratio is taken to go straight (over the logarithm of the value, where
all are above zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from gapscope.statistics.restarts import Across

Floats = npt.NDArray[np.float64]

Kind = Literal["one", "none", "several", "cannot tell", "too few values"]

SAMPLES = 4000
_FEWEST_VALUES = 2


@dataclass(frozen=True)
class Crossing:
    """What is known of where two arms change places.

    Attributes:
        kind: ``one`` (the sign is certain on both sides of one place), ``several``, ``none`` (it is the same in almost
            all draws, and the clocks resolve it at all values), ``cannot tell``, or ``too few values``.
        between: For each place the neighboring values whose sign is certain: it lies between them.
        at: Where the estimates cross, straight between their neighbors; None: they do not cross once, or the clocks do
            not resolve the difference at some value.
        low: Lower end of where draws cross first (where the clocks do not resolve some value, of ``between``); None
            unless ``one``.
        high: Upper end of where draws cross last.
        first_sign: Sign of the log ratio at the least value whose sign is certain: -1, B takes less. 0: there is none.
        share_none: Of the draws, how many cross nowhere; None without draws.
        share_one: How many cross once.
        share_several: How many cross more often.
    """

    kind: Kind
    between: tuple[tuple[float, float], ...] = ()
    at: float | None = None
    low: float | None = None
    high: float | None = None
    first_sign: int = 0
    share_none: float | None = None
    share_one: float | None = None
    share_several: float | None = None


def find_crossing(
    values: Sequence[float],
    estimates: Sequence[float],
    draws: Floats | None,
    confidence: float,
    resolved: Sequence[bool] | None = None,
) -> Crossing:
    """Return where log ratios change their sign.

    Args:
        values: Values of the parameter, ascending.
        estimates: A log ratio each.
        draws: ``[draw, value]``: log ratios that could as well have been measured; None: how far they could be off is
            not known.
        confidence: Of the interval. A sign is certain where so many draws have it, with the rest shared by all values.
        resolved: Whether the clocks resolve the difference at each value: else its sign is not certain. None: all.
    """
    at, scale = np.asarray(values, np.float64), np.asarray(estimates, np.float64)
    if len(at) < _FEWEST_VALUES:
        return Crossing("too few values")
    own = _places(at, scale[None, :])
    is_resolved = resolved is None or all(resolved)
    once = float(own[0][0]) if own[2][0] == 1 and is_resolved else None
    if draws is None:
        return Crossing("cannot tell", at=once)
    first, last, count = _places(at, draws)
    shares = [float(np.mean(count == 0)), float(np.mean(count == 1)), float(np.mean(count > 1))]
    signs = _certain_signs(draws, (1 - confidence) / len(at))
    signs = signs if resolved is None else np.where(resolved, signs, 0)
    certain = np.flatnonzero(signs)
    changes = [(float(at[i]), float(at[j])) for i, j in pairwise(certain) if signs[i] != signs[j]]
    first_sign = int(signs[certain[0]]) if len(certain) else 0
    if not changes:
        kind: Kind = "none" if first_sign and is_resolved and shares[0] >= confidence else "cannot tell"
        return Crossing(kind, (), once, None, None, first_sign, *shares)
    if len(changes) > 1:
        return Crossing("several", tuple(changes), once, None, None, first_sign, *shares)
    tail, crosses = (1 - confidence) / 2, count > 0
    if not is_resolved:  # where the clocks hide the sign, resampling knows no more than the values around
        return Crossing("one", tuple(changes), None, *changes[0], first_sign, *shares)
    low, high = float(np.quantile(first[crosses], tail)), float(np.quantile(last[crosses], 1 - tail))
    return Crossing("one", tuple(changes), once, low, high, first_sign, *shares)


def draws_across(across: Sequence[Across], pairs: Sequence[Floats], together: bool, seed: int = 0) -> Floats | None:
    """Return log ratios that as many other restarts could have given, by Student's t as the intervals are.

    Args:
        across: What restarts say of each value.
        pairs: Of each value the log ratios of its pairs of restarts; empty where they are not paired.
        together: Whether the k-th pair is the same at all values, as where one run has all of them: then what one
            restart does to all values is kept.
        seed: Of the random numbers.

    Returns:
        ``[draw, value]``; None where a value has one restart only.
    """
    random = np.random.default_rng(seed)
    columns, shared = [], None
    for one, logs in zip(across, pairs, strict=True):
        if one.standard_error is None or one.degrees_of_freedom is None:
            return None
        if not len(logs):
            columns.append(one.estimate + one.standard_error * random.standard_t(one.degrees_of_freedom, SAMPLES))
            continue
        k = len(logs)
        if shared is None or not together or shared[0].shape[1] != k:
            shared = random.standard_normal((SAMPLES, k)), np.sqrt(random.chisquare(k - 1, SAMPLES) / (k - 1))
        weights, root = shared
        columns.append(one.estimate + weights @ (logs - one.estimate) / np.sqrt(k * (k - 1)) / root)
    return np.stack(columns, axis=1) if columns else None


def draws_from_intervals(
    estimates: Sequence[float], intervals: Sequence[tuple[float, float] | None], quantile: float, seed: int = 0
) -> Floats | None:
    """Return log ratios around estimates, as wide as their intervals say.

    Args:
        estimates: A log ratio each.
        intervals: Its interval; None: it has none.
        quantile: Of the normal distribution at the ends of the intervals (1.96 for 95 %).
        seed: Of the random numbers.

    Returns:
        ``[draw, value]``; None where a value has no interval.
    """
    known = [ends for ends in intervals if ends is not None]
    if len(known) < len(intervals):
        return None
    widths = np.asarray([(high - low) / 2 / quantile for low, high in known])
    noise = np.random.default_rng(seed).standard_normal((SAMPLES, len(estimates)))
    return np.asarray(np.asarray(estimates) + noise * widths)


def _places(at: Floats, draws: Floats) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return where each draw crosses first and last, and how often; of those that do not, the places mean nothing."""
    x = np.log(at) if np.all(at > 0) else at
    left, right = draws[:, :-1], draws[:, 1:]
    changes = (left < 0) != (right < 0)
    step = np.where(changes, left - right, 1.0)
    place = x[:-1] + np.diff(x) * np.where(changes, left / step, 0.0)
    first = np.argmax(changes, axis=1)
    last = changes.shape[1] - 1 - np.argmax(changes[:, ::-1], axis=1)
    rows = np.arange(len(draws))
    found = [place[rows, first], place[rows, last]]
    back = [np.exp(p) for p in found] if np.all(at > 0) else found
    return back[0], back[1], np.count_nonzero(changes, axis=1)


def _certain_signs(draws: Floats, tail: float) -> npt.NDArray[np.int64]:
    """Return the sign of each value: 0 where more than the tail of its draws have the other."""
    below = np.mean(draws < 0, axis=0)
    return np.where(below >= 1 - tail, -1, np.where(below <= tail, 1, 0))

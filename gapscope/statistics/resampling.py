"""Intervals within one restart, or one pair of restarts: block and cluster bootstrap.

Requests that follow each other resemble each other, so they are resampled in blocks of neighbors, the last joined to
the first (circular block bootstrap: Politis and Romano 1992). All handoffs of one request or step stay together
(cluster bootstrap), and neighboring clusters form blocks. Intervals are those between percentiles of the resampled
statistic.

Such an interval says how well this restart is known. It knows nothing of how the next one would differ, so it supports
no claim: that is for `gapscope.statistics.restarts`. Where neighbors resemble each other strongly, it is too narrow
even for the one restart (algorithms.md 4.3), and says so (`Bootstrap.at_least`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gapscope.errors import UsageError
from gapscope.statistics.arrays import Floats, Ints, observed, same_length
from gapscope.statistics.autocorrelation import block_length, effective_size, shortest_block
from gapscope.statistics.counted import Counts, HarrellDavis, OrderStatistic, Statistic, once
from gapscope.statistics.estimators import TAIL, has_tail

FEWEST_BLOCKS = 20
"""Fewer blocks give no interval: their resamples repeat a handful of arrangements."""

WIDE_ENOUGH = 50
"""Below this effective size an interval is at least as wide as the one printed."""

_ENTRIES_AT_ONCE = 2**21


@dataclass(frozen=True)
class Resampling:
    """How to resample.

    Attributes:
        resamples: How many.
        confidence: Of the interval.
        seed: Of the random numbers: the same call gives the same interval.
        concurrency: How many requests were in flight at once (95th percentile); blocks are no shorter.
    """

    resamples: int = 4000
    confidence: float = 0.95
    seed: int = 0
    concurrency: int = 1


DEFAULT = Resampling()


@dataclass(frozen=True)
class Bootstrap:
    """An estimate within one restart or one pair of restarts, and its interval.

    Attributes:
        estimate_ns: The statistic, or B minus A of it; None without values.
        low_ns: Lower end of the interval; None where none can be given.
        high_ns: Upper end of the interval; None where none can be given.
        confidence: Of the interval.
        kind: ``series`` (one series), ``paired`` (both arms resampled together) or ``unpaired``.
        n: Values (of the smaller arm).
        units: Requests, steps or clusters that were resampled (of the smaller arm).
        n_eff: How many independent units would say as much (the smaller of both arms).
        block_length: Neighbors in a block (the longer of both arms).
        blocks: Blocks in a resample (the fewer of both arms).
        resamples: How many were drawn; 0 without an interval.
        at_least: Whether the true interval is at least this wide: the effective size is below `WIDE_ENOUGH`, or
            neighbors ask for blocks so long that fewer than `FEWEST_BLOCKS` would fit, and shorter ones were taken.
        reason: Why there is no interval; empty where there is one.
    """

    estimate_ns: float | None
    low_ns: float | None
    high_ns: float | None
    confidence: float
    kind: Literal["series", "paired", "unpaired"]
    n: int
    units: int
    n_eff: float
    block_length: int
    blocks: int
    resamples: int
    at_least: bool
    reason: str


@dataclass(frozen=True)
class _Arm:
    """A series that is ready to be resampled.

    Attributes:
        ordered: The values, ascending.
        unit: Which unit each belongs to.
        series: Mean of each unit, in order of time.
    """

    ordered: Floats
    unit: Ints
    series: Floats


@dataclass(frozen=True)
class _Length:
    """How many neighbors a block has, and whether the series asks for more."""

    taken: int
    cut: bool


def bootstrap_series(
    values: npt.ArrayLike,
    statistic: Statistic,
    clusters: npt.ArrayLike | None = None,
    how: Resampling = DEFAULT,
) -> Bootstrap:
    """Return a statistic of one series, such as the median of paired differences, with its interval.

    Args:
        values: The series in order of time (of scheduled arrival).
        statistic: `gapscope.statistics.counted.median`, for example.
        clusters: Request or step of each value; the values of one are kept together. None: each is its own.
        how: How to resample.
    """
    arm = _arm(observed(values), clusters)
    return _bootstrap((arm,), statistic, "series", (_length((arm.series,), how),), how)


def bootstrap_paired(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    statistic: Statistic,
    clusters: npt.ArrayLike | None = None,
    how: Resampling = DEFAULT,
) -> Bootstrap:
    """Return a statistic of B minus the same of A, both resampled together.

    A request that is slow in both arms is then drawn for both or for neither.

    Args:
        a: Durations of arm A in order of time.
        b: Durations of arm B, pair by pair.
        statistic: `gapscope.statistics.counted.HarrellDavis`, for example.
        clusters: Request or step of each pair; None: each is its own.
        how: How to resample.

    Raises:
        UsageError: If lengths differ or values are missing.
    """
    first, second = observed(a), observed(b)
    same_length(first, second)
    arms = (_arm(first, clusters), _arm(second, clusters))
    series = (arms[0].series, arms[1].series, arms[1].series - arms[0].series)
    length = _length(series, how)
    return _bootstrap(arms, statistic, "paired", (length, length), how)


def bootstrap_unpaired(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    statistic: Statistic,
    clusters: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    how: Resampling = DEFAULT,
) -> Bootstrap:
    """Return a statistic of B minus the same of A, each resampled on its own: for different requests.

    Args:
        a: Durations of arm A in order of time.
        b: Durations of arm B in order of time.
        statistic: `gapscope.statistics.counted.HarrellDavis`, for example.
        clusters: Request or step of each value of A, and of B; None: each is its own.
        how: How to resample.
    """
    arms = (
        _arm(observed(a), None if clusters is None else clusters[0]),
        _arm(observed(b), None if clusters is None else clusters[1]),
    )
    lengths = (_length((arms[0].series,), how), _length((arms[1].series,), how))
    return _bootstrap(arms, statistic, "unpaired", lengths, how)


def _bootstrap(
    arms: tuple[_Arm, ...],
    statistic: Statistic,
    kind: Literal["series", "paired", "unpaired"],
    lengths: tuple[_Length, ...],
    how: Resampling,
) -> Bootstrap:
    """Return the estimate and, where there is enough for it, the interval."""
    n, units = min(len(arm.ordered) for arm in arms), min(len(arm.series) for arm in arms)
    taken = tuple(length.taken for length in lengths)
    blocks = min(len(arm.series) // length for arm, length in zip(arms, taken, strict=True))
    n_eff = min(effective_size(arm.series) for arm in arms)
    estimate = None if n == 0 else _difference([statistic(arm.ordered, once(arm.ordered)) for arm in arms])[0]
    reason = _why_not(statistic, n, blocks, max(taken))
    low = high = None
    if not reason:
        tail = (1 - how.confidence) / 2
        low, high = np.quantile(_resampled(arms, statistic, kind, taken, how), [tail, 1 - tail])
    return Bootstrap(
        estimate_ns=None if estimate is None else float(estimate),
        low_ns=None if low is None else float(low),
        high_ns=None if high is None else float(high),
        confidence=how.confidence,
        kind=kind,
        n=n,
        units=units,
        n_eff=n_eff,
        block_length=max(taken),
        blocks=blocks,
        resamples=0 if reason else how.resamples,
        at_least=not reason and (n_eff < WIDE_ENOUGH or any(length.cut for length in lengths)),
        reason=reason,
    )


def _length(series: tuple[Floats, ...], how: Resampling) -> _Length:
    """Return the longest block that one of the series asks for, as far as `FEWEST_BLOCKS` leave room for it.

    Cutting it is better than giving no interval: with that, only series that happen to look less correlated than they
    are would get one, and it would be too narrow more often.
    """
    _check(how)
    n = len(series[0])
    wanted = max(block_length(one, how.concurrency) for one in series)
    taken = max(shortest_block(n, how.concurrency), min(wanted, n // FEWEST_BLOCKS))
    return _Length(taken, taken < wanted)


def _why_not(statistic: Statistic, n: int, blocks: int, length: int) -> str:
    """Return why no interval can be given, in words; empty if one can."""
    if n == 0:
        return "no values"
    if isinstance(statistic, OrderStatistic | HarrellDavis) and not has_tail(statistic.p, n):
        return f"fewer than {TAIL} of {n:,} values lie beyond the {statistic.p:.3g} quantile"
    if blocks < FEWEST_BLOCKS:
        return f"{blocks} blocks of {length:,}, an interval needs {FEWEST_BLOCKS}"
    return ""


def _resampled(
    arms: tuple[_Arm, ...],
    statistic: Statistic,
    kind: Literal["series", "paired", "unpaired"],
    lengths: tuple[int, ...],
    how: Resampling,
) -> Floats:
    """Return the statistic (or its difference) of each resample."""
    swapped = kind == "unpaired" and arms[0].ordered.tobytes() > arms[1].ordered.tobytes()
    if swapped:  # the arms draw from one sequence of numbers: exchanging them must do no more than flip the sign
        arms, lengths = arms[::-1], lengths[::-1]
    random = np.random.default_rng(how.seed)
    parts = []
    for samples in _batches(how.resamples, max(len(arm.ordered) for arm in arms)):
        drawn: list[Counts] = []
        for arm, length in zip(arms, lengths, strict=True):
            together = kind == "paired" and drawn
            drawn.append(drawn[0] if together else draw_blocks(len(arm.series), length, samples, random))
        parts.append(_difference([statistic(arm.ordered, c[:, arm.unit]) for arm, c in zip(arms, drawn, strict=True)]))
    return -np.concatenate(parts) if swapped else np.concatenate(parts)


def draw_blocks(units: int, length: int, samples: int, random: np.random.Generator) -> Counts:
    """Return how often each unit occurs in each sample of circular blocks.

    Each sample has as many units as there are; the last block is cut to fit.

    Args:
        units: How many there are.
        length: Units in a block, up to all of them.
        samples: How many to draw.
        random: Source of the starts.
    """
    whole, rest = divmod(units, length)
    lengths = np.full(whole + (rest > 0), length)
    if rest:
        lengths[-1] = rest
    starts = random.integers(0, units, (samples, len(lengths)))
    ends = starts + lengths
    row = np.arange(samples)[:, None] * units
    begun, over = (np.bincount((row + places).ravel(), minlength=samples * units) for places in (starts, ends % units))
    steps = (begun - over).astype(np.int32).reshape(samples, units)
    steps[:, 0] += np.count_nonzero(ends >= units, axis=1)  # what begins before the end of the circle goes on at 0
    return np.cumsum(steps, axis=1, dtype=np.int32)


def _arm(values: Floats, clusters: npt.ArrayLike | None) -> _Arm:
    """Return a series with its units in order of first appearance."""
    order = np.argsort(values, kind="stable")
    if clusters is None:
        return _Arm(values[order], order, values)
    names = np.asarray(clusters)
    if len(names) != len(values):
        raise UsageError(f"{len(values)} values have {len(names)} clusters. Give each value its request or step.")
    _, first, unit = np.unique(names, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    unit = place[unit]
    series = np.bincount(unit, values) / np.maximum(np.bincount(unit), 1)
    return _Arm(values[order], unit[order], series)


def _difference(statistics: list[Floats]) -> Floats:
    """Return the statistic of one series, or of the second minus that of the first."""
    return statistics[0] if len(statistics) == 1 else statistics[1] - statistics[0]


def _batches(samples: int, n: int) -> Iterator[int]:
    """Yield how many samples to draw at once, so that memory does not grow with their number."""
    most = max(1, _ENTRIES_AT_ONCE // max(1, n))
    while samples > 0:
        yield min(most, samples)
        samples -= most


def _check(how: Resampling) -> None:
    """Check that the numbers make sense.

    Raises:
        UsageError: If they do not.
    """
    if how.resamples < 1 or not 0 < how.confidence < 1 or how.concurrency < 1:
        raise UsageError(
            "Resampling needs one resample or more, a confidence between 0 and 1 and a concurrency of 1 or more, "
            f"not {how}."
        )

"""How often intervals hold the truth and verdicts are false, over simulated studies whose truth is known.

Requests are autoregressive, restarts have an effect of their own. All seeds are fixed. Limits are the nominal or
documented number (algorithms.md 4.3) with the binomial error of so many simulations, never a measured number.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from gapscope.statistics import resampling
from gapscope.statistics.claims import Evidence, Verdict, judge
from gapscope.statistics.counted import HarrellDavis, mean, median
from gapscope.statistics.precision import noise_floor
from gapscope.statistics.resampling import Resampling, bootstrap_paired, bootstrap_series, bootstrap_unpaired
from gapscope.statistics.restarts import across_arms, across_pairs

SERIES = 250
QUICK = Resampling(resamples=250)


def error(share, simulations):
    """Return three standard errors of a share."""
    return 3 * math.sqrt(share * (1 - share) / simulations)


def autoregressive(shape, rho, random):
    """Return series of standard deviation 1 along the last axis."""
    noise = random.normal(size=(*shape[:-1], shape[-1] + 100)) * math.sqrt(1 - rho**2)
    return signal.lfilter([1], [1, -rho], noise, axis=-1)[..., 100:]


def holds(interval, truth=0.0):
    return interval.low_ns <= truth <= interval.high_ns


def independent_interval(values):
    """Return what a bootstrap that knows nothing of neighbors gives."""
    arm = resampling._arm(values, None)
    return np.quantile(resampling._resampled((arm,), median, "series", (1,), QUICK), [0.025, 0.975])


@pytest.mark.parametrize(
    ("n", "rho", "independent", "blocks"),
    [(300, 0.0, 0.94, 0.95), (300, 0.5, 0.82, 0.91), (300, 0.8, 0.55, 0.83), (1000, 0.8, 0.55, 0.87)],
)
def test_blocks_cover_where_independent_requests_do_not(n, rho, independent, blocks):
    series = autoregressive((SERIES, n), rho, np.random.default_rng(n))
    torn = np.mean([low <= 0 <= high for low, high in map(independent_interval, series)])
    found = [bootstrap_series(values, median, how=QUICK) for values in series]
    kept = np.mean([holds(one) for one in found])
    assert torn == pytest.approx(independent, abs=error(independent, SERIES) + error(independent, 300))
    assert kept >= blocks - error(blocks, SERIES)
    if rho:
        assert kept > torn + 0.05
    if rho == 0.8 and n == 300:
        assert np.mean([one.at_least for one in found]) > 0.5  # what under-covers most says so


def test_differences_of_medians_and_tails_are_covered():
    """Both arms share what is slow in both; the true difference is 0.3."""
    random = np.random.default_rng(11)
    shared, a, b = autoregressive((3, 100, 400), 0.5, random)
    a, b = shared + 0.5 * a, shared + 0.5 * b + 0.3
    for compare in (bootstrap_paired, bootstrap_unpaired):
        arms = (a, b) if compare is bootstrap_paired else (a, np.roll(b, 1, axis=0))
        for statistic in (median, HarrellDavis(0.9)):
            covered = np.mean([holds(compare(x, y, statistic, how=QUICK), 0.3) for x, y in zip(*arms, strict=True)])
            assert covered >= 0.91 - error(0.91, 100)


def test_clusters_cover_where_torn_handoffs_do_not():
    random = np.random.default_rng(12)
    request = np.repeat(np.arange(200), 4)
    series = np.repeat(autoregressive((100, 200), 0.3, random), 4, axis=1) + 0.3 * random.normal(size=(100, 800))
    kept = np.mean([holds(bootstrap_series(values, mean, request, QUICK)) for values in series])
    torn = np.mean([low <= 0 <= high for low, high in map(independent_interval, series)])
    assert kept >= 0.91 - error(0.91, 100)
    assert torn < 0.8


@pytest.mark.parametrize("restart_sd", [0.0, 0.1, 0.2])
def test_within_one_restart_the_truth_of_the_program_is_not_covered(restart_sd):
    """90, 80 and 58 %: what the next restart will do is not in the data of one."""
    documented = {0.0: 0.90, 0.1: 0.80, 0.2: 0.58}[restart_sd]
    random = np.random.default_rng(13)
    series = autoregressive((150, 300), 0.5, random) + random.normal(0, restart_sd, (150, 1))
    covered = np.mean([holds(bootstrap_series(values, median, how=QUICK)) for values in series])
    if restart_sd == 0.2:
        assert covered < 0.8
    assert covered >= documented - error(documented, 150)


@pytest.mark.parametrize("k", [3, 5, 8])
@pytest.mark.parametrize("restart_sd", [0.0, 0.1, 0.2])
def test_across_restarts_it_is(k, restart_sd):
    random = np.random.default_rng(k)
    requests = autoregressive((2000, k, 100), 0.5, random)
    estimates = np.median(requests, axis=2) + random.normal(0, restart_sd, (2000, k)) + 0.3
    intervals = np.array([across_pairs(study).interval() for study in estimates])
    covered = np.mean((intervals[:, 0] <= 0.3) & (intervals[:, 1] >= 0.3))
    assert 0.93 <= covered <= 0.97


def verdicts(a, b, paired, with_floor=False):
    """Return the verdicts over studies: medians of the restarts of both arms, ``[study, restart]`` in microseconds."""
    found = []
    for one, two in zip(1000 * a, 1000 * b, strict=True):
        across = across_pairs(two - one) if paired else across_arms(one, two)
        floor = noise_floor(np.diff(one)[::2]).floor if with_floor else None
        found.append(judge(Evidence(across, noise_floor_ns=floor, quantile=0.5, n_eff=50)).verdict)
    return np.array(found)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("k", [4, 6])
def test_a_against_a_gives_at_most_five_percent_verdicts(paired, k):
    random = np.random.default_rng(20 + k)
    medians = np.median(autoregressive((1000, 2 * k, 100), 0.5, random), axis=2) + random.normal(0, 0.2, (1000, 2 * k))
    found = verdicts(medians[:, :k], medians[:, k:], paired)
    false = np.mean(np.isin(found, [Verdict.FASTER, Verdict.SLOWER]))
    assert 0 < false <= 0.05 + error(0.05, 1000)
    assert np.mean(np.isin(verdicts(medians[:, :k], medians[:, k:], paired, True), [Verdict.FASTER])) <= false
    there = verdicts(medians[:, :k], medians[:, k:] + 1.5, paired)
    assert np.mean(there == Verdict.SLOWER) > 0.9  # the rules do speak where there is something to say

"""The bootstrap: what it draws, when it refuses, and what must not change its answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from gapscope.errors import UsageError
from gapscope.statistics import resampling
from gapscope.statistics.counted import HarrellDavis, OrderStatistic, mean, median
from gapscope.statistics.resampling import (
    Resampling,
    bootstrap_paired,
    bootstrap_series,
    bootstrap_unpaired,
    draw_blocks,
)

FEW = Resampling(resamples=400)


def requests(n, rho=0.5, seed=0):
    noise = np.random.default_rng(seed).normal(size=n + 100)
    return np.rint(1_000_000 + 50_000 * signal.lfilter([1], [1, -rho], noise)[100:]).astype(np.int64)


@pytest.mark.parametrize(("units", "length"), [(1, 1), (7, 1), (7, 3), (12, 4), (10, 10), (11, 10)])
def test_blocks_are_neighbors_on_a_circle(units, length):
    """The counts are those of the blocks, listed one by one from the same starts."""
    counts = draw_blocks(units, length, 200, np.random.default_rng(1))
    pieces = -(-units // length)
    starts = np.random.default_rng(1).integers(0, units, (200, pieces))
    for row, sample in zip(starts, counts, strict=True):
        drawn = np.concatenate([(start + np.arange(length)) % units for start in row])[:units]
        assert list(sample) == list(np.bincount(drawn, minlength=units))


def test_every_unit_is_drawn_equally_often():
    counts = draw_blocks(50, 7, 40_000, np.random.default_rng(2))
    assert counts.mean(axis=0) == pytest.approx(np.ones(50), abs=0.05)


def test_blocks_of_one_give_the_standard_error_of_independent_values():
    values = requests(400, rho=0.0)
    arm = resampling._arm(values.astype(float), None)
    drawn = resampling._resampled((arm,), mean, "series", (1,), Resampling(resamples=20_000))
    assert drawn.std() == pytest.approx(values.std() / 20, rel=0.03)


def test_pairs_are_drawn_together():
    """What slows both arms down is no difference: drawn apart, it would be all of the interval."""
    a = requests(1000)
    b = a + np.random.default_rng(1).integers(900, 1100, 1000)
    together, apart = bootstrap_paired(a, b, mean, how=FEW), bootstrap_unpaired(a, b, mean, how=FEW)
    assert 900 < together.low_ns <= together.estimate_ns <= together.high_ns < 1100
    assert apart.high_ns - apart.low_ns > 20 * (together.high_ns - together.low_ns)
    assert (together.kind, apart.kind) == ("paired", "unpaired")


@pytest.mark.parametrize("statistic", [median, HarrellDavis(0.9)])
@pytest.mark.parametrize("compare", [bootstrap_paired, bootstrap_unpaired])
def test_swapping_arms_flips_signs(compare, statistic):
    a, b = requests(600, seed=1), requests(600, seed=2)
    there, back = compare(a, b, statistic, how=FEW), compare(b, a, statistic, how=FEW)
    assert there.estimate_ns == -back.estimate_ns
    assert (there.low_ns, there.high_ns) == pytest.approx((-back.high_ns, -back.low_ns))


def test_arms_without_pairs_may_differ_in_length():
    a, b = requests(700, seed=1), requests(450, seed=2)
    there, back = bootstrap_unpaired(a, b, median, how=FEW), bootstrap_unpaired(b, a, median, how=FEW)
    assert there.n == 450
    assert (there.low_ns, there.high_ns) == pytest.approx((-back.high_ns, -back.low_ns))


@pytest.mark.parametrize("statistic", [median, HarrellDavis(0.9), mean])
def test_a_run_differs_from_itself_by_nothing(statistic):
    values = requests(600)
    same = bootstrap_paired(values, values, statistic, how=FEW)
    assert (same.estimate_ns, same.low_ns, same.high_ns) == (0, 0, 0)


def test_shifting_both_arms_changes_nothing_and_scaling_scales():
    a, b = requests(600, seed=1), requests(600, seed=2)
    here = bootstrap_paired(a, b, median, how=FEW)
    assert bootstrap_paired(a + 777_777, b + 777_777, median, how=FEW) == here
    twice = bootstrap_paired(2 * a, 2 * b, median, how=FEW)
    assert (twice.estimate_ns, twice.low_ns, twice.high_ns) == (2 * here.estimate_ns, 2 * here.low_ns, 2 * here.high_ns)


def test_the_same_call_gives_the_same_interval_whatever_fits_at_once(monkeypatch):
    values = requests(500)
    here = bootstrap_series(values, median, how=FEW)
    assert bootstrap_series(values, median, how=FEW) == here
    other = bootstrap_series(values, median, how=Resampling(resamples=400, seed=1))
    assert (other.low_ns, other.high_ns) != (here.low_ns, here.high_ns)
    monkeypatch.setattr(resampling, "_ENTRIES_AT_ONCE", 500 * 60)
    assert bootstrap_series(values, median, how=FEW) == here


def test_clusters_of_one_are_the_series():
    values = requests(500)
    assert bootstrap_series(values, median, np.arange(500)[::-1], FEW) == bootstrap_series(values, median, how=FEW)


def test_handoffs_of_a_request_stay_together():
    """Eight handoffs a request that differ little: 300 requests are known, not 2,400 handoffs."""
    random = np.random.default_rng(5)
    own = np.repeat(random.normal(0, 100_000, 300), 8)
    values = np.rint(own + random.normal(0, 1_000, 2400))
    request = np.repeat([f"request {i}" for i in random.permutation(300)], 8)
    kept = bootstrap_series(values, mean, request, FEW)
    torn = np.quantile(
        resampling._resampled((resampling._arm(values, None),), mean, "series", (1,), FEW), [0.025, 0.975]
    )
    assert (kept.n, kept.units) == (2400, 300)
    assert kept.high_ns - kept.low_ns > 2 * (torn[1] - torn[0])
    assert kept.n_eff <= 300


def test_clusters_may_interleave_and_differ_in_size():
    random = np.random.default_rng(6)
    request = np.sort(random.integers(0, 200, 1500))
    mixed = np.concatenate([request[::2], request[1::2]])
    values = 1000 * mixed + random.integers(0, 10, 1500)
    for statistic in (median, HarrellDavis(0.5), mean):
        found = bootstrap_series(values, statistic, mixed, FEW)
        assert found.units == len(set(mixed))
        assert found.low_ns < found.estimate_ns < found.high_ns


def test_units_stand_in_order_of_first_appearance():
    arm = resampling._arm(np.array([5.0, 1.0, 7.0, 3.0]), ["b", "a", "b", "c"])
    assert (list(arm.series), list(arm.ordered), list(arm.unit)) == ([6, 1, 3], [1, 3, 5, 7], [1, 2, 0, 0])


@pytest.mark.parametrize(
    ("n", "statistic", "how", "words"),
    [
        (0, median, FEW, "no values"),
        (1, median, FEW, "1 blocks of 1, an interval needs 20"),
        (60, median, FEW, "15 blocks of 4"),
        (1000, median, Resampling(resamples=400, concurrency=64), "15 blocks of 64"),
        (999, HarrellDavis(0.99), FEW, "fewer than 10 of 999 values lie beyond the 0.99 quantile"),
        (999, OrderStatistic(0.99), FEW, "fewer than 10 of 999"),
    ],
)
def test_no_interval_where_there_is_too_little_for_it(n, statistic, how, words):
    found = bootstrap_series(requests(n, rho=0.0), statistic, how=how)
    assert words in found.reason
    assert (found.low_ns, found.high_ns, found.resamples, found.at_least) == (None, None, 0, False)
    assert (found.estimate_ns is None) == (n == 0)


def test_just_enough_gives_an_interval():
    assert bootstrap_series(requests(1000, rho=0.0), HarrellDavis(0.99), how=FEW).reason == ""
    assert bootstrap_series(requests(100, rho=0.0), median, how=FEW).blocks == 20


def test_too_narrow_is_said():
    independent = bootstrap_series(requests(600, rho=0.0), median, how=FEW)
    assert (independent.at_least, independent.n_eff > 300) == (False, True)
    assert bootstrap_series(requests(600, rho=0.97), median, how=FEW).at_least
    cut = bootstrap_series(requests(300, rho=0.9), median, how=FEW)
    assert (cut.block_length, cut.blocks, cut.at_least) == (15, 20, True)


def test_a_constant_series_has_an_interval_without_width():
    found = bootstrap_series([500] * 200, median, how=FEW)
    assert (found.estimate_ns, found.low_ns, found.high_ns) == (500, 500, 500)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bootstrap_paired([1, 2], [1], median), "2 and 1"),
        (lambda: bootstrap_series([1.0, float("nan")], median), "missing"),
        (lambda: bootstrap_series([1, 2], median, [1]), "2 values have 1 clusters"),
        (lambda: bootstrap_series([1, 2], median, how=Resampling(resamples=0)), "one resample or more"),
        (lambda: bootstrap_series([1, 2], median, how=Resampling(confidence=95)), "between 0 and 1"),
    ],
)
def test_calls_that_make_no_sense_are_refused(call, words):
    with pytest.raises(UsageError, match=words):
        call()

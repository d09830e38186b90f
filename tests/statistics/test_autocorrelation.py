"""Effective size and block length against what is known of autoregressive series."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from gapscope.statistics.autocorrelation import autocovariances, block_length, effective_size, shortest_block

EXAMPLES = settings(max_examples=60, deadline=None)


def autoregressive(n, rho, seed=0):
    noise = np.random.default_rng(seed).normal(size=n + 200)
    return np.rint(1e6 * signal.lfilter([1], [1, -rho], noise)[200:])


@EXAMPLES
@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=30))
def test_autocovariances_against_their_definition(values):
    x = np.array(values, float)
    x -= x.mean()
    expected = [np.dot(x[: len(x) - k], x[k:]) / len(x) for k in range(len(x))]
    assert autocovariances(values) == pytest.approx(expected, rel=1e-6, abs=1e-6 * max(1.0, expected[0]))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_effective_size_of_an_autoregressive_series(rho):
    """It is n (1 - rho) / (1 + rho) in the long run."""
    n = 200_000
    assert effective_size(autoregressive(n, rho)) == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.06)


def politis_white(values):
    """Return the block length as the papers write it down, one lag after the other."""
    x = np.array(values, float) - np.mean(values)
    n = len(x)

    def covariance(k):
        return sum(x[t] * x[t + abs(k)] for t in range(n - abs(k))) / n

    def flat_top(t):
        return 1 if abs(t) <= 0.5 else 2 * (1 - abs(t))

    limit = 2 * math.sqrt(math.log10(n) / n)
    most = math.ceil(math.sqrt(n)) + 5
    small = [None, *(abs(covariance(k) / covariance(0)) < limit for k in range(1, most + 1))]
    quiet = [m for m in range(most - 4) if all(small[m + 1 : m + 6])]
    m = quiet[0] if quiet else max(k for k in range(1, most + 1) if not small[k])
    lags = min(2 * max(m, 1), most)
    terms = [(k, flat_top(k / lags) * covariance(k)) for k in range(-lags, lags + 1)]
    g = sum(abs(k) * term for k, term in terms)
    d = 4 / 3 * sum(term for _, term in terms) ** 2
    return min((2 * g**2 / d) ** (1 / 3) * n ** (1 / 3), math.ceil(min(3 * math.sqrt(n), n / 3)))


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("seed", range(5))
def test_block_length_against_the_papers(rho, seed):
    values = autoregressive(300, rho, seed)
    assert block_length(values) == max(7, math.ceil(politis_white(values)))


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_block_length_of_an_autoregressive_series(rho):
    """For those the formula is known in closed form: G / g(0) = 2 rho / (1 - rho^2)."""
    n = 20_000
    known = (1.5 * (2 * rho / (1 - rho**2)) ** 2 * n) ** (1 / 3)
    lengths = [block_length(autoregressive(n, rho, seed)) for seed in range(9)]
    assert np.median(lengths) == pytest.approx(known, rel=0.15)


def test_a_block_is_no_shorter_than_cube_root_and_concurrency():
    assert block_length(autoregressive(1000, 0.0)) == 10
    assert block_length(autoregressive(1000, 0.0), concurrency=37) == 37
    assert block_length(autoregressive(20, 0.0), concurrency=37) == 20
    assert [shortest_block(n) for n in (0, 1, 8, 9, 1000, 1001)] == [1, 1, 2, 3, 10, 11]


def test_that_neighbors_alternate_is_no_gain():
    assert effective_size(np.tile([1_000, 2_000], 100)) == 200


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 100])
def test_a_series_without_variation_shows_no_dependence(n):
    assert effective_size([5] * n) == n
    assert block_length([5] * n) == max(1, math.ceil(round(n ** (1 / 3), 9)))


@EXAMPLES
@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_bounds_of_any_series(values):
    n = len(values)
    assert 0 < effective_size(values) <= n if n else effective_size(values) == 0
    assert 1 <= block_length(values) <= max(1, n)


def test_a_shift_changes_no_digit():
    values = autoregressive(500, 0.7)
    assert effective_size(values + 123_456_789) == effective_size(values)
    assert block_length(values + 123_456_789) == block_length(values)

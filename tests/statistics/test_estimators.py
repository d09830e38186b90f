"""Point estimates against brute force, independent formulas and properties that hold for every series."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from gapscope.errors import UsageError
from gapscope.statistics import estimators
from gapscope.statistics.counted import HarrellDavis, OrderStatistic, mean, median, once

EXAMPLES = settings(max_examples=60, deadline=None)

NS = st.integers(-(10**12), 10**12)
SERIES = st.lists(NS, min_size=1, max_size=40)
PAIRS = st.lists(st.tuples(NS, NS), min_size=1, max_size=40)
DURATIONS = st.integers(1, 10**9)
P = st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.9, 0.99])


def walsh(values):
    return np.median([(x + y) / 2 for x, y in itertools.combinations_with_replacement(values, 2)])


@EXAMPLES
@given(SERIES)
def test_hodges_lehmann_is_the_median_of_all_means_of_two(values):
    assert estimators.hodges_lehmann(values) == walsh(values)


@pytest.mark.parametrize("n", [199, 200, 283, 400])
@pytest.mark.parametrize("spread", [3, 1_000, 10**11])
def test_hodges_lehmann_searches_what_is_too_much_to_list(n, spread):
    """On both sides of where listing ends, with many ties and with none."""
    values = np.random.default_rng(n).integers(-spread, spread, n)
    i, j = np.triu_indices(n)
    assert estimators.hodges_lehmann(values) == np.median((values[i] + values[j]) / 2)


@pytest.mark.parametrize(("n_a", "n_b"), [(1, 1), (150, 160), (300, 211)])
@pytest.mark.parametrize("spread", [2, 10**9])
def test_the_shift_between_arms_is_the_median_of_all_differences(n_a, n_b, spread):
    random = np.random.default_rng(n_a)
    a, b = random.integers(0, spread, n_a), random.integers(0, spread, n_b) + 7
    assert estimators.hodges_lehmann_shift(a, b) == np.median(b[:, None] - a[None, :])


def test_hodges_lehmann_of_fractions_is_exact_to_rounding():
    values = np.random.default_rng(3).normal(size=500)
    i, j = np.triu_indices(500)
    assert estimators.hodges_lehmann(values) == pytest.approx(np.median((values[i] + values[j]) / 2), abs=1e-14)


def test_hodges_lehmann_of_a_hundred_thousand_needs_no_list_of_pairs():
    values = np.concatenate([np.arange(50_000), np.arange(50_000)])
    assert estimators.hodges_lehmann(values) == 24_999.5


@EXAMPLES
@given(PAIRS)
def test_swapping_arms_flips_signs(pairs):
    a, b = np.array(pairs).T
    there = estimators.locate(estimators.differences(a, b))
    back = estimators.locate(estimators.differences(b, a))
    assert (there.median_ns, there.hodges_lehmann_ns) == (-back.median_ns, -back.hodges_lehmann_ns)
    assert (there.smaller, there.larger, there.shape_change) == (back.larger, back.smaller, back.shape_change)
    assert estimators.hodges_lehmann_shift(a, b) == -estimators.hodges_lehmann_shift(b, a)


@EXAMPLES
@given(SERIES, P)
def test_a_series_differs_from_itself_by_nothing(values, p):
    here = estimators.locate(estimators.differences(values, values))
    assert (here.median_ns, here.hodges_lehmann_ns, here.shape_change) == (0, 0, False)
    assert estimators.quantile_difference(values, values, p).difference_ns == 0
    assert estimators.hodges_lehmann_shift(values, values) == 0


@EXAMPLES
@given(PAIRS, st.integers(-(10**12), 10**12), P)
def test_shifting_both_arms_changes_nothing(pairs, shift, p):
    a, b = np.array(pairs).T
    assert estimators.locate(estimators.differences(a + shift, b + shift)) == estimators.locate(
        estimators.differences(a, b)
    )
    assert estimators.hodges_lehmann_shift(a + shift, b + shift) == estimators.hodges_lehmann_shift(a, b)
    there = estimators.quantile_difference(a + shift, b + shift, p).difference_ns
    assert there == pytest.approx(estimators.quantile_difference(a, b, p).difference_ns, abs=0.01)


@EXAMPLES
@given(PAIRS, st.integers(1, 1000), P)
def test_scaling_both_arms_scales(pairs, scale, p):
    a, b = np.array(pairs).T
    once_more = estimators.locate(estimators.differences(a * scale, b * scale))
    here = estimators.locate(estimators.differences(a, b))
    assert once_more.median_ns == scale * here.median_ns
    assert once_more.hodges_lehmann_ns == scale * here.hodges_lehmann_ns
    there = estimators.quantile_difference(a * scale, b * scale, p).difference_ns
    assert there == pytest.approx(scale * estimators.quantile_difference(a, b, p).difference_ns, rel=1e-9, abs=10)


@EXAMPLES
@given(st.lists(st.tuples(DURATIONS, DURATIONS), min_size=1, max_size=20), st.integers(2, 1000))
def test_ratios_do_not_depend_on_the_unit(pairs, scale):
    a, b = np.array(pairs).T
    assert estimators.log_ratios(a * scale, b * scale) == pytest.approx(estimators.log_ratios(a, b), abs=1e-12)
    assert np.exp(estimators.log_ratios(a, b)) * a == pytest.approx(b)


def test_what_did_not_wait_has_no_ratio():
    assert estimators.log_ratios([10, 0], [10, 10]) is None
    assert estimators.log_ratios([10, 10], [10, -3]) is None


def test_a_distribution_that_split_is_no_shift():
    """Six of ten got 100 ns faster, four 200 ns slower: the median alone would call it faster."""
    split = estimators.locate([-100] * 6 + [200] * 4)
    assert (split.median_ns, split.hodges_lehmann_ns, split.shape_change) == (-100, 50, True)
    assert not estimators.locate([-100] * 9 + [200]).shape_change


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [2, 7, 100, 301])
def test_harrell_davis_against_scipy(n, p):
    values = np.sort(np.random.default_rng(n).integers(0, 10**6, n)).astype(float)
    mine = HarrellDavis(p)(values, once(values))[0]
    assert mine == pytest.approx(float(stats.mstats.hdquantiles(values, [p])[0]), rel=1e-10)


def test_harrell_davis_against_its_definition():
    """The weight of the i-th of n is the integral of a beta density over ((i - 1) / n, i / n)."""
    values, p = np.array([3.0, 10.0, 11.0, 40.0, 100.0]), 0.7
    density = stats.beta(6 * p, 6 * (1 - p)).pdf
    weights = [integrate.quad(density, i / 5, (i + 1) / 5)[0] for i in range(5)]
    assert HarrellDavis(p)(values, once(values))[0] == pytest.approx(np.dot(weights, values), rel=1e-6)


@EXAMPLES
@given(st.lists(st.tuples(NS, st.integers(0, 4)), min_size=1, max_size=20).filter(lambda rows: any(c for _, c in rows)))
def test_counts_say_the_same_as_repeated_values(rows):
    ordered = np.array(sorted(value for value, _ in rows), float)
    counts = np.array([[count for _, count in rows], [1] * len(rows)], np.int32)
    listed = np.repeat(ordered, counts[0])
    assert median(ordered, counts)[0] == np.median(listed)
    assert mean(ordered, counts)[0] == pytest.approx(listed.mean(), rel=1e-9, abs=1e-2)
    for statistic in (OrderStatistic(0.3), HarrellDavis(0.3)):
        mine = statistic(ordered, counts)
        assert mine[0] == pytest.approx(statistic(listed, once(listed))[0], rel=1e-9, abs=1e-2)
        assert mine[1] == pytest.approx(statistic(ordered, once(ordered))[0], rel=1e-9, abs=1e-2)


@EXAMPLES
@given(SERIES, P)
def test_the_order_statistic_is_a_recorded_value(values, p):
    found = OrderStatistic(p)(np.sort(values).astype(float), once(np.array(values, float)))[0]
    assert found == np.quantile(values, p, method="inverted_cdf")


def test_near_the_extreme_a_quantile_is_a_recorded_value():
    values = np.arange(1, 1000) ** 2
    raw = estimators.quantile_difference(values, 2 * values, 0.99)
    assert (raw.method, raw.a_ns, raw.b_ns) == ("order_statistic", 990**2, 2 * 990**2)
    smooth = estimators.quantile_difference(np.arange(1, 1001) ** 2, values, 0.9)
    assert smooth.method == "harrell_davis"
    assert [estimators.has_tail(p, 100) for p in (0.09, 0.1, 0.9, 0.91)] == [False, True, True, False]
    assert estimators.quantile(values, 0.99) == 990**2
    assert estimators.quantile(values, 0.9) == smooth.b_ns


@EXAMPLES
@given(st.floats(0.01, 0.99), st.floats(0.8, 0.99))
def test_values_needed_is_the_first_number_that_is_enough(p, confidence):
    def covered(n):
        return 1 - p**n - (1 - p) ** n

    n = estimators.values_needed(p, confidence)
    assert covered(n) >= confidence
    assert n == 2 or covered(n - 1) < confidence


@pytest.mark.parametrize("n", [1, 2, 3, 25, 500])
def test_a_constant_series_is_its_constant(n):
    values = [123_457] * n
    here = estimators.locate(values)
    assert (here.median_ns, here.hodges_lehmann_ns) == (123_457, 123_457)
    assert [estimators.quantile(values, p) for p in (0.01, 0.5, 0.99)] == [123_457] * 3


def test_without_values_there_is_no_number():
    assert estimators.locate([]) == estimators.Location(0, 0, 0, None, None, False)
    assert estimators.quantile([], 0.5) is None
    assert estimators.hodges_lehmann_shift([], [1]) is None
    assert estimators.quantile_difference([], [5], 0.5).difference_ns is None
    assert len(estimators.log_ratios([], [])) == 0


@pytest.mark.parametrize("values", [[1.0, None], [1.0, float("nan")], [1.0, float("inf")]])
def test_a_missing_value_is_not_zero(values):
    with pytest.raises(UsageError, match="1 of 2 values are missing"):
        estimators.locate(values)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: estimators.differences([1, 2], [1]), "not 2 and 1"),
        (lambda: estimators.locate([1_700_000_000_000_000_000]), "times, not durations"),
        (lambda: estimators.locate([[1, 2]]), "one dimension"),
        (lambda: estimators.locate(["a"]), "holds numbers"),
        (lambda: estimators.quantile([1], 99), "is 0.99"),
        (lambda: HarrellDavis(0), "between 0 and 1"),
    ],
)
def test_what_is_no_series_is_refused(call, words):
    with pytest.raises(UsageError, match=words):
        call()

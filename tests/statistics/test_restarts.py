"""Intervals and exact tests across restarts against scipy, and what a study can see."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gapscope.errors import UsageError
from gapscope.statistics.estimators import log_ratios
from gapscope.statistics.exact import permutation_test, sign_flip_test
from gapscope.statistics.precision import minimum_detectable, noise_floor, same_arm_differences, spread
from gapscope.statistics.restarts import across_arms, across_pairs, ratio

EXAMPLES = settings(max_examples=60, deadline=None)

ESTIMATES = st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=8)


@EXAMPLES
@given(ESTIMATES.filter(lambda values: len(set(values)) > 1))
def test_pairs_against_scipy(values):
    mine, theirs = across_pairs(values), stats.ttest_1samp(values, 0)
    assert mine.interval(0.9) == pytest.approx(tuple(theirs.confidence_interval(0.9)), rel=1e-9, abs=1e-3)
    assert mine.p_value() == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert mine.s_between == pytest.approx(np.std(values, ddof=1))


@EXAMPLES
@given(ESTIMATES.filter(lambda values: len(set(values)) > 1), ESTIMATES)
def test_arms_against_scipy(a, b):
    b[0] += len(set(b)) == 1  # scipy warns of arms without variation
    mine, theirs = across_arms(a, b), stats.ttest_ind(b, a, equal_var=False)
    assert mine.degrees_of_freedom == pytest.approx(theirs.df, rel=1e-6)
    assert mine.interval() == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=1e-6, abs=1e-2)
    assert mine.p_value() == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)


def test_the_spread_of_arms_is_pooled():
    mine = across_arms([0, 2], [10, 14, 18])
    assert mine.s_between == pytest.approx(math.sqrt((2 + 32) / 3))
    assert (mine.restarts_a, mine.restarts_b, mine.fewest, mine.paired) == (2, 3, 2, False)


@EXAMPLES
@given(ESTIMATES, st.integers(-(10**9), 10**9))
def test_swapping_flips_and_shifting_changes_nothing(values, shift):
    a, b = np.array(values), np.array(values[::-1]) + 17
    there, back = across_pairs(b - a).interval(), across_pairs(a - b).interval()
    assert there == pytest.approx((-back[1], -back[0]))
    there, back = across_arms(a, b).interval(), across_arms(b, a).interval()
    assert there == pytest.approx((-back[1], -back[0]))
    assert across_arms(a + shift, b + shift).interval() == pytest.approx(there, rel=1e-9, abs=1e-3)
    assert sign_flip_test(b - a).p_value == sign_flip_test(a - b).p_value


@EXAMPLES
@given(ESTIMATES)
def test_restarts_differ_from_themselves_by_nothing(values):
    same = across_pairs(np.subtract(values, values))
    assert (same.estimate, same.interval(), same.p_value()) == (0, (0, 0), 1)
    assert across_arms(values, values).estimate == 0
    assert across_arms(values, values).p_value() == 1
    assert sign_flip_test([0] * len(values)).p_value == 1


def test_one_restart_has_no_interval():
    for one in (across_pairs([5]), across_arms([5], [7, 8, 9]), across_arms([7, 8, 9], [5])):
        assert (one.interval(), one.p_value(), one.s_between, one.fewest) == (None, None, None, 1)
    for nothing in (lambda: across_pairs([]), lambda: across_arms([], [1]), lambda: across_arms([1], [])):
        with pytest.raises(UsageError, match="Both need one at least"):
            nothing()


def test_restarts_that_agree_have_no_spread():
    for same in (across_pairs([0.1] * 5), across_arms([0.3] * 5, [0.4] * 5)):
        assert (same.standard_error, same.s_between, same.p_value()) == (0, 0, 0)
        assert same.interval() == pytest.approx((0.1, 0.1))


def test_ratios_come_from_the_log_scale():
    a, b = [100, 200, 400], [110, 190, 480]
    value, low, high = ratio(across_pairs(log_ratios(a, b)))
    assert value == pytest.approx((1.1 * 0.95 * 1.2) ** (1 / 3))
    back = ratio(across_pairs(log_ratios(b, a)))
    assert (value, low, high) == pytest.approx((1 / back[0], 1 / back[2], 1 / back[1]))
    assert ratio(across_pairs(log_ratios([100], [110])))[1:] == (None, None)


@pytest.mark.parametrize("k", range(2, 9))
def test_the_floors_of_the_exact_tests(k):
    """The most extreme data reaches the floor: pairs can reject from six on, arms from four each."""
    distinct = np.arange(1, k + 1) * 1.1
    flips, arms = sign_flip_test(-distinct), permutation_test(distinct, distinct + 100)
    assert flips.p_value == flips.floor == 2 / 2**k
    assert arms.p_value == arms.floor == pytest.approx(2 / math.comb(2 * k, k))
    assert (flips.floor <= 0.05) == (k >= 6) == (flips.note == "")
    assert (arms.floor <= 0.05) == (k >= 4) == (arms.note == "")


@EXAMPLES
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=7))
def test_sign_flips_against_all_signs_with_ties(values):
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(values))).reshape(len(values), -1).T
    sums = np.abs(signs @ np.array(values))
    assert sign_flip_test(values).p_value == pytest.approx(np.mean(sums >= abs(sum(values))))


def test_what_cannot_be_listed_has_no_p():
    assert sign_flip_test([1]).p_value is None
    assert sign_flip_test([]).p_value is None
    assert permutation_test([1], [2, 3]).p_value is None
    many = sign_flip_test(np.arange(40))
    assert many.p_value is None
    assert "too many to list" in many.note


def test_the_minimum_detectable_change_is_found_that_often():
    random = np.random.default_rng(4)
    for k, power in ((3, 0.8), (5, 0.8), (8, 0.9)):
        change = minimum_detectable(100.0, k, power=power)
        studies = random.normal(change, 100, (20_000, k))
        t = studies.mean(axis=1) / (studies.std(axis=1, ddof=1) / math.sqrt(k))
        assert np.mean(t > stats.t.isf(0.025, k - 1)) == pytest.approx(power, abs=4 * 0.5 / math.sqrt(20_000))
    arms = minimum_detectable(100.0, 4, 4)
    a, b = random.normal(0, 100, (20_000, 4)), random.normal(arms, 100, (20_000, 4))
    t = (b.mean(axis=1) - a.mean(axis=1)) / np.sqrt((b.var(axis=1, ddof=1) + a.var(axis=1, ddof=1)) / 4)
    assert np.mean(t > stats.t.isf(0.025, 6)) == pytest.approx(0.8, abs=4 * 0.5 / math.sqrt(20_000))


def test_more_restarts_see_smaller_changes():
    seen = [minimum_detectable(1.0, k) for k in range(2, 30)]
    assert seen == sorted(seen, reverse=True)
    assert minimum_detectable(0.0, 5) == 0
    assert minimum_detectable(1.0, 1) is None
    assert minimum_detectable(1.0, 5, 1) is None
    for wrong in ({"power": 0.02}, {"power": 1.0}, {"confidence": 1.0}):
        with pytest.raises(UsageError, match="power between"):
            minimum_detectable(1.0, 5, **wrong)


def test_where_the_variance_is():
    restarts = spread([-100, 0, 100], [50, 50, 50], [25, 25, 25])
    assert (restarts.between, restarts.within, restarts.more_restarts) == (100, 10, True)
    assert "more restarts" in restarts.advice
    requests = spread([-10, 0, 10], [50, 50, 50], [25, 25, 25])
    assert (requests.between, requests.more_restarts) == (10, False)
    assert spread([5], [1], [10]).more_restarts is None
    assert spread([5, 6], [1, 1], [10, 0]).within is None
    assert spread([], [], []).between is None


def test_the_noise_floor_is_the_largest_difference_of_an_arm_from_itself():
    assert same_arm_differences([10, 14, 30, 21, 99]) == [4, -9]
    floor = noise_floor(same_arm_differences([10, 14, 30, 21, 99]))
    assert (floor.floor, floor.pairs, floor.note) == (9, 2, "")
    assert "one pair" in noise_floor([3]).note
    assert noise_floor([]).floor is None
    assert same_arm_differences([7]) == []

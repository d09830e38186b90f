"""Sweeps: a ratio per value, a crossover between values, and no winner for all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gapscope.compare import Arm, compare, comparison_told, sweep, sweep_told
from gapscope.compare.crossing import draws_across, draws_from_intervals, find_crossing
from gapscope.errors import UsageError
from gapscope.plots.swept import sweep_spec
from gapscope.statistics.restarts import across_pairs
from tests.compare.built import over_sizes, restarts

SIZES = [2**k for k in range(18, 30, 2)]
AT = [1.0, 2.0, 4.0, 8.0, 16.0]


def draws(logs, spread, n=4000, seed=0):
    return np.asarray(logs) + np.random.default_rng(seed).normal(0, spread, (n, len(logs)))


# Where the sign changes ------------------------------------------------------------------------------------------


def test_one_crossover_lies_between_the_values_whose_sign_is_certain():
    logs = [-0.6, -0.3, 0.0, 0.3, 0.6]
    found = find_crossing(AT, logs, draws(logs, 0.05), 0.95)
    assert found.kind == "one"
    assert found.between == ((2.0, 8.0),)
    assert 2.0 < found.low < 4.0 < found.high < 8.0
    off = 1.96 * 0.05  # of the middle value: below zero the line goes on to its neighbor at 0.3, further away
    assert found.low == pytest.approx(4.0 * 2 ** (-off / (0.3 + off)), rel=0.02)
    assert found.first_sign == -1


def test_between_two_values_it_goes_straight_over_the_logarithm():
    found = find_crossing([1.0, 100.0], [-1.0, 1.0], draws([-1.0, 1.0], 1e-6), 0.95)
    assert found.at == pytest.approx(10.0)
    assert (found.low, found.high) == pytest.approx((10.0, 10.0), rel=1e-3)
    straight = find_crossing([0.0, 100.0], [-1.0, 1.0], draws([-1.0, 1.0], 1e-6), 0.95)
    assert straight.at == pytest.approx(50.0)


def test_no_crossover_seen():
    found = find_crossing(AT, [0.3] * 5, draws([0.3] * 5, 0.05), 0.95)
    assert (found.kind, found.first_sign, found.share_none) == ("none", 1, 1.0)


def test_several_crossovers():
    logs = [-0.5, 0.5, 0.6, -0.5, -0.6]
    found = find_crossing(AT, logs, draws(logs, 0.05), 0.95)
    assert found.kind == "several"
    assert found.between == ((1.0, 2.0), (4.0, 8.0))
    assert found.low is None


def test_noise_around_one_is_no_crossover():
    logs = [-0.01, 0.02, -0.01, 0.01, 0.0]
    found = find_crossing(AT, logs, draws(logs, 0.1), 0.95)
    assert found.kind == "cannot tell"
    assert found.between == ()
    assert found.share_several > 0.5


def test_signs_that_the_clocks_do_not_resolve_are_not_certain():
    logs = [-0.6, -0.3, 0.01, 0.3, 0.6]
    sure = draws(logs, 0.001)
    assert find_crossing(AT, logs, sure, 0.95).between == ((2.0, 4.0),)
    found = find_crossing(AT, logs, sure, 0.95, [True, False, False, True, True])
    assert (found.kind, found.between, found.at) == ("one", ((1.0, 8.0),), None)
    assert (found.low, found.high) == (1.0, 8.0)
    none = find_crossing(AT, [0.3] * 5, draws([0.3] * 5, 0.001), 0.95, [True] * 4 + [False])
    assert none.kind == "cannot tell"


def test_without_draws_nothing_is_certain():
    found = find_crossing(AT, [-2.0, -1.0, 1.0, 2.0, 3.0], None, 0.95)
    assert (found.kind, found.share_none) == ("cannot tell", None)
    assert found.at == pytest.approx(2 * math.sqrt(2))
    assert find_crossing([1.0], [0.5], None, 0.95).kind == "too few values"


def test_exchanging_the_arms_leaves_the_crossover_where_it_is():
    logs = [-0.6, -0.3, 0.02, 0.3, 0.6]
    made = draws(logs, 0.05)
    one, two = find_crossing(AT, logs, made, 0.95), find_crossing(AT, [-x for x in logs], -made, 0.95)
    assert (two.between, two.low, two.high, two.first_sign) == (one.between, one.low, one.high, 1)


def test_draws_are_as_wide_as_the_t_interval():
    logs = np.asarray([0.1, 0.3, 0.2, 0.25])
    across = across_pairs(logs)
    for together in (True, False):
        made = draws_across([across, across], [logs, logs], together)
        low, high = np.quantile(made[:, 0], [0.025, 0.975])
        assert (low, high) == pytest.approx(across.interval(), abs=0.02)
        correlation = np.corrcoef(made.T)[0, 1]
        assert correlation == pytest.approx(1.0 if together else 0.0, abs=0.1)
    unpaired = draws_across([across], [np.zeros(0)], False)
    assert tuple(np.quantile(unpaired[:, 0], [0.025, 0.975])) == pytest.approx(across.interval(), abs=0.02)
    assert draws_across([across_pairs([0.1])], [np.asarray([0.1])], True) is None


def test_draws_of_one_pair_are_as_wide_as_its_interval():
    made = draws_from_intervals([0.5], [(0.3, 0.7)], 1.96)
    assert tuple(np.quantile(made[:, 0], [0.025, 0.975])) == pytest.approx((0.3, 0.7), abs=0.01)
    assert draws_from_intervals([0.5, 0.6], [(0.3, 0.7), None], 1.96) is None


def test_the_interval_of_a_crossover_holds_the_true_place():
    """Four restarts per value, a true crossover at 4: nineteen of twenty intervals hold it."""
    random = np.random.default_rng(7)
    held = 0
    for trial in range(120):
        truth = np.asarray([-0.6, -0.3, 0.0, 0.3, 0.6])
        pairs = [truth[i] + random.normal(0, 0.05, 4) for i in range(5)]
        across = [across_pairs(p) for p in pairs]
        made = draws_across(across, pairs, False, seed=trial)
        found = find_crossing(AT, [a.estimate for a in across], made, 0.95)
        held += found.kind == "one" and found.low <= 4.0 <= found.high
    assert held >= 108


# Over recorded tables --------------------------------------------------------------------------------------------


def arms_over(run, number=5, sizes=SIZES):
    """Two transports whose gaps cross in the middle of the sizes; their runs are built (see `built`)."""
    how = (("copy", 0.7, 1), ("mailbox", 1.0, 2))
    return [Arm(name, over_sizes(run, sizes, number, slope, seed=seed, base_ns=3_000_000)) for name, slope, seed in how]


def no_values(arms):
    return {arm.name: [None] * len(arm.runs) for arm in arms}


@pytest.fixture(scope="module")
def swept(none):
    arms = arms_over(none)
    return arms, sweep(arms, "size_bytes", no_values(arms))


def test_sizes_within_runs(swept):
    _, found = swept
    assert found.within_runs
    assert found.metric == "gap 0 → 1"
    assert found.rows["value"].to_list() == [float(size) for size in SIZES]
    rows = found.rows.to_dicts()
    assert [row["verdict"] for row in (rows[0], rows[-1])] == ["faster", "slower"]
    middle = math.sqrt(SIZES[0] * SIZES[-1])
    (place,) = found.places
    assert place.crossing.kind == "one"
    assert place.claim == "crossover"
    assert place.crossing.low < middle < place.crossing.high
    low, high = place.crossing.between[0]
    assert low <= place.crossing.low <= place.crossing.high <= high


def test_a_row_is_what_a_comparison_of_that_size_alone_says(swept):
    arms, found = swept
    size = SIZES[1]
    parts = [Arm(a.name, [replace(r, handoffs=r.handoffs.filter(size_bytes=size)) for r in a.runs]) for a in arms]
    alone = {row["metric"]: row for row in comparison_told(compare(*parts))["metrics"]}["gap 0 → 1"]
    row = found.rows.row(1, named=True)
    for name in ("a_p50_ns", "b_p50_ns", "difference_ns", "low_ns", "high_ns", "ratio", "ratio_low", "ratio_high", "n"):
        assert row[name] == alone[name]
    assert row["p_adjusted"] >= alone["p_value"]


def test_exchanging_the_arms_inverts_ratios(swept):
    arms, found = swept
    back = sweep(arms[::-1], "size_bytes", no_values(arms))
    for one, two in zip(found.rows.to_dicts(), back.rows.to_dicts(), strict=True):
        assert two["ratio"] == pytest.approx(1 / one["ratio"])
        assert two["ratio_low"] == pytest.approx(1 / one["ratio_high"])
        assert two["difference_ns"] == pytest.approx(-one["difference_ns"])
    assert back.places[0].crossing.between == found.places[0].crossing.between


def test_a_transport_against_itself_has_ratio_one_everywhere(none):
    runs = over_sizes(none, SIZES, 4, 1.0, base_ns=3_000_000)
    found = sweep([Arm("A", runs), Arm("B", runs)], "size_bytes", {"A": [None] * 4, "B": [None] * 4})
    assert found.rows["ratio"].to_list() == [1.0] * len(SIZES)
    assert found.places[0].crossing.kind == "cannot tell"


def test_one_restart_claims_nothing_at_any_size(none):
    arms = arms_over(none, number=1)
    found = sweep(arms, "size_bytes", no_values(arms))
    assert set(found.rows["verdict"]) == {"no claim (n=1 restart)"}
    (told,) = sweep_told(found)["crossings"]
    assert told["claim"] == "no claim (n=1 restart)"
    assert "no claim (n=1 restart)" in told["words"]
    assert found.rows["ratio_low"].null_count() == len(SIZES)


def test_three_restarts_are_indicative(none):
    arms = arms_over(none, number=3)
    found = sweep(arms, "size_bytes", no_values(arms))
    assert set(found.rows["verdict"]) <= {"indicative", "below clock resolution", "n too small"}
    assert sweep_told(found)["crossings"][0]["claim"] == "indicative"


def test_a_number_of_each_run(none, late):
    arms = [Arm("none", restarts(none, 8, seed=1)), Arm("late", restarts(late, 8, seed=2))]
    batches = [1.0, 2.0] * 4
    found = sweep(arms, "batch", {"none": batches, "late": batches}, "step")
    assert not found.within_runs
    assert found.rows["value"].to_list() == [1.0, 2.0]
    assert found.rows["restarts_a"].to_list() == [4, 4]
    assert found.rows["verdict"].to_list() == ["slower", "slower"]
    (place,) = found.places
    assert (place.crossing.kind, place.claim) == ("none", "no crossover seen")


def test_unequal_numbers_of_restarts(none):
    copy, mailbox = arms_over(none)
    found = sweep([copy, Arm("mailbox", mailbox.runs[:4])], "size_bytes", {"copy": [None] * 5, "mailbox": [None] * 4})
    assert not found.rows["paired_restarts"].any()
    assert found.places[0].crossing.kind == "one"


def test_sizes_that_one_arm_lacks_are_said(none):
    copy, _ = arms_over(none)
    other = Arm("mailbox", over_sizes(none, SIZES[2:], 5, 1.0, seed=3, base_ns=3_000_000))
    found = sweep([copy, other], "size_bytes", no_values([copy, other]))
    assert found.rows["value"].to_list() == [float(s) for s in SIZES[2:]]
    (finding,) = [f for f in found.findings if f.code == "value_not_in_both"]
    assert "256 KiB, 1.00 MiB" in finding.message


@pytest.mark.parametrize(
    ("parameter", "values", "metric", "words"),
    [
        ("batch", None, "gap", "No run has batch"),
        ("batch", [1.0, None], "gap", "has no batch"),
        ("size_bytes", None, "step", "record a run per size"),
        ("size_bytes", None, "nonsense", "no metric 'nonsense'"),
    ],
)
def test_what_cannot_be_swept_is_said(none, parameter, values, metric, words):
    arms = arms_over(none, number=2, sizes=SIZES[:2])
    with pytest.raises(UsageError, match=words):
        sweep(arms, parameter, {arm.name: values or [None, None] for arm in arms}, metric)


def test_the_figure_has_the_numbers_of_the_table(swept):
    told = sweep_told(swept[1])
    spec = sweep_spec(told)
    points = [trace for trace in spec["data"] if trace["mode"] == "lines+markers"]
    drawn = [row for row in told["rows"] if abs(row["difference_ns"]) >= row["clock_ns"]]
    assert points[0]["y"] == [row["ratio"] for row in drawn]
    bars = spec["data"][1]
    assert bars["y"] == [end for row in drawn for end in (row["ratio_low"], row["ratio_high"], None)]
    assert spec["layout"]["xaxis"]["type"] == spec["layout"]["yaxis"]["type"] == "log"
    band = [shape for shape in spec["layout"]["shapes"] if shape["type"] == "rect"]
    assert [(b["x0"], b["x1"]) for b in band] == [(told["crossings"][0]["low"], told["crossings"][0]["high"])]


def test_a_ratio_without_a_positive_median_is_none(none):
    arms = arms_over(none, number=2, sizes=SIZES[:2])
    zero = pl.when(pl.col("size_bytes") == SIZES[0]).then(0).otherwise("gap_ns")
    runs = [replace(r, handoffs=r.handoffs.with_columns(gap_ns=zero)) for r in arms[1].runs]
    found = sweep([arms[0], Arm("mailbox", runs)], "size_bytes", no_values(arms))
    assert found.rows["ratio"].is_null().to_list() == [True, False]
    assert [f.code for f in found.findings] == ["no_ratio"]

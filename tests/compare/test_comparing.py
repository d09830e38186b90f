"""Two arms compared: what must not change, what must flip, and what nobody may claim."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from gapscope.compare import Arm, Settings, compare, comparison_told, read_run
from gapscope.compare.noting import began_ns
from gapscope.errors import UsageError
from tests.compare.built import DAY_NS, delayed, later, restarts
from tests.compare.conftest import recordings

SIGNED = ["difference_ns", "hodges_lehmann_ns", "difference_p90_ns", "difference_p99_ns"]
CLAIMS = {"faster", "slower", "equivalent", "inconclusive"}


@pytest.fixture(scope="module")
def arms(none, late):
    return (
        Arm("none", restarts(none, 5, seed=1)),
        Arm("late", restarts(late, 5, seed=2)),
    )


@pytest.fixture(scope="module")
def compared(arms):
    return compare(*arms)


def by_metric(found):
    return {row["metric"]: row for row in found.metrics.to_dicts()}


def same(a, b, but=()):
    one, two = a.metrics.drop(but), b.metrics.drop(but)
    for x, y in zip(one.to_dicts(), two.to_dicts(), strict=True):
        for name in x:
            assert y[name] == (pytest.approx(x[name], rel=1e-9, abs=1e-6) if isinstance(x[name], float) else x[name]), (
                name
            )


# What must not change --------------------------------------------------------------------------------------------


def test_a_run_against_itself_differs_nowhere(none):
    found = compare(Arm("A", [none]), Arm("B", [none]))
    assert found.metrics.height > 8
    for column in SIGNED:
        assert found.metrics[column].to_list() == [0.0] * found.metrics.height
    assert set(found.metrics["ratio"].drop_nulls()) == {1.0}
    assert not found.metrics["shape_change"].any()
    assert found.closure["difference_ns"].to_list() == [0.0] * found.closure.height
    assert found.values.select((pl.col("a_ns") == pl.col("b_ns")).all()).item()


def test_restarts_against_themselves_are_no_difference(none):
    runs = restarts(none, 5)
    found = compare(Arm("A", runs), Arm("B", runs))
    assert found.metrics["difference_ns"].to_list() == [0.0] * found.metrics.height
    assert not {"faster", "slower"} & set(found.metrics["verdict"])


def test_exchanging_the_arms_flips_signs_and_inverts_ratios(arms, compared):
    other = by_metric(compare(*reversed(arms)))
    for name, row in by_metric(compared).items():
        back = other[name]
        for column in SIGNED:
            assert back[column] == pytest.approx(-row[column], abs=1e-6)
        assert (back["low_ns"], back["high_ns"]) == pytest.approx((-row["high_ns"], -row["low_ns"]), abs=1e-6)
        if row["ratio"] is not None:
            assert back["ratio"] == pytest.approx(1 / row["ratio"])
        flipped = {"faster": "slower", "slower": "faster"}
        assert back["verdict"] == flipped.get(row["verdict"], row["verdict"])
        assert back["p_value"] == pytest.approx(row["p_value"], abs=1e-12)


def test_within_one_pair_exchanging_flips_the_interval(none, late):
    one, two = Arm("A", [many(none)]), Arm("B", [many(late)])
    a, b = by_metric(compare(one, two))["gap 0 → 1"], by_metric(compare(two, one))["gap 0 → 1"]
    assert a["within_low_ns"] is not None
    assert (b["within_low_ns"], b["within_high_ns"]) == pytest.approx((-a["within_high_ns"], -a["within_low_ns"]))


def many(run, times=6):
    """Return a run with several times the handoffs, for intervals within it."""
    handoffs = pl.concat([
        run.handoffs.with_columns(seq=pl.col("seq") + 1_000 * k, step=pl.col("step") + 1_000 * k,
                                  handoff_id=pl.format("{}-{}", "handoff_id", pl.lit(k)),
                                  consumer_start_ns=pl.col("consumer_start_ns") + k)
        for k in range(times)
    ])  # fmt: skip
    return replace(run, handoffs=handoffs, tiles=run.tiles.clear())


def test_shifting_one_run_in_time_changes_nothing(arms, compared):
    a, b = arms
    shifted = Arm(b.name, [later(run, 3 * DAY_NS + 12_345) for run in b.runs])
    same(compare(a, shifted), compared)


def test_the_order_of_pairs_means_nothing(arms, compared):
    a, b = (Arm(arm.name, [arm.runs[k] for k in (3, 0, 4, 2, 1)]) for arm in arms)
    same(compare(a, b), compared)


def test_adding_the_same_time_to_all_of_b_adds_it_to_the_difference(arms, compared):
    a, b = arms
    slower = Arm(b.name, [delayed(run, [70_000] * run.handoffs.height) for run in b.runs])
    found, before = by_metric(compare(a, slower)), by_metric(compared)
    for name in ("gap 0 → 1", "step", "consumer wait of 0 → 1"):
        assert found[name]["difference_ns"] == pytest.approx(before[name]["difference_ns"] + 70_000)
        assert found[name]["high_ns"] - found[name]["low_ns"] == pytest.approx(
            before[name]["high_ns"] - before[name]["low_ns"]
        )


def test_written_results_give_what_recordings_give(none, late, tmp_path):
    import gapscope

    for name in ("mailbox_none", "mailbox_late_submit"):
        gapscope.analyze(recordings(name)).write(tmp_path / name)
    read = [read_run(tmp_path / name)[0] for name in ("mailbox_none", "mailbox_late_submit")]
    written = compare(Arm("A", [read[0]]), Arm("B", [read[1]]))
    recorded = compare(Arm("A", [none]), Arm("B", [late]))
    assert [run.tools for run in read] == [("nsys",)] * 2
    assert written.metrics.equals(recorded.metrics)
    assert written.closure.equals(recorded.closure)


# What a change is made of ----------------------------------------------------------------------------------------


def test_the_changes_of_causes_add_up_to_that_of_the_gap(compared):
    rows = compared.closure
    gap, causes = rows.filter(pl.col("cause").is_null()), rows.filter(pl.col("cause").is_not_null())
    assert gap.height == 1
    for column in ("a_mean_ns", "b_mean_ns", "difference_ns"):
        assert causes[column].sum() == pytest.approx(gap[column].item(), abs=1e-3)


@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_shipped_recordings_late_submission_made_the_gap_longer_and_the_step_followed(run_of, tool):
    found = compare(Arm("none", [run_of("mailbox_none", tool)]), Arm("late", [run_of("mailbox_late_submit", tool)]))
    rows, told = by_metric(found), comparison_told(found)
    gap, step = rows["gap 0 → 1"], rows["step"]
    first = found.closure.row(1, named=True)
    assert (first["cause"], first["rank"]) == ("late_submission", 0)
    whole = found.closure.row(0, named=True)["difference_ns"]
    assert 0.9 < first["difference_ns"] / whole < 1.05
    assert 1_800_000 < gap["difference_ns"] < 2_400_000
    assert 1_500_000 < step["difference_ns"] < 2_700_000
    assert found.primary == "step"
    assert {row["verdict"] for row in told["metrics"]} == {"no claim (n=1 restart)"}


# What may be claimed ---------------------------------------------------------------------------------------------


def test_enough_restarts_have_a_verdict(compared):
    rows = by_metric(compared)
    assert rows["step"]["verdict"] == "slower"
    assert rows["gap 0 → 1"]["verdict"] == "slower"
    assert rows["step"]["is_primary"]
    assert rows["step"]["p_adjusted"] is None
    assert rows["gap 0 → 1"]["p_adjusted"] >= rows["gap 0 → 1"]["p_value"]


@pytest.mark.parametrize("number", [4, 5])
def test_fewer_pairs_than_the_exact_test_needs_go_by_the_interval(arms, number):
    """Of four or five pairs the exact test cannot say anything; it must not take the verdict away."""
    a, b = (Arm(arm.name, arm.runs[:number]) for arm in arms)
    row = by_metric(compare(a, b))["step"]
    assert row["verdict"] == "slower"
    assert row["p_value"] < 0.001  # of the t test: the sign test could not be below 0.06


@pytest.mark.parametrize(("of_a", "of_b"), [(1, 1), (1, 5), (5, 1)])
def test_one_restart_never_gives_a_verdict(arms, of_a, of_b):
    a, b = Arm("A", arms[0].runs[:of_a]), Arm("B", arms[1].runs[:of_b])
    found = compare(a, b)
    assert set(found.metrics["verdict"]) == {"no claim (n=1 restart)"}
    assert found.metrics["low_ns"].null_count() == found.metrics.height
    assert found.metrics["ratio_low"].null_count() == found.metrics.height


@pytest.mark.parametrize("number", [2, 3])
def test_two_or_three_restarts_are_indicative_at_most(arms, number):
    found = compare(*(Arm(arm.name, arm.runs[:number]) for arm in arms))
    assert not CLAIMS & set(found.metrics["verdict"])
    assert by_metric(found)["step"]["verdict"] == "indicative"


def test_a_against_a_of_perturbed_restarts_is_seldom_a_difference(none):
    """Perturbed restarts of one recording; of the seeds none may differ, for the interval of each is at 95 %."""
    verdicts = []
    for seed in range(12):
        a, b = restarts(none, 4, seed=2 * seed), restarts(none, 4, seed=2 * seed + 1)
        found = by_metric(compare(Arm("A", a), Arm("B", b), Settings(primary="gap 0 → 1")))
        verdicts.append(found["gap 0 → 1"]["verdict"])
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 1


def test_a_margin_of_the_primary_makes_it_equivalent(none):
    a, b = Arm("A", restarts(none, 5, seed=1)), Arm("B", restarts(none, 5, seed=2))
    name = "consumer wait of 0 → 1"  # of one clock: no bound of clocks comes first
    assert by_metric(compare(a, b, Settings(name, margin_ns=1e6)))[name]["verdict"] == "equivalent"
    assert by_metric(compare(a, b, Settings(name, margin_ns=1.0)))[name]["verdict"] != "equivalent"


def test_noise_is_how_far_a_is_from_a(none, late):
    a, b = Arm("A", restarts(none, 4, seed=1)), Arm("B", restarts(none, 4, seed=2))
    slow = delayed(none, [9_000_000] * none.handoffs.height)
    found = by_metric(compare(a, b, noise=[(none, slow)]))
    assert found["gap 0 → 1"]["noise_floor_ns"] == pytest.approx(9_000_000)
    without_steps = later(replace(none, units=none.units.clear()), DAY_NS)
    assert by_metric(compare(a, b, noise=[(none, without_steps)]))["step"]["noise_floor_ns"] is None


def test_what_the_clocks_cannot_resolve_has_no_direction(none):
    a = Arm("A", restarts(none, 6, seed=1, spread_ns=100, noise_ns=10))
    b = Arm(
        "B",
        [delayed(run, [5_000] * run.handoffs.height) for run in restarts(none, 6, seed=2, spread_ns=100, noise_ns=10)],
    )
    row = by_metric(compare(a, b))["gap 0 → 1"]
    assert abs(row["difference_ns"]) < row["clock_ns"]
    assert row["verdict"] == "below clock resolution"


# What is missing -------------------------------------------------------------------------------------------------


def codes(found):
    return [finding.code for finding in found.findings]


def test_keys_that_do_not_match_are_compared_without_pairs_and_it_is_said(none, late):
    other = replace(late, handoffs=late.handoffs.with_columns(seq=pl.col("seq") + 500))
    found = compare(Arm("A", [none]), Arm("B", [other]))
    rows = by_metric(found)
    assert not rows["gap 0 → 1"]["paired"]
    assert rows["step"]["paired"]
    (finding,) = [f for f in found.findings if f.code == "unpaired"]
    assert "gap 0 → 1" in finding.message
    assert rows["gap 0 → 1"]["difference_ns"] == pytest.approx(
        rows["gap 0 → 1"]["b_p50_ns"] - rows["gap 0 → 1"]["a_p50_ns"]
    )


def test_unequal_arms_are_not_paired_and_it_is_said(arms):
    found = compare(arms[0], Arm("B", arms[1].runs[:4]))
    assert "unequal_arms" in codes(found)
    row = by_metric(found)["step"]
    assert not row["paired_restarts"]
    assert (row["restarts_a"], row["restarts_b"]) == (5, 4)
    assert row["verdict"] == "slower"


def test_an_edge_that_a_run_lacks_is_not_compared_and_it_is_said(none, late):
    other = replace(late, handoffs=late.handoffs.with_columns(dst_rank=pl.lit(7, pl.Int32)))
    found = compare(Arm("A", [none]), Arm("B", [other]))
    assert found.primary == "step"
    assert not any(row["family"] == "gap" for row in found.metrics.to_dicts())
    (finding,) = [f for f in found.findings if f.code == "not_in_all_runs"]
    assert "gap 0 → 1" in finding.message
    assert found.closure.height == 0


def test_runs_without_steps_are_about_the_gap(none, late):
    bare = [replace(run, units=run.units.clear()) for run in (none, late)]
    found = compare(Arm("A", [bare[0]]), Arm("B", [bare[1]]))
    assert found.primary == "gap 0 → 1"
    assert "step" not in by_metric(found)


def test_arms_with_nothing_in_common(none, late):
    other = replace(late, handoffs=late.handoffs.with_columns(dst_rank=pl.lit(7, pl.Int32)), units=late.units.clear())
    found = compare(Arm("A", [none]), Arm("B", [other]))
    assert (found.primary, found.metrics.height) == (None, 0)


def test_different_tools_are_said(run_of):
    found = compare(Arm("A", [run_of("mailbox_none")]), Arm("B", [run_of("mailbox_none", "torch")]))
    assert "unlike_tools" in codes(found)


def test_a_cause_that_one_arm_lacks_is_zero_there(none, late):
    tiles = late.tiles.with_columns(
        cause=pl.when(pl.col("cause") == "submit_call")
        .then(pl.lit("metadata_wait"))
        .otherwise(pl.col("cause").cast(pl.String))
    )
    found = compare(Arm("A", [none]), Arm("B", [replace(late, tiles=tiles.cast(late.tiles.schema))]))
    row = by_metric(found)["metadata_wait @ rank 0 of 0 → 1"]
    assert (row["a_p50_ns"], row["ratio"]) == (0.0, None)
    assert row["difference_ns"] > 0
    parts = found.closure.filter(pl.col("cause").is_not_null())
    assert parts.filter(cause="metadata_wait")["a_mean_ns"].to_list() == [0.0]
    assert parts.filter(cause="submit_call")["b_mean_ns"].to_list() == [0.0]
    assert parts["difference_ns"].sum() == pytest.approx(found.closure["difference_ns"][0], abs=1e-3)


def test_arms_that_did_not_run_in_turn(none):
    a, b = restarts(none, 3, seed=1), [later(run, 30 * DAY_NS) for run in restarts(none, 3, seed=2)]
    assert "not_in_turn" in codes(compare(Arm("A", a), Arm("B", b)))
    assert "not_in_turn" not in codes(compare(Arm("A", a), Arm("B", restarts(none, 3, seed=2))))
    placed = [[replace(run, place=place) for run, place in zip(runs, places, strict=True)]
              for runs, places in ((a, (0, 3, 4)), (b, (1, 2, 5)))]  # fmt: skip
    assert "not_in_turn" not in codes(compare(Arm("A", placed[0]), Arm("B", placed[1])))


def test_a_recording_counts_once_in_an_arm(none):
    again = replace(none, name="the same under another name")
    assert began_ns(none) is not None
    for runs in ([none, none], [none, again]):
        with pytest.raises(UsageError, match="one recording twice"):
            compare(Arm("A", runs), Arm("B", [none]))


def test_a_metric_that_is_not_there_is_named_with_those_that_are(none):
    with pytest.raises(UsageError, match="gap 0 → 1"):
        compare(Arm("A", [none]), Arm("B", [none]), Settings(primary="gap 0-1"))


def test_a_change_that_the_clocks_cannot_resolve_is_no_number_in_the_text(none):
    from rich.console import Console

    from gapscope.reports.comparison import render_comparison
    from gapscope.wording import duration

    a = Arm("A", restarts(none, 6, seed=1, spread_ns=100, noise_ns=10))
    b = Arm("B", [delayed(run, [5_000] * run.handoffs.height) for run in restarts(none, 6, seed=2, spread_ns=100)])
    told = comparison_told(compare(a, b))
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render_comparison(told, verbose=True))
    text = capture.get()
    gap = next(m for m in told["metrics"] if m["metric"] == "gap 0 → 1")
    (line,) = [line for line in text.splitlines() if line.startswith("gap 0 → 1")]
    clock = duration(gap["clock_ns"])
    assert f"< {clock}" in line
    assert "…" not in line
    (total,) = [line for line in text.splitlines() if line.startswith("gap  ")]
    assert f"< {clock}" in total
    assert f"The clocks can have moved the gap by {clock}" in text


def test_a_recording_in_both_arms_supports_no_claim(none):
    runs = restarts(none, 5, seed=1)
    copies = [replace(run, name=f"copy of {run.name}") for run in runs]
    found = compare(Arm("A", runs), Arm("B", copies), Settings(margin_ns=1e6))
    assert set(found.metrics["verdict"]) == {"no claim"}
    assert "both arms hold the same recording" in found.metrics["reason"][0]
    assert "in_both_arms" in codes(found)
    others = compare(Arm("A", runs), Arm("B", restarts(none, 5, seed=2)), Settings(margin_ns=1e6))
    assert "no claim" not in set(others.metrics["verdict"])
    assert "in_both_arms" not in codes(others)


def test_a_recording_without_a_date_is_known_again(none):
    undated = later(none, -none.handoffs["consumer_start_ns"].min() + 1_000)
    assert began_ns(undated) is None
    with pytest.raises(UsageError, match="one recording twice"):
        compare(Arm("A", [undated, replace(undated, name="copy")]), Arm("B", [none]))


def test_a_recording_is_no_noise_pair_of_its_own(none, late):
    a, b = Arm("A", [none]), Arm("B", [late])
    for two in (none, replace(none, name="copy")):
        with pytest.raises(UsageError, match="A pair for the noise floor is one recording twice"):
            compare(a, b, noise=[(none, two)])


def test_a_margin_has_an_upper_bound():
    from gapscope.compare.margin import parse_margin

    assert parse_margin("100%") == (None, 1.0)
    assert parse_margin("3600s") == (3.6e12, None)
    for text in ("100.1%", "1e300%", "3601s", "1e300s"):
        with pytest.raises(UsageError, match="calls every difference equivalent"):
            parse_margin(text)

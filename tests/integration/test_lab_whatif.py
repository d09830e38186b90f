"""What-if on the recordings of the lab: what it predicts for a cause that is gone, against the run without that cause.

The runs are other runs on another day of the same machine, so that a prediction is held against a distribution: between
`after_p10_ns` and `after_p90_ns` lie four fifths of the predicted steps at both bounds.
"""

import polars as pl
import pytest

from gapscope import Scenario
from tests.integration.analyzed import analyzed, of_runs
from tests.reference.runs import RUNS

US = 1_000

HOLDS = ["one_gpu_mailbox_{}_torch", "two_gpus_mailbox_{}_torch", "two_gpus_nccl_{}_nsys", "two_gpus_nccl_{}_torch"]
"""Here the measured median of `none` lies within what late_submit without the sleep predicts."""

MISSES = ["one_gpu_mailbox_{}_nsys", "two_gpus_mailbox_{}_nsys"]
"""Here all of the host work of rank 0 is slower in the run that sleeps, which no replay can know."""


def pairs(names):
    return pytest.mark.parametrize(
        "pair", [pytest.param(n, marks=pytest.mark.xdist_group(n.format("late_submit"))) for n in names]
    )


def predicted(pair):
    return analyzed(pair.format("late_submit")).whatif(Scenario(cause="late_submission")).over("step")


def measured(pair):
    """Lengths of the steady steps of the run without the sleep."""
    steps = analyzed(pair.format("none")).units.filter("steady")
    return steps["end_ns"] - steps["start_ns"]


def on_rank_0(pair, injected):
    """Median host time of rank 0 on the path of a step, in µs: of one cause, and outside all gaps (``None``)."""
    found = analyzed(pair.format(injected))
    steps = found.units.filter("steady").select("id")
    host = (pl.col("rank") == 0) & ((pl.col("part") == "gap") | (pl.col("part") == "host"))
    sums = found.exposure.filter(host).group_by("id", "cause").agg(pl.col("exposure_ns").sum() / US)
    names = sums["cause"].unique().to_list()
    by_cause = {}
    for name in names:
        mine = sums.filter(pl.col("cause").eq_missing(name)).select("id", "exposure_ns")
        by_cause[name] = steps.join(mine, on="id", how="left")["exposure_ns"].fill_null(0).median()
    return by_cause


@pairs(HOLDS)
def test_without_the_sleep_the_steps_are_those_of_the_run_without_it(pair):
    over, middle = predicted(pair), measured(pair).median()
    assert over["n"] == 19
    assert over["after_p10_ns"] <= middle <= over["after_p90_ns"]
    assert over["before_p50_ns"] > middle + 1_400 * US  # as recorded it was far off


@pairs(MISSES)
def test_where_it_misses_the_run_that_sleeps_is_slower_all_over(pair):
    """What is left beyond the measured steps is host work of rank 0 that the run without the sleep does faster.

    It is in the send call (by half and more), and in what lies outside all gaps; together they are all of the miss.
    """
    over, middle = predicted(pair), measured(pair).median()
    assert middle < over["after_low_p50_ns"] - 150 * US
    slept, none = on_rank_0(pair, "late_submit"), on_rank_0(pair, "none")
    in_call = slept["submit_call"] - none["submit_call"]
    elsewhere = slept[None] - none[None]
    assert in_call > 100
    assert slept["submit_call"] > 1.5 * none["submit_call"]
    assert elsewhere > 50
    missed = (over["after_low_p50_ns"] - middle) / US
    assert missed == pytest.approx(in_call + elsewhere - none["late_submission"], abs=40)


def lateness(pair):
    """Time of late submission in the handoff of each step, in order of the steps' names."""
    found = analyzed(pair.format("late_submit"))
    sums = found.tiles.filter(pl.col("cause") == "late_submission").group_by("handoff_id")
    sums = sums.agg(late_ns=pl.col("duration_ns").sum()).join(found.handoffs, on="handoff_id")
    return sums.select("late_ns", id=pl.col("step").cast(pl.String))


@pairs([name for name in HOLDS + MISSES if name.endswith("nsys")])
def test_where_one_host_alone_paces_the_steps_each_is_shorter_by_its_lateness(pair):
    """nsys records no token: rank 0's wait for it is host time, and stays as long as it was."""
    effect = analyzed(pair.format("late_submit")).whatif(Scenario(cause="late_submission"))
    rows = effect.units.filter("steady").join(lateness(pair), on="id")
    assert rows.height == 19
    # Where rank 0 gains, rank 1 is the last to end some steps: single ones differ, their middle does not.
    assert abs(rows["late_ns"].median() - rows["sooner_high_ns"].median()) <= 60 * US
    assert effect.not_replayed_ns == 0


def test_where_the_token_is_recorded_the_other_rank_takes_the_place_of_the_sleep():
    """Rank 1's host then holds the step. To subtract the sleep from the step would promise too much."""
    pair = "two_gpus_nccl_{}_torch"
    over, middle = predicted(pair), measured(pair).median()
    late = lateness(pair)["late_ns"].median()
    assert over["sooner_high_p50_ns"] < late - 300 * US
    subtracted = over["before_p50_ns"] - late
    assert subtracted < over["after_p10_ns"] <= middle
    assert 3 * abs(over["after_low_p50_ns"] - middle) < abs(subtracted - middle)


@of_runs(n for n, _ in RUNS if "late_launch" in n and n.endswith("torch"))
def test_a_late_launch_reaches_the_end_of_the_step(run):
    """Rank 1 sleeps 2 ms before its stage: the sleep overlaps with what rank 0 does, so less than 2 ms is gained."""
    best = analyzed(run).fixes.row(0, named=True)
    assert (best["cause"], best["rank"], best["to"]) == ("late_launch", 1, "0")
    assert 900 * US < best["sooner_low_p50_ns"] <= best["sooner_high_p50_ns"] < 2_000 * US


@of_runs(n for n, _ in RUNS if "late_launch" in n and n.endswith("nsys"))
def test_without_the_token_no_end_is_known_to_hang_on_the_other_rank(run):
    """A limit of what nsys records, and said as one: what it would bring is not known, rather than nothing."""
    found = analyzed(run)
    unknown = found.fixes.filter(pl.col("cause") == "late_launch")
    assert unknown.height
    assert unknown["sooner_high_p50_ns"].null_count() == unknown.height
    assert 0 <= found.slack["unit_slack_ns"].median() < 4_000 * US  # within its own step


@of_runs(n for n, _ in RUNS if "slot_hold" in n)
def test_a_held_slot_limits_what_the_sender_gains(run):
    """Back-pressure: what rank 0 could send sooner has no slot yet."""
    found = analyzed(run)
    assert found.fixes.filter(pl.col("cause") == "slot_wait").height > 0
    without = found.whatif(Scenario(cause="submit_call")).over("step")
    tiles = found.tiles.filter(pl.col("cause") == "submit_call").group_by("handoff_id").agg(pl.col("duration_ns").sum())
    assert without["sooner_high_p50_ns"] < 4 * tiles["duration_ns"].median()
    assert found.model.forward.dropped == 0


@of_runs(n for n, _ in RUNS)
def test_every_recording_is_given_back_to_the_nanosecond(run):
    found = analyzed(run)
    if found.model is None:
        return
    assert found.model.forward.diverging() is None
    assert (found.model.forward.replay({}, 1) == found.model.forward.time).all()
    assert not [f for f in found.findings if f.code == "replay_differs"]


@of_runs(n for n, _ in RUNS)
def test_bounds_are_in_order_and_no_end_comes_later(run):
    found = analyzed(run)
    if not found.tiles.height:
        return
    for scenario in (Scenario(), Scenario(to="p10"), Scenario(rank=1, to="50%")):
        units = found.whatif(scenario).units
        assert units["sooner_low_ns"].null_count() in {0, units.height}  # not known, for all alike
        known = units.drop_nulls("sooner_low_ns")
        assert (known["sooner_low_ns"] <= known["sooner_high_ns"]).all()
        assert (known["end_sooner_low_ns"] >= 0).all()
    assert (found.slack["unit_slack_ns"].drop_nulls() >= 0).all()
    for row in found.fixes.drop_nulls("sooner_low_p50_ns").to_dicts():
        assert row["sooner_low_p50_ns"] <= row["sooner_high_p50_ns"]

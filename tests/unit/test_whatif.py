"""What it would bring if time were gone, on built recordings: every nanosecond is computed by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gapscope
from gapscope import Scenario, whatif
from gapscope.cause_names import CAUSES
from gapscope.clocks import AlignOptions
from gapscope.errors import ReplayError, UsageError
from gapscope.findings import Finding
from gapscope.graph.forward import forward_of
from gapscope.graph.narrow import lengths_of, narrow
from gapscope.testing import Recording, trace
from gapscope.whatif import model as model_module
from gapscope.whatif.scenario import fitting, shrunk
from tests.integration.analyzed import analyzed as recorded
from tests.unit.test_causes import COMPUTE, US, Run, ns
from tests.unit.test_exposure import run_of

DATA = Path(__file__).parents[1] / "data"


def analyzed(run, **options):
    return gapscope.analyze(trace(*run.recordings()), **options)


def plain(**options):
    """Three steps of one handoff each, 1 ms apart; a step ends with its consumer, 400 µs after it began.

    Gap of 160: late_submission 100, submit_call 20 (rank 0, host), launch_latency 5, movement 10 (rank 0, GPU),
    flag_wait 10, movement 5, event_release 10 (rank 1, GPU).
    """
    return analyzed(run_of((0, 0, 340), (1, 0, 80)), **options)


@pytest.fixture(scope="module")
def found():
    return plain()


def ends(effect, unit="step"):
    """By how much sooner each unit ends, in µs, low and high bound; equal ones once."""
    rows = effect.units.filter(pl.col("unit") == unit).select("end_sooner_low_ns", "end_sooner_high_ns").rows()
    return [low / US if low == high else (low / US, high / US) for low, high in rows]


# What is chosen, and to what --------------------------------------------------------------------------------------

# Host time of rank 0 that is gone once is gone for all later steps; time of GPUs is gained anew by each.
CHOICES = [
    (Scenario(cause="late_submission", to="50%"), 3, 150, [50, 100, 150]),
    (Scenario(cause="submit_call"), 6, 60, [20, 40, 60]),
    (Scenario(cause="submit_call", to="0%"), 6, 60, [20, 40, 60]),
    (Scenario(cause="submit_call", to="25%"), 6, 45, [15, 30, 45]),
    (Scenario(cause="submit_call", to="100%"), 6, 0, [0, 0, 0]),
    (Scenario(cause="movement"), 6, 45, [15, 15, 15]),
    (Scenario(cause="movement", rank=0), 3, 30, [10, 10, 10]),
    (Scenario(cause="movement", rank=1, to="40%"), 3, 9, [3, 3, 3]),
    (Scenario(phase="movement"), 9, 75, [25, 25, 25]),
    (Scenario(phase="consumer_wait"), 3, 30, [10, 10, 10]),
    (Scenario(phase="start_wait"), 9, 75, [25, 45, 65]),
    (Scenario(rank=1), 9, 75, [25, 25, 25]),
    (Scenario(src_rank=0, dst_rank=1, to="75%"), 24, 120, [40, 70, 100]),
    (Scenario(to="75%"), 24, 120, [40, 70, 100]),
    (Scenario(handoff_id="0>1/0/2"), 8, 160, [0, 160, 120]),
    (Scenario(handoff_id="0>1/0/2", cause="movement"), 2, 15, [0, 15, 0]),
]


@pytest.mark.parametrize(("scenario", "tiles", "gone", "sooner"), CHOICES, ids=[c[0].words() for c in CHOICES])
def test_a_choice_shrinks_its_tiles_and_moves_the_ends(found, scenario, tiles, gone, sooner):
    effect = found.whatif(scenario)
    assert (effect.tiles, effect.gone_ns / US, effect.not_replayed_ns) == (tiles, gone, 0)
    assert ends(effect) == sooner
    assert effect.scenario == scenario


def test_a_step_counts_from_the_end_of_the_step_before_it(found):
    units = found.whatif(Scenario(handoff_id="0>1/0/2")).units
    assert units["before_ns"].to_list() == [400 * US] * 3
    assert units["sooner_low_ns"].to_list() == [0, 160 * US, -40 * US]  # the third keeps only what the host gained
    assert units["steady"].to_list() == [False, True, True]


def test_medians_are_over_steady_units(found):
    over = found.whatif(Scenario(handoff_id="0>1/0/2")).over("step")
    assert over == {
        "n": 2, "before_p50_ns": 400 * US, "sooner_low_p50_ns": 60 * US, "sooner_high_p50_ns": 60 * US,
        "after_low_p50_ns": 340 * US, "after_high_p50_ns": 340 * US,
        "after_p10_ns": 260 * US, "after_p90_ns": 420 * US,
    }  # fmt: skip
    assert set(found.whatif(Scenario()).over("request").values()) == {0, None}


def test_no_consumer_starts_before_it_was_launched(found):
    """Rank 1 launched its third consumer at 3062, and all of what passed between has a cause and is gone."""
    assert ends(found.whatif(Scenario())) == [160, 160 + 120, 3360 - 3062]


def test_nothing_gone_changes_nothing(found):
    units = found.whatif(Scenario(to="100%")).units
    assert units.select(pl.col("^.*sooner.*$").abs().max()).row(0) == (0, 0, 0, 0)


@pytest.mark.parametrize("cause", [None, "late_submission", "submit_call", "movement"])
def test_more_that_is_gone_never_lets_a_step_end_later(found, cause):
    """With sticky residuals; those of the floor are a bound, and no order."""
    lows = [
        found.whatif(Scenario(cause=cause, to=to)).units["end_sooner_low_ns"].to_list()
        for to in ("100%", "80%", "50%", "10%", "0")
    ]
    assert all(a <= b for less, more in pairwise(lows) for a, b in zip(less, more, strict=True))


@pytest.mark.parametrize("by_us", [-500, 1_700_000_000_000_000])
def test_a_constant_added_to_all_times_changes_nothing(found, by_us):
    run = run_of((0, 0, 340), (1, 0, 80))
    for r in run.ranks:
        r.shift(by_us * US)
    moved = analyzed(run)
    assert moved.fixes.equals(found.fixes)
    assert moved.slack.equals(found.slack)


def test_one_file_moved_and_put_back_changes_nothing():
    def two_files(by_us):
        run = run_of((0, 0, 340), (1, 0, 80), at=lambda k: 100_000 + 1000 * k)
        run.ranks[1].info = replace(run.ranks[1].info, path="other")
        run.ranks[1].shift(by_us * US)
        clocks = AlignOptions(offsets={1: -by_us * US})
        return gapscope.analyze(trace(*run.ranks[:2], rank_of={10: 0, 11: 1}), clocks=clocks)

    one, other = two_files(0), two_files(-37_000)
    assert one.fixes.height > 0
    assert other.fixes.equals(one.fixes)
    assert other.slack.equals(one.slack)
    for scenario in (Scenario(), Scenario(cause="late_submission", to="50%")):
        assert other.whatif(scenario).units.equals(one.whatif(scenario).units)


# To its best tenth ------------------------------------------------------------------------------------------------


def varied(lateness, then=lambda run, k: None):
    """Handoffs 1 ms apart, of which the k-th submits so many µs after its producer's end; the first is start-up."""
    run = Run()
    for k, late in enumerate(lateness, start=1):
        run.handoff(k, 1000 * k, submit=(200 + late, 330), send_call=(310, 320))
        then(run, k)
        for rank, end in ((0, 340), (1, 80)):
            run.ranks[rank].mark(f"step step={k}", *ns((0, end), 1000 * k))
    return analyzed(run)


@pytest.mark.parametrize(
    ("lateness", "best"),
    [
        ([5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 1),  # of ten the first
        ([5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 2),  # of eleven the second
        ([5, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0),  # one without the cause spends nothing
        ([5, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 2),
        ([5, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11], 0),
        ([5, 10], 10),  # alone it is its own best
    ],
)
def test_the_best_tenth_is_of_the_counted_handoffs_of_the_edge(lateness, best):
    found = varied(lateness)
    effect = found.whatif(Scenario(cause="late_submission", to="p10"))
    gone = [max(late - best, 0) for late in lateness]  # start-up shrinks as well, but is no measure
    assert effect.gone_ns / US == sum(gone)
    assert ends(effect) == [sum(gone[: k + 1]) for k in range(len(gone))]
    tiles = found.model.parts.with_columns(shrunk(found.model, effect.scenario))
    of_each = tiles.filter(fitting(found.model, effect.scenario)).group_by("handoff").agg(pl.col("gone_ns").sum())
    assert sorted(of_each["gone_ns"]) == sorted(ns * US for ns, late in zip(gone, lateness, strict=True) if late)


def test_a_handoff_without_a_gap_counts_in_the_best_tenth():
    """Eleven counted: ten submit 1 to 10 late, one has a consumer that starts the moment its producer ends."""
    lateness = [5, *range(1, 11)]

    def no_gap(run, k):
        if k == 11:
            run.handoff(12, 12_000, produced=(100, 360))
            for rank, end in ((0, 340), (1, 80)):
                run.ranks[rank].mark("step step=12", *ns((0, end), 12_000))

    found = varied(lateness, no_gap)
    assert found.handoffs.filter(pl.col("gap_ns") == 0)["seq"].to_list() == [12]
    effect = found.whatif(Scenario(cause="late_submission", to="p10"))
    assert effect.gone_ns / US == sum(late - 1 for late in lateness)


# Waits that are elastic -------------------------------------------------------------------------------------------


def late_peer(received, nccl=True):
    """The receive kernel begins long before the late rank sends."""
    run = Run()
    for k in (1, 2, 3):
        run.handoff(k, 1000 * k, nccl=nccl, received=received)
        for rank, end in ((0, 340), (1, 80)):
            run.ranks[rank].mark(f"step step={k}", *ns((0, end), 1000 * k))
    return run


def test_without_the_late_rank_s_host_time_the_step_ends_sooner():
    """Rank 1's kernel waits from 60 to 350, and for less when rank 0 sends sooner. A wait of fixed length would not."""
    effect = analyzed(late_peer((60, 350))).whatif(Scenario(cause="late_submission", to="40%"))
    assert ends(effect) == [60, 120, 180]


def test_a_receive_does_not_begin_before_it_did():
    """It begins at 300: of 100 that the sender is sooner, 25 are gained, and of each further one no more."""
    effect = analyzed(late_peer((300, 350))).whatif(Scenario(cause="late_submission"))
    assert ends(effect) == [25, 25, 25]


def with_sync(run, k):
    """Rank 1 waits for its consumer, and ends its step on the host 10 µs after that."""
    run.ranks[1].sync(*ns((90, 402), 1000 * k), stream=COMPUTE)
    run.ranks[1].rows["syncs"][-1]["device"] = 1


def test_a_step_that_ends_with_a_sync_ends_sooner_as_well():
    found = analyzed(run_of((0, 0, 340), (1, 0, 412), then=with_sync))
    assert found.units["rank"].to_list() == [1, 1, 1]
    assert ends(found.whatif(Scenario(cause="late_submission", to="50%"))) == [50, 100, 150]


def test_a_blocking_copy_is_no_circle():
    """The send is a call that waits for its copy: from 310 to 340, the copy from 325 to 335."""
    run = Run()
    for k in (1, 2, 3):
        run.handoff(k, 1000 * k, send_call=(310, 340), submit=(300, 345))
        (call,) = [c for c in run.ranks[0].rows["calls"] if c["start_ns"] == (1000 * k + 310) * US]
        call["name"] = "cudaMemcpy"
        for rank, end in ((0, 350), (1, 80)):
            run.ranks[rank].mark(f"step step={k}", *ns((0, end), 1000 * k))
    found = analyzed(run)
    assert found.model.forward.dropped == 0
    sums = found.tiles.filter(pl.col("rank") == 0).group_by("cause").agg(pl.col("duration_ns").sum() / US)
    assert dict(sums.iter_rows()) == {"late_submission": 300, "submit_call": 30, "launch_latency": 45, "movement": 30}
    # While it copies its host waits: what the copy gains, the host gains.
    assert ends(found.whatif(Scenario(cause="submit_call"))) == [10, 20, 30]
    assert ends(found.whatif(Scenario(cause="launch_latency"))) == [15, 30, 45]
    assert ends(found.whatif(Scenario(cause="movement", rank=0))) == [10, 20, 30]
    assert ends(found.whatif(Scenario(cause="late_submission", to="50%"))) == [50, 100, 150]
    assert found.handoffs["removable_ns"].to_list() == [100 * US] * 3


def test_time_of_one_thread_that_two_handoffs_wait_through_counts_once():
    """Both consumers wait for the same copy."""
    run = Run()
    for k in (1, 2, 3):
        at = k * 1000
        run.handoff(2 * k, at)
        r0, r1 = run.ranks[0], run.ranks[1]
        key = f"src=0 dst=1 seq={2 * k + 1} step={2 * k}"
        r1.mark(f"consume {key}", *ns((71, 79), at))
        r1.mark(f"receive {key}", *ns((20, 40), at))
        r0.mark(f"produce {key}", *ns((5, 10), at))
        r0.mark(f"submit {key}", *ns((300, 330), at))
        run.op(1, (at + 72, at + 73), (at + 400, at + 450), COMPUTE, name="second")
        for rank in (0, 1):
            run.ranks[rank].mark(f"step step={2 * k}", *ns((0, 80), at))
    effect = analyzed(run).whatif(Scenario(cause="late_submission", to="50%"))
    assert (effect.tiles, effect.gone_ns / US) == (6, 300)  # handoff time
    assert ends(effect) == [50, 100, 150]


# Host consumers ---------------------------------------------------------------------------------------------------


def on_hosts(then=True):
    """Handoffs between hosts; rank 1 waits in a call from 100 to 190, consumes at 250, and calls at 260 if ``then``."""
    r, d = Recording("run", pid=10), Recording("run", pid=11)
    for k in (1, 2, 3):
        at, key = k * 1000, f"src=0 dst=1 seq={k} step={k} device=cpu"
        r.timed_call(*ns((1, 2), at), family="other")
        r.mark(f"produce {key}", *ns((0, 100), at))
        r.mark(f"submit {key}", *ns((150, 170), at))
        r.mark(f"step step={k}", *ns((0, 180), at))
        d.mark(f"receive {key}", *ns((90, 200), at))
        d.timed_call(*ns((100, 190), at), family="other", name="recv")
        d.mark(f"consume {key}", *ns((250, 300), at))
        if then or k < 3:
            d.timed_call(*ns((260, 290), at), family="other", name="use")
        d.mark(f"step step={k}", *ns((80, 310), at))
    return gapscope.analyze(trace(r.add_process(d)))


def test_host_time_right_before_a_consumer_lies_before_what_its_thread_does_next():
    found = on_hosts()
    parts = found.model.parts
    lead = parts.filter(pl.col("end_ns") % 1_000_000 == 250 * US)
    name = found.model.graph.items.hosts["name"].cast(pl.String)
    first = found.model.graph.items.n_ops
    assert [name[node // 2 - first] for node in lead["node"]] == ["use"] * 3
    assert (lead["node"] % 2 == 0).all()
    # Rank 1 ends each step 50 sooner than the one before; at last rank 0, which ends them at 180, is the later one.
    assert ends(found.whatif(Scenario(phase="consumer_wait"))) == [50, 100, 130]
    assert ends(found.whatif(Scenario())) == [130, 130, 130]


def test_a_consumer_within_a_call_lies_before_the_end_of_that():
    """The range `gloo:recv` reaches from 100 to 280 around the consumer's begin at 250; nothing begins in it."""
    r, d = Recording("run", pid=10), Recording("run", pid=11)
    for k in (1, 2, 3):
        at, key = k * 1000, f"src=0 dst=1 seq={k} step={k} device=cpu"
        r.timed_call(*ns((1, 2), at), family="other")
        r.mark(f"produce {key}", *ns((0, 240), at))
        r.mark(f"submit {key}", *ns((241, 244), at))
        r.mark(f"step step={k}", *ns((0, 245), at))
        d.mark(f"receive {key}", *ns((90, 246), at))
        d.timed_call(*ns((100, 280), at), family="other", name="around")
        d.mark(f"consume {key}", *ns((250, 300), at))
        d.mark(f"step step={k}", *ns((80, 310), at))
    found = gapscope.analyze(trace(r.add_process(d)))
    assert (found.model.parts["node"] % 2 == 1).all()
    assert ends(found.whatif(Scenario())) == [10, 20, 30]


def test_time_before_nothing_that_is_recorded_is_said_and_changes_nothing():
    found = on_hosts(then=False)
    effect = found.whatif(Scenario(phase="consumer_wait"))
    assert (effect.gone_ns / US, effect.not_replayed_ns / US) == (150, 50)
    whole = found.fixes.filter(pl.col("to") == "0").row(0, named=True)
    assert (whole["handoff_ns"] / US, whole["not_replayed_ns"] / US) == (300, 60)


# The ranked list --------------------------------------------------------------------------------------------------


def test_fixes_equal_one_scenario_each(found):
    for row in found.fixes.filter(pl.col("cause").is_not_null()).to_dicts():
        over = found.whatif(Scenario(cause=row["cause"], rank=row["rank"], to=row["to"])).over("step")
        for column in ("before_p50_ns", "sooner_low_p50_ns", "sooner_high_p50_ns"):
            assert row[column] == over[column]
        assert row["units"] == over["n"] == 2
        mine = found.tiles.filter((pl.col("cause").cast(pl.String) == row["cause"]) & (pl.col("rank") == row["rank"]))
        mine = mine.filter(pl.col("handoff_id") != "0>1/0/1")  # start-up
        assert (row["handoffs"], row["handoff_ns"]) == (2, mine["duration_ns"].sum())
        assert row["not_replayed_ns"] == 0
    for row in found.fixes.filter(pl.col("cause").is_null()).to_dicts():
        over = found.whatif(Scenario(to=row["to"])).over("step")
        assert (row["sooner_low_p50_ns"], row["sooner_high_p50_ns"]) == (
            over["sooner_low_p50_ns"], over["sooner_high_p50_ns"],
        )  # fmt: skip
        assert (row["handoffs"], row["handoff_ns"]) == (2, 2 * 160 * US)


def test_a_gain_is_as_uncertain_as_the_worst_handoff_that_loses_time():
    found = plain()
    table = found.handoffs.with_columns(uncertainty_ns=pl.Series([9_000, 2_000, 3_000]))
    explained = replace(found.model.explained, handoffs=table)
    model = replace(found.model, explained=explained)
    ranked = whatif.ranked(model)
    assert ranked["uncertainty_ns"].to_list() == [
        # The first handoff is start-up: it is in no median. At its best tenth nothing is gone, so nothing is uncertain.
        3_000 if to == "0" else 0 for to in ranked["to"]
    ]  # fmt: skip
    assert whatif.effects(model, Scenario(handoff_id="0>1/0/2")).uncertainty_ns == 2_000
    assert whatif.effects(model, Scenario(to="100%")).uncertainty_ns == 0
    unknown = table.with_columns(uncertainty_ns=pl.Series([9_000, None, 3_000]))
    model = replace(model, explained=replace(explained, handoffs=unknown))
    assert set(whatif.ranked(model).filter(pl.col("to") == "0")["uncertainty_ns"]) == {None}
    assert whatif.effects(model, Scenario(handoff_id="0>1/0/3")).uncertainty_ns == 3_000


def test_fixes_are_ordered_and_all_at_once_is_no_sum(found):
    gone = found.fixes.filter(pl.col("to") == "0")
    alone = gone.filter(pl.col("cause").is_not_null())
    assert gone["cause"].to_list()[-1] is None
    assert alone["sooner_high_p50_ns"].to_list() == sorted(alone["sooner_high_p50_ns"], reverse=True)
    assert alone["cause"][0] == "late_submission"
    assert alone["sooner_low_p50_ns"].sum() > gone["sooner_low_p50_ns"][-1]


def test_without_units_there_are_no_fixes_and_without_handoffs_nothing_to_replay():
    without = analyzed(run_of())
    assert without.fixes.height == 0
    assert without.whatif(Scenario()).units.height == 0
    assert without.slack["unit_slack_ns"].to_list() == [None] * 3
    nothing = Recording("nothing", pid=10)
    nothing.timed_call(1, 2)
    with pytest.raises(UsageError, match="nothing to replay"):
        gapscope.analyze(trace(nothing, rank_of={10: 0})).whatif(Scenario())
    alone = Recording("alone", pid=10)
    alone.kernel(*ns((10, 20, 60)))
    alone.mark("step step=7", *ns((5, 30)))
    with pytest.raises(UsageError, match="No tile fits"):
        gapscope.analyze(trace(alone, rank_of={10: 0})).whatif(Scenario())


def test_requests_count_from_their_own_begin():
    run = run_of((0, 0, 340))
    for k in range(1, 4):
        run.ranks[1].mark(f"step step={k} requests=a{k}", *ns((0, 80), k * 1000))
        run.ranks[0].mark(f"request id=a{k}", *ns((k * 1000 - 50, k * 1000 + 405)), kind="start_end")
    found = analyzed(run)
    effect = found.whatif(Scenario(cause="late_submission", to="50%"))
    assert ends(effect, "request") == [50, 100, 150]
    assert effect.units.filter(pl.col("unit") == "request")["sooner_low_ns"].to_list() == [50 * US] * 3
    assert set(found.fixes["unit"]) == {"request"}


# Slack ------------------------------------------------------------------------------------------------------------


def test_what_ends_a_step_has_no_slack(found):
    assert found.slack["unit_slack_ns"].to_list() == [0, 0, 0]
    assert found.slack["absorbed_by"].to_list() == [None] * 3


def test_slack_is_absorbed_by_what_holds_the_end_instead():
    """The step ends with work of rank 0 from 410 to 440, for which the consumer's end at 400 waits on no one but it."""
    run = run_of((0, 0, 440), (1, 0, 80))
    for k in (1, 2, 3):
        run.op(0, (1000 * k + 332, 1000 * k + 333), (1000 * k + 410, 1000 * k + 440), COMPUTE, name="other work")
    found = analyzed(run)
    assert found.units["rank"].to_list() == [0, 0, 0]
    # Nothing that rank 0 does waits for rank 1, which may end the step as late as rank 0 does.
    assert found.slack["unit_slack_ns"].to_list() == [40 * US] * 3
    # What the consumers' own time would bring is then not nothing, but not known.
    effect = found.whatif(Scenario(rank=1))
    assert effect.units["sooner_low_ns"].to_list() == effect.units["end_sooner_high_ns"].to_list() == [None] * 3
    assert effect.over("step")["sooner_low_p50_ns"] is None
    assert effect.over("step")["before_p50_ns"] == 440 * US


def test_slack_says_how_much_later_and_who_holds():
    """Rank 1's step ends with a kernel on a stream of its own, which waits for its consumer (400) and for 460."""

    def longer(run, k):
        at = 1000 * k
        run.op(1, (at + 74, at + 75), (at + 100, at + 460), 21, name="long work")
        for event, stream, call in ((100 + k, COMPUTE, 80), (200 + k, 21, 82)):
            run.ranks[1].event_record(*ns((call,), at), stream, event, 1)
            run.ranks[1].stream_wait(*ns((call + 1,), at), 22, event, 1)
        run.op(1, (at + 90, at + 91), (at + 465, at + 480), 22, name="last")

    found = analyzed(run_of((0, 0, 340), (1, 0, 99), then=longer))
    assert found.units["end_ns"].to_list() == [(1000 * k + 480) * US for k in (1, 2, 3)]
    assert found.slack["unit_slack_ns"].to_list() == [60 * US] * 3
    assert set(found.slack["absorbed_rank"]) == {1}
    assert all("long work" in text for text in found.slack["absorbed_by"])
    assert ends(found.whatif(Scenario(rank=1))) == [0, 0, 0]


# Refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cause": "bad_luck"}, r"no cause 'bad_luck': .*late_submission"),
        ({"phase": "lunch"}, r"no phase 'lunch': submission, start_wait, movement, consumer_wait"),
        *(
            ({"to": to}, r"give 0, a share such as 50%, or p10")
            for to in ("", "1", "-1", "-5%", "101%", "0.5", "1e1%", "nan", "p50", "50 %", "50%%", "½%", "%", " 0")
        ),
    ],
)
def test_wrong_words_are_refused_before_anything_is_read(options, said):
    with pytest.raises(UsageError, match=said):
        Scenario(**options)


@pytest.mark.parametrize(
    "options",
    [{"rank": 7}, {"src_rank": 1}, {"dst_rank": 0}, {"handoff_id": "nope"}, {"cause": "slot_wait"},
     {"cause": "movement", "phase": "submission"}],
)  # fmt: skip
def test_a_choice_that_fits_no_tile_lists_the_causes(found, options):
    with pytest.raises(UsageError, match=r"No tile fits \(.*\)\. Causes that there are: event_release, flag_wait, "):
        found.whatif(Scenario(**options))


@pytest.mark.parametrize("to", ["0", "0%", "00", "100%", "12.5%", "p10"])
def test_right_words_are_taken(to):
    assert Scenario(to=to).words() == f"all causes := {to}"


def test_a_scenario_in_words():
    scenario = Scenario("movement", 0, None, 1, "start_wait", "0>1/0/3", "25%")
    assert scenario.words() == "movement @ rank 1 of 0 → * in the start wait of handoff 0>1/0/3 := 25%"
    assert "movement" in CAUSES


# The gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["residual", "slack"])
def test_a_replay_that_differs_is_refused_and_names_the_first_node(monkeypatch, field):
    def corrupted(graph, asked, floor):
        forward = forward_of(graph, asked, floor)
        ops = graph.items.ops
        number = 2 * int(ops.with_row_index("n").filter(pl.col("name") == "consumer")["n"][1])
        consumer = int(np.flatnonzero(forward.node == number)[0])
        values = lengths_of(getattr(forward, field))
        values[consumer if field == "residual" else forward.first[consumer]] = -7
        values = narrow(values)
        return replace(forward, **{field: values})

    monkeypatch.setattr(model_module, "forward_of", corrupted)
    found = plain()
    (note,) = [f for f in found.findings if f.code == "replay_differs"]
    assert isinstance(note, Finding)
    assert "the start of consumer on rank 1 (recorded at 2360000 ns) has another time" in note.message
    assert (found.fixes.height, found.slack.height) == (0, 0)
    assert found.tiles.height == 24
    with pytest.raises(ReplayError, match="the start of consumer on rank 1"):
        found.whatif(Scenario())


SHIPPED = [
    "one_gpu_mailbox_both", "one_gpu_mailbox_graph_nsys", "one_gpu_mailbox_mixed", "one_gpu_gloo_none_torch",
    "two_gpus_mailbox_late_submit_nsys", "two_gpus_nccl_none_torch", "two_gpus_copy_engine_none_torch",
    "two_gpus_copy_engine_slot_hold_nsys", "two_gpus_tp_torch",
]  # fmt: skip


@pytest.mark.parametrize("run", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SHIPPED])
def test_shipped_recordings_are_given_back_to_the_nanosecond(run):
    found = recorded(run)
    assert found.model.forward.diverging() is None
    assert found.model.forward.dropped == 0
    assert not [f for f in found.findings if f.code == "replay_differs"]
    assert found.fixes.height > 0
    if found.handoffs.filter(pl.col("dominant_cause").is_not_null()).height:
        unchanged = found.whatif(Scenario(to="100%")).units
        assert unchanged.select(pl.col("^.*sooner.*$").abs().max()).row(0) == (0, 0, 0, 0)
    slack = found.slack["unit_slack_ns"].drop_nulls()
    assert slack.len() == 0 or slack.min() >= 0
    assert found.fixes["before_p50_ns"].is_not_null().all()
    known = found.fixes.filter(pl.col("sooner_low_p50_ns").is_not_null())
    assert (known["sooner_low_p50_ns"] <= known["sooner_high_p50_ns"]).all()

"""What of a step's or request's own time each cause holds, on built recordings: every nanosecond is exact."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

import gapscope
from gapscope.causes import exposure, tiles
from gapscope.testing import Recording, trace
from tests.unit.test_causes import US, Run, ns

GAP = {"late_submission": 100, "submit_call": 20, "launch_latency": 5, "movement": 15, "flag_wait": 10,
       "event_release": 10}  # fmt: skip


def run_of(*steps, at=lambda k: k * 1000, then=lambda run, k: None):
    """A run with one handoff a step; ``steps`` are (rank, from, to) of step marks in µs after the step began."""
    run = Run()
    for k in range(1, 4):
        run.handoff(k, at(k))
        then(run, k)
        for rank, start, end in steps:
            run.ranks[rank].mark(f"step step={k}", *ns((start, end), at(k)))
    return run


def analyzed(run, **options):
    found = gapscope.analyze(trace(*run.recordings()), **options)
    assert_exact(found)
    return found


def assert_exact(found):
    """What holds for all units: rows sum to the unit's length, and none is empty."""
    sums = found.exposure.group_by("unit", "id", "job").agg(pl.col("exposure_ns").sum())
    rows = found.units.join(sums, on=["unit", "id", "job"], how="left", nulls_equal=True)
    timed = rows.filter((pl.col("end_ns") > pl.col("start_ns")).fill_null(value=False))
    assert timed["exposure_ns"].to_list() == (timed["end_ns"] - timed["start_ns"]).to_list()
    assert rows.height - timed.height == rows["exposure_ns"].null_count()
    assert found.exposure.filter(pl.col("exposure_ns") <= 0).height == 0


def held(found, unit="2", kind="step"):
    """Exposure of one unit in µs: of causes by name, of what lies outside all gaps by (part, rank)."""
    rows = found.exposure.filter((pl.col("id") == unit) & (pl.col("unit") == kind)).to_dicts()
    sums = Counter()
    for r in rows:
        sums[r["cause"] or (r["part"], r["rank"])] += r["exposure_ns"] / US
    return dict(sums)


def unit(found, name="2", kind="step", at=2000):
    """Rank, start and end (µs after ``at``) of a unit."""
    row = found.units.filter((pl.col("id") == name) & (pl.col("unit") == kind)).row(0, named=True)
    times = [None if row[c] is None else row[c] / US - at for c in ("start_ns", "end_ns")]
    return (row["rank"], *times)


def test_a_step_ends_when_its_gpu_work_has_and_its_path_goes_through_the_gap():
    found = analyzed(run_of((0, 0, 340), (1, 0, 80)))
    assert unit(found) == (1, 0, 400)  # the mark closed at 80, what was launched inside ended at 400
    # Back from 400: the consumer, the gap from 360 to 200, and what the host did before it sent.
    assert held(found) == {**GAP, ("compute", 1): 40, ("host", 0): 200}


def test_a_step_that_waits_on_its_host_ends_with_its_host():
    def wait(run, k):
        run.ranks[1].sync(*ns((100, 410), k * 1000), stream=7)
        run.ranks[1].rows["syncs"][-1]["device"] = 1

    found = analyzed(run_of((0, 0, 340), (1, 0, 430), then=wait))
    assert unit(found) == (1, 0, 430)
    assert held(found) == {**GAP, ("compute", 1): 40, ("host", 0): 200, ("host", 1): 30}


def test_a_cause_that_is_not_on_the_path_holds_no_step():
    """The step ends with a long host call of rank 0 that waits for nobody."""
    run = run_of((0, 0, 900), (1, 0, 80))
    for k in range(1, 4):
        run.ranks[0].timed_call(*ns((332, 890), k * 1000), family="other")
    found = analyzed(run)
    assert unit(found) == (0, 0, 900)
    # Host time of rank 0 from 200 to 320 lies on the path as on the handoff's; what came behind the send does not.
    assert held(found) == {"late_submission": 100, "submit_call": 20, ("host", 0): 780}
    assert found.tiles.filter(pl.col("cause") == "movement").height == 6


def test_a_rank_that_waits_first_may_have_opened_its_step_long_before():
    found = analyzed(run_of((0, 0, 340), (1, -500, 80)))
    assert unit(found) == (1, 0, 400)
    found = analyzed(run_of((0, 0, 340), (1, 0, 80), (0, -500, -400)))
    assert unit(found) == (1, -500, 400)


def test_a_moment_that_two_handoffs_wait_through_counts_once():
    """Both consumers wait for the same copy; the step's path passes the second."""
    run = Run()
    for k in (1, 2, 3):
        at = k * 1000
        run.handoff(2 * k, at)
        r0, r1 = run.ranks[0], run.ranks[1]
        r1.mark(f"consume src=0 dst=1 seq={2 * k + 1}", *ns((71, 79), at))
        r1.mark(f"receive src=0 dst=1 seq={2 * k + 1}", *ns((20, 40), at))
        r0.mark(f"produce src=0 dst=1 seq={2 * k + 1}", *ns((5, 10), at))
        r0.mark(f"submit src=0 dst=1 seq={2 * k + 1}", *ns((300, 330), at))
        run.op(1, (at + 72, at + 73), (at + 400, at + 450), 7, name="second")
        for rank in (0, 1):
            run.ranks[rank].mark(f"step step={k}", *ns((0, 80), at))
    found = analyzed(run)
    assert found.tiles.filter(pl.col("cause") == "late_submission").height == 6
    assert unit(found) == (1, 0, 450)
    # The second handoff's gap reaches to 400: the first consumer's run is its `consumer_busy`, all else is as above.
    assert held(found) == {**GAP, "consumer_busy": 40, ("compute", 1): 50, ("host", 0): 200}


def test_requests_come_first_and_reach_from_their_begin_to_their_end():
    run = run_of((0, 0, 340))
    for k in range(1, 4):
        run.ranks[1].mark(f"step step={k} requests=a,b{k}", *ns((0, 80), k * 1000))
    run.ranks[2].timed_call(*ns((1, 2)), family="other")
    run.ranks[0].mark("request id=a", *ns((990, 3500)), kind="start_end")
    run.ranks[0].mark("request id=b2", *ns((1950, 2405)), kind="start_end")
    found = analyzed(run)
    assert unit(found, "a", "request", 0) == (1, 990, 3500)
    assert found.units.filter(pl.col("id") == "a")["steps"].to_list() == [[1, 2, 3]]
    assert found.units.filter(pl.col("unit") == "request")["steady"].to_list() == [False, True]  # a: step 1 is start-up
    # b2: from 2405 back over the end of step 2 at 2400 to 1950; rank 0 did nothing before its calls at 2006.
    assert held(found, "b2", "request") == {**GAP, ("host", 1): 5, ("compute", 1): 40, ("host", 0): 250}
    units = found.summary["causes"]["units"]
    assert units == {"unit": "request", "total": 2, "start_up": 1, "n": 1, "time_ns": 455 * US, "wall_ns": 455 * US}
    exposed = [r["exposure_ns"] for r in found.summary["causes"]["total"]]
    assert sum(exposed) == sum(GAP.values()) * US


def test_the_three_totals_stand_side_by_side():
    found = analyzed(run_of((0, 0, 340), (1, 0, 80)))
    causes = found.summary["causes"]
    assert causes["units"] == {
        "unit": "step",
        "total": 3,
        "start_up": 1,
        "n": 2,
        "time_ns": 800 * US,
        "wall_ns": 800 * US,
    }
    first = {"cause": "late_submission", "rank": 0, "exposure_ns": 200 * US, "handoff_ns": 200 * US,
             "wall_ns": 200 * US, "handoffs": 2}  # fmt: skip
    assert causes["total"][0] == first
    assert causes["edges"][0]["causes"][0] == {**first, "dominant": 2, "removable_p50_ns": 100 * US}
    outside = {(r["part"], r["rank"]): r["exposure_ns"] / US for r in causes["outside"]}
    assert outside == {("host", 0): 400, ("compute", 1): 80}
    everything = sum(r["exposure_ns"] for r in causes["total"] + causes["outside"])
    assert everything == causes["units"]["time_ns"]


def test_without_marks_of_units_there_is_no_exposure():
    found = gapscope.analyze(trace(*run_of().recordings()))
    assert (found.units.height, found.exposure.height) == (0, 0)
    causes = found.summary["causes"]
    assert causes["units"] == {"unit": None, "total": 0, "start_up": 0, "n": 0, "time_ns": 0, "wall_ns": 0}
    assert {row["exposure_ns"] for row in causes["total"]} == {None}
    assert "No step or request is marked" in found._repr_html_()


def test_a_mark_that_never_closed_and_a_step_that_one_rank_did_not_see_have_no_exposure():
    run = run_of((0, 0, 340), (1, 0, 80))
    run.ranks[0].mark("step step=4", *ns((4000, 4100)))
    run.ranks[0].rows["ranges"].append(
        {**run.ranks[0].rows["ranges"][-1], "name": "gapscope::step step=2", "end_ns": None}
    )
    found = analyzed(run)
    assert unit(found, "4", at=4000) == (0, None, None)  # rank 1 marks no step behind 3
    assert unit(found, "2")[2] is None
    assert set(found.exposure["id"]) == {"1", "3"}


def test_steps_are_chosen_as_handoffs_are():
    found = analyzed(run_of((0, 0, 340), (1, 0, 80)), steps=(2, 2))
    assert found.units["id"].to_list() == ["2"]
    assert held(found)["late_submission"] == 100


@pytest.mark.parametrize("by_us", [-37_000, 1_000_000])
def test_a_constant_added_to_all_times_changes_nothing(by_us):
    run = run_of((0, 0, 340), (1, 0, 80), at=lambda k: 100_000 + k * 1000)
    whole = analyzed(run)
    run = run_of((0, 0, 340), (1, 0, 80), at=lambda k: 100_000 + k * 1000)
    for r in run.ranks:
        r.shift(by_us * US)
    assert analyzed(run).exposure.equals(whole.exposure)


def test_a_recording_with_steps_alone_has_units():
    r = Recording("alone", pid=10)
    r.kernel(*ns((10, 20, 60)))
    r.mark("step step=7", *ns((5, 30)))
    found = gapscope.analyze(trace(r, rank_of={10: 0}))
    assert found.handoffs.height == 0
    assert unit(found, "7", at=0) == (0, 5, 60)
    # The call took 1 ns; nothing is recorded of the thread before it.
    assert held(found, "7") == {("compute", 0): 40, ("latency", 0): 9.999, ("host", 0): 0.001, ("unknown", 0): 5}


def test_handoffs_and_units_are_explained_alike_however_many_at_a_time(monkeypatch):
    whole = analyzed(run_of((0, 0, 340), (1, 0, 80)))
    for module in (tiles, exposure):
        monkeypatch.setattr(module, "_AT_ONCE", 1)
    parts = analyzed(run_of((0, 0, 340), (1, 0, 80)))
    assert whole.tiles["handoff_id"].n_unique() == 3
    for table in ("handoffs", "tiles", "exposure"):
        assert getattr(parts, table).equals(getattr(whole, table))

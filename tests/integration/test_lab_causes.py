"""What holds the handoffs of the lab, on every recording: each was made with one known cause."""

import polars as pl

import gapscope
from gapscope.causes import CAUSES
from gapscope.graph.edges import EVIDENCE
from gapscope.phases import PHASES, with_phases
from tests.integration.analyzed import analyzed, of_runs, paths_or_skip
from tests.reference.runs import RUNS, UNMARKED_RUNS

ALL_RUNS = dict(RUNS)
MARKED = [name for name in ALL_RUNS if name not in UNMARKED_RUNS]
US = 1_000

# Causes that are of a host.
ON_HOST = ("late_submission", "submit_call", "late_receive", "late_launch", "metadata_wait")

# Of all gap time of a run this share may have no explanation; gloo's copies from pageable memory have one long hole.
MOST_UNEXPLAINED = 0.03


def runs(*parts, without=()):
    """Names of runs that have all parts in them, and none of the others."""
    found = [n for n in MARKED if all(p in n for p in parts) and not any(p in n for p in without)]
    assert found, parts
    return found


def steady(run):
    """Handoffs that count, and their tiles."""
    found = analyzed(run)
    counted = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")
    handoffs = found.handoffs.filter(counted)
    assert handoffs.height >= 19
    return handoffs, found.tiles.join(handoffs.select("handoff_id"), on="handoff_id", how="semi")


def per_handoff(handoffs, tiles, cause, rank=None):
    """Time of one cause in each handoff, in µs, those without it too."""
    mine = tiles.filter(pl.col("cause") == cause)
    if rank is not None:
        mine = mine.filter(pl.col("rank") == rank)
    sums = mine.group_by("handoff_id").agg(pl.col("duration_ns").sum())
    joined = handoffs.select("handoff_id").join(sums, on="handoff_id", how="left", maintain_order="left")
    return (joined["duration_ns"].fill_null(0) / US).to_list()


def shares(handoffs, tiles):
    """Share of all gap time by (cause, rank)."""
    total = handoffs["gap_ns"].sum()
    sums = tiles.group_by("cause", "rank").agg(pl.col("duration_ns").sum())
    return {(cause, rank): ns / total for cause, rank, ns in sums.iter_rows()}


# What was injected ------------------------------------------------------------------------------------------------


@of_runs(runs("late_submit"))
def test_late_submit_is_late_submission_on_the_source(run):
    """Rank 0 sleeps 2 ms between its stage and the send."""
    handoffs, tiles = steady(run)
    assert set(handoffs["dominant_cause"]) == {"late_submission"}
    assert set(tiles.filter(pl.col("cause") == "late_submission")["rank"]) == {0}
    times = per_handoff(handoffs, tiles, "late_submission", 0)
    expected = ((handoffs["submit_ns"] - handoffs["producer_finish_ns"]) / US).to_list()
    assert times == expected  # from the producer's finish to the send call
    assert all(2_050 < t < 2_400 for t in times)
    # Nothing else comes close, so nearly all of it could be gained.
    gained = (handoffs["removable_ns"] / US).to_list()
    assert all(0.97 * t <= g <= t for t, g in zip(times, gained, strict=True))
    assert not handoffs["consumer_bound"].any()


@of_runs(runs("late_launch"))
def test_late_launch_is_late_launch_on_the_destination(run):
    """Rank 1 sleeps 2 ms before its stage; the sleep begins before rank 0 has finished."""
    handoffs, tiles = steady(run)
    assert set(handoffs["dominant_cause"]) == {"late_launch"}
    assert set(tiles.filter(pl.col("cause") == "late_launch")["rank"]) == {1}
    times = sorted(per_handoff(handoffs, tiles, "late_launch", 1))
    assert times[0] > 400
    assert 900 < times[len(times) // 2] < 2_200
    assert handoffs["consumer_bound"].all()
    assert (handoffs["removable_ns"] < handoffs["dominant_ns"]).all()  # the data came late as well
    assert set(handoffs["next_cause"]) == {"submit_call"}


@of_runs(runs("two_gpus", "none"))
def test_without_a_cause_the_send_call_holds_most(run):
    handoffs, tiles = steady(run)
    share = shares(handoffs, tiles)
    at_source = share.get(("late_submission", 0), 0) + share.get(("submit_call", 0), 0)
    assert at_source > 0.75
    assert at_source > 3 * max(s for (cause, _), s in share.items() if cause not in ("late_submission", "submit_call"))
    assert set(handoffs["dominant_cause"]) == {"submit_call"}


SHARED = runs("one_gpu", without=("gloo", "consumer_busy", "slow_consumer"))


@of_runs(SHARED)
def test_one_gpu_costs_a_change_of_owner(run):
    """Two processes take turns on the device; each change costs about 140 µs."""
    handoffs, tiles = steady(run)
    times = per_handoff(handoffs, tiles, "device_sharing", 1)
    middle = sorted(times)[len(times) // 2]
    assert 125 < middle < 175
    assert all(100 < t < 260 for t in times)
    assert set(tiles.filter(pl.col("cause") == "device_sharing")["rank"]) == {1}
    after = tiles.filter(pl.col("cause") == "device_sharing")["detail"]
    assert after.str.starts_with("after ").all()
    assert after.str.ends_with(" of rank 0").all()


@of_runs(runs("two_gpus"))
def test_two_gpus_share_nothing(run):
    assert "device_sharing" not in set(analyzed(run).tiles["cause"])


@of_runs(runs("mailbox_graph"))
def test_graphs_leave_nothing_to_the_hosts(run):
    share = shares(*steady(run))
    assert all(share.get((cause, rank), 0) < 0.05 for cause in ON_HOST for rank in (0, 1))


@of_runs(runs("slot_hold"))
def test_slot_hold_is_slot_wait(run):
    """The consumer releases the slot late: the sends behind the first of a step wait for it."""
    handoffs, tiles = steady(run)
    held = handoffs.filter(pl.col("dominant_cause") == "slot_wait")
    assert held.height >= 9
    assert set(tiles.filter(pl.col("cause") == "slot_wait")["rank"]) == {0, 1}  # who held it, and the hand-over
    ack = tiles.filter((pl.col("cause") == "slot_wait") & (pl.col("rank") == 0))
    assert "inferred" in set(ack["evidence"])
    # Of the four microbatches of a step the first finds the slot free.
    first_of_step = handoffs.group_by("step").agg(pl.col("handoff_id").sort_by("seq").first())["handoff_id"]
    assert not held["handoff_id"].is_in(first_of_step.implode()).any()


@of_runs(runs("_none"))
def test_without_a_cause_no_slot_is_waited_for(run):
    assert "slot_wait" not in set(analyzed(run).tiles["cause"])


@of_runs(runs("nccl", "none") + runs("nccl", "late_submit") + runs("nccl_mixed"))
def test_nccl_moves_for_microseconds_and_lateness_is_the_peers(run):
    """A receive kernel runs for as long as its peer is late; that is not movement."""
    handoffs, tiles = steady(run)
    moved = sorted(per_handoff(handoffs, tiles, "movement"))
    assert 2 < moved[len(moved) // 2] < 20
    assert set(tiles.filter(pl.col("cause") == "movement")["rank"]) == {1}
    share = shares(handoffs, tiles)
    assert share["late_submission", 0] + share["submit_call", 0] > 0.85


@of_runs(runs("consumer_busy"))
def test_consumer_busy_is_the_destinations(run):
    """Rank 1 queues other layers ahead of its receive; enqueuing them takes longest."""
    handoffs, tiles = steady(run)
    assert handoffs["consumer_bound"].all()
    assert set(tiles["rank"]) == {1}


# On every run -----------------------------------------------------------------------------------------------------


@of_runs(MARKED)
def test_tiles_sum_to_every_gap(run):
    found = analyzed(run)
    tiles = found.tiles.sort("handoff_id", "start_ns")
    sums = tiles.group_by("handoff_id").agg(
        total=pl.col("duration_ns").sum(),
        first=pl.col("start_ns").min(),
        last=pl.col("end_ns").max(),
        broken=(pl.col("start_ns").shift(-1) != pl.col("end_ns")).any(),
        shortest=pl.col("duration_ns").min(),
    )
    walked = found.handoffs.filter((pl.col("gap_ns") > 0) & (pl.col("order") == "ok"))
    assert walked.height == found.handoffs.height
    rows = walked.join(sums, on="handoff_id", how="left", maintain_order="left")
    assert rows["total"].to_list() == rows["gap_ns"].to_list()
    assert rows["first"].to_list() == rows["producer_finish_ns"].to_list()
    assert rows["last"].to_list() == rows["consumer_start_ns"].to_list()
    assert not rows["broken"].any()
    assert rows["shortest"].min() > 0
    assert (tiles["duration_ns"] == tiles["end_ns"] - tiles["start_ns"]).all()


@of_runs(MARKED)
def test_phases_are_another_view_of_the_tiles(run):
    found = analyzed(run)
    rows = with_phases(found.handoffs).filter(pl.col("movement_ns").is_not_null())
    assert rows.height == found.handoffs.height
    for phase in PHASES:
        sums = found.tiles.filter(pl.col("phase") == phase).group_by("handoff_id").agg(pl.col("duration_ns").sum())
        joined = rows.join(sums, on="handoff_id", how="left", maintain_order="left")
        assert joined["duration_ns"].fill_null(0).to_list() == joined[f"{phase}_ns"].to_list()
    assert found.tiles["phase"].null_count() == 0


@of_runs(MARKED)
def test_little_is_unexplained(run):
    share = shares(*steady(run))
    assert sum(s for (cause, _), s in share.items() if cause in ("unexplained", "unaligned")) < MOST_UNEXPLAINED


@of_runs(MARKED)
def test_every_tile_says_what_it_is_of_and_how_it_is_known(run):
    _, tiles = steady(run)
    assert set(tiles["evidence"]) <= set(EVIDENCE)
    weak = tiles.filter(pl.col("cause").cast(pl.String).is_in(["device_sharing", "slot_wait", "unexplained"]))
    assert not set(weak["evidence"]) & {"recorded", "structural", "declared"}
    assert set(tiles["cause"]) <= set(CAUSES)
    assert tiles.filter(pl.col("evidence") != "unknown").select("rank", "lane", "op").null_count().row(0) == (0, 0, 0)


@of_runs(MARKED)
def test_the_other_half_of_the_answer_adds_up(run):
    found = analyzed(run)
    rows = found.handoffs
    sums = found.tiles.group_by("handoff_id", "cause").agg(pl.col("duration_ns").sum())
    most = sums.group_by("handoff_id").agg(pl.col("duration_ns").max())
    assert (
        rows["dominant_ns"].to_list()
        == rows.join(most, on="handoff_id", how="left", maintain_order="left")["duration_ns"].to_list()
    )
    assert ((rows["removable_ns"] >= 0) & (rows["removable_ns"] <= rows["dominant_ns"])).all()
    assert (rows["next_cause"] != rows["dominant_cause"]).all()
    touched = found.tiles.group_by("handoff_id").agg(touched=(pl.col("rank") == 0).any())
    assert (rows.join(touched, on="handoff_id", maintain_order="left")["touched"] != rows["consumer_bound"]).all()
    assert rows.filter(pl.col("slack_ns").is_not_null())["consumer_bound"].all()
    assert rows["slack_ns"].min() is None or rows["slack_ns"].min() >= 0


@of_runs(runs("slot_hold") + runs("slow_consumer") + runs("mixed") + runs("gloo"))
def test_the_same_recording_gives_the_same_answer(run):
    one, two = analyzed(run), gapscope.analyze(paths_or_skip(run))
    assert one.tiles.equals(two.tiles)
    assert one.handoffs.equals(two.handoffs)


_TOWERING = ("late_submit", "late_launch", "graph")


@of_runs(
    n
    for n in MARKED
    if n.endswith("_torch") and n[:-6] + "_nsys" in ALL_RUNS and any(cause in n for cause in _TOWERING)
)
def test_both_tools_see_the_same_dominant_cause(run):
    """Where one cause was injected that towers over all others."""
    other = run.removesuffix("_torch") + "_nsys"
    assert set(steady(run)[0]["dominant_cause"]) == set(steady(other)[0]["dominant_cause"])


# Of the steps' own time ---------------------------------------------------------------------------------------------


@of_runs(ALL_RUNS)
def test_exposure_sums_to_every_step(run):
    found = analyzed(run)
    lengths = found.units.filter(pl.col("end_ns") > pl.col("start_ns")).select(
        "id", length=pl.col("end_ns") - pl.col("start_ns")
    )
    assert set(found.units["unit"]) == {"step"}
    assert lengths.height == found.units.height >= 4
    sums = found.exposure.group_by("id").agg(pl.col("exposure_ns").sum())
    joined = lengths.join(sums, on="id", how="left")
    assert joined["exposure_ns"].to_list() == joined["length"].to_list()
    assert found.exposure["exposure_ns"].min() > 0
    causes = found.summary["causes"]
    counted = sum(row["exposure_ns"] or 0 for row in causes["total"] + causes["outside"])
    assert counted == causes["units"]["time_ns"] > 0


@of_runs(runs("late_submit"))
def test_late_submit_costs_every_step_two_milliseconds(run):
    found = analyzed(run)
    steady_steps = found.units.filter("steady")["id"]
    assert steady_steps.len() == 19
    rows = found.exposure.filter(pl.col("id").is_in(steady_steps.implode()) & (pl.col("cause") == "late_submission"))
    assert sorted(rows["id"]) == sorted(steady_steps)
    assert set(rows["rank"]) == {0}
    assert rows["exposure_ns"].min() > 2_050 * US
    assert rows["exposure_ns"].max() < 2_400 * US
    # The step is one handoff there and a token back, so what held the handoff held the step.
    handoffs = found.handoffs.filter("steady").select(pl.col("step").cast(pl.String).alias("id"), "dominant_ns")
    assert rows.join(handoffs, on="id").filter(pl.col("exposure_ns") != pl.col("dominant_ns")).height == 0
    assert found.summary["causes"]["total"][0]["cause"] == "late_submission"


@of_runs(runs("nccl_slow_consumer"))
def test_handoffs_that_wait_together_delay_a_step_once(run):
    """Four microbatches of a step wait at the same time for one slow consumer."""
    found = analyzed(run)
    held = found.summary["causes"]["total"][0]
    assert (held["cause"], held["rank"]) == ("late_receive", 1)
    assert held["exposure_ns"] <= held["wall_ns"] < 0.8 * held["handoff_ns"]
    assert held["exposure_ns"] < found.summary["causes"]["units"]["time_ns"] < held["handoff_ns"] * 2


# Beside other work --------------------------------------------------------------------------------------------------


@of_runs(ALL_RUNS)
def test_nothing_was_slower_for_the_other_process_on_the_gpu(run):
    """No recording of the lab has interference: on one GPU kernels of two processes take turns."""
    table = analyzed(run).interference
    slower = table.filter(pl.col("verdict") == "slower")
    assert slower.height == 0, slower
    few = table.filter((pl.col("alone_n") < 10) | (pl.col("overlapped_n") < 10))
    assert set(few["verdict"]) <= {"too few"}
    assert few["shift_ns"].null_count() == few.height


@of_runs(runs("slow_consumer", "mailbox"))
def test_kernels_beside_copies_are_compared(run):
    table = analyzed(run).interference
    assert table.filter((pl.col("what") == "kernel") & (pl.col("verdict") == "no difference")).height >= 1
    assert (table["alone_p10_ns"] <= table["alone_p90_ns"]).all()

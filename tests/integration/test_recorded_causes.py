"""Recordings with an injected cause: what was injected is what holds the gap, handoff by handoff.

`tests/recordings/causes_lab.py` made the recordings and says what happens in which step; the right values here are
what was injected, and times of the raw files as `tests/reference` reads them.
"""

import csv
from functools import cache
from types import SimpleNamespace

import polars as pl
import pytest

import gapscope
from tests.reference.handoffs import reference_handoffs
from tests.reference.recording import load_recording
from tests.reference.runs import REPOSITORY

FOLDER = REPOSITORY / "tests" / "data" / "causes"
RUNS = sorted(path.name.removesuffix("_rank0.json.gz") for path in FOLDER.glob("*_rank0.json.gz"))
UNMARKED = ("late_rank_unmarked", "one_shot_unmarked", "bidirectional_nccl")
MARKED = [run for run in RUNS if run not in UNMARKED]
US = 1_000

# The tools' own clock claims are kept here, so times of two ranks compare to what reading a clock costs.
CLOSE = 2 * US


def paths(run):
    return [FOLDER / f"{run}_rank{rank}.json.gz" for rank in (0, 1)]


@cache
def analyzed(run):
    return gapscope.analyze(paths(run))


@cache
def raw(run):
    """What the files hold: operations and calls of each rank, how many handoffs the destination consumed."""
    recordings = [load_recording(path) for path in paths(run)]
    calls = [{call.correlation: call for call in recording.calls} for recording in recordings]
    consumed = sum(mark.text.startswith("gapscope::consume ") for mark in recordings[1].ranges)
    return SimpleNamespace(ops=[recording.operations for recording in recordings], calls=calls, consumed=consumed)


@cache
def marked_times(run):
    return reference_handoffs(paths(run))


@cache
def injected(run):
    with (FOLDER / "injected.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["run"] == run]


def with_runs(*names):
    """Run a test once per run, all tests of a run in one process: each is analyzed once."""
    assert set(names) <= set(RUNS)
    return pytest.mark.parametrize("run", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in names])


def steady(run, injected_steps=None):
    """Handoffs that count, in order; of steps with the injected cause (even ones), or of the others."""
    rows = (
        analyzed(run)
        .handoffs.filter((pl.col("status") == "complete") & (pl.col("order") == "ok") & pl.col("steady"))
        .sort("seq")
    )
    if injected_steps is not None:
        rows = rows.filter((pl.col("step") % 2 == 0) == injected_steps)
    found = rows.to_dicts()
    assert len(found) >= 3
    return found


def tiles_of(run, handoff, cause=None):
    rows = analyzed(run).tiles.filter(pl.col("handoff_id") == handoff["handoff_id"]).sort("start_ns").to_dicts()
    return [tile for tile in rows if cause in (None, tile["cause"])]


def held(run, handoff, cause):
    """Time of one cause in a handoff."""
    return sum(tile["duration_ns"] for tile in tiles_of(run, handoff, cause))


def extent(run, handoff, cause):
    """Rank, operation, begin and end of the tiles of one cause, which are one stretch of one operation."""
    tiles = tiles_of(run, handoff, cause)
    ((rank, op),) = {(tile["rank"], tile["op"]) for tile in tiles}
    assert held(run, handoff, cause) == tiles[-1]["end_ns"] - tiles[0]["start_ns"]
    return rank, op, tiles[0]["start_ns"], tiles[-1]["end_ns"]


def within(run, rank, name, handoff, until="consumer_start_ns"):
    """The operation of that name that ran in a handoff's gap."""
    begin, end = handoff["producer_finish_ns"], handoff[until]
    found = [op for op in raw(run).ops[rank] if name in op.name and op.end_ns > begin and op.start_ns < end]
    assert len(found) == 1, found
    return found[0]


def transfer(run, rank, event_ns, at_start):
    """The NCCL kernel of a rank that starts (or ends) at an event of a handoff."""
    found = [
        op for op in raw(run).ops[rank] if "nccl" in op.name and event_ns == (op.start_ns if at_start else op.end_ns)
    ]
    assert len(found) == 1
    return found[0]


def both_kernels(run, handoff):
    """Send and receive kernel of a handoff."""
    times = marked_times(run)[handoff["src_rank"], handoff["dst_rank"], handoff["channel"], handoff["seq"]]
    sent = transfer(run, 0, times["movement_start_ns"], at_start=True)
    return sent, transfer(run, 1, times["available_ns"], at_start=False)


def launch_end(run, rank, op):
    return raw(run).calls[rank][op.correlation].end_ns


def sleep_of(run, step):
    (row,) = [row for row in injected(run) if row["what"] == "host_sleep" and int(row["step"]) == step]
    return int(row["rank"]), int(row["start_ns"]), int(row["end_ns"])


# On every run -----------------------------------------------------------------------------------------------------


@with_runs(*MARKED)
def test_every_handoff_is_complete_and_next_to_nothing_is_unexplained(run):
    handoffs, tiles = analyzed(run).handoffs, analyzed(run).tiles
    assert set(handoffs["status"]) == {"complete"}
    assert set(handoffs["order"]) == {"ok"}
    assert handoffs.height == raw(run).consumed
    sums = tiles.group_by("handoff_id").agg(pl.col("duration_ns").sum())
    both = handoffs.join(sums, on="handoff_id", how="left")
    assert (both["duration_ns"].fill_null(0) == both["gap_ns"]).all()
    counted = tiles.join(handoffs.filter("steady").select("handoff_id"), on="handoff_id", how="semi")
    unexplained = counted.filter(pl.col("cause") == "unexplained")["duration_ns"].sum()
    assert unexplained < 0.03 * counted["duration_ns"].sum()


@with_runs(*RUNS)
def test_what_moved_is_said_to_be_of_no_other_handoff(run):
    """In batches one kernel carries a send and a receive; both are the own transfer of their handoff."""
    moving = analyzed(run).tiles.filter(pl.col("cause") == "movement")
    assert not moving["detail"].str.starts_with("of handoff").any()


# A transfer behind other work -------------------------------------------------------------------------------------


@with_runs("behind_kernel_nccl", "behind_kernel_copy_engine")
def test_a_transfer_behind_a_long_kernel_is_stream_queueing_and_names_it(run):
    for handoff in steady(run, injected_steps=True):
        occupant = within(run, 0, "spin_kernel", handoff)
        assert handoff["dominant_cause"] == "stream_queueing"
        assert not handoff["consumer_bound"]
        begin = max(occupant.start_ns, handoff["producer_finish_ns"])
        assert extent(run, handoff, "stream_queueing") == (0, occupant.name, begin, occupant.end_ns)
        # Without it the send call would hold the gap as it does in the other steps, 170 to 300 µs long.
        assert handoff["next_cause"] in ("submit_call", "late_submission")
        assert 100 * US < handoff["gap_ns"] - handoff["removable_ns"] < 400 * US
    for handoff in steady(run, injected_steps=False):
        assert handoff["dominant_cause"] in ("submit_call", "late_submission")
        assert held(run, handoff, "stream_queueing") == 0
        assert 100 * US < handoff["gap_ns"] < 400 * US


@with_runs("behind_kernel_nccl")
def test_without_the_long_kernel_the_send_would_start_as_its_launch_is_over(run):
    for handoff in steady(run, injected_steps=True):
        sent, _ = both_kernels(run, handoff)
        assert handoff["removable_ns"] == pytest.approx(sent.start_ns - launch_end(run, 0, sent), abs=5 * US)


@with_runs("behind_handoff_nccl", "behind_handoff_copy_engine")
def test_a_small_handoff_behind_a_large_one_is_head_of_line_and_names_it(run):
    for handoff in steady(run, injected_steps=True):
        if handoff["microbatch"] != 1:
            continue
        assert handoff["dominant_cause"] == "head_of_line"
        ahead = f"of handoff 0>1/0/{handoff['seq'] - 1}"
        assert {tile["detail"] for tile in tiles_of(run, handoff, "head_of_line")} == {ahead}
        assert handoff["next_cause"] == "late_submission"  # the send call of the large one came first
        if "nccl" in run:
            large = next(h for h in steady(run) if h["seq"] == handoff["seq"] - 1)
            sent, received = both_kernels(run, large)
            moved = received.end_ns - max(sent.start_ns, received.start_ns)
            assert held(run, handoff, "head_of_line") == pytest.approx(moved, abs=CLOSE)
        else:
            copies = [op for op in raw(run).ops[0] if "PtoP" in op.name and op.end_ns - op.start_ns > 100 * US]
            (copy,) = [
                op for op in copies if handoff["producer_finish_ns"] < op.start_ns < handoff["movement_start_ns"]
            ]
            assert held(run, handoff, "head_of_line") == copy.end_ns - copy.start_ns


@with_runs("behind_handoff_nccl")
def test_without_the_large_handoff_the_small_one_would_start_as_its_launch_is_over(run):
    """The large transfer is gone from both ranks, not from the receiver's stream alone."""
    for handoff in steady(run, injected_steps=True):
        if handoff["microbatch"] == 1:
            sent, _ = both_kernels(run, handoff)
            assert handoff["removable_ns"] == pytest.approx(sent.start_ns - launch_end(run, 0, sent), abs=20 * US)


@with_runs("behind_handoff_nccl", "behind_handoff_copy_engine")
def test_a_small_handoff_that_went_first_is_not_held_by_the_large_one(run):
    """Both receives were posted before the first was waited for; torch names the event of neither."""
    for handoff in steady(run, injected_steps=False):
        if handoff["microbatch"] == 1:
            assert handoff["dominant_cause"] in ("submit_call", "late_submission")
            assert held(run, handoff, "head_of_line") == held(run, handoff, "unexplained") == 0


# The destination --------------------------------------------------------------------------------------------------


@with_runs("late_receive_nccl", "late_receive_copy_engine")
def test_a_receive_posted_late_is_late_receive_on_the_destination(run):
    for handoff in steady(run, injected_steps=True):
        rank, begin, end = sleep_of(run, handoff["step"])
        assert rank == 1
        assert handoff["dominant_cause"] == "late_receive"
        assert handoff["consumer_bound"]
        assert {tile["rank"] for tile in tiles_of(run, handoff, "late_receive")} == {1}
        slept = end - max(begin, handoff["producer_finish_ns"])
        # The sleep, and after it the host's work up to the end of the launch (500 µs at most).
        assert slept < handoff["dominant_ns"] < slept + 500 * US
        if "nccl" in run:
            _, received = both_kernels(run, handoff)
            assert handoff["dominant_ns"] == launch_end(run, 1, received) - handoff["producer_finish_ns"]
    for handoff in steady(run, injected_steps=False):
        assert held(run, handoff, "late_receive") == 0
        assert not handoff["consumer_bound"]


@with_runs("second_close_nccl")
def test_a_busy_consumer_and_data_that_comes_shortly_before_or_after(run):
    """How much sooner the consumer would start is what lies between the ends of the busy kernel and of the receive."""
    seen = set()
    for handoff in steady(run):
        busy = within(run, 1, "spin_kernel", handoff)
        _, received = both_kernels(run, handoff)
        headroom = busy.end_ns - received.end_ns
        if headroom > 0:
            assert (handoff["dominant_cause"], handoff["next_cause"]) == ("consumer_busy", "late_submission")
            assert {tile["op"] for tile in tiles_of(run, handoff, "consumer_busy")} == {busy.name}
            assert handoff["dominant_ns"] == busy.end_ns - handoff["producer_finish_ns"]
            assert handoff["removable_ns"] == handoff["slack_ns"] == headroom
            assert handoff["consumer_bound"]
        else:
            assert handoff["dominant_cause"] in ("submit_call", "late_submission")
            assert handoff["next_cause"] == "consumer_busy"
            assert handoff["removable_ns"] == -headroom
            assert not handoff["consumer_bound"]
        seen.add(headroom > 0)
    assert seen == {True, False}


# Movement ---------------------------------------------------------------------------------------------------------


@with_runs("large_nccl", "large_copy_engine")
def test_a_large_payload_is_movement(run):
    for handoff in steady(run, injected_steps=True):
        assert handoff["size_bytes"] == 256 << 20
        assert handoff["dominant_cause"] == "movement"
        assert handoff["removable_ns"] == handoff["dominant_ns"]
        if "nccl" in run:
            sent, received = both_kernels(run, handoff)
            moved = received.end_ns - max(sent.start_ns, received.start_ns)
            assert handoff["dominant_ns"] == pytest.approx(moved, abs=CLOSE)
        else:
            copies = [within(run, rank, name, handoff) for rank, name in ((0, "PtoP"), (1, "DtoD"))]
            assert handoff["dominant_ns"] == sum(op.end_ns - op.start_ns for op in copies)
            moved = copies[0].end_ns - copies[0].start_ns
        assert 320 < handoff["size_bytes"] / moved < 420  # GB/s over NVLink
    for handoff in steady(run, injected_steps=False):
        assert handoff["dominant_cause"] == "submit_call"
        assert held(run, handoff, "movement") < 20 * US


# Collectives ------------------------------------------------------------------------------------------------------


@with_runs("late_rank_marked", "one_shot_marked")
def test_the_late_rank_is_named_for_each_all_reduce_and_skew_is_not_transfer(run):
    """Of the three of a step, a host comes late to the first, nobody to the second, the other's GPU to the third."""
    kernel = "AllReduce" if run == "late_rank_marked" else "one_shot"
    for handoff in steady(run):
        host_late = 1 if handoff["step"] % 2 == 0 else 0
        which = (handoff["seq"] - 1) % 3
        kernels = [within(run, rank, kernel, handoff) for rank in (0, 1)]
        later = max(op.start_ns for op in kernels)
        moved = kernels[handoff["dst_rank"]].end_ns - later
        assert held(run, handoff, "movement") == pytest.approx(moved, abs=CLOSE)
        assert moved < 10 * US
        assert handoff["src_rank"] == (0 if kernels[0].start_ns == later else 1)
        if which == 0:
            rank, begin, end = sleep_of(run, handoff["step"])
            assert handoff["src_rank"] == rank == host_late
            assert handoff["dominant_cause"] == "late_submission"
            assert {tile["rank"] for tile in tiles_of(run, handoff, "late_submission")} == {host_late}
            assert end - begin < handoff["dominant_ns"] < end - begin + 300 * US
        elif which == 1:
            assert handoff["gap_ns"] < 200 * US
        else:
            assert handoff["src_rank"] == 1 - host_late
            assert handoff["dominant_cause"] == "stream_queueing"
            busy = within(run, 1 - host_late, "spin_kernel", handoff)
            whole = (1 - host_late, busy.name, busy.start_ns, busy.end_ns)
            assert extent(run, handoff, "stream_queueing") == whole


# Two transfers at once --------------------------------------------------------------------------------------------


@with_runs("interference_nccl")
def test_a_consumer_could_not_start_before_its_own_data_had_come(run):
    """The large handoff's consumer waits behind the small one's; both receives were posted before either wait."""
    large = [handoff for handoff in steady(run) if handoff["channel"] == 1]
    assert len(large) >= 5
    for handoff in large:
        assert handoff["dominant_cause"] != "movement"
        assert handoff["removable_ns"] <= handoff["consumer_start_ns"] - handoff["available_ns"]

"""The clock solver on one case after the other: what it finds, what it says, and what it leaves open."""

from __future__ import annotations

import polars as pl
import pytest

import gapscope
from gapscope.testing import Recording, trace
from tests.unit.clock_runs import (
    BEGIN,
    DAY,
    MS,
    US,
    Clock,
    S,
    aligned,
    aligned_with_handoffs,
    assert_consistent,
    assert_truth_inside,
    codes,
    files,
    finding,
    recorded,
    row,
    row_among,
    row_at,
    rows,
    write_handoff,
)


def two_way(clocks, count=20, spacing=MS, latency=40 * US, gpu=False, ways=((0, 1), (1, 0)), recordings=None):
    """Recordings in true time of handoffs each way in turn, number k of them at BEGIN + k * spacing."""
    recordings = recordings or files(clocks)
    for k in range(count):
        src, dst = ways[k % len(ways)]
        write_handoff(src, dst, recordings[src], recordings[dst], k, BEGIN + k * spacing, latency, gpu)
    return recordings


def align_two_way(clocks, **how):
    return aligned(recorded(clocks, two_way(clocks, **how)))


# One direction


@pytest.mark.parametrize("behind", [0, 500 * MS, -90 * DAY])
@pytest.mark.parametrize("gpu", [False, True])
def test_one_direction_bounds_one_side_and_no_handoff_claims_a_violation(behind, gpu):
    clocks = [Clock(), Clock(behind)]
    run = recorded(clocks, two_way(clocks, ways=((0, 1),), gpu=gpu))
    if gpu:  # what ties the device's clock to the host's on both sides
        run[1].sync(clocks[1].at(BEGIN + 25 * MS), clocks[1].at(BEGIN + 25 * MS + 10 * US))
    alignment, handoffs = aligned_with_handoffs(run)
    for found in rows(alignment, 1):
        assert found["quality"] == "half_bounded"
        assert found["hi_ns"] is None
        assert found["lo_ns"] <= behind
    assert handoffs["uncertainty_ns"].null_count() == handoffs.height == 20
    assert set(handoffs["order"]) <= {"ok", "cannot_tell"}
    assert_truth_inside(alignment, clocks)


def test_one_direction_the_other_way_round():
    clocks = [Clock(), Clock(500 * MS)]
    found = min(rows(align_two_way(clocks, ways=((1, 0),)), 1), key=lambda r: r["hi_ns"])
    # The delay of 40 µs, and as nothing refutes that both files claim the same time, the drift over 500 ms: 30 µs.
    assert found["lo_ns"] is None
    assert 500 * MS + 40 * US <= found["hi_ns"] <= 500 * MS + 70 * US + 300


# K11


def test_k11_hosts_a_quarter_millisecond_apart():
    clocks = [Clock(), Clock(240 * US)]
    recordings = files(clocks)
    delays = [30, 90, 47, 66, 31, 85, 59, 90]
    for k, delay in enumerate(delays * 2):
        src, dst = (0, 1) if k < len(delays) else (1, 0)
        at = BEGIN + (2 * (k % len(delays)) + k // len(delays)) * MS
        write_handoff(src, dst, recordings[src], recordings[dst], k, at, delay * US, gpu=False)
    for r in rows(aligned(recorded(clocks, recordings)), 1):
        # Both 30 µs delays are at most 16 ms away from any limit of a window: 60 ppm of that is 960 ns, and roundings.
        assert 210 * US - 970 <= r["lo_ns"] <= 210 * US
        assert 270 * US <= r["hi_ns"] <= 270 * US + 970
        assert r["lo_ns"] <= r["offset_ns"] <= r["hi_ns"]
        assert (r["quality"], r["method"], r["assumed"]) == ("bounded", "16 message, 16 transfer", None)


def test_intervals_come_out_as_computed_by_hand():
    # One message each way of 40 µs at 0 and 1 ms, clocks equal. Recorded times reach from -30 µs to 1.06 ms, so there
    # is one window [-30 µs, 1.06 ms + 1 ns). The first delay lies 1,060,001 ns before its end, which is farther than
    # from its own end to the begin (70 µs): 64 ns of drift. The second one's end lies 1,070,000 ns after the begin: 65.
    clocks = [Clock(), Clock()]
    found = row(align_two_way(clocks, count=2), 1)
    assert (found["window_start_ns"], found["window_end_ns"]) == (BEGIN - 30 * US, BEGIN + MS + 60 * US + 1)
    assert (found["lo_ns"], found["offset_ns"], found["hi_ns"]) == (-40 * US - 64, 0, 40 * US + 65)


def test_a_claim_that_is_feasible_is_kept_and_one_that_is_not_is_moved_and_said_so():
    near = align_two_way([Clock(), Clock(39 * US)])
    assert {r["offset_ns"] for r in rows(near, 1)} == {0}
    assert codes(near) == []
    far = align_two_way([Clock(), Clock(41 * US)])
    assert finding(far, "clock_moved").path == "rank1"
    assert all(1 * US - 200 <= r["offset_ns"] <= 1 * US for r in rows(far, 1))


# Corrupt records


def collectives(clocks, count=12, spacing=3 * MS, tool="torch"):
    """Recordings in true time of all-reduces of 30 µs that all ranks enter at once; number k at BEGIN + k * spacing."""
    recordings = files(clocks, tool=tool)
    for k in range(count):
        at = BEGIN + k * spacing
        for r in recordings:
            r.communication("allreduce", at - 10 * US, at, at + 30 * US, seq=k)
    return recordings


def damage(recording, table, number, by_ns):
    """Move one row in time."""
    row_ = recording.rows[table][number]
    for column in ("start_ns", "end_ns"):
        row_[column] += by_ns


@pytest.mark.parametrize("by_ns", [5 * MS, -5 * MS, 20 * S, -20 * S])
def test_a_collective_with_one_times_far_off_is_named_and_dropped(by_ns):
    clocks = [Clock(), Clock(3 * MS, 10_000), Clock(-2 * MS, -10_000)]
    run = recorded(clocks, collectives(clocks))
    damage(run[1], "comms", 5, by_ns)
    damage(run[1], "ops", 5, by_ns)
    alignment = aligned(run)
    assert_truth_inside(alignment, clocks)
    assert_consistent(alignment)
    dropped = [f for f in alignment.findings if f.code == "clock_record_dropped"]
    # Moved backward, the kernel also started before its launch.
    named = ["launch 6 of process 101 in rank1", "collective allreduce in group 0 seq 5"]
    assert [f.message.partition("(")[2].partition(")")[0] for f in dropped] == (named if by_ns < 0 else named[1:])
    assert [f.count for f in dropped] == [1] * len(dropped)
    assert set(codes(alignment)) == {"clock_record_dropped", "clock_moved"}
    for rank in (1, 2):
        at = row_at(alignment, rank, BEGIN + 20 * MS)
        assert at["quality"] == "bounded"
        assert at["hi_ns"] - at["lo_ns"] < 110 * US + 60 * US * abs(by_ns) // S  # windows follow the recorded times


def test_one_launch_that_ran_before_it_was_launched_is_named_and_dropped():
    clocks = [Clock(), Clock(3 * MS)]
    run = two_way(clocks, gpu=True)
    for k in range(20):
        run[0].kernel(BEGIN + k * MS + 500 * US, BEGIN + k * MS + 505 * US, BEGIN + k * MS + 510 * US)
    recorded(clocks, run)
    damage(run[0], "ops", -1, -700 * US)
    correlation = run[0].rows["ops"][-1]["correlation"]
    alignment = aligned(run)
    dropped = finding(alignment, "clock_record_dropped")
    assert f"(launch {correlation} of process 100 in rank0)" in dropped.message
    assert dropped.count == 1
    assert_truth_inside(alignment, clocks)
    assert row(alignment, 0, "gpu:0")["lo_ns"] >= -5 * US


def test_times_that_cannot_be_are_left_out_before_anything_else():
    clocks = [Clock(), Clock(3 * MS)]
    run = recorded(clocks, two_way(clocks, gpu=True))
    run[0].kernel(BEGIN + 30 * MS, BEGIN + 30 * MS - 10**14, BEGIN + 30 * MS - 10**14 + 5 * US)
    correlation = run[0].rows["ops"][-1]["correlation"]
    alignment = aligned(run)
    impossible = finding(alignment, "impossible_times")
    assert (impossible.path, impossible.count) == ("rank0", 1)
    assert f"{correlation} of process 100" in impossible.message
    assert "100,000 s before" in impossible.message
    assert set(codes(alignment)) <= {"clock_moved", "impossible_times"}
    assert all(r["lo_ns"] <= 3 * MS <= r["hi_ns"] for r in rows(alignment, 1))


def test_times_that_cannot_be_do_not_widen_bounds():
    clocks = [Clock(), Clock(3 * MS)]
    run = recorded(clocks, two_way(clocks, gpu=True))
    run[0].kernel(BEGIN + 30 * MS, BEGIN + 30 * MS - 10**14, BEGIN + 30 * MS - 10**14 + 5 * US)
    at = row_at(aligned(run), 1, BEGIN + 10 * MS)
    assert at["hi_ns"] - at["lo_ns"] < 150 * US


def mispaired(gpu):
    """Two ranks 3 ms apart; handoff 21 arrived, by its key, 4 ms before it was sent."""
    clocks = [Clock(), Clock(3 * MS)]
    recordings = two_way(clocks, count=40, gpu=gpu)
    for text in ("receive", "consume"):
        [r] = [r for r in recordings[0].rows["ranges"] if r["name"].startswith(f"gapscope::{text} src=1 dst=0 seq=21 ")]
        r["start_ns"] -= 4 * MS
        r["end_ns"] -= 4 * MS
    if gpu:
        ops = {r["correlation"]: r for r in recordings[0].rows["ops"]}
        for call in recordings[0].rows["calls"]:
            if BEGIN + 21 * MS - 29 * US <= call["start_ns"] <= BEGIN + 21 * MS + 70 * US:
                for r in (call, ops[call["correlation"]]):
                    r["start_ns"] -= 4 * MS
                    r["end_ns"] -= 4 * MS
    return clocks, recorded(clocks, recordings)


@pytest.mark.parametrize(
    "gpu",
    [
        True,
        False,
    ],
)
def test_a_message_paired_with_another_is_named_and_dropped(gpu):
    clocks, run = mispaired(gpu)
    alignment = aligned(run)
    assert set(codes(alignment)) == {"clock_record_dropped", "clock_moved"}
    dropped = [f.message.partition("(")[2].partition(")")[0] for f in alignment.findings if f.level == "warning"]
    assert {name.replace("message ", "").replace("transfer ", "") for name in dropped} == {"1>0/0/21"}
    assert_truth_inside(alignment, clocks)
    assert {r["quality"] for r in rows(alignment, 1)} <= {"bounded", "wall_only"}


def test_two_records_that_only_contradict_each_other_are_not_resolved():
    clocks = [Clock(), Clock()]
    recordings = two_way(clocks, count=2, latency=40 * US)
    for text in ("receive", "consume"):
        [r] = [r for r in recordings[1].rows["ranges"] if r["name"].startswith(f"gapscope::{text} ")]
        r["start_ns"] -= 5 * MS
        r["end_ns"] -= 5 * MS
    run = recorded(clocks, recordings)
    alignment, handoffs = aligned_with_handoffs(run)
    apart = finding(alignment, "unaligned_clock")
    assert "submit 0>1/0/0" in apart.message
    assert "available 1>0/0/1" in apart.message
    assert "4,8" in apart.message or "4,9" in apart.message  # by how much: 5 ms less both delays
    found = row(alignment, 1)
    assert (found["quality"], found["offset_ns"], found["lo_ns"], found["hi_ns"]) == ("unaligned", None, None, None)
    assert handoffs["gap_ns"].null_count() == handoffs["uncertainty_ns"].null_count() == handoffs.height == 2
    assert "violation" not in set(handoffs["order"])


def test_two_records_that_only_contradict_each_other_are_not_resolved_at_the_cost_of_a_device():
    clocks = [Clock(), Clock()]
    recordings = two_way(clocks, count=2, gpu=True)
    [r] = [r for r in recordings[1].rows["ranges"] if r["name"].startswith("gapscope::submit ")]
    for late in (r, recordings[1].rows["calls"][-1]):
        late["start_ns"] += 500 * US
        late["end_ns"] += 500 * US
    found = row(aligned(recorded(clocks, recordings)), 1)
    assert found["hi_ns"] is None or found["hi_ns"] >= 0  # the truth


def test_windows_cover_clocks_that_are_months_apart():
    clocks = [Clock(), Clock(-200 * DAY)]
    alignment = align_two_way(clocks, ways=((0, 1),))
    edges = alignment.solution.edges
    assert edges[0] <= BEGIN
    assert edges[-1] >= BEGIN + 200 * DAY
    assert edges[-1] - edges[0] < 201 * DAY


# Steps and drift


def check_step(behind, step, gpu, rank):
    """Handoffs every millisecond each way for 100 ms; the clock of a rank is set by ``step`` just after half of it."""
    at = BEGIN + 50 * MS + 300 * US
    clocks = [Clock(), Clock(behind)]
    clocks[rank] = Clock(clocks[rank].behind_ns, steps=((at, step),))
    alignment, handoffs = aligned_with_handoffs(recorded(clocks, two_way(clocks, count=100, gpu=gpu)))
    assert [c for c in codes(alignment) if c != "clock_moved"] == ["clock_step"]
    assert "stepped" in finding(alignment, "clock_step").message
    assert_consistent(alignment)
    # Next to a step either may be true. Device clocks are known to 10 µs on either side.
    width_ns = 125 * US if gpu else 90 * US
    # A reference that is set back shows some times twice: then nothing can be looked up by them.
    if rank or step > 0:
        assert_true_at_all_times(alignment, clocks, narrow=lambda t: abs(t - at) > 5 * MS, width_ns=width_ns)
    assert_gaps_are_true(handoffs, 65 * US if gpu else 70 * US)


def assert_gaps_are_true(handoffs, true_ns):
    """No gap is farther from the truth than is said."""
    wrong = handoffs.filter((pl.col("gap_ns") - true_ns).abs() > pl.col("uncertainty_ns"))
    assert wrong.select("src_rank", "seq", "gap_ns", "uncertainty_ns").rows() == []
    assert "violation" not in set(handoffs["order"])


def test_an_analysis_says_the_same_of_clocks_and_handoffs():
    clocks = [Clock(), Clock(7 * MS, steps=((BEGIN + 5 * MS + 300 * US, 3 * MS),))]
    run = recorded(clocks, two_way(clocks, gpu=True))
    alignment, handoffs = aligned_with_handoffs(run)
    analysis = gapscope.analyze(trace(*run))
    assert "clock_step" in codes(alignment)
    assert analysis.timebase.table.equals(alignment.table)
    said = [column for column in handoffs.columns if handoffs[column].null_count() < handoffs.height]
    assert {"gap_ns", "uncertainty_ns", "status", "order"} <= set(said)
    assert analysis.handoffs.select(said).equals(handoffs.select(said))


@pytest.mark.parametrize(("behind", "gpu"), [(0, False), (0, True), (7 * MS, False)])
def test_a_step_forward_splits_a_clock(behind, gpu):
    check_step(behind, 3 * MS, gpu, rank=1)


@pytest.mark.parametrize("behind", [0, 7 * MS])
@pytest.mark.parametrize("gpu", [False, True])
def test_a_step_forward_of_the_reference_splits_a_clock(behind, gpu):
    check_step(behind, 3 * MS, gpu, rank=0)


def test_a_step_forward_leaves_no_contradiction_behind():
    check_step(7 * MS, 3 * MS, gpu=True, rank=1)


@pytest.mark.parametrize("behind", [90 * DAY, -90 * DAY])
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_splits_a_clock_that_is_far_off(behind, gpu, rank):
    check_step(behind, 3 * MS, gpu, rank)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_backward_splits_a_clock(gpu, rank):
    check_step(0, -3 * MS, gpu, rank)


def assert_true_at_all_times(alignment, clocks, until=100 * MS, narrow=lambda t: True, width_ns=100 * US):
    """The truth is within the bounds at all times; they are narrow where they can be."""
    reference, mine = clocks
    found = rows(alignment, 1)
    for at in range(BEGIN, BEGIN + until, MS // 4):
        common, local = reference.at(at), mine.at(at)
        r = row_among(found, common)
        assert r["lo_ns"] is None or r["lo_ns"] <= common - local, (at - BEGIN, r, common - local)
        assert r["hi_ns"] is None or common - local <= r["hi_ns"], (at - BEGIN, r, common - local)
        if narrow(at):
            assert r["hi_ns"] - r["lo_ns"] < width_ns, (at - BEGIN, r)


@pytest.mark.parametrize("steps", [(3 * MS, 2 * MS), (3 * MS, -3 * MS), (-3 * MS, -2 * MS)])
@pytest.mark.parametrize("behind", [0, 90 * DAY])
def test_two_steps_split_a_clock_twice(steps, behind):
    when = (BEGIN + 50 * MS + 300 * US, BEGIN + 100 * MS + 300 * US)
    clocks = [Clock(), Clock(behind, steps=tuple(zip(when, steps, strict=True)))]
    alignment, handoffs = aligned_with_handoffs(recorded(clocks, two_way(clocks, count=150)))
    assert [c for c in codes(alignment) if c != "clock_moved"] == ["clock_step", "clock_step"]
    assert_true_at_all_times(alignment, clocks, 150 * MS, narrow=lambda t: all(abs(t - w) > 5 * MS for w in when))
    assert_gaps_are_true(handoffs, 70 * US)


@pytest.mark.parametrize("behind", [0, 90 * DAY])
@pytest.mark.parametrize("gpu", [False, True])
def test_a_drift_of_80_ppm_is_allowed_for_and_said(behind, gpu):
    clocks = [Clock(0, -30_000 if gpu else 0), Clock(behind, 80_000)]  # device times may part by 10 ppm more each
    alignment = align_two_way(clocks, count=60, spacing=100 * MS, gpu=gpu)
    assert "clock_drift" in codes(alignment)
    assert set(codes(alignment)) <= {"clock_drift", "clock_moved"}
    assert "part faster" in next(f for f in alignment.findings if f.code == "clock_drift").message
    assert_truth_inside(alignment, clocks)
    assert_consistent(alignment)
    [drift] = {r["drift_ppm"] for r in rows(alignment, 1)}
    assert drift == pytest.approx(110 if gpu else 80, abs=40)


@pytest.mark.parametrize("ppb", [55_000, -55_000])
def test_drift_that_is_seen_has_the_sign_of_the_clock(ppb):
    clocks = [Clock(), Clock(0, ppb)]
    alignment = align_two_way(clocks, count=60, spacing=100 * MS)
    [drift] = {r["drift_ppm"] for r in rows(alignment, 1)}
    assert drift == pytest.approx(ppb / 1000, abs=25)


# K12


@pytest.mark.parametrize("early_ns", [300, 9 * US])
def test_k12_kernels_that_start_before_their_call_move_the_device_clock(early_ns):
    r = Recording("rank0", pid=1)
    for k in range(64):
        at = BEGIN + k * 100 * US
        r.kernel(at, at - early_ns, at + 10 * US)
    alignment = aligned([r])
    assert codes(alignment) == []
    device = row(alignment, 0, "gpu:0")
    # Device times come in ticks of 32 ns, so the kernel may have started 31 ns later. Drift: 10 ppm of 1 ms.
    assert early_ns - 31 - 20 <= device["lo_ns"] <= early_ns - 31
    assert device["lo_ns"] <= device["offset_ns"] <= device["hi_ns"]
    assert device["hi_ns"] == 10 * US
    assert device["quality"] == "half_bounded"


def test_k12_kernels_15_us_before_their_call_refute_the_assumed_mapping():
    r = Recording("rank0", pid=1)
    for k in range(64):
        at = BEGIN + k * 100 * US
        r.kernel(at, at - 15 * US, at + 10 * US)
    alignment = aligned([r])
    refuted = finding(alignment, "clock_assumption_refuted")
    assert "mapping of rank 0 gpu:0" in refuted.message
    device = row(alignment, 0, "gpu:0")
    assert 15 * US - 100 <= device["lo_ns"] <= device["offset_ns"]
    assert device["hi_ns"] is None
    handoffs = gapscope.analyze(trace(r)).handoffs
    assert handoffs.height == 0


def test_k12_in_a_run_of_two_ranks_leaves_handoffs_in_order():
    clocks = [Clock(device_ns=-9 * US), Clock(2 * MS, device_ns=-9 * US)]
    run = two_way(clocks, gpu=True)
    for recording in run:
        for k in range(64):
            recording.kernel(BEGIN + k * 100 * US, BEGIN + k * 100 * US + 1, BEGIN + k * 100 * US + 50, stream=3)
    alignment, handoffs = aligned_with_handoffs(recorded(clocks, run))
    assert codes(alignment) == ["clock_moved"]
    assert_truth_inside(alignment, clocks)
    assert set(handoffs["order"]) == {"ok"}


def test_a_sync_bounds_a_device_from_above():
    r = Recording("rank0", pid=1)
    r.kernel(BEGIN, BEGIN + 5 * US, BEGIN + 9 * US)
    r.sync(BEGIN + 3 * US, BEGIN + 12 * US)
    device = row(aligned([r]), 0, "gpu:0")
    # One window of 12 µs: no drift to speak of (rounded up to 1 ns).
    assert (device["lo_ns"], device["hi_ns"]) == (-5 * US - 31 - 1, 3 * US + 1)
    assert (device["quality"], device["assumed"], device["n_hard"]) == ("bounded", None, 2)


def test_a_sync_that_began_before_the_launch_returned_or_of_another_stream_says_nothing():
    r = Recording("rank0", pid=1)
    r.kernel(BEGIN, BEGIN + 5 * US, BEGIN + 9 * US)
    r.sync(BEGIN + 3 * US, BEGIN + 12 * US, stream=8)
    r.kernel(BEGIN + 20 * US, BEGIN + 25 * US, BEGIN + 29 * US)
    r.sync(BEGIN + 20 * US, BEGIN + 32 * US)
    assert row(aligned([r]), 0, "gpu:0")["quality"] == "half_bounded"


# Relative files


def test_a_relative_file_is_placed_by_messages_both_ways():
    clocks = [Clock(), Clock(3 * MS), Clock(BEGIN - 5 * S)]
    recordings = files(clocks)
    recordings[2] = Recording("rank2", pid=102, clock="relative")
    two_way(clocks, count=40, ways=((0, 1), (1, 0), (2, 1), (1, 2)), recordings=recordings)
    alignment, handoffs = aligned_with_handoffs(recorded(clocks, recordings))
    assert {r["quality"] for r in rows(alignment, 2)} == {"bounded"}
    assert_truth_inside(alignment, clocks)
    assert_consistent(alignment)
    assert handoffs["gap_ns"].null_count() == 0
    # 30 µs from the end of produce to the send, 40 µs on the way, 10 µs until consume.
    assert ((handoffs["gap_ns"] - 70 * US).abs() <= handoffs["uncertainty_ns"]).all()


def test_a_relative_file_with_one_direction_only_is_not_placed():
    clocks = [Clock(), Clock(BEGIN - 5 * S)]
    recordings = files(clocks)
    recordings[1] = Recording("rank1", pid=101, clock="relative")
    two_way(clocks, ways=((0, 1),), recordings=recordings)
    alignment = aligned(recorded(clocks, recordings))
    assert (row(alignment, 1)["quality"], row(alignment, 1)["offset_ns"]) == ("half_bounded", None)
    assert finding(alignment, "unaligned_file").path == "rank1"


def test_n21_of_four_ranks_one_without_any_tie_is_refused_and_named():
    clocks = [Clock(), Clock(3 * MS), Clock(-4 * MS), Clock(BEGIN - 11_560 * MS)]
    recordings = files(clocks)
    recordings[3] = Recording("rank3", pid=103, clock="relative")
    recordings[3].mark("consume src=7 dst=3 seq=1 device=cpu", BEGIN, BEGIN + MS)
    two_way(clocks, count=40, ways=((0, 1), (1, 0), (2, 1), (1, 2)), recordings=recordings)
    run = recorded(clocks, recordings)
    alignment = aligned(run)
    assert finding(alignment, "unaligned_file").path == "rank3"
    found = row(alignment, 3)
    assert (found["quality"], found["offset_ns"], found["lo_ns"], found["hi_ns"]) == ("unaligned", None, None, None)
    assert {r["quality"] for rank in (1, 2) for r in rows(alignment, rank)} == {"bounded"}
    assert_truth_inside(alignment, clocks[:3])


def test_a_capture_of_relative_files_alone_has_a_timebase_of_its_own():
    clocks = [Clock(BEGIN), Clock(BEGIN - 5 * S)]
    recordings = [Recording(f"rank{r}", pid=100 + r, clock="relative") for r in range(2)]
    two_way(clocks, recordings=recordings)
    alignment = aligned(recorded(clocks, recordings))
    assert {r["quality"] for r in rows(alignment, 1)} == {"bounded"}
    assert_truth_inside(alignment, clocks)


# Two tools


def nested_pair(outer_first, inner_first=None, behind=0):
    """The same rank by two tools in true time: nsys' ranges lie 2 µs before and 3 µs after those of torch."""
    nsys = Recording("a.sqlite", pid=10, tool="nsys")
    torch = Recording("b.json", pid=10, tool="torch")
    for k in range(10):
        at = BEGIN + k * 10 * US
        outer, inner = (nsys, torch) if k % 2 == 0 or outer_first else (torch, nsys)
        outer.mark(f"produce src=0 dst=1 seq={k}", at - 2 * US, at + 8 * US)
        inner.mark(f"produce src=0 dst=1 seq={k}", at, at + 5 * US)
    nsys.kernel(BEGIN + 1 * US, BEGIN + 2 * US, BEGIN + 3 * US)
    torch.shift(-behind)
    return [nsys, torch]


@pytest.mark.parametrize(("behind", "chosen"), [(20 * US, "middle"), (4 * US, "nearest"), (1 * US, "claim")])
def test_nested_ranges_of_two_tools_bound_their_clocks_exactly(behind, chosen):
    alignment = aligned(nested_pair(outer_first=True, behind=behind))
    [found] = alignment.table.filter((pl.col("source") == 1) & (pl.col("domain") == "host")).to_dicts()
    # 98 µs in one window: a drift of 60 ppm makes 6 ns of it.
    low, high = found["lo_ns"], found["hi_ns"]
    assert behind - 2 * US - 6 <= low <= behind - 2 * US
    assert behind + 3 * US <= high <= behind + 3 * US + 6
    assert found["offset_ns"] == {"middle": (low + high) // 2, "nearest": low, "claim": 0}[chosen]
    assert (found["method"], found["n_hard"], found["quality"]) == ("20 nested", 20, "bounded")


def test_ranges_that_do_not_nest_say_nothing():
    alignment = aligned(nested_pair(outer_first=False))
    assert "nested" not in alignment.counts
    [found] = alignment.table.filter((pl.col("source") == 1) & (pl.col("domain") == "host")).to_dicts()
    assert found["quality"] == "wall_only"
    assert "same host" in found["assumed"]  # the same process
    assert (found["lo_ns"], found["offset_ns"], found["hi_ns"]) == (-50_500, 0, 50_500)


# Soft estimates


def test_ends_of_collectives_choose_the_point_where_the_claim_cannot_be_true():
    clocks = [Clock(), Clock(5 * S)]
    run = recorded(clocks, collectives(clocks))
    for r in rows(aligned(run), 1):
        assert abs(r["offset_ns"] - 5 * S) <= 2  # all ends are simultaneous
        assert r["n_soft"] > 0
        assert r["lo_ns"] <= 5 * S <= r["hi_ns"]


def test_an_empty_run_and_a_run_of_one_file_align():
    assert aligned([Recording("rank0")]).table["quality"].to_list() == ["same_clock"]
    alone = aligned(two_way([Clock()], ways=((0, 0),)))
    assert alone.table.filter(pl.col("domain") == "host")["quality"].to_list() == ["same_clock"]

"""What the user states about the clocks, and what files state of their hosts."""

from __future__ import annotations

import pytest

import gapscope
from gapscope.clocks import AlignOptions, Anchor, read_anchors
from gapscope.errors import UsageError
from gapscope.testing import Recording, trace
from tests.unit.clock_runs import (
    BEGIN,
    MS,
    US,
    Clock,
    S,
    aligned,
    assert_truth_inside,
    codes,
    files,
    finding,
    recorded,
    row,
    row_at,
    rows,
    write_handoff,
)


def run_of(clocks, count=20, spacing=MS, ways=((0, 1), (1, 0)), recordings=None, latency=40 * US):
    recordings = recordings or files(clocks)
    for k in range(count):
        src, dst = ways[k % len(ways)]
        write_handoff(src, dst, recordings[src], recordings[dst], k, BEGIN + k * spacing, latency, gpu=False)
    return recorded(clocks, recordings)


ONE_WAY = ((0, 1),)


# --offset


def test_a_stated_offset_that_is_feasible_is_used():
    run = run_of([Clock(), Clock(3 * MS)])
    for r in rows(aligned(run, AlignOptions(offsets={1: 3 * MS + 10 * US})), 1):
        assert r["offset_ns"] == 3 * MS + 10 * US
        assert r["quality"] == "bounded"
    assert codes(aligned(run, AlignOptions(offsets={1: 3 * MS + 10 * US}))) == []


def test_a_stated_offset_says_where_a_clock_is_and_not_how_sure_that_is():
    found = row(aligned(run_of([Clock(), Clock(3 * MS)], ways=ONE_WAY), AlignOptions(offsets={1: 4 * MS})), 1)
    assert (found["offset_ns"], found["quality"], found["hi_ns"]) == (4 * MS, "half_bounded", None)
    assert found["method"] == "20 message, 20 transfer"


def test_a_stated_offset_that_messages_contradict_is_moved_and_said():
    alignment = aligned(run_of([Clock(), Clock(3 * MS)]), AlignOptions(offsets={1: 3 * MS + 70 * US}))
    assert finding(alignment, "clock_moved").path == "rank1"
    for r in rows(alignment, 1):
        assert r["offset_ns"] <= r["hi_ns"] <= 3 * MS + 41 * US
        assert r["offset_ns"] >= r["hi_ns"] - 200


def test_an_offset_places_a_relative_file():
    clocks = [Clock(), Clock(BEGIN - 5 * S)]
    recordings = [Recording("rank0", pid=100), Recording("rank1", pid=101, clock="relative")]
    run = run_of(clocks, ways=ONE_WAY, recordings=recordings)
    assert row(aligned(run), 1)["offset_ns"] is None
    stated = BEGIN - 5 * S + 20 * US
    found = row(aligned(run, AlignOptions(offsets={1: stated})), 1)
    assert (found["offset_ns"], found["quality"]) == (stated, "half_bounded")
    assert found["lo_ns"] <= BEGIN - 5 * S
    handoffs = gapscope.analyze(trace(*run), clocks=AlignOptions(offsets={1: stated})).handoffs
    assert set(handoffs["gap_ns"]) == {90 * US}  # 70 µs, and 20 µs more by what is stated


def test_an_offset_of_the_reference_itself_moves_the_others_against_it():
    run = run_of([Clock(), Clock(-3 * MS)], ways=ONE_WAY)
    base = row(aligned(run), 1)
    moved = row(aligned(run, AlignOptions(offsets={0: -MS})), 1)
    assert (base["offset_ns"], moved["offset_ns"]) == (0, MS)


def test_an_offset_of_a_rank_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match=r"--offset 7=5: no recording is of rank 7"):
        aligned(run_of([Clock(), Clock()]), AlignOptions(offsets={7: 5}))


# --same-host, --clock-bound


@pytest.mark.parametrize(("tools", "bound"), [(("nsys", "nsys"), 100_000), (("torch", "torch"), 1_000),
                                              (("nsys", "torch"), 50_500)])  # fmt: skip
def test_files_of_one_host_agree_as_well_as_their_tools_do(tools, bound):
    recordings = [Recording(f"rank{r}", pid=100 + r, tool=tool) for r, tool in enumerate(tools)]
    run = run_of([Clock(), Clock()], ways=ONE_WAY, recordings=recordings, latency=900 * US)
    assert row(aligned(run), 1)["quality"] == "half_bounded"
    found = row(aligned(run, AlignOptions(same_host=True)), 1)
    assert (found["lo_ns"], found["offset_ns"], found["hi_ns"]) == (-bound, 0, bound)
    assert (found["quality"], found["assumed"]) == ("half_bounded", "same host")


def test_files_that_name_one_host_need_no_option_and_those_that_name_two_none_either():
    def run(hosts):
        recordings = [Recording(f"rank{r}", pid=100 + r, host=h) for r, h in enumerate(hosts)]
        return run_of([Clock(), Clock()], ways=ONE_WAY, recordings=recordings, latency=900 * US)

    assert row(aligned(run(("x", "x"))), 1)["hi_ns"] == 100_000
    assert row(aligned(run(("x", "y"))), 1)["hi_ns"] is None
    assert row(aligned(run((None, None))), 1)["hi_ns"] is None


def test_that_files_are_of_one_host_is_dropped_where_messages_refute_it():
    alignment = aligned(run_of([Clock(), Clock(3 * MS)]), AlignOptions(same_host=True))
    assert "--same-host" in finding(alignment, "clock_assumption_refuted").message
    assert {r["quality"] for r in rows(alignment, 1)} == {"bounded"}
    assert_truth_inside(alignment, [Clock(), Clock(3 * MS)])


def test_a_stated_bound_of_all_clocks_is_used_and_labelled():
    run = run_of([Clock(), Clock(5 * US)], ways=ONE_WAY)
    found = row(aligned(run, AlignOptions(clock_bound_ns=10 * US)), 1)
    assert (found["lo_ns"], found["offset_ns"], found["hi_ns"]) == (-10 * US, 0, 10 * US)
    assert (found["quality"], found["assumed"]) == ("half_bounded", "clock bound")
    handoffs = gapscope.analyze(trace(*run), clocks=AlignOptions(clock_bound_ns=10 * US)).handoffs
    assert set(handoffs["uncertainty_ns"]) == {10 * US + 2}  # and the resolution of both


def test_a_stated_bound_is_dropped_where_messages_refute_it():
    alignment = aligned(run_of([Clock(), Clock(3 * MS)]), AlignOptions(clock_bound_ns=10 * US))
    assert "--clock-bound" in finding(alignment, "clock_assumption_refuted").message
    assert_truth_inside(alignment, [Clock(), Clock(3 * MS)])


# --anchors


def anchors(clocks, times, error_ns=0):
    """What a common clock, true time, says at some true times."""
    return tuple(
        Anchor(rank, clock.at(t), t, error_ns) for rank, clock in enumerate(clocks) for t in times
    )  # fmt: skip


def test_anchors_place_files_on_a_clock_of_their_own():
    clocks = [Clock(7 * MS, 20_000), Clock(-3 * S, -20_000)]
    run = run_of(clocks, count=40, spacing=100 * MS, ways=ONE_WAY)
    alignment = aligned(run, AlignOptions(anchors=anchors(clocks, (BEGIN, BEGIN + 4 * S), error_ns=US)))
    assert set(alignment.table["reference"].unique()) == {"anchors"}
    for rank, clock in enumerate(clocks):
        assert {r["quality"] for r in rows(alignment, rank)} == {"bounded"}
        for t in range(BEGIN, BEGIN + 4 * S, S // 8):
            r = row_at(alignment, rank, t)
            assert r["lo_ns"] <= t - clock.at(t) <= r["hi_ns"]
            # 1 µs of the anchor; 30 ppm of the clock and of the anchors' own over at most 2 s to the nearest.
            assert r["hi_ns"] - r["lo_ns"] <= 2 * (US + 2 * 60 * US)
        near = row_at(alignment, rank, BEGIN + 10 * MS)
        assert near["hi_ns"] - near["lo_ns"] <= 2 * US + 2 * 60 * 30  # within 30 ms


def test_anchors_of_one_rank_leave_the_others_to_the_recordings():
    clocks = [Clock(7 * MS), Clock(-3 * MS)]
    run = run_of(clocks)
    alignment = aligned(run, AlignOptions(anchors=(Anchor(1, clocks[1].at(BEGIN), BEGIN, 0),)))
    for rank, clock in enumerate(clocks):
        for r in rows(alignment, rank):
            assert r["lo_ns"] <= clock.behind_ns <= r["hi_ns"]
            assert r["hi_ns"] - r["lo_ns"] < 90 * US


def test_anchors_of_a_rank_that_is_not_there_are_refused():
    with pytest.raises(UsageError, match="no recording is of rank 9"):
        aligned(run_of([Clock(), Clock()]), AlignOptions(anchors=(Anchor(9, 0, 0),)))


def test_anchors_are_read_from_a_file(tmp_path):
    path = tmp_path / "anchors.csv"
    path.write_text("reference_ns,rank,file_ns,error_ns\n5,0,3,\n1700000000000000001,1,-2,40\n")
    assert read_anchors(path) == (Anchor(0, 3, 5, 0), Anchor(1, -2, 1_700_000_000_000_000_001, 40))
    path.write_text("rank,file_ns,reference_ns\n0,3,5\n")
    assert read_anchors(path) == (Anchor(0, 3, 5),)


@pytest.mark.parametrize(
    "line", ["0,x,5,0", "0,,5,0", "0,1.5,5,0", "0,1,5,-1", "0,1", f"0,{2**62},5,0", "a,1,5,0", "0,1,5,1e3"]
)
def test_a_bad_line_of_anchors_is_named(tmp_path, line):
    path = tmp_path / "anchors.csv"
    path.write_text(f"rank,file_ns,reference_ns,error_ns\n0,1,2,3\n{line}\n")
    with pytest.raises(UsageError, match=r"anchors\.csv, line 3: give whole numbers"):
        read_anchors(path)


def test_a_file_of_anchors_without_a_column_or_without_being_there_is_refused(tmp_path):
    path = tmp_path / "anchors.csv"
    with pytest.raises(UsageError, match="cannot be read"):
        read_anchors(path)
    path.write_text("rank,reference_ns\n0,1\n")
    with pytest.raises(UsageError, match="lacks the column file_ns"):
        read_anchors(path)
    path.write_bytes(b"rank,file_ns,reference_ns\n\xff\xfe,1,2\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_anchors(path)


# The host's monotonic clock (N07)

BOOT = BEGIN - 1000 * S


def session(rank, pid, started, wrong_ns, host="node"):
    """A recording that began at a true time and claims an epoch that is off."""
    epoch = started + wrong_ns
    return Recording(f"rank{rank}", pid=pid, host=host, epoch_ns=epoch, system_clock_ns=started - BOOT)


MISTAKEN = "the file's clock and the number of a clock have one name in assumptions, so no file is taken for unix"


@pytest.mark.parametrize("wrong_ns", [0, 80 * MS, -350 * MS])
def test_n07_two_sessions_of_one_machine_by_its_monotonic_clock(wrong_ns):
    early, late = session(0, 100, BEGIN - 7 * S, 0), session(1, 101, BEGIN, wrong_ns)
    run = run_of([Clock(), Clock(-wrong_ns)], ways=ONE_WAY, recordings=[early, late], latency=170 * US)
    alignment = aligned(run)
    found = row(alignment, 1)
    assert (found["lo_ns"], found["hi_ns"]) == (-wrong_ns - 2 * US, -wrong_ns + 2 * US)
    assert (found["quality"], found["assumed"]) == ("half_bounded", "system clock")
    handoffs = gapscope.analyze(trace(*run)).handoffs
    assert handoffs["gap_ns"].to_list() == pytest.approx([200 * US] * 20, abs=2 * US)
    assert handoffs["uncertainty_ns"].max() <= 4 * US + 2


def test_n07_without_marks_that_tie_them():
    early, late = session(0, 100, BEGIN - 7 * S, 0), session(1, 101, BEGIN, 80 * MS)
    early.kernel(BEGIN, BEGIN + 1, BEGIN + 2)
    late.kernel(BEGIN, BEGIN + 1, BEGIN + 2)
    found = row(aligned(recorded([Clock(), Clock(-80 * MS)], [early, late])), 1)
    assert (found["lo_ns"], found["hi_ns"], found["quality"]) == (-80 * MS - 2 * US, -80 * MS + 2 * US, "wall_only")


def test_readings_of_two_boots_are_not_compared():
    early, late = session(0, 100, BEGIN, 0), session(1, 101, BEGIN, 0)
    late.info = Recording("rank1", pid=101, host="node", epoch_ns=BEGIN, system_clock_ns=5 * S).info
    run = run_of([Clock(), Clock()], ways=ONE_WAY, recordings=[early, late], latency=900 * US)
    found = row(aligned(run), 1)
    assert (found["hi_ns"], found["assumed"]) == (100 * US, "same host")


def test_relative_files_of_one_machine_are_placed_by_its_monotonic_clock():
    recordings = [
        Recording(f"rank{r}", pid=100 + r, host="node", clock="relative", system_clock_ns=BEGIN - BOOT + r * 7 * S)
        for r in range(2)
    ]
    clocks = [Clock(BEGIN), Clock(BEGIN + 7 * S)]
    run = run_of(clocks, ways=ONE_WAY, recordings=recordings)
    found = row(aligned(run), 1)
    assert found["quality"] in ("half_bounded", "wall_only")
    assert (found["lo_ns"], found["hi_ns"]) == (7 * S - 2 * US, 7 * S + 2 * US)
    handoffs = gapscope.analyze(trace(*run)).handoffs
    assert handoffs["gap_ns"].to_list() == pytest.approx([70 * US] * 20, abs=2 * US)

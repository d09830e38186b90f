"""What holds of every run: true offsets lie within the bounds, and only differences between clocks count."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.unit.clock_runs import (
    BEGIN,
    DAY,
    MS,
    US,
    Clock,
    S,
    against_reference,
    aligned,
    aligned_with_handoffs,
    assert_consistent,
    assert_truth_inside,
    codes,
    files,
    recorded,
    rows,
    write_handoff,
)

FEW = settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

FEWER = settings(FEW, max_examples=12)

BEHIND = st.one_of(st.integers(-100, 100), st.integers(-5 * MS, 5 * MS), st.integers(-90 * DAY, 90 * DAY))
CLOCKS = st.builds(Clock, behind_ns=BEHIND, ppb=st.integers(-30_000, 30_000), device_ns=st.integers(-7 * US, 7 * US))


@st.composite
def runs(draw, both_ways=False):
    """Clocks and recordings in true time: handoffs, collectives, syncs, as they come."""
    clocks = draw(st.lists(CLOCKS, min_size=2, max_size=4))
    ranks = range(len(clocks))
    recordings = files(clocks, tool=draw(st.sampled_from(["nsys", "torch"])))
    spacing = draw(st.sampled_from([1 * MS, 30 * MS, 700 * MS]))
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    edges = pairs if both_ways else draw(st.lists(st.sampled_from(pairs), unique=True))
    gpu = draw(st.booleans())
    at = BEGIN
    for seq in range(draw(st.integers(2, 5))):
        for src, dst in edges:
            at += spacing + draw(st.integers(0, spacing))
            latency = draw(st.integers(3 * US, 200 * US))
            write_handoff(src, dst, recordings[src], recordings[dst], seq, at, latency, gpu)
    for seq in range(draw(st.integers(0 if edges else 3, 6))):
        at += spacing + draw(st.integers(0, spacing))
        starts = [at + draw(st.integers(0, 100 * US)) for _ in ranks]
        last = max(starts)
        for r in ranks:
            end = last + draw(st.integers(5 * US, 40 * US))
            recordings[r].communication("allreduce", at - 20 * US, starts[r], end, seq=seq)
    if draw(st.booleans()):
        for r in ranks:
            at += spacing
            recordings[r].kernel(at, at + 3 * US, at + 9 * US)
            recordings[r].sync(at + 4 * US, at + 9 * US + draw(st.integers(0, 20 * US)))
    return clocks, recordings


@FEW
@given(runs())
def test_true_offsets_lie_within_bounds_and_nothing_goes_backward(run):
    clocks, recordings = run
    alignment = aligned(recorded(clocks, recordings))
    assert_truth_inside(alignment, clocks)
    assert_consistent(alignment)
    for r in range(len(clocks)):
        for one in rows(alignment, r):
            assert one["window_start_ns"] < one["window_end_ns"]


@FEW
@given(runs(both_ways=True))
def test_messages_both_ways_bound_every_clock_and_refute_nothing_true(run):
    clocks, recordings = run
    alignment = aligned(recorded(clocks, recordings))
    assert alignment.table["offset_ns"].null_count() == 0
    hosts = alignment.table.filter(pl.col("domain") == "host")
    assert hosts["lo_ns"].null_count() == hosts["hi_ns"].null_count() == 0
    assert set(codes(alignment)) <= {"clock_moved"}


def bounds(analysis, rank):
    """``window_start_ns, lo_ns, hi_ns`` of a rank's host clock against the reference, in order."""
    table = against_reference(analysis).filter((pl.col("rank") == rank) & (pl.col("domain") == "host"))
    return table.select("window_start_ns", "lo_ns", "hi_ns")


def before_and_after(clocks, recordings, moved, first, by):
    """Analyses with one file moved by ``first``, and by ``first + by``."""
    recorded(clocks, recordings)
    recordings[moved].shift(first)
    before = without_causes(recordings)
    recordings[moved].shift(by)
    return before, without_causes(recordings)


def without_causes(recordings):
    """What an analysis says of the clocks and the handoffs, at half its cost."""
    alignment, handoffs = aligned_with_handoffs(recordings)
    return SimpleNamespace(alignment=alignment.table, handoffs=handoffs)


def assert_same_handoffs(before, after):
    """Nothing but gaps may differ, and they by no more than is said."""
    keys = ["src_rank", "dst_rank", "seq"]
    both = before.handoffs.join(after.handoffs, on=keys, suffix="_2", validate="1:1")
    assert both.height == before.handoffs.height == after.handoffs.height
    assert both["status"].to_list() == both["status_2"].to_list()
    changed = (both["gap_ns"] - both["gap_ns_2"]).abs()
    # Each gap is true within its own bound; as windows begin elsewhere, one bound may be narrower than the other.
    assert (changed <= both["uncertainty_ns"] + both["uncertainty_ns_2"]).all()


SHIFTS = st.one_of(st.sampled_from([1, -1, 90 * DAY, -90 * DAY]), st.integers(-90 * DAY, 90 * DAY))


@FEWER
@given(runs(both_ways=True), SHIFTS, st.data())
def test_of_claims_that_say_nothing_only_the_recordings_count(run, by, data):
    clocks, recordings = run
    moved = data.draw(st.integers(1, len(clocks) - 1))
    assume(abs(by) < 80 * DAY or all(abs(c.behind_ns) < DAY for c in clocks))
    # 100 days and 100 days plus `by` from what is true: no claim of this file has anything to say.
    before, after = before_and_after(clocks, recordings, moved, 200 * DAY, by)
    for rank in range(1, len(clocks)):
        sign = -1 if rank == moved else 0
        one, two = bounds(before, rank).select("lo_ns", "hi_ns"), bounds(after, rank).select("lo_ns", "hi_ns")
        assert_close(one, two.select(pl.all() - sign * by))
    times = pl.col("^.*_ns$").cast(pl.Int64)
    assert_close(before.handoffs.select(times), after.handoffs.select(times))
    assert_same_handoffs(before, after)


def assert_close(one, two):
    """Two frames of times are equal but for limits of windows that are rounded to a nanosecond."""
    assert one.shape == two.shape
    assert one.null_count().equals(two.null_count())
    for column in one.columns:
        assert ((one[column] - two[column]).abs().max() or 0) <= 2


@FEWER
@given(runs(both_ways=True), st.one_of(SHIFTS, st.integers(-100 * US, 100 * US)), st.data())
def test_a_constant_added_to_one_file_moves_its_bounds_by_that_and_no_gap_beyond_its_uncertainty(run, by, data):
    clocks, recordings = run
    moved = data.draw(st.integers(0, len(clocks) - 1))
    before, after = before_and_after(clocks, recordings, moved, 0, by)
    for rank in range(1, len(clocks)):
        sign = {0: 1, rank: -1}.get(moved, 0)
        one, two = bounds(before, rank), bounds(after, rank)
        # Windows begin elsewhere where other points were chosen, so a bound may grow by the drift within one window,
        # and windows are joined elsewhere.
        longest = max(a.select((pl.col("window_end_ns") - pl.col("window_start_ns")).max()).item() for a in
                      (before.alignment, after.alignment))  # fmt: skip
        width = (one["hi_ns"] - one["lo_ns"]).max()
        room = 2 * max(500, width // 10) + 60_000 * min(longest, 60 * S) // 10**9
        for name, pick in (("lo_ns", pl.Series.max), ("hi_ns", pl.Series.min)):
            assert abs(pick(two[name]) - sign * by - pick(one[name])) <= room
    assert_same_handoffs(before, after)


@FEWER
@given(runs(both_ways=True), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(run, random):
    clocks, recordings = run
    recorded(clocks, recordings)
    one = aligned(recordings)
    for r in recordings:
        for table in r.rows.values():
            random.shuffle(table)
    two = aligned(recordings)
    assert one.table.equals(two.table)
    assert one.findings == two.findings


def test_the_order_of_files_changes_nothing_where_clocks_do_not_drift():
    tables = [three_ranks(ppb=0, order=order) for order in ((0, 1, 2), (2, 0, 1))]
    assert tables[0].equals(tables[1])


def test_the_order_of_files_changes_nothing():
    tables = [three_ranks(ppb=9_000, order=order) for order in ((0, 1, 2), (2, 0, 1))]
    assert tables[0].equals(tables[1])


def three_ranks(ppb, order):
    """The alignment, but for numbers of files, of three ranks that send to each other; files in that order."""
    clocks = [Clock(), Clock(10 * MS, ppb), Clock(20 * MS, -ppb)]
    recordings = files(clocks)
    at = BEGIN
    for seq in range(3):
        for src in range(3):
            for dst in {0, 1, 2} - {src}:
                at += MS
                write_handoff(src, dst, recordings[src], recordings[dst], seq, at, 100 * US, gpu=False)
    recorded(clocks, recordings)
    return aligned([recordings[n] for n in order]).table.drop("source").sort("rank", "window_start_ns")

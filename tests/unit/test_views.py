"""What pictures are made of: everything on the common timebase, and what surrounds one handoff."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import gapscope
from gapscope.demo import DEMO_RECORDING
from gapscope.lanes import lanes_of
from gapscope.testing import Recording, trace
from gapscope.views import place, timeline, timeline_from, timeline_of, windows_of
from gapscope.views.gaps import gaps_of

DATA = Path(__file__).parents[1] / "data"
RUNS = {
    "demo": [DEMO_RECORDING],
    "both": ["mailbox_both.sqlite.gz", "mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"],
    "1f1b": [f"examples/pp_1f1b_torch_rank{r}{end}" for r in (0, 1) for end in (".json.gz", ".gslog")],
    "tp": [f"two-gpus/tp_torch_rank{r}.json.gz" for r in (0, 1)],
    "log": [f"cpu_pipeline_rank{r}.gslog" for r in (0, 1)],
}
MS = 1_000_000
NUMBER = pl.int_range(pl.len(), dtype=pl.Int32)
BEGIN = 1_700_000_000 * 10**9


@cache
def analysis(name):
    return gapscope.analyze([DATA / file for file in RUNS[name]])


@pytest.fixture(params=RUNS)
def run(request):
    return analysis(request.param)


def pipeline(name="kernel", at=0, extra=()):
    """One handoff of two ranks with a gap of 700 µs, whose submit begins 300 µs after the producer's end."""
    a, b = Recording("a", pid=10), Recording("b", pid=11)
    t = BEGIN + at
    key = "src=0 dst=1 seq=1 step=1"
    a.mark(f"produce {key}", t, t + 110_000)
    a.kernel(t + 10_000, t + 30_000, t + 200_000, name=name)
    a.mark(f"submit {key}", t + 500_000, t + 620_000)
    a.kernel(t + 600_000, t + 640_000, t + 700_000, stream=9, name="memcpy")
    b.mark(f"receive {key}", t + 100_000, t + 710_000)
    b.kernel(t + 600_000, t + 720_000, t + 800_000, stream=9, name="copy_in")
    b.mark(f"consume {key}", t + 720_000, t + 900_000)
    b.kernel(t + 730_000, t + 900_000, t + 950_000, name="consumer")
    for recording, mark, begin, end in extra:
        {"a": a, "b": b}[recording].mark(mark, t + begin, t + end)
    return a, b


# Everything on the common timebase ------------------------------------------------------------------------------


def test_all_that_has_a_time_and_a_rank_is_placed(run):
    placed = place(run.trace, run.timebase)
    counts = dict(placed.items.group_by(pl.col("kind").cast(pl.String)).len().iter_rows())
    chosen = run.trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
    timed = pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null()
    ops = run.trace.ops.filter(timed).join(chosen, on=["source", "process"], how="semi")
    calls = run.trace.calls.filter(timed).join(chosen, on=["source", "process"], how="semi")
    marks = run.trace.marks.filter(timed & pl.col("asked_ns").is_null()).join(
        chosen, on=["source", "process"], how="semi"
    )
    assert sum(counts.get(kind, 0) for kind in ("kernel", "memcpy", "memset", "graph")) == ops.height
    assert counts.get("call", 0) == calls.height
    assert counts.get("mark", 0) == marks.height
    assert ops.height + calls.height + marks.height > 0


def test_times_are_moved_by_the_offset_of_their_clock(run):
    placed = place(run.trace, run.timebase)
    items = placed.items.join(placed.lanes.with_columns(lane_number=NUMBER), left_on="lane", right_on="lane_number")
    ops = run.trace.ops.filter(pl.col("start_ns").is_not_null() & pl.col("rank").is_not_null())
    ops = run.timebase.domains.with_domain(ops, "device", "", "clock")
    ops = ops.with_columns(start_ns=pl.col("start_ns") + run.timebase.offsets(ops["clock"], ops["start_ns"]))
    wanted = ops.group_by("rank").agg(pl.col("start_ns").min(), length=pl.col("end_ns").max()).sort("rank")
    found = items.filter(pl.col("thread").is_null() & pl.col("stream").is_not_null()).group_by("rank")
    found = found.agg(pl.col("start_ns").min()).sort("rank")
    assert found["start_ns"].to_list() == wanted["start_ns"].to_list()


def test_lanes_are_those_of_the_tiles(run):
    lanes = place(run.trace, run.timebase).lanes.select(pl.col("rank").cast(pl.Int64), "lane").unique()
    tiles = run.tiles.filter(pl.col("lane").is_not_null() & pl.col("rank").is_not_null())
    assert tiles.join(lanes, on=["rank", "lane"], how="anti").height == 0


def test_each_thread_has_a_lane_of_its_own():
    run = analysis("1f1b")
    placed = place(run.trace, run.timebase)
    by_lane = placed.items.filter(pl.col("kind").cast(pl.String) == "call").join(
        placed.lanes.with_columns(lane_number=NUMBER), left_on="lane", right_on="lane_number"
    )
    wanted = run.trace.calls.group_by("rank", "thread").len().sort("rank", "thread")
    assert by_lane.group_by("rank", "thread").len().sort("rank", "thread").rows() == wanted.rows()
    assert wanted.height > 2 * run.trace.calls["rank"].n_unique()


def test_a_lane_has_four_columns_at_most():
    frame = pl.DataFrame({key: [1] for key in "abcde"})
    with pytest.raises(ValueError, match="4 at most"):
        lanes_of(frame, list("abcde"), nulls_last=True)


def test_windows_keep_what_reaches_into_them(run):
    everything = place(run.trace, run.timebase)
    items = everything.items.join(
        everything.lanes.select("rank", lane_number=NUMBER), left_on="lane", right_on="lane_number"
    )
    first, last = items["start_ns"].min(), items["end_ns"].max()
    cuts = np.linspace(first, last, 12).astype(np.int64)
    spans = pl.DataFrame({"start_ns": cuts[[1, 2, 6, 9]], "end_ns": cuts[[3, 4, 7, 9]]})  # overlapping, and a point
    found = place(run.trace, run.timebase, windows={0: spans})
    wanted = items.filter(
        (pl.col("rank") == 0)
        & pl.any_horizontal((pl.col("end_ns") >= low) & (pl.col("start_ns") <= high) for low, high in spans.iter_rows())
    )
    assert found.items.height == wanted.height
    assert sorted(found.items["start_ns"]) == sorted(wanted["start_ns"])
    assert set(found.lanes["rank"]) <= {0}


def test_ranks_are_chosen():
    run = analysis("demo")
    assert set(place(run.trace, run.timebase, ranks=[1]).lanes["rank"]) == {1}
    assert place(run.trace, run.timebase, windows={}).items.height == 0


def test_an_unplaced_clock_keeps_its_recorded_times():
    a, b = pipeline()
    b.on_clock(lambda t: t - BEGIN)
    apart = trace(a, Recording("c", pid=12, clock="relative"))
    found = gapscope.analyze(apart)
    placed = place(apart, found.timebase)
    assert placed.items.filter(pl.col("kind").cast(pl.String) == "kernel")["start_ns"].to_list()[0] == BEGIN + 30_000


# Around one handoff ---------------------------------------------------------------------------------------------


def each(run, most=6):
    for row in run.handoffs.head(most).iter_rows(named=True):
        mine = run.handoffs.filter(pl.col("handoff_id") == row["handoff_id"])
        tiles = run.tiles.filter(pl.col("handoff_id") == row["handoff_id"])
        yield row, tiles, timeline_of(run.trace, run.timebase, mine, tiles)


def test_tiles_keep_their_times_and_lie_on_their_lane(run):
    for row, tiles, shown in each(run):
        assert shown.tiles["duration_ns"].sum() == (row["gap_ns"] if tiles.height else 0)
        assert shown.tiles.drop("row").equals(tiles.sort("start_ns"))
        lanes = dict(zip(shown.rows["row"], shown.rows.select("rank", "lane").rows(), strict=True))
        for tile in shown.tiles.iter_rows(named=True):
            if tile["lane"] is None or tile["rank"] is None:
                assert tile["row"] is None
            else:
                assert lanes[tile["row"]] == (tile["rank"], tile["lane"])


def test_bars_are_the_recorded_items_of_the_window(run):
    placed = place(run.trace, run.timebase)
    items = placed.items.join(placed.lanes.select("rank", lane_number=NUMBER), left_on="lane", right_on="lane_number")
    for row, _, shown in each(run, most=3):
        inside = items.filter(
            (pl.col("end_ns") >= shown.start_ns)
            & (pl.col("start_ns") <= shown.end_ns)
            & pl.col("rank").is_in([row["src_rank"], row["dst_rank"]])
        )
        assert shown.bars.height + shown.rows["left_out"].sum() == inside.height
        assert sorted(shown.bars["start_ns"]) == sorted(inside["start_ns"]) or shown.rows["left_out"].sum()


def test_events_are_those_of_the_table(run):
    for row, _, shown in each(run):
        found = dict(shown.events.select("event", "at_ns").iter_rows())
        wanted = {e: row[f"{e}_ns"] for e in (*gapscope.schema.EVENTS, "arrival") if row[f"{e}_ns"] is not None}
        assert found == wanted
        assert shown.events["at_ns"].is_sorted()


def test_arrows_lead_where_the_chain_goes(run):
    arrows = 0
    for _, _tiles, shown in each(run):
        for arrow in shown.arrows.iter_rows(named=True):
            ends = shown.tiles.filter(pl.col("row") == arrow["from_row"])["end_ns"]
            starts = shown.tiles.filter(pl.col("row") == arrow["to_row"])["start_ns"]
            assert arrow["at_ns"] in starts.to_list()
            assert (ends <= arrow["at_ns"]).any()
        rows = shown.tiles["row"].drop_nulls().to_list()
        assert shown.arrows.height == sum(a != b for a, b in pairwise(rows))
        arrows += shown.arrows.height
    assert arrows or not run.tiles.height or run.tiles["lane"].n_unique() == 1


def test_the_source_is_on_top_and_hosts_above_streams():
    run = analysis("1f1b")
    back = run.handoffs.filter((pl.col("src_rank") == 1) & (pl.col("gap_ns") > 0)).head(1)
    shown = timeline_of(run.trace, run.timebase, back, run.tiles.join(back, on="handoff_id", how="semi"))
    ranks = shown.rows["rank"].to_list()
    assert ranks == sorted(ranks, reverse=True)
    for rank in (0, 1):
        parts = shown.rows.filter(pl.col("rank") == rank)["part"].cast(pl.String).to_list()
        assert parts == sorted(parts, key=lambda part: part == "ops")
        assert {"ranges", "calls", "ops"} <= set(parts)


def test_more_bars_than_fit_are_left_out_shortest_first(monkeypatch):
    run = analysis("demo")
    mine = run.handoffs.head(1)
    tiles = run.tiles.join(mine, on="handoff_id", how="semi")
    full = timeline_of(run.trace, run.timebase, mine, tiles)
    monkeypatch.setattr(timeline, "MOST_BARS", 3)
    few = timeline_of(run.trace, run.timebase, mine, tiles)
    assert few.bars.group_by("row").len()["len"].max() == 3
    assert few.bars.height + few.rows["left_out"].sum() == full.bars.height
    for row in few.bars["row"].unique():
        lengths = (pl.col("end_ns") - pl.col("start_ns")).alias("length")
        kept, all_of = (t.bars.filter(pl.col("row") == row).select(lengths)["length"] for t in (few, full))
        assert sorted(kept, reverse=True) == sorted(all_of, reverse=True)[:3]


def test_nested_marks_have_depths():
    a, b = pipeline(extra=[("a", "step step=1", -5_000, 900_000), ("b", "step step=1", 0, 990_000)])
    found = gapscope.analyze(trace(a, b)).handoff().timeline
    marks = found.bars.filter(pl.col("kind").cast(pl.String) == "mark").join(found.rows, on="row")
    depth = {(name.split(" ")[0], rank): d for name, rank, d in marks.select("name", "rank", "depth").iter_rows()}
    assert depth == {
        ("step", 0): 0, ("produce", 0): 1, ("submit", 0): 1, ("step", 1): 0, ("receive", 1): 1, ("consume", 1): 1,
    }  # fmt: skip


def test_window_holds_the_gap_and_a_margin():
    a, b = pipeline()
    shown = gapscope.analyze(trace(a, b)).handoff().timeline
    gap = 700_000
    assert shown.zero_ns == BEGIN + 200_000
    assert (shown.start_ns, shown.end_ns) == (shown.zero_ns - gap * 15 // 100, shown.zero_ns + gap + gap * 15 // 100)


def windows(**events):
    five = ("producer_finish", "submit", "movement_start", "available", "consumer_start")
    row = {f"{e}_ns": events.get(e) for e in five}
    both = None not in (row["producer_finish_ns"], row["consumer_start_ns"])
    row["gap_ns"] = row["consumer_start_ns"] - row["producer_finish_ns"] if both else None
    return windows_of(pl.DataFrame([row], schema=dict.fromkeys(row, pl.Int64))).row(0)


def test_windows_of_incomplete_and_early_handoffs():
    assert windows() == (None, None)
    assert windows(submit=1_000_000) == (980_000, 1_020_000)
    # Submitted early: the window grows to it, by the length of the gap at most.
    near = windows(producer_finish=1_000_000, consumer_start=2_000_000, submit=500_000)
    assert near == (500_000 - 150_000, 2_150_000)
    far = windows(producer_finish=10_000_000, consumer_start=11_000_000, submit=1_000_000)
    assert far == (10_000_000 - 1_000_000 - 150_000, 11_150_000)


def test_a_handoff_without_any_time_has_an_empty_timeline():
    run = analysis("demo")
    mine = run.handoffs.head(1).with_columns(
        pl.lit(None, pl.Int64).alias(f"{e}_ns") for e in (*gapscope.schema.EVENTS, "gap", "arrival")
    )
    shown = timeline_from(place(run.trace, run.timebase), mine, run.tiles.clear())
    assert (shown.events.height, shown.tiles.height) == (0, 0)


# Gaps -----------------------------------------------------------------------------------------------------------


def test_gaps_are_those_of_the_table(run):
    found = gaps_of(run.handoffs, gapscope.summary.COUNTED)
    known = run.handoffs.filter(pl.col("gap_ns").is_not_null())
    assert found.height == known.height
    assert found.sort("handoff_id")["gap_ns"].to_list() == known.sort("handoff_id")["gap_ns"].to_list()
    assert found["is_counted"].sum() == run.summary["handoffs"]["counted"]
    assert set(found["edge"]) <= {gapscope.wording.edge_name(edge) for edge in run.summary["edges"]}

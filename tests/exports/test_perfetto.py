"""The trace says what the tables say, in whole nanoseconds: read back with Perfetto's own classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import gapscope
from gapscope.errors import UsageError
from gapscope.exports import write_perfetto
from gapscope.schema import EVENTS
from gapscope.testing import Recording, trace
from gapscope.views import place
from tests.exports.reading import read

DATA = Path(__file__).parents[1] / "data"
EPOCH = 1_700_000_000_000_000_000
RECORDINGS = {
    "mailbox": ["two-gpus/mailbox_late_submit_nsys.sqlite.gz"],
    "mixed tools": ["mailbox_mixed_rank0.sqlite.gz", "mailbox_mixed_rank1.json.gz"],
    "cuda graph": ["mailbox_graph_nsys.sqlite.gz"],
    "nccl": ["causes/bidirectional_nccl_rank0.json.gz", "causes/bidirectional_nccl_rank1.json.gz"],
    "collectives": ["two-gpus/tp_torch_rank0.json.gz", "two-gpus/tp_torch_rank1.json.gz"],
    "no gpu": ["gloo_none_torch_rank0.json.gz", "gloo_none_torch_rank1.json.gz"],
    "logs alone": ["cpu_pipeline_rank0.gslog", "cpu_pipeline_rank1.gslog"],
    "1f1b": ["examples/pp_1f1b_torch_rank0.json.gz", "examples/pp_1f1b_torch_rank1.json.gz"],
}


@pytest.fixture(scope="module", params=RECORDINGS)
def recorded(request, tmp_path_factory):
    analysis = gapscope.analyze([DATA / name for name in RECORDINGS[request.param]])
    out = tmp_path_factory.mktemp("trace") / "run.pftrace"
    written = write_perfetto(analysis, out, version="1.2.3")
    return analysis, read(out), written


def analyze(*recordings, **options):
    return gapscope.analyze(trace(*recordings), **options)


def exported(analysis, tmp_path, **options):
    out = tmp_path / "run.pftrace"
    write_perfetto(analysis, out, **options)
    return read(out)


def plain(frame, *columns):
    return sorted(frame.select(columns).rows(), key=str)


# Recordings -----------------------------------------------------------------------------------------------------


def test_every_item_is_a_slice_at_its_time(recorded):
    analysis, found, written = recorded
    items = place(analysis.trace, analysis.timebase, unclosed=True).items
    kinds = items["kind"].cast(pl.String).unique().to_list()
    slices = found.events.filter(pl.col("category").is_in(kinds) & ~pl.col("moment"))
    wanted = items.select(pl.col("name").cast(pl.String), "start_ns", "end_ns", category=pl.col("kind").cast(pl.String))
    columns = ("name", "category", "start_ns", "end_ns")
    assert plain(slices, *columns) == plain(wanted, *columns)
    assert written.slices == (~found.events["moment"]).sum()
    assert written.instants == found.events["moment"].sum()


def test_items_are_on_the_track_of_their_rank_and_lane(recorded):
    analysis, found, _ = recorded
    placed = place(analysis.trace, analysis.timebase, unclosed=True)
    lane = placed.lanes.select("rank", pl.col("lane").alias("text"))[placed.items["lane"]]
    there = pl.concat([placed.items, lane], how="horizontal").select("rank", "text", "start_ns").rows()
    slices = found.events.filter(pl.col("path").list.first().str.starts_with("rank ") & (pl.col("category") != "event"))
    rank = pl.col("path").list.first().str.extract(r"^rank (\d+)").cast(pl.Int64)
    text = pl.col("path").list.get(1).str.extract(r"^(\S+)")
    assert sorted(slices.select(rank, text.alias("text"), "start_ns").rows()) == sorted(there)


def test_gaps_and_tiles_are_those_of_the_tables(recorded):
    analysis, found, _ = recorded
    known = analysis.handoffs.filter(pl.col("gap_ns") >= 0)
    assert known.height
    gaps = found.events.filter(pl.col("category") == "handoff")
    wanted = known.select("handoff_id", "producer_finish_ns", "consumer_start_ns")
    assert plain(gaps, "name", "start_ns", "end_ns") == plain(wanted, *wanted.columns)
    tiles = found.under("Handoffs").filter((pl.col("category") != "handoff") & ~pl.col("moment"))
    assert (tiles["name"] == tiles["category"]).all()
    told = [(a["handoff_id"], a["cause"], s, e, a["evidence"], a.get("op"), a.get("detail"), a.get("runner_up"),
             a.get("lane"), a.get("rank"), a.get("uncertainty_ns"))
            for a, s, e in zip(tiles["args"], tiles["start_ns"], tiles["end_ns"], strict=True)]  # fmt: skip
    columns = ("handoff_id", "cause", "start_ns", "end_ns", "evidence", "op", "detail", "runner_up", "lane", "rank",
               "uncertainty_ns")  # fmt: skip
    assert sorted(told, key=str) == plain(analysis.tiles, *columns)


def test_tiles_lie_beneath_the_gap_that_they_are_of(recorded):
    _, found, _ = recorded
    for _, rows in found.under("Handoffs").filter(~pl.col("moment")).group_by("track"):
        gap = None
        for row in rows.sort("order").iter_rows(named=True):
            assert row["depth"] == (row["category"] != "handoff")
            gap = row["args"]["handoff_id"] if row["category"] == "handoff" else gap
            assert row["args"]["handoff_id"] == gap


def test_a_gap_tells_all_that_its_row_tells(recorded):
    analysis, found, _ = recorded
    rows = {row["handoff_id"]: row for row in analysis.handoffs.iter_rows(named=True)}
    shown = found.events.filter(pl.col("category").str.starts_with("handoff"))
    assert shown.height == len(rows)
    for args in shown["args"]:
        row = rows[args["handoff_id"]]
        assert {c: v for c, v in row.items() if v is not None} == args


def test_events_are_those_of_the_table_and_arrows_join_them(recorded):
    analysis, found, _ = recorded
    wanted, pairs = set(), set()
    for row in analysis.handoffs.iter_rows(named=True):
        at = {e: row[f"{e}_ns"] for e in EVENTS if row[f"{e}_ns"] is not None}
        wanted |= {(row["handoff_id"], event, ns) for event, ns in at.items()}
        if row["status"] != "unaligned" and {"producer_finish", "consumer_start"} <= set(at) and row["gap_ns"] >= 0:
            pairs.add((at["producer_finish"], at["consumer_start"]))
    events = found.events.filter(pl.col("category") == "event")
    assert {(a["handoff_id"], n, t) for a, n, t in events.select("args", "name", "start_ns").iter_rows()} == wanted
    chains = [f for f in found.flows().values() if f[0][0] == "producer_finish"]
    assert pairs <= {(f[0][2], f[-1][2]) for f in chains if f[-1][0] == "consumer_start"}
    assert {tuple(n for n, *_ in f) for f in found.flows().values() if f[0][0] == "submit"} <= {
        ("submit", answer) for answer in ("movement_start", "available", "consumer_start")
    }


def test_arrows_between_operations_lead_from_the_producers_last_to_the_consumers_first(recorded):
    analysis, found, _ = recorded
    ops = found.events.filter(
        pl.col("category").is_in(["kernel", "memcpy", "memset", "graph"]) & (pl.col("flows").list.len() > 0)
    )
    by_flow = {}
    for row in ops.sort("order").iter_rows(named=True):
        for flow in row["flows"]:
            by_flow.setdefault(flow, []).append(row)
    ends = {(h["producer_finish_ns"], h["consumer_start_ns"]) for h in analysis.handoffs.iter_rows(named=True)}
    for first, last in by_flow.values():
        assert (first["end_ns"], last["start_ns"]) in ends
    derived = analysis.handoffs.filter(
        (pl.col("producer_finish_source") == "derived")
        & (pl.col("consumer_start_source") == "derived")
        & (pl.col("gap_ns") > 0)
    )
    assert len(by_flow) >= derived.height // 2


def test_units_and_clocks_are_those_of_the_tables(recorded):
    analysis, found, _ = recorded
    units = found.under("Steps and requests")
    wanted = analysis.units.filter(pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
    assert sorted(
        (a["unit"], a["id"], s, e) for a, s, e in units.select("args", "start_ns", "end_ns").iter_rows()
    ) == sorted(wanted.select("unit", "id", "start_ns", "end_ns").rows())
    clocks = [dict(args) for args in found.under("Clocks")["args"]]
    assert len(clocks) == analysis.alignment.height
    columns = ("path", "domain", "reference", "quality", "method", "offset_ns", "lo_ns", "hi_ns", "window_start_ns")
    told = sorted((tuple(c.get(name) for name in columns) for c in clocks), key=str)
    assert told == plain(analysis.alignment, *columns)
    for c in clocks:
        known = all(c.get(name) is not None for name in ("offset_ns", "lo_ns", "hi_ns"))
        assert c.get("error_ns") == (max(c["hi_ns"] - c["offset_ns"], c["offset_ns"] - c["lo_ns"]) if known else None)


def test_the_trace_says_what_wrote_it(recorded):
    analysis, found, _ = recorded
    (row,) = found.under("gapscope").iter_rows(named=True)
    assert row["name"] == "gapscope 1.2.3"
    assert row["args"]["schema_version"] == gapscope.schema.SCHEMA_VERSION
    assert row["args"]["files"] == analysis.trace.sources.height
    assert found.clocks[6] == found.clocks[1] == found.clocks[64] == found.events["start_ns"].min()


# Built cases ----------------------------------------------------------------------------------------------------


def source(path="a", pid=10, seqs=(1, 2, 3), **info):
    r = Recording(path, pid=pid, **info)
    for i in seqs:
        t = EPOCH + i * 1000
        r.mark(f"produce src=0 dst=1 seq={i} step={i}", t, t + 100)
        r.kernel(t + 10, t + 50, t + 200)
        r.mark(f"submit src=0 dst=1 seq={i} step={i}", t + 110, t + 120)
        r.kernel(t + 111, t + 220, t + 230, stream=13)
    return r


def destination(path="b", pid=10, seqs=(1, 2, 3), **info):
    r = Recording(path, pid=pid, **info)
    for i in seqs:
        t = EPOCH + i * 1000
        r.mark(f"receive src=0 dst=1 seq={i} step={i}", t, t + 10)
        r.kernel(t + 1, t + 240, t + 250, stream=13)
        r.mark(f"consume src=0 dst=1 seq={i} step={i}", t + 11, t + 20)
        r.kernel(t + 12, t + 260, t + 300)
    return r


def test_ranks_with_one_pid_and_one_thread_are_two_processes(tmp_path):
    found = exported(analyze(source(), destination()), tmp_path)
    processes = [t.process for t in found.tracks.values() if t.HasField("process")]
    assert sorted((p.pid, p.process_name) for p in processes) == [(1000, "rank 0 (pid 10)"), (1001, "rank 1 (pid 10)")]
    threads = {t.thread.pid: t.thread for t in found.tracks.values() if t.HasField("thread")}
    assert set(threads) == {1000, 1001}
    assert {t.thread_name for t in threads.values()} == {"host:1"}


def test_ranks_of_two_jobs_are_told_apart(tmp_path):
    files = []
    for job, pid in (("prefill", 10), ("decode", 20)):
        r = Recording(job, pid=pid)
        r.mark(f"produce src=0 dst=1 seq=1 job={job} rank=0", EPOCH, EPOCH + 10)
        r.kernel(EPOCH + 1, EPOCH + 20, EPOCH + 30)
        files.append(r)
    found = exported(analyze(*files), tmp_path)
    names = {t.process.process_name for t in found.tracks.values() if t.HasField("process")}
    assert names == {"prefill, rank 0 (pid 10)", "decode, rank 0 (pid 20)"}
    assert len(found.under("decode, rank 0 (pid 20)", "gpu0:stream7")) == 1


def test_ranges_that_cross_stand_side_by_side(tmp_path):
    r = source()
    for start, end in ((0, 60), (40, 90), (50, 55)):
        row = {"kind": "start_end", "thread": 1, "start_ns": EPOCH + 9000 + start, "end_ns": EPOCH + 9000 + end}
        r.rows["ranges"].append({"process": 10, **row, "name": f"r{start}"})
    found = exported(analyze(r, destination()), tmp_path)
    rows = found.events.filter(pl.col("category") == "range")
    track = dict(rows.select("name", "track").iter_rows())
    assert track["r0"] == track["r50"] != track["r40"]
    assert dict(rows.select("name", "depth").iter_rows()) == {"r0": 0, "r40": 0, "r50": 1}
    assert rows.filter(pl.col("name") == "r40")["path"].to_list() == [["rank 0 (pid 10)", "host:1", "host:1"]]


def test_a_range_without_length_begins_before_it_ends(tmp_path):
    r = source()
    for name, start, end in (("outer", 0, 5), ("a", 5, 5), ("b", 5, 5), ("c", 5, 9)):
        row = {"kind": "push_pop", "thread": 1, "start_ns": EPOCH + 9000 + start, "end_ns": EPOCH + 9000 + end}
        r.rows["ranges"].append({"process": 10, **row, "name": name})
    rows = exported(analyze(r, destination()), tmp_path).events.filter(pl.col("category") == "range")
    told = rows.select("name", pl.col("start_ns", "end_ns") - EPOCH - 9000, "depth").sort("name").rows()
    assert told == [("a", 5, 5, 1), ("b", 5, 5, 1), ("c", 5, 9, 0), ("outer", 0, 5, 0)]


def test_what_never_closed_has_a_track_of_its_own_and_no_end(tmp_path):
    r = source()
    r.mark("produce src=0 dst=1 seq=4 step=4", EPOCH + 4000, None)
    r.kernel(EPOCH + 4010, EPOCH + 4050, EPOCH + 4100)
    found = exported(analyze(r, destination()), tmp_path)
    (row,) = found.events.filter(pl.col("end_ns").is_null()).iter_rows(named=True)
    assert row["path"] == ["rank 0 (pid 10)", "host:1", "host:1 (never closed)"]
    assert (row["name"], row["start_ns"]) == ("produce src=0 dst=1 channel=0 seq=4", EPOCH + 4000)
    assert found.events.filter(pl.col("start_ns") == EPOCH + 4010)["end_ns"].item() == EPOCH + 4011


def test_times_below_zero_are_moved_to_begin_at_zero_and_it_says_so(tmp_path):
    both = source(clock="relative").add_process(destination(pid=11)).shift(-EPOCH - 2_000_000)
    a = analyze(both)
    first = a.trace.processes["window_start_ns"].min()
    assert first < 0
    out = tmp_path / "run.pftrace"
    written = write_perfetto(a, out)
    found = read(out)
    assert written.shift_ns == -first
    assert set(found.clocks.values()) == {0}
    assert found.events["start_ns"].min() == 0
    kernels = found.events.filter(pl.col("category") == "kernel")["start_ns"]
    assert sorted(kernels) == sorted(a.trace.ops["start_ns"] - first)
    (about,) = found.under("gapscope")["args"]
    assert about["shown_later_ns"] == -first
    (track,) = [t for t in found.tracks.values() if t.name == "gapscope"]
    assert f"shown {-first} ns later" in track.description


def test_a_clock_without_a_place_is_a_group_of_its_own_and_no_arrow_leads_there(tmp_path):
    a = analyze(source(clock="relative").shift(-EPOCH), destination())
    assert set(a.handoffs["status"]) == {"unaligned"}
    found = exported(a, tmp_path)
    (process,) = [t for t in found.tracks.values() if t.process.process_name.startswith("rank 0")]
    assert process.process.process_name == "rank 0 (pid 10), clock not aligned"
    there, other = found.under(process.process.process_name), found.under("rank 1 (pid 10)")
    assert there["start_ns"].min() == other["start_ns"].min() == EPOCH + 1000
    assert f"shown {EPOCH} ns later" in process.description
    recorded = a.trace.ops.filter(pl.col("rank") == 0)["start_ns"]
    assert sorted(there.filter(pl.col("category") == "kernel")["start_ns"]) == sorted(recorded + EPOCH)
    assert not found.flows()
    assert found.events.filter(pl.col("category") == "handoff").is_empty()
    without = found.under("Handoffs")
    assert set(without["name"]) == {f"0>1/0/{i} (unaligned)" for i in (1, 2, 3)}
    finish = there.filter(pl.col("name") == "producer_finish")
    assert sorted(finish["start_ns"]) == sorted(a.handoffs["producer_finish_ns"] + EPOCH)
    assert {args["recorded_ns"] for args in finish["args"]} == set(a.handoffs["producer_finish_ns"])


def test_two_ranks_on_one_clock_without_a_place_keep_their_gap(tmp_path):
    both = source(clock="relative").add_process(destination(pid=11)).shift(-EPOCH)
    third = Recording("c", pid=12)
    third.mark("step step=1 rank=2", EPOCH + 5, EPOCH + 50)
    a = analyze(both, third)
    assert a.handoffs["gap_ns"].to_list() == [60] * 3
    assert a.timebase.placed.tolist().count(False) == 3
    found = exported(a, tmp_path)
    assert found.under("Handoffs").is_empty()
    gaps = found.under("Handoffs of clocks not aligned").filter(pl.col("category") == "handoff")
    assert gaps["args"][0]["producer_finish_ns"] == 1200
    assert len([f for f in found.flows().values() if len(f) == 4]) == 3
    assert (gaps["end_ns"] - gaps["start_ns"]).to_list() == [60] * 3
    assert found.events["start_ns"].max() - found.events["start_ns"].min() < 10_000


def test_a_handoff_with_events_missing_is_a_moment_and_says_why(tmp_path):
    a = analyze(source(), destination(seqs=(1, 2)))
    found = exported(a, tmp_path)
    row = a.handoffs.filter(pl.col("seq") == 3).row(0, named=True)
    assert row["gap_ns"] is None
    (moment,) = found.under("Handoffs").filter("moment").iter_rows(named=True)
    assert moment["name"] == f"0>1/0/3 ({row['status']})"
    assert moment["start_ns"] == min(row[f"{e}_ns"] for e in EVENTS if row[f"{e}_ns"] is not None)
    assert "consumer_start_ns" not in moment["args"]
    assert moment["args"]["consumer_start_source"] == "missing"


def test_an_event_out_of_order_has_no_arrow(tmp_path):
    d = destination()
    next(o for o in d.rows["ops"] if o["start_ns"] == EPOCH + 2260)["start_ns"] = EPOCH + 2245
    a = analyze(source(), d)
    assert a.handoffs.filter(pl.col("seq") == 2)["order"].item() == "violation"
    flows = exported(a, tmp_path).flows().values()
    chain = {f[0][2] - EPOCH: [name for name, *_ in f] for f in flows if f[0][0] == "producer_finish"}
    whole = ["producer_finish", "movement_start", "available", "consumer_start"]
    assert chain == {1200: whole, 2200: whole[:3], 3200: whole}


def test_gaps_at_the_same_time_stand_side_by_side(tmp_path):
    a, b = source(), destination()
    for row in b.rows["ops"]:
        row["start_ns"] += 1500
        row["end_ns"] += 1500
    found = exported(analyze(a, b), tmp_path)
    gaps = found.under("Handoffs").filter(pl.col("category") == "handoff").sort("start_ns")
    assert (gaps["end_ns"].head(2) > gaps["start_ns"].tail(2)).all()
    tracks = gaps["track"].to_list()
    assert tracks[0] == tracks[2] != tracks[1] or len(set(tracks)) == 3
    assert set(gaps["depth"]) == {0}
    shown = {found.tracks[t].name for t in tracks}
    assert shown == {"0 → 1"}
    assert len({found.tracks[t].sibling_merge_key_int for t in tracks}) == 1


def test_an_end_in_host_memory_is_of_the_process_that_copies(tmp_path):
    r = Recording("a", pid=10)
    key = "src=host:0 dst=1 seq=1 kind=kv rank=1"
    r.mark(f"produce {key}", EPOCH, EPOCH + 10)
    r.kernel(EPOCH + 1, EPOCH + 2, EPOCH + 5)
    r.mark(f"submit {key}", EPOCH + 20, EPOCH + 30)
    r.kernel(EPOCH + 21, EPOCH + 40, EPOCH + 60, stream=13)
    r.mark(f"receive {key}", EPOCH + 31, EPOCH + 33)
    r.kernel(EPOCH + 32, EPOCH + 60, EPOCH + 70, stream=13)
    r.mark(f"consume {key}", EPOCH + 34, EPOCH + 40)
    r.kernel(EPOCH + 35, EPOCH + 80, EPOCH + 90)
    a = analyze(r)
    assert a.handoffs["src_rank"].to_list() == [-1]
    found = exported(a, tmp_path)
    assert [t.process.process_name for t in found.tracks.values() if t.HasField("process")] == ["rank 1 (pid 10)"]
    assert set(found.under("rank 1 (pid 10)", "handoff events")["name"]) == {
        e for e in EVENTS if a.handoffs[f"{e}_ns"].item() is not None
    }
    assert found.under("Handoffs")["path"].to_list()[0] == ["Handoffs", "host:0 → 1"]


# What is wanted -------------------------------------------------------------------------------------------------


def test_a_window_keeps_what_reaches_into_it(tmp_path):
    a = analyze(source(), destination())
    low, high = EPOCH + 2100, EPOCH + 2225
    found = exported(a, tmp_path, window=(low, high))
    kept = found.events.filter(~pl.col("category").is_in(["about", "clock", "handoff", "event", "unit"]))
    kept = kept.filter(pl.col("path").list.first() != "Handoffs")
    everything = place(a.trace, a.timebase).items
    assert kept.height == everything.filter((pl.col("start_ns") <= high) & (pl.col("end_ns") >= low)).height > 0
    assert found.events.filter(pl.col("category") == "handoff")["name"].to_list() == ["0>1/0/2"]
    clocks = found.under("Clocks")
    assert clocks["start_ns"].min() >= EPOCH + 2000


def test_ranks_keep_their_own_records_and_all_their_handoffs(tmp_path):
    found = exported(analyze(source(), destination()), tmp_path, ranks=[1])
    assert set(found.under("rank 0 (pid 10)")["category"]) == {"event"}
    assert {"kernel", "call", "mark"} <= set(found.under("rank 1 (pid 10)")["category"])
    assert found.events.filter(pl.col("category") == "handoff").height == 3


def test_without_calls_all_else_stays(tmp_path):
    a = analyze(source(), destination())
    every, fewer = exported(a, tmp_path), exported(a, tmp_path, calls=False)
    assert (every.events["category"] == "call").sum() == 12
    assert plain(every.events.filter(pl.col("category") != "call"), "name", "start_ns", "end_ns", "flows") == plain(
        fewer.events, "name", "start_ns", "end_ns", "flows"
    )


def test_a_clock_without_a_place_is_left_out_of_a_window_and_named(tmp_path):
    a = analyze(source(clock="relative").shift(-EPOCH), destination())
    written = write_perfetto(a, tmp_path / "run.pftrace", window=(EPOCH + 1000, EPOCH + 2000))
    assert (written.left_out, written.ranks) == ([0], [1])


def test_the_trace_is_compressed_where_the_name_says_so(tmp_path):
    a = analyze(source(), destination())
    write_perfetto(a, tmp_path / "run.pftrace")
    write_perfetto(a, tmp_path / "run.pftrace.gz")
    assert (tmp_path / "run.pftrace.gz").read_bytes()[:2] == b"\x1f\x8b"
    columns = ("name", "start_ns", "end_ns", "track")
    one, two = (read(tmp_path / name).events for name in ("run.pftrace", "run.pftrace.gz"))
    assert one.select(columns).equals(two.select(columns))


def test_more_handoffs_than_polars_takes_at_once_are_all_there(tmp_path):
    a = analyze(source(), destination())
    many = pl.concat([a.handoffs.filter(pl.col("seq") == 1)] * 20_000)
    many = many.with_columns(seq=pl.int_range(pl.len(), dtype=pl.Int64))
    written = write_perfetto(replace(a, handoffs=many), tmp_path / "run.pftrace.gz")
    assert written.handoffs == 20_000


def test_an_unknown_rank_is_said_and_how_to_give_it(tmp_path):
    alone = Recording("a", pid=10)
    alone.kernel(EPOCH, EPOCH + 10, EPOCH + 20)
    for ranks in (None, [0]):
        with pytest.raises(UsageError, match=r"which rank .* --rank-of 10=RANK"):
            write_perfetto(analyze(alone), tmp_path / "x", ranks=ranks)


def test_ranks_that_are_not_there_are_said_with_those_that_are(tmp_path):
    with pytest.raises(UsageError, match=r"of rank 8, 9\. There are ranks 0, 1\."):
        write_perfetto(analyze(source(), destination()), tmp_path / "x", ranks=[9, 1, 8])


def test_nothing_in_the_window_is_said(tmp_path):
    with pytest.raises(UsageError, match="Nothing is left"):
        write_perfetto(analyze(source(), destination()), tmp_path / "x", window=(EPOCH + 10**9, None))


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_perfetto(analyze(source(), destination()), tmp_path / "none" / "x.pftrace")

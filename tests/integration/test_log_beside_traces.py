"""Mark logs beside traces: what the log adds, what a trace without marks takes from it, and what the log tells alone.

One built run is recorded in every way: with marks in text form, in compact form, not at all, and by the log.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from gapscope_instrumentation.contract import SEQ_MODULUS

import gapscope
from gapscope.clocks import align
from gapscope.errors import IdentityError
from gapscope.load import LoadOptions, assemble, load
from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import no_progress
from gapscope.testing import Recording
from tests.integration.test_gloo_under_nsys import nvtx_for
from tests.reference.runs import recording_path
from tests.unit.log_files import EPOCH_NS, ZERO_NS, LogFile, as_text, compact, define

JOB = Path(__file__).with_name("logged_pipeline.py")
REAL_STEPS = 40
PIDS = (10, 11)
STEPS = range(6)
PERIOD_NS = 1_000_000
GPU_COLUMNS = ("producer_finish", "movement_start", "available", "consumer_start")


def run_marks(first_seq=0):
    """All marks of the run: rank, mark, start, end, fields."""
    for k in STEPS:
        at = k * PERIOD_NS
        said = {"step": k, "mb": 3, "bytes": 4096, "dir": "fwd", "src_stage": 1, "dst_stage": 2, "kind": "pp"}
        said |= {"transport": "mailbox", "name": "act"}
        key = {"src": 0, "dst": 1, "channel": 2, "seq": first_seq + k}
        whole = {"group": "tp0", "seq": first_seq + k, **said}
        yield 0, "step", at, at + 900_000, {"step": k}
        yield 0, "produce", at + 10_000, at + 50_000, key | said
        yield 0, "submit", at + 60_000, at + 90_000, key | said
        yield 1, "receive", at + 65_000, at + 100_000, key | said
        yield 1, "consume", at + 110_000, at + 150_000, key | said
        for rank in (0, 1):
            yield rank, "submit", at + 200_000 + 9_000 * rank, at + 230_000, whole
            yield rank, "consume", at + 240_000, at + 260_000, whole


def kernels(rank, at):
    """Call, start and end of the run's operations in one step."""
    if rank == 0:
        return [
            (20_000, 30_000, 80_000),
            (70_000, 85_000, 95_000),
            (210_000, 212_000, 236_000),
            (250_000, 252_000, 260_000),
        ]
    return [
        (70_000, 80_000, 105_000),
        (120_000, 121_000, 160_000),
        (210_000, 221_000, 237_000),
        (250_000, 252_000, 259_000),
    ]


def traced(form, first_seq=0, **info):
    """Return one recording of both ranks, its marks in one form (None: it has none)."""
    stated = {"host": "a", "epoch_ns": EPOCH_NS, "system_clock_ns": ZERO_NS}
    recordings = [Recording("run.nsys-rep", pid=pid, **(stated | info)) for pid in PIDS]
    for rank, mark, start, end, fields in run_marks(first_seq):
        if form == "text":
            stated_rank = {"rank": rank} if "src" not in fields else {}
            recordings[rank].mark(as_text(mark, **fields, **stated_rank), start, end, kind="start_end")
        elif form == "compact":
            compact(recordings[rank], mark, start, end, **fields)
    for rank, recording in enumerate(recordings):
        for k in STEPS:
            for call, start, end in kernels(rank, k * PERIOD_NS):
                at = k * PERIOD_NS
                recording.kernel(at + call, at + start, at + end)
        recording.shift(EPOCH_NS)
    return recordings[0].add_process(recordings[1]).tables()


def logged(tmp_path, first_seq=0, ranks=(0, 1), shift_ns=0, **about):
    """Write the logs of the run and return them, read."""
    files = []
    for rank in ranks:
        log = LogFile(**({"rank": rank, "pid": PIDS[rank]} | about))
        for of_rank, mark, start, end, fields in run_marks(first_seq):
            if of_rank == rank:
                log.mark(mark, start + shift_ns, end + shift_ns, **fields)
        path = log.write(tmp_path / f"rank{rank}.gslog")
        files.append(find_reader(path).read(path, ReadOptions(), no_progress))
    return files


def without(table, *columns):
    return table.drop(*columns).sort("handoff_id")


# Form by form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_seq", [0, 2 * SEQ_MODULUS + 7])
def test_all_forms_of_the_marks_give_the_same_handoffs(tmp_path, first_seq):
    logs = logged(tmp_path, first_seq)
    text = gapscope.analyze(assemble([traced("text", first_seq)])).handoffs
    both = gapscope.analyze(assemble([traced("compact", first_seq), *logs])).handoffs
    adopted = gapscope.analyze(assemble([traced(None), *logs])).handoffs
    alone = gapscope.analyze(assemble(logs)).handoffs
    assert text.height == 2 * len(STEPS)
    assert text.filter(pl.col("group").is_null())["seq"].to_list() == [first_seq + k for k in STEPS]
    assert set(text.filter(pl.col("group").is_null())["status"]) == {"complete"}
    assert both.sort("handoff_id").equals(text.sort("handoff_id"))
    assert adopted.sort("handoff_id").equals(text.sort("handoff_id"))
    on_gpu = [f"{event}{end}" for event in GPU_COLUMNS for end in ("_ns", "_source")]
    on_gpu += [c for c in text.columns if "uncertainty" in c]
    on_gpu += [
        "gap_ns",
        "status",
        "order",
        "arrival_ns",
        "transfer_ns",
        "shortest_rank",
        "dominant_cause",
        "dominant_ns",
    ]
    on_gpu += ["removable_ns", "next_cause", "consumer_bound", "slack_ns", "steady"]
    assert without(alone, *on_gpu).equals(without(text, *on_gpu))
    assert [alone[f"{event}_ns"].null_count() for event in GPU_COLUMNS] == [alone.height] * 4


def test_compact_marks_alone_have_the_times_and_not_the_fields(tmp_path):
    text = gapscope.analyze(assemble([traced("text")])).handoffs
    names = traced("compact")
    handoffs = gapscope.analyze(assemble([names], rank_of={10: 0, 11: 1})).handoffs
    pairs, wanted = (t.filter(pl.col("group").is_null()) for t in (handoffs, text))
    times = ["src_rank", "dst_rank", "channel", "seq", *(c for c in text.columns if c.endswith("_ns"))]
    times = [c for c in times if c not in ("removable_ns", "slack_ns")]
    assert pairs.select(times).equals(wanted.select(times))
    for column in ("step", "microbatch", "direction", "src_stage", "dst_stage", "size_bytes"):
        assert pairs[column].null_count() == pairs.height
    assert handoffs["group"].drop_nulls().unique().to_list() != ["tp0"]


def test_definitions_name_groups_and_ranks():
    recording = Recording("run.nsys-rep", pid=10, host="a")
    define(recording, "process rank=4 host=a pid=10 gpu=GPU-1 contract=2")
    define(recording, f"group group=tp0 number={compact_number('tp0')} rank=4")
    compact(recording, "submit", 10, 20, group="tp0", seq=1)
    compact(recording, "step", 5, 30, step=8)
    trace = assemble([recording.tables()])
    assert trace.processes.select("rank", "rank_source", "n_marks").rows() == [(4, "mark", 2)]
    assert trace.marks.select("mark", "rank", "group", "seq", "step").rows() == [
        ("step", 4, None, None, 8),
        ("submit", 4, "tp0", 1, None),
    ]
    assert trace.findings == []


def compact_number(name):
    from gapscope_instrumentation.handoff import group_number

    return group_number(name)


def test_a_definition_of_one_rank_names_the_group_on_all():
    one, two = Recording("r0", pid=1, host="a"), Recording("r1", pid=2, host="b")
    define(one, f"group group=tp0 number={compact_number('tp0')} rank=0")
    define(two, "process rank=1")
    compact(one, "submit", 10, 20, group="tp0", seq=1)
    compact(two, "submit", 11, 20, group="tp0", seq=1)
    assert assemble([one.tables(), two.tables()]).marks["group"].to_list() == ["tp0", "tp0"]


def test_a_number_of_two_groups_stays_a_number_and_is_told():
    recording = Recording("run", pid=1)
    define(recording, "group group=tp0 number=17 rank=0")
    define(recording, "group group=tp1 number=17 rank=0")
    compact(recording, "submit", 10, 20, group="17", seq=1)
    trace = assemble([recording.tables()])
    assert trace.marks["group"].to_list() == ["17"]
    (finding,) = trace.findings
    assert (finding.code, "tp0, tp1" in finding.message) == ("group_number_shared", True)


def test_host_memory_in_compact_form():
    recording = Recording("run", pid=1)
    compact(recording, "submit", 10, 20, src=0, dst=-3, seq=1)
    assert assemble([recording.tables()]).marks.select("src", "dst").rows() == [(0, -3)]


# Requests ---------------------------------------------------------------------------------------------------------


def requested(tmp_path, with_log):
    recording, log = Recording("run", pid=10, host="a"), LogFile(rank=0)
    define(recording, "process rank=0 host=a pid=10")
    for number, name in enumerate(("r-b", "r-a")):
        compact(recording, "request", 100 + number, 500 + number, seq=number)
        log.text_mark(f"request seq={number} id={name}", 101 + number, 499 + number)
    recording.kernel(110, 120, 130)
    path = log.write(tmp_path / "rank0.gslog")
    logs = [find_reader(path).read(path, ReadOptions(), no_progress)] if with_log else []
    return gapscope.analyze(assemble([recording.shift(EPOCH_NS).tables(), *logs]))


def test_a_request_in_compact_form_has_its_id_from_the_log(tmp_path):
    analysis = requested(tmp_path, with_log=True)
    wanted = [("request", "r-b", EPOCH_NS + 100, EPOCH_NS + 500), ("request", "r-a", EPOCH_NS + 101, EPOCH_NS + 501)]
    assert analysis.units.select("unit", "id", "start_ns", "end_ns").rows() == wanted


def test_without_a_log_it_has_none_and_that_is_told(tmp_path):
    analysis = requested(tmp_path, with_log=False)
    assert analysis.units.height == 0
    assert {f.code: f.count for f in analysis.findings}["request_ids_unknown"] == 2


# Adopted marks ----------------------------------------------------------------------------------------------------


def adopted_finding(trace):
    return [f for f in trace.findings if f.code == "log_marks_adopted"]


def test_adopted_marks_say_how_well_they_are_placed(tmp_path):
    found = adopted_finding(assemble([traced(None), *logged(tmp_path)]))
    assert [(f.level, f.rank, f.count) for f in found] == [("info", 0, 30), ("info", 1, 24)]
    assert "readings of the host's monotonic clock, good to 1,000 ns (evidence: declared)" in found[0].message
    found = adopted_finding(assemble([traced(None, system_clock_ns=None), *logged(tmp_path)]))
    assert [f.level for f in found] == ["warning", "warning"]
    assert "absolute times, good to 50,050 ns (evidence: declared)" in found[0].message


def test_a_trace_without_absolute_time_adopts_by_the_monotonic_clock(tmp_path):
    trace = traced(None, clock="relative", epoch_ns=None)
    # Its times count from the trace's own zero: what stands in the tables as EPOCH_NS + t is t there.
    tables = {
        n: f.with_columns(pl.col("start_ns", "end_ns") - EPOCH_NS)
        for n, f in trace.tables.items()
        if n in ("ops", "calls")
    }
    trace = replace(trace, tables={**trace.tables, **tables})
    handoffs = gapscope.analyze(assemble([trace, *logged(tmp_path)])).handoffs
    text = gapscope.analyze(assemble([traced("text")])).handoffs
    # Where the device clocks stand depends on what else is known; what lies on one of them does not.
    for one, two in (("producer_finish", "movement_start"), ("available", "consumer_start")):
        spans = [t.sort("handoff_id").select(pl.col(f"{two}_ns") - pl.col(f"{one}_ns")) for t in (handoffs, text)]
        assert spans[0].equals(spans[1])
        assert spans[0][f"{two}_ns"].count() >= len(STEPS)


def test_marks_of_other_threads_are_not_adopted(tmp_path):
    logs = []
    for rank in (0, 1):
        log = LogFile(rank=rank, pid=PIDS[rank])
        for of_rank, mark, start, end, fields in run_marks():
            if of_rank == rank:
                log.mark(mark, start, end, thread=999, **fields)
        path = log.write(tmp_path / f"rank{rank}.gslog")
        logs.append(find_reader(path).read(path, ReadOptions(), no_progress))
    trace = assemble([traced(None), *logs])
    found = [f for f in trace.findings if f.code == "log_marks_not_adopted"]
    assert [f.rank for f in found] == [0, 1]
    assert "none of the threads" in found[0].message


def test_marks_before_the_trace_began_are_left_out_and_told(tmp_path):
    log = LogFile(rank=0, pid=10)
    for k in range(-4, len(STEPS)):
        log.mark(
            "submit", 10_000_000 + k * PERIOD_NS + 60_000, 10_000_000 + k * PERIOD_NS + 90_000, src=0, dst=1, seq=4 + k
        )
    path = log.write(tmp_path / "rank0.gslog")
    logs = [find_reader(path).read(path, ReadOptions(), no_progress)]
    recording = Recording("run", pid=10, host="a")
    for k in STEPS:
        compact(
            recording,
            "submit",
            10_000_000 + k * PERIOD_NS + 60_000,
            10_000_000 + k * PERIOD_NS + 90_000,
            src=0,
            dst=1,
            seq=4 + k,
        )
    trace = assemble([recording.shift(EPOCH_NS).tables(), *logs])
    assert {f.code: f.count for f in trace.findings}["log_marks_outside"] == 4
    assert trace.processes.filter("primary")["tool"].to_list() == ["nsys"]


# Who is who -------------------------------------------------------------------------------------------------------


def test_a_report_without_ranks_takes_them_from_the_logs(tmp_path):
    trace = assemble([traced(None), *logged(tmp_path)])
    nsys = trace.processes.filter(pl.col("tool") == "nsys")
    assert nsys.select("pid", "rank", "rank_source").rows() == [(10, 0, "log"), (11, 1, "log")]


@pytest.mark.parametrize("other", [{"host": "z"}, {"pid": 77}])
def test_a_log_of_another_host_or_pid_tells_no_rank(tmp_path, other):
    trace = assemble([traced(None), *logged(tmp_path, ranks=(0,), **other)])
    assert trace.processes.filter(pl.col("tool") == "nsys")["rank"].to_list() == [None, None]


def test_a_log_at_another_time_tells_no_rank(tmp_path):
    trace = assemble([traced(None), *logged(tmp_path, ranks=(0,), shift_ns=10**12)])
    assert trace.processes.filter(pl.col("tool") == "nsys")["rank"].to_list() == [None, None]


def test_a_log_that_contradicts_the_file_name_is_an_error(tmp_path):
    recording = Recording("rank5.nsys-rep", pid=10, host="a")
    recording.kernel(10_000, 20_000, 30_000)
    with pytest.raises(IdentityError, match="process 10 is rank 0 by its mark log and rank 5 by the file name"):
        assemble([recording.shift(EPOCH_NS).tables(), *logged(tmp_path, ranks=(0,))])


def torch_files():
    out = []
    for rank in (0, 1):
        recording = Recording(f"rank{rank}.json", pid=PIDS[rank], tool="torch", epoch_ns=EPOCH_NS)
        for of_rank, mark, start, end, fields in run_marks():
            if of_rank == rank and "src" in fields:
                recording.mark(as_text(mark, **fields), start - 300, end + 200, kind="annotation")
        out.append(recording.shift(EPOCH_NS).tables())
    return out


def test_torch_files_whose_logs_name_one_host_are_of_one_host(tmp_path):
    alone = gapscope.analyze(assemble(torch_files()))
    trace = assemble([*torch_files(), *logged(tmp_path)])
    analysis = gapscope.analyze(trace)
    assert trace.sources["host"].to_list() == ["a"] * 4
    assert [f.code for f in trace.findings].count("host_from_log") == 2

    def bounds(found):
        rows = found.alignment.filter((pl.col("path") == "rank1.json") & (pl.col("domain") == "host"))
        rows = rows.filter(pl.col("reference") == "rank0.json:host")
        return rows.select(pl.col("lo_ns").min(), pl.col("hi_ns").max()).row(0)

    assert None in bounds(alone)
    # Each annotation lies around the log's mark: 300 ns before its start, 200 ns behind its end.
    # That bounds both files against each other to 500 ns, and what their clocks may part by between two marks.
    low, high = bounds(analysis)
    assert -1_000 < low <= -500
    assert 500 <= high < 1_000


def test_logs_of_two_boots_keep_torch_files_apart(tmp_path):
    logs = [logged(tmp_path, ranks=(rank,), boot_id=f"boot{rank}")[0] for rank in (0, 1)]
    trace = assemble([*torch_files(), *logs])
    assert trace.sources["boot_id"].to_list() == ["boot0", "boot1"] * 2
    assumed = align(trace).solution.problem.assumptions
    hosts = align(trace).domains.table["rank"].to_list()
    assert {(hosts[a.upper], hosts[a.lower]) for a in assumed} == {(0, 0), (1, 1)}


def test_the_log_lies_inside_the_annotation(tmp_path):
    """Bounds from nesting alone: the torch file's claim is off by more than the annotation leaves room for."""
    recording = Recording("rank0.json", pid=10, tool="torch")
    for of_rank, mark, start, end, fields in run_marks():
        if of_rank == 0 and "src" in fields:
            recording.mark(as_text(mark, **fields), start - 300, end + 200, kind="annotation")
    trace = assemble([recording.shift(EPOCH_NS + 450).tables(), *logged(tmp_path, ranks=(0,))])
    alignment = align(trace)
    rows = alignment.table.filter(pl.col("path").str.ends_with(".gslog"))
    assert set(rows["method"]) == {f"{4 * len(STEPS)} nested"}
    # By starts and ends of the marks the log's clock is early by 150 to 650 ns, and what the clocks may part by in
    # between;
    # by what both files claim by 550 ns at most.
    low, high = rows.select(pl.col("lo_ns").min(), pl.col("hi_ns").max()).row(0)
    assert 0 < low <= 150
    assert high == 550


# The log alone ----------------------------------------------------------------------------------------------------


def pipeline(tmp_path, device=None, timed=False):
    said = {} if device is None else {"device": device}
    logs = [LogFile(rank=rank, pid=PIDS[rank], gpu={"device": 2}) for rank in (0, 1)]
    for k in STEPS:
        at, key = k * PERIOD_NS, {"src": 0, "dst": 1, "seq": k, "step": k, **said}
        logs[0].mark("produce", at + 10, at + 50, **key)
        logs[0].mark("submit", at + 60, at + 90, **key)
        logs[1].mark("receive", at + 65, at + 100, **key)
        logs[1].mark("consume", at + 110, at + 150, **key)
        if timed:
            logs[0].device_time("producer_finish", at + 5_000, 700, **key)
            logs[1].device_time("available", at + 9_000, 650, **key)
            logs[1].device_time("available", at + 9_500, 640, **key)
            logs[1].device_time("consumer_start", at + 9_900, 600, **key)
    for rank, log in enumerate(logs):
        log.note("cost", brackets=40 + rank, begin_ns=20, end_ns=11)
        log.write(tmp_path / f"rank{rank}.gslog")
    return gapscope.analyze(load(tmp_path, LoadOptions(use_cache=False)))


def test_a_job_on_the_host_has_whole_handoffs_by_its_log(tmp_path):
    handoffs = pipeline(tmp_path, device="cpu").handoffs
    assert set(handoffs["status"]) == {"complete"}
    times = ["producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start"]
    for k, row in enumerate(handoffs.iter_rows(named=True)):
        at = EPOCH_NS + k * PERIOD_NS
        assert [row[f"{t}_ns"] - at for t in times] == [50, 60, 65, 60, 100, 110]
        assert {row[f"{t}_source"] for t in times} == {"emitted"}
        assert (row["gap_ns"], row["order"]) == (60, "ok")


def test_on_the_host_a_consumer_starts_when_the_receive_nested_in_it_has_ended(tmp_path):
    log, key = LogFile(rank=1, pid=11), {"src": 0, "dst": 1, "device": "cpu"}
    log.mark("consume", 100, 500, seq=1, **key)
    log.mark("receive", 110, 120, seq=1, **key)
    log.mark("receive", 150, 200, seq=1, **key)
    log.mark("consume", 600, 900, seq=2, **key)
    log.mark("receive", 550, 650, seq=2, **key)
    analysis = gapscope.analyze(load(log.write(tmp_path / "rank1.gslog"), LoadOptions(use_cache=False)))
    times = analysis.handoffs.sort("seq").select("available_ns", "consumer_start_ns").rows()
    assert times == [(EPOCH_NS + 200, EPOCH_NS + 200), (EPOCH_NS + 650, EPOCH_NS + 600)]


def test_a_job_on_the_gpu_has_host_times_and_is_told_what_is_missing(tmp_path):
    analysis = pipeline(tmp_path)
    handoffs = analysis.handoffs
    assert set(handoffs["status"]) == {"incomplete"}
    for k, row in enumerate(handoffs.iter_rows(named=True)):
        at = EPOCH_NS + k * PERIOD_NS
        assert (row["submit_ns"] - at, row["receive_post_ns"] - at) == (60, 65)
        assert [row[f"{event}_ns"] for event in GPU_COLUMNS] == [None] * 4
        assert {row[f"{event}_source"] for event in GPU_COLUMNS} == {"missing"}
    found = [f for f in analysis.findings if f.code == "missing_gpu_times"]
    assert [(f.rank, f.count) for f in found] == [(0, len(STEPS)), (1, len(STEPS))]
    assert "profiler" in found[0].hint
    assert "device_times=True" in found[0].hint


def test_times_of_the_device_make_handoffs_whole(tmp_path):
    analysis = pipeline(tmp_path, timed=True)
    for k, row in enumerate(analysis.handoffs.iter_rows(named=True)):
        at = EPOCH_NS + k * PERIOD_NS
        times = ["producer_finish", "submit", "receive_post", "available", "consumer_start"]
        assert [row[f"{t}_ns"] - at for t in times] == [5_000, 60, 65, 9_500, 9_900]
        sources = ["recorded", "emitted", "emitted", "recorded", "estimated"]
        assert [row[f"{t}_source"] for t in times] == sources
        assert (row["movement_start_ns"], row["movement_start_source"]) == (None, "missing")
        assert (row["status"], row["order"], row["gap_ns"]) == ("complete", "ok", 4_900)
        # 700 and 650 ns of the two devices, and the resolution of each: 32 ns of a GPU's timer.
        assert row["gap_uncertainty_ns"] == 700 + 650 + 2 * 32
        assert row["consumer_wait_uncertainty_ns"] == 0
    assert analysis.summary["handoffs"]["counted"] == len(STEPS) - 1
    assert "device_times" in {f.code for f in analysis.findings}
    assert "graph_bounds" not in {f.code for f in analysis.findings}


def test_a_device_time_before_a_nested_receive_is_not_the_consumers(tmp_path):
    log = LogFile(rank=1, pid=11)
    key = {"src": 0, "dst": 1, "seq": 1}
    log.mark("consume", 100, 500, **key)
    log.mark("receive", 150, 200, **key)
    log.device_time("consumer_start", 120, 600, **key)
    log.device_time("available", 900, 600, **key)
    analysis = gapscope.analyze(load(log.write(tmp_path / "rank1.gslog"), LoadOptions(use_cache=False)))
    row = analysis.handoffs.row(0, named=True)
    assert (row["consumer_start_ns"], row["available_ns"]) == (None, EPOCH_NS + 900)
    assert any("before the receive inside consume" in f.message for f in analysis.findings)


def test_recorded_work_stands_before_times_of_the_device(tmp_path):
    log = LogFile(rank=0, pid=10)
    log.mark("produce", 10_000, 50_000, src=0, dst=1, seq=0)
    log.device_time("producer_finish", 81_000, 600, src=0, dst=1, seq=0)
    path = log.write(tmp_path / "rank0.gslog")
    logs = [find_reader(path).read(path, ReadOptions(), no_progress)]
    for form in ("compact", None):
        recording = Recording("run", pid=10, host="a", epoch_ns=EPOCH_NS, system_clock_ns=ZERO_NS)
        if form == "compact":
            compact(recording, "produce", 10_000, 50_000, src=0, dst=1, seq=0)
        recording.kernel(20_000, 30_000, 80_000)
        row = gapscope.analyze(assemble([recording.shift(EPOCH_NS).tables(), *logs])).handoffs.row(0, named=True)
        assert (row["producer_finish_ns"], row["producer_finish_source"]) == (EPOCH_NS + 80_000, "derived")


def test_a_point_of_the_host_gives_way_to_the_time_that_it_asked_for(tmp_path):
    log = LogFile(rank=0, pid=10)
    log.mark("producer_finish", 100, 100, src=0, dst=1, seq=0)
    log.device_time("producer_finish", 900, 600, src=0, dst=1, seq=0)
    row = gapscope.analyze(load(log.write(tmp_path / "rank0.gslog"), LoadOptions(use_cache=False))).handoffs.row(
        0, named=True
    )
    assert (row["producer_finish_ns"], row["producer_finish_source"]) == (EPOCH_NS + 900, "recorded")
    assert row["status"] != "ambiguous"


# What marks cost --------------------------------------------------------------------------------------------------


def test_the_report_shows_what_the_marks_cost(tmp_path):
    analysis = pipeline(tmp_path, device="cpu")
    rows = analysis.summary["marks_cost"]
    same = {"job": None, "begin_ns": 20, "end_ns": 11, "bracket_ns": 31, "per_handoff": 2.0, "handoff_ns": 62}
    assert rows == [{"rank": rank, "brackets": 40 + rank, "gap_p50_ns": 60, **same} for rank in (0, 1)]
    assert "Marks cost 31 ns a bracket on rank 0 (median of 40 timed), about 62 ns of each handoff" in text_of(analysis)
    found = [f for f in analysis.findings if f.code == "marks_cost"]
    assert [(f.level, f.rank) for f in found] == [("warning", 0), ("warning", 1)]
    assert "62 ns of host time per handoff" in found[0].message
    assert "103% of its median gap of 60 ns" in found[0].message


def test_marks_that_cost_little_are_no_warning(tmp_path):
    analysis = pipeline(tmp_path, timed=True)
    assert [row["handoff_ns"] for row in analysis.summary["marks_cost"]] == [62, 62]
    assert "marks_cost" not in {f.code for f in analysis.findings}


def test_without_a_log_nothing_is_said_of_the_cost():
    analysis = gapscope.analyze(assemble([traced("text")]))
    assert analysis.summary["marks_cost"] == []
    assert "Marks cost" not in text_of(analysis)


def text_of(analysis):
    import io

    from rich.console import Console

    from gapscope.reports.text import render_text

    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(render_text(analysis.summary, analysis.findings))
    return console.export_text()


# A real job -------------------------------------------------------------------------------------------------------


def run_job(folder, prefix=(), extra_path=()):
    path = os.pathsep.join([*extra_path, os.environ.get("PYTHONPATH", "")])
    command = [*prefix, sys.executable, str(JOB), str(folder / "logs"), str(REAL_STEPS)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr


def assert_whole(analysis):
    handoffs = analysis.handoffs.sort("seq")
    assert handoffs["seq"].to_list() == list(range(REAL_STEPS))
    said = ["channel", "step", "microbatch", "direction", "transport", "size_bytes", "status"]
    assert handoffs.select(said).rows() == [(3, k, k % 2, "fwd", "gloo", 4096, "complete") for k in range(REAL_STEPS)]
    requests = analysis.units.filter(pl.col("unit") == "request").sort("start_ns")
    assert sorted(requests["id"]) == sorted(f"r{k}" for k in range(REAL_STEPS))


def test_a_real_job_by_its_logs_alone(tmp_path):
    run_job(tmp_path)
    assert_whole(gapscope.analyze(tmp_path / "logs", options=LoadOptions(use_cache=False)))


@pytest.mark.nsys
def test_a_real_job_under_nsys_beside_its_logs(tmp_path, nsys):
    report = tmp_path / "run.nsys-rep"
    prefix = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(report)]
    run_job(tmp_path, prefix, nvtx_for(nsys))
    analysis = gapscope.analyze([report, tmp_path / "logs"], options=LoadOptions(use_cache=False, nsys=nsys))
    assert_whole(analysis)
    trace = analysis.trace
    counts = trace.processes.filter(pl.col("n_marks") > 0).group_by("tool", "primary").agg(pl.col("n_marks").sum())
    marks = REAL_STEPS * 2 * 4
    assert sorted(counts.rows()) == [("gapscope", False, marks), ("nsys", True, marks)]
    assert set(trace.marks.join(trace.sources.filter(pl.col("tool") == "nsys"), on="source")["form"]) == {"compact"}
    # The log is opened last and closed first: whatever the two clocks say, its marks are the shorter ones.
    key = ["rank", "mark", "seq", "step"]
    length = pl.col("end_ns") - pl.col("start_ns")
    tool = trace.marks.join(trace.sources.select("source", "tool"), on="source").select(*key, "tool", length=length)
    tool = tool.filter(pl.col("mark") != "step").with_columns(step=None)
    both = [tool.filter(pl.col("tool") == t) for t in ("nsys", "gapscope")]
    lengths = both[0].join(both[1], on=["rank", "mark", "seq"])
    assert lengths.height == REAL_STEPS * 2 * 3
    assert (lengths["length"] >= lengths["length_right"]).all()


# Lab recordings ---------------------------------------------------------------------------------------------------


def stripped_nsys(name, tmp_path):
    """Return a lab recording without its marks, its host named."""
    raw = recording_path(name)
    if raw is None:
        pytest.skip("this recording is not on this machine")
    path = tmp_path / "stripped.sqlite"
    path.write_bytes(gzip.decompress(raw.read_bytes()))
    with sqlite3.connect(path) as database:
        strings = "SELECT id FROM StringIds WHERE value LIKE 'gapscope::%'"
        database.execute(f"DELETE FROM NVTX_EVENTS WHERE text LIKE 'gapscope::%' OR textId IN ({strings})")
    database.close()
    return raw, path


def stripped_torch(name, tmp_path):
    raw = recording_path(name)
    if raw is None:
        pytest.skip("this recording is not on this machine")
    content = json.loads(gzip.decompress(raw.read_bytes()))
    content["traceEvents"] = [e for e in content["traceEvents"] if not str(e.get("name")).startswith("gapscope::")]
    path = tmp_path / raw.name.removesuffix(".gz")
    path.write_text(json.dumps(content))
    return raw, path


def logs_from(trace, tmp_path):
    """Write a log per process from the marks of a trace, all times as they are."""
    paths = []
    for row in trace.processes.filter(pl.col("n_marks") > 0).iter_rows(named=True):
        host = trace.sources["host"][row["source"]] or "a"
        marks = trace.marks.filter((pl.col("source") == row["source"]) & (pl.col("process") == row["process"]))
        log = LogFile(rank=row["rank"], pid=row["pid"], host=host)
        for mark in marks.iter_rows(named=True):
            fields = {
                c: mark[c] for c in ("src", "dst", "channel", "seq", "slot", "step", "mb", "src_stage", "dst_stage")
            }
            words = {c: mark[c] for c in ("kind", "transport", "name", "device") if mark[c]}
            words |= {"dir": mark["dir"]} if mark["dir"] else {}
            end = None if mark["end_ns"] is None else mark["end_ns"] - EPOCH_NS
            log.mark(
                mark["mark"],
                mark["start_ns"] - EPOCH_NS,
                end,
                mark["thread"],
                **fields,
                **words,
                bytes=mark["size_bytes"],
            )
        paths.append(log.write(tmp_path / f"log-{row['pid']}.gslog"))
    return paths


SAME = (
    "status",
    "order",
    "steady",
    "step",
    "microbatch",
    "size_bytes",
    "direction",
    "kind",
    "src_rank",
    "dst_rank",
    "seq",
)
EVENTS = ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start")


def assert_same_handoffs(found, wanted):
    columns = [
        "handoff_id",
        *SAME,
        "transport",
        "gap_ns",
        *(f"{e}_source" for e in EVENTS),
        *(f"{e}_ns" for e in EVENTS),
    ]
    assert wanted.height > 0
    assert found.select(columns).sort("handoff_id").equals(wanted.select(columns).sort("handoff_id"))


@pytest.mark.parametrize("name", ["mailbox_none_nsys", "mailbox_late_launch_nsys", "two-gpus/mailbox_late_submit_nsys",
                                  "two-gpus/nccl_none_nsys"])  # fmt: skip
def test_a_report_stripped_of_its_marks_gives_the_same_handoffs_with_a_log(tmp_path, name):
    raw, path = stripped_nsys(f"{name}.sqlite.gz", tmp_path)
    options = LoadOptions(use_cache=False)
    original = load(raw, options)
    trace = load([path, *logs_from(original, tmp_path)], options)
    assert trace.sources["tool"].to_list().count("gapscope") == 2
    assert {f.code for f in trace.findings} >= {"log_marks_adopted"}
    assert_same_handoffs(gapscope.analyze(trace).handoffs, gapscope.analyze(original).handoffs)


@pytest.mark.parametrize("name", ["mailbox_none_torch", "two-gpus/nccl_none_torch"])
def test_torch_files_stripped_of_their_marks_give_the_same_handoffs_with_logs(tmp_path, name):
    pairs = [stripped_torch(f"{name}_rank{rank}.json.gz", tmp_path) for rank in (0, 1)]
    options = LoadOptions(use_cache=False)
    original = load([raw for raw, _ in pairs], options)
    trace = load([*(path for _, path in pairs), *logs_from(original, tmp_path)], options)
    assert {f.code for f in trace.findings} >= {"log_marks_adopted"}
    found, wanted = gapscope.analyze(trace).handoffs, gapscope.analyze(original).handoffs
    marks = [c for c in wanted.columns if c in ("handoff_id", "seq", "step", "size_bytes", "src_rank", "dst_rank")]
    assert found.select(marks).sort("handoff_id").equals(wanted.select(marks).sort("handoff_id"))
    # Each rank's own intervals, whatever is now known about the two clocks.
    for one, two in (("producer_finish", "submit"), ("submit", "movement_start"), ("available", "consumer_start")):
        spans = [t.sort("handoff_id").select(pl.col(f"{two}_ns") - pl.col(f"{one}_ns")) for t in (found, wanted)]
        assert spans[0].equals(spans[1])

"""The reader of torch.profiler files on built traces with exact numbers: one test for each way a file can be odd."""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.errors import InputError, MalformedTraceError
from gapscope.readers.base import ReadOptions, no_progress
from gapscope.readers.kineto import KINETO
from gapscope.readers.kineto_fields import ARGS, CATEGORIES
from gapscope.schema import READER_TABLES, reader_dtypes

CATEGORIES_READ = [name for name, action, _ in CATEGORIES if action >= 0]

BASE = 1_790_857_026_000_000_000


class Source:
    """A file as read, with its tables as lists of dictionaries."""

    def __init__(self, path, progress=no_progress):
        read = KINETO.read(path, ReadOptions(), progress)
        self.info = read.info
        self.findings = {finding.code: finding for finding in read.findings}
        self.frames = {name: frame.collect() for name, frame in read.tables.items()}

    def __getitem__(self, table):
        return self.frames[table].to_dicts()

    def column(self, table, name):
        return self.frames[table][name].to_list()


def x(cat, ts, dur, name="n", pid=1, tid=1, **args):
    """A complete event."""
    args = {key.replace("_", " ") if key in ("External_id", "Group_size") else key: v for key, v in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts, dur, correlation=1, stream=7, name="k", pid=0, **args):
    return x("kernel", ts, dur, name, pid, stream, device=0, context=1, stream=stream, correlation=correlation, **args)


def call(ts, dur, correlation=1, name="cudaLaunchKernel", pid=1, tid=1):
    return x("cuda_runtime", ts, dur, name, pid, tid, cbid=211, correlation=correlation)


def meta(name, pid, tid, value):
    return {"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": value}}


@pytest.fixture
def write(tmp_path):
    def write(events, **outer):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE, **outer, "traceEvents": events}))
        return path

    return write


@pytest.fixture
def read(write):
    return lambda events, **outer: Source(write(events, **outer))


@pytest.fixture
def raw(tmp_path):
    def raw(content):
        path = tmp_path / "trace.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Source(path)

    return raw


# ---- recognizing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b'{"traceEvents": [',
        b'\xef\xbb\xbf \n {\n  "schemaVersion": 1,\n "traceEvents"\n : [',
        b'{"schemaVersion": 1, "deviceProperties": [' + b'{"id": 0},' * 9000,
        b'{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "pg_config": [' + b"1, " * 30000,
        b'{"baseTimeNanoseconds": 1790857026000000000, "x": "' + b"y" * 70000,
        b'[{"ph": "X", "name": "a"}',
        b'\n[\n  {"name": "aten::mm", "cat": "Operator", "ph": "X", "ts": 1}',
    ],
)
def test_takes_what_torch_writes(head):
    assert KINETO.sniff(Path("x"), head[:65536])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x1f\x8b",
        b"{}",
        b"[]",
        b"[1, 2]",
        b'[{"name": "a"}, {"x": {"ph": "X"}}]',
        b'{"name": "left-pad", "version": "1.0.0", "scripts": {"test": "x"}}',
        b'{"metadata": {"total_size": 1}, "weight_map": {"a": "model-00001.safetensors"}}',
        b'{"nbformat": 4, "cells": [], "metadata": {}}',
        b'{"schema_version": 1, "findings": []}',
        b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}',
        b"SQLite format 3\0",
        b'text {"traceEvents": [',
    ],
)
def test_leaves_what_is_something_else(head):
    assert not KINETO.sniff(Path("x"), head)


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_reads_packed_files_by_content(raw, packed):
    source = raw(packed(json.dumps({"traceEvents": [kernel(1, 2)], "baseTimeNanoseconds": BASE}).encode()))
    assert source.column("ops", "start_ns") == [BASE + 1000]
    assert source.findings == {}


def test_is_ready_for_the_registry():
    assert (KINETO.name, KINETO.version) == ("torch.profiler JSON", 4)


# ---- operations ------------------------------------------------------------------------------------------------------


def test_operations_keep_their_numbers(read):
    events = [
        call(1, 1),
        kernel(10.001, 2.5, name="void k<int>()", **{"graph node id": 12884901890}),
        kernel(13, 1, correlation=2, **{"graph node id": 0, "grid": [1, 2, 3]}),
        x(
            "gpu_memcpy",
            20,
            3,
            "Memcpy HtoD (Pinned -> Device)",
            0,
            13,
            device=0,
            context=1,
            stream=13,
            correlation=3,
            bytes=24576,
        ),
        x("gpu_memset", 30, 1, "Memset (Device)", 0, 7, device=0, context=1, stream=7, correlation=4, bytes=512),
    ]
    common = {"process": 1, "device": 0, "context": 1, "size_bytes": None, "copy_kind": None, "graph_node": None}
    common |= {"from_device": None, "to_device": None}
    assert read(events)["ops"] == [
        common
        | {"stream": 7, "start_ns": BASE + 10_001, "end_ns": BASE + 12_501, "correlation": 1, "kind": "kernel"}
        | {"name": "void k<int>()", "graph_node": 12884901890},
        common
        | {
            "stream": 7,
            "start_ns": BASE + 13_000,
            "end_ns": BASE + 14_000,
            "correlation": 2,
            "kind": "kernel",
            "name": "k",
        },
        common
        | {"stream": 13, "start_ns": BASE + 20_000, "end_ns": BASE + 23_000, "correlation": 3, "kind": "memcpy"}
        | {"name": "Memcpy HtoD (Pinned -> Device)", "size_bytes": 24576, "copy_kind": "HtoD"},
        common
        | {"stream": 7, "start_ns": BASE + 30_000, "end_ns": BASE + 31_000, "correlation": 4, "kind": "memset"}
        | {"name": "Memset (Device)", "size_bytes": 512},
    ]


@pytest.mark.parametrize(
    ("name", "args", "direction"),
    [
        ("Memcpy DtoH (Device -> Pinned)", {}, "DtoH"),
        ("Memcpy PtoP (Device -> Device)", {}, "PtoP"),
        ("Memcpy DtoD (Device -> Device)", {}, "DtoD"),
        ("CopyHostToDevice", {"kind": "HtoD"}, "HtoD"),
        ("Memcpy", {}, "unknown"),
    ],
)
def test_directions_of_copies(read, name, args, direction):
    source = read([call(0, 1), x("gpu_memcpy", 1, 1, name, 0, 7, **args), kernel(3, 1, kind="Dispatch Kernel")])
    assert source.column("ops", "copy_kind") == [direction, None]


def test_a_copy_between_devices_names_three_devices_and_belongs_to_its_pid(read):
    copy = x("gpu_memcpy", 5, 1, "Memcpy PtoP (Device -> Device)", 1, 14, stream=14, correlation=9, bytes=8)
    copy["args"] |= {"fromDevice": 1, "inDevice": 1, "toDevice": 2, "fromContext": 1}
    (op,) = read([call(1, 1, 9, pid=50), copy])["ops"]
    assert (op["process"], op["device"], op["context"], op["stream"], op["copy_kind"]) == (50, 1, None, 14, "PtoP")


def test_sentinels_are_no_ids(read):
    events = [
        call(1, 1, correlation=-1),
        kernel(1, 1, correlation=4294967295, stream=-1),
        x(
            "cuda_sync",
            2,
            1,
            "Event Sync",
            0,
            -1,
            cuda_sync_kind="Event Sync",
            stream=4294967295,
            correlation=7,
            device=0,
            context=1,
        ),
    ]
    events[2]["args"] |= {"wait_on_stream": -1, "wait_on_cuda_event_id": -1, "wait_on_cuda_event_record_corr_id": -1}
    source = read(events)
    assert (source["ops"][0]["correlation"], source["ops"][0]["stream"]) == (None, None)
    assert source.column("calls", "correlation") == [None]
    (sync,) = source["syncs"]
    assert (sync["stream"], sync["event"], sync["record_correlation"], sync["correlation"]) == (None, None, None, 7)


def test_untimed_operations_stay_without_a_time(read):
    """K06: the driver gave no time; the row stays and nothing stretches to the zero of the clock."""
    events = [call(5, 1), *(kernel(1_000 + k, 0.5, correlation=k) for k in range(1, 28))]
    events += [kernel(0, 0, correlation=k) for k in (28, 29, 30)]
    source = read(events)
    ops = source.frames["ops"]
    assert ops.height == 30
    assert ops["start_ns"].null_count() == ops["end_ns"].null_count() == 3
    assert ops["start_ns"].min() == BASE + 1_001_000
    assert sorted(ops.filter(ops["start_ns"].is_null())["correlation"]) == [28, 29, 30]
    assert source.findings["untimed_ops"].count == 3


def test_untimed_operations_of_an_absolute_file(raw):
    now = 1_700_000_000_000_000
    events = [call(now, 1), kernel(now + 5, 1), kernel(0, 0, 2), kernel(0, 3, 3)]
    source = raw(json.dumps({"traceEvents": events}))
    assert source.column("ops", "start_ns") == [(now + 5) * 1000, None, None]
    assert source.findings["untimed_ops"].count == 2


def test_negative_durations_are_counted_and_not_used(read):
    source = read([call(5, -1), kernel(9, -0.25), x("user_annotation", 3, -2)])
    assert (source["ops"][0]["start_ns"], source["ops"][0]["end_ns"]) == (None, None)
    assert (source["calls"][0]["start_ns"], source["calls"][0]["end_ns"]) == (BASE + 5_000, None)
    assert (source["ranges"][0]["start_ns"], source["ranges"][0]["end_ns"]) == (BASE + 3_000, None)
    assert source.findings["negative_durations"].count == 3
    assert "untimed_ops" not in source.findings


def test_a_missing_duration_is_an_unknown_end(read):
    events = [call(5, 1), kernel(9, 1), x("user_annotation", 3, 1)]
    for event in events:
        del event["dur"]
    source = read(events)
    assert [source[table][0]["end_ns"] for table in ("ops", "calls", "ranges")] == [None, None, None]
    assert source["ops"][0]["start_ns"] is None


def test_an_operation_without_a_name_has_an_empty_one(read):
    event = kernel(1, 1)
    del event["name"]
    assert read([call(0, 1), event]).column("ops", "name") == [""]


# ---- calls and synchronizations --------------------------------------------------------------------------------------


def test_calls_of_all_layers(read):
    events = [
        call(1, 0.5, 5, "cudaLaunchKernel_v7000", tid=77),
        x("cuda_driver", 2, 0.5, "cuLaunchKernelEx", 1, 77, correlation=6),
        x("cuda_runtime", 3, 0.5, "hipExtModuleLaunchKernel", 1, 77, correlation=8, stream="0x0", size="2560"),
        call(4, 0.5, 9, "cudaStreamIsCapturing", tid=78),
    ]
    calls = read(events)["calls"]
    assert [c["name"] for c in calls] == [
        "cudaLaunchKernel_v7000",
        "cuLaunchKernelEx",
        "hipExtModuleLaunchKernel",
        "cudaStreamIsCapturing",
    ]
    assert [c["family"] for c in calls] == ["launch", "launch", "launch", "other"]
    assert [c["thread"] for c in calls] == [77, 77, 77, 78]
    assert [c["correlation"] for c in calls] == [5, 6, 8, 9]
    assert (calls[0]["start_ns"], calls[0]["end_ns"], calls[0]["process"]) == (BASE + 1_000, BASE + 1_500, 1)


def test_synchronizations_are_named_by_their_call_and_records_by_who_waits(read):
    def sync(ts, kind, correlation, stream, **waits):
        names = {
            "on": "wait_on_stream",
            "event": "wait_on_cuda_event_id",
            "record": "wait_on_cuda_event_record_corr_id",
        }
        args = {names[key]: value for key, value in waits.items()}
        tid = stream + 1_000_000 if kind == "Stream Sync" else stream
        return x(
            "cuda_sync",
            ts,
            0.5,
            kind,
            0,
            tid,
            cuda_sync_kind=kind,
            stream=stream,
            correlation=correlation,
            device=0,
            context=1,
            **args,
        )

    events = [
        call(1, 1, 10, "cudaEventRecord"),
        call(2, 1, 11, "cudaStreamWaitEvent"),
        call(3, 1, 12, "cudaEventRecordWithFlags"),
        call(4, 1, 13, "cudaEventQuery"),
        call(5, 1, 14, "cudaStreamSynchronize"),
        sync(2.25, "Stream Wait Event", 11, 24, on=20, event=19, record=10),
        sync(4.25, "Event Sync", 13, -1, on=-1, event=9, record=-1),
        sync(5.25, "Stream Sync", 14, 7),
        sync(6.25, "Context Sync", 15, -1),
        sync(7.25, "Event Sync", 16, -1, on=3, event=9, record=99),
        sync(8.25, "Something New", 17, 7),
    ]
    source = read(events)
    got = {
        row["correlation"]: (row["kind"], row["stream"], row["event"], row["record_correlation"], row["start_ns"])
        for row in source["syncs"]
    }
    assert got == {
        10: ("event_record", 20, 19, None, None),
        11: ("stream_wait", 24, 19, 10, BASE + 2_250),
        12: ("event_record", None, None, None, None),
        13: ("event_query", None, 9, None, BASE + 4_250),
        14: ("stream_sync", 7, None, None, BASE + 5_250),
        15: ("device_sync", None, None, None, BASE + 6_250),
        16: ("event_sync", None, 9, 99, BASE + 7_250),
    }
    assert {row["process"] for row in source["syncs"]} == {1}
    assert [row["device"] for row in source["syncs"] if row["correlation"] in (10, 12)] == [0, None]


def test_recorded_events_take_the_place_of_their_calls(read):
    events = [
        call(1, 1, 10, "cudaEventRecord"),
        call(2, 1, 11, "cudaEventRecord"),
        x("cuda_event", 3, 0.001, "Cuda Event Record", 0, 7, event_id=4, stream=7, correlation=10, device=0, context=1),
        x("cuda_event", 0, 0.001, "Cuda Event Record", 0, 8, event_id=5, stream=8, correlation=11, device=0, context=1),
    ]
    rows = read(events)["syncs"]
    assert [(r["kind"], r["correlation"], r["event"], r["stream"], r["start_ns"]) for r in rows] == [
        ("event_record", 10, 4, 7, BASE + 3_000),
        ("event_record", 11, 5, 8, None),
    ]


# ---- ranges ----------------------------------------------------------------------------------------------------------


def test_ranges_of_every_kind(read):
    mark = "gapscope::submit src=0 dst=1 seq=7"
    events = [
        x("user_annotation", 1, 9, mark, 1, 11),
        x("cpu_op", 2, 1, mark, 1, 12),
        x("cpu_op", 2, 1, "aten::mm", 1, 12),
        x("gpu_user_annotation", 3, 4, mark, 0, 7),
        x("overhead", 4, 3165.427, "Activity Buffer Request", -1, 0),
        {"ph": "X", "name": mark, "pid": 1, "tid": 13, "ts": 5, "dur": 1},
        {"ph": "X", "name": "other", "pid": 1, "tid": 13, "ts": 5, "dur": 1},
    ]
    rows = read(events)["ranges"]
    assert [(r["kind"], r["thread"], r["device"], r["stream"], r["start_ns"] - BASE) for r in rows] == [
        ("annotation", 11, None, None, 1_000),
        ("op", 12, None, None, 2_000),
        ("gpu_span", None, 0, 7, 3_000),
        ("overhead", None, None, None, 4_000),
        ("annotation", 13, None, None, 5_000),
    ]
    assert [r["name"] for r in rows] == [mark, mark, mark, "Activity Buffer Request", mark]
    assert {r["process"] for r in rows} == {1}
    assert rows[3]["end_ns"] == BASE + 4_000 + 3_165_427


def test_many_distinct_marks(read):
    names = [f"gapscope::submit src=0 dst=1 seq={k} bytes={k * 24576}" for k in range(20_000)]
    source = read([x("user_annotation", k, 0.5, name) for k, name in enumerate(names)])
    assert source.column("ranges", "name") == names


# ---- communication ---------------------------------------------------------------------------------------------------


def comm(ts, name, cat="cpu_op", external=5, **fields):
    args = {"External id": external, "Collective name": name, "dtype": "BFloat16", "Group size": 2}
    args |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"} | fields
    title = "record_param_comms" if cat == "cpu_op" else "ncclDevKernel_SendRecv"
    return x(cat, ts, 4, title, 1 if cat == "cpu_op" else 0, 25, **args)


def test_communication_of_host_and_gpu(read):
    sizes = {"In msg nelems": 12288, "Out msg nelems": 12288}
    events = [
        comm(1, "send", **sizes, **{"Dst Rank": 1, "Rank": 1}),
        comm(2, "recv", external=6, **{"In msg nelems": 0, "Out msg nelems": 10, "Rank": 0, "dtype": "Long"}),
        comm(
            3,
            "allreduce",
            external=7,
            **sizes,
            **{"Rank": 0, "Seq": 41, "Process Group Name": "", "dtype": "c10::Half"},
        ),
        comm(4, "wait", external=8, **{"Group size": 1, "dtype": "Byte"}),
        comm(5, "send", "kernel", **sizes, **{"Dst Rank": 1, "correlation": 77, "stream": 25, "device": 0}),
        comm(
            6, "allreduce", "kernel", external=4294967295, **{"In msg nelems": 3, "dtype": "Strange", "correlation": 78}
        ),
        kernel(7, 1, name="ncclDevKernel_SendRecv"),
        x("cpu_op", 8, 1, "record_param_comms", 1, 25),
    ]
    source = read(events)
    common = {"process": 1, "thread": None, "group": "0", "group_ranks": "[0, 1]", "group_size": 2, "peer": None}
    common |= {"seq": None, "root": None, "correlation": None, "dtype": "BFloat16", "size_bytes": 24576}
    assert source["comms"] == [
        common
        | {"thread": 25, "start_ns": BASE + 1_000, "end_ns": BASE + 5_000, "external_id": 5, "op": "send", "peer": 1},
        common
        | {"thread": 25, "start_ns": BASE + 2_000, "end_ns": BASE + 6_000, "external_id": 6, "op": "recv", "peer": 0}
        | {"dtype": "Long", "size_bytes": 80},
        common
        | {"thread": 25, "start_ns": BASE + 3_000, "end_ns": BASE + 7_000, "external_id": 7, "op": "allreduce"}
        | {"seq": 41, "group": None, "dtype": "c10::Half"},
        common
        | {
            "start_ns": BASE + 5_000,
            "end_ns": BASE + 9_000,
            "external_id": 5,
            "op": "send",
            "peer": 1,
            "correlation": 77,
        },
        common
        | {"start_ns": BASE + 6_000, "end_ns": BASE + 10_000, "external_id": None, "op": "allreduce", "correlation": 78}
        | {"dtype": "Strange", "size_bytes": None},
    ]
    assert source.frames["ops"].height == 3
    assert source.info.dropped == {"cpu_op": 2}  # wait, and the record without a name


def test_sizes_that_cannot_be_are_unknown(read):
    events = [comm(1, "send", **{"In msg nelems": 3 * 10**18}), comm(2, "send", **{"In msg nelems": -5})]
    assert read(events).column("comms", "size_bytes") == [None, None]


def test_ranks_of_a_group_may_be_a_list(read):
    events = [comm(1, "barrier", **{"Process Group Ranks": [0, 1], "Process Group Name": 7})]
    (row,) = read(events)["comms"]
    assert (row["group_ranks"], row["group"], row["op"]) == ("[0, 1]", "7", "barrier")


# ---- threads and processes -------------------------------------------------------------------------------------------


def test_threads_by_name_and_by_what_they_ran(read):
    events = [
        meta("process_name", 1, 0, "python3"),
        meta("process_name", 0, 0, "python3"),
        meta("thread_name", 1, 11, "thread 11 (python3) "),
        meta("thread_name", 1, 11, "thread 11 (python3) "),
        meta("thread_name", 1, 12, "thread 12 (pt_autograd_0)"),
        meta("thread_name", 0, 7, "stream 7 "),
        x("user_annotation", 1, 1, "a", 1, 11),
        *(x("cpu_op", k, 1, "autograd::engine::evaluate_function: AddBackward0", 1, 13) for k in range(5)),
    ]
    source = read(events, distributedInfo={"backend": "nccl", "rank": 3})
    assert source["threads"] == [
        {"process": 1, "thread": 11, "name": "thread 11 (python3)", "autograd": False},
        {"process": 1, "thread": 12, "name": "thread 12 (pt_autograd_0)", "autograd": True},
        {"process": 1, "thread": 13, "name": None, "autograd": True},
    ]
    assert source["processes"] == [{"process": 1, "pid": 1, "label": "python3", "file_rank": 3}]
    assert source.info.dropped == {"cpu_op": 5}


@pytest.mark.parametrize(
    ("info", "rank"),
    [
        ({"rank": 34}, 34),
        ({"rank": "2"}, 2),
        ({"rank": -1}, None),
        ({"rank": "x"}, None),
        ({"rank": True}, None),
        ({"rank": 2**40}, None),
        ({"rank": "9" * 5000}, None),
        ([1], None),
    ],
)
def test_rank_that_the_file_states(read, info, rank):
    assert read([call(1, 1)], distributedInfo=info).column("processes", "file_rank") == [rank]


def test_pids_and_tids_may_be_text(read):
    events = [
        call(1, 1, 5, pid="24572", tid="24572"),
        x("Kernel", 2, 1, "k", "0", "stream 7", correlation=5),
        x("Memcpy", 3, 1, "Memcpy DtoH", 0, "stream 20 ", correlation=6, bytes=4),
        call(4, 1, 7, pid=24572, tid="main thread"),
        call(5, 1, 8, pid=24572, tid="another"),
        meta("thread_name", 24572, "main thread", "MainThread"),
    ]
    source = read(events)
    assert source.column("processes", "pid") == [24572]
    assert source.column("calls", "thread") == [24572, -2, -1]
    assert source["threads"] == [{"process": 24572, "thread": -2, "name": "MainThread", "autograd": False}]
    assert [(o["device"], o["stream"], o["process"]) for o in source["ops"]] == [(0, 7, 24572), (0, 20, 24572)]


def _two_ranks(pids, labels):
    """What SGLang's merger writes: text pids, everything else as the ranks wrote it, correlation ids repeated."""
    events = []
    for rank, (pid, label) in enumerate(zip(pids, labels, strict=True)):
        shift = rank * 1000
        events += [
            meta("process_name", f"{label} {pid}", 0, "python3"),
            meta("thread_name", f"{label} {pid}", pid, f"thread {pid}"),
            x("user_annotation", shift, 50, f"gapscope::step rank={rank}", f"{label} {pid}", pid),
            call(shift + 1, 1, 5, pid=f"{label} {pid}", tid=pid),
            kernel(shift + 3, 1, 5, pid=f"{label} 0"),
            x("gpu_user_annotation", shift + 3, 2, f"gapscope::step rank={rank}", f"{label} 0", 7),
            x("overhead", shift + 7, 2, "Buffer", f"{label} -1", 0),
            {
                "ph": "X",
                "cat": "Trace",
                "ts": 1,
                "dur": 2,
                "pid": f"{label} Spans",
                "tid": "PyTorch Profiler",
                "name": "p",
            },
        ]
    return events


def test_merged_file_with_a_label_for_each_rank(read):
    """K24, K25: containers give every rank the same pid; the labels keep them apart."""
    source = read(_two_ranks([83, 83], ["[TP00-PP00]", "[TP00-PP01]"]), distributedInfo={"rank": 0})
    assert source["processes"] == [
        {"process": 1, "pid": 83, "label": "[TP00-PP00]", "file_rank": None},
        {"process": 2, "pid": 83, "label": "[TP00-PP01]", "file_rank": None},
    ]
    for table, count in (("ops", 1), ("calls", 1), ("ranges", 3)):
        rows = source[table]
        assert [row["process"] for row in rows] == [1] * count + [2] * count, table
        assert {row["start_ns"] >= BASE + 1_000_000 for row in rows if row["process"] == 2} == {True}
    assert {row["device"] for row in source["ops"]} == {0}
    assert [row["thread"] for row in source["threads"]] == [83, 83]


def test_merged_file_whose_pids_differ_keeps_them(read):
    source = read(_two_ranks([83, 91], ["[TP00]", "[TP01]"]))
    assert [(p["process"], p["pid"]) for p in source["processes"]] == [(83, 83), (91, 91)]
    assert source.column("ops", "process") == [83, 91]


def test_other_mergers_labels(read):
    source = read(_two_ranks([83, 83], ["rank 0:", "rank 1:"]))
    assert source.column("processes", "label") == ["rank 0", "rank 1"]
    assert source.column("ops", "process") == [1, 2]


def test_several_processes_share_gpus_by_what_they_launched(read):
    events = [
        *(call(k, 0.5, k, pid=100, tid=100) for k in range(10)),
        *(call(k, 0.5, k + 100, pid=200, tid=200) for k in range(5)),
        *(kernel(20 + k, 0.5, k, pid=0) for k in range(10)),
        *(kernel(20 + k, 0.5, k + 100, pid=1, stream=9) for k in range(5)),
        x("user_annotation", 1, 1, "helper", 300, 300),
    ]
    source = read(events, distributedInfo={"rank": 4})
    assert [(p["process"], p["file_rank"]) for p in source["processes"]] == [(100, 4), (200, None), (300, None)]
    by_stream = {(o["stream"], o["process"]) for o in source["ops"]}
    assert by_stream == {(7, 100), (9, 200)}


def test_ranks_that_cannot_be_told_apart_are_refused(write):
    """K24: two ranks, the same pid, the same ids, no labels."""
    events = [e for _ in range(2) for k in range(200) for e in (call(k, 0.5, k + 1, pid=7), kernel(k + 9, 0.5, k + 1))]
    with pytest.raises(
        MalformedTraceError,
        match=r"several ranks that cannot be told apart: 200 of its 400 API calls.*file of each rank",
    ):
        Source(write(events))


def test_two_processes_whose_ids_fit_one_gpu_equally_are_refused(write):
    events = [call(1, 1, 5, pid=7), call(1, 1, 5, pid=8), kernel(3, 1, 5)]
    with pytest.raises(MalformedTraceError, match="operations of GPU 0 fit the calls of processes 7, 8 equally well"):
        Source(write(events))


def test_a_few_repeated_ids_are_a_finding(read):
    source = read([*(call(k, 0.5, k + 1) for k in range(20)), call(30, 0.5, 3)])
    assert source.findings["duplicate_correlations"].count == 1


def test_gpu_rows_without_any_host_row(read):
    source = read([kernel(1, 1), x("overhead", 2, 1, "Buffer", -1, 0)])
    assert source["processes"] == [{"process": 1, "pid": None, "label": None, "file_rank": None}]
    assert source.column("ops", "process") == source.column("ranges", "process") == [1]


@pytest.mark.parametrize(
    ("outer", "events", "cpu_only", "gpu_traced"),
    [
        ({"deviceProperties": []}, [x("user_annotation", 1, 1)], True, None),
        ({"deviceProperties": [{"id": 0}]}, [x("user_annotation", 1, 1)], False, False),
        ({"deviceProperties": [{"id": 0}]}, [call(1, 1)], False, None),
        ({"deviceProperties": [{"id": 0}]}, [x("user_annotation", 1, 1), kernel(1, 1)], False, None),
        ({"deviceProperties": []}, [x("user_annotation", 1, 1), kernel(1, 1)], False, None),
        ({}, [x("user_annotation", 1, 1)], False, None),
        ({"computeProperties": [{"id": 0}]}, [x("cpu_op", 1, 1)], False, False),
    ],
)
def test_what_the_file_says_about_its_gpus(read, outer, events, cpu_only, gpu_traced):
    info = read(events, **outer).info
    assert (info.cpu_only, info.gpu_traced) == (cpu_only, gpu_traced)


GPU_ONLY = [kernel(3, 1), call(1, 1), x("cuda_sync", 5, 1, "Stream Sync", 0, 7, cuda_sync_kind="Stream Sync")]
BESIDE = [  # what Kineto writes for the GPU alone, too
    x("overhead", 2, 1, "Buffer Flush", -1, 0),
    x("Trace", 1, 9, "PyTorch Profiler (0)", "Spans", "PyTorch Profiler"),
    {"ph": "s", "cat": "ac2g", "id": 1, "ts": 1, "pid": 1, "tid": 1, "name": "ac2g"},
    {"ph": "i", "name": "Record Window End", "ts": 9, "pid": "", "tid": "", "s": "g"},
    meta("process_name", 1, 0, "python3"),
    meta("thread_name", 1, 1, "pt_autograd_0"),
    x("strange", 1, 1),
]
OF_HOST = [
    x("cpu_op", 1, 1, "aten::mm"),
    x("Operator", 1, 1, "aten::mm"),
    x("cpu_op", 1, 1, "gapscope::step step=1"),
    x("cpu_op", 1, 1, "record_param_comms", Collective_name="send"),
    x("cpu_op", 1, 1, "autograd::engine::evaluate_function: MmBackward0"),
    x("python_function", 1, 1, "train.py(7): step"),
    x("user_annotation", 1, 1, "ProfilerStep#3"),
    x("user_annotation", BASE / 1000, 1, "ProfilerStep#3"),  # of another clock: dropped
    x("cpu_instant_event", 1, 1, "[memory]"),
    {"ph": "s", "cat": "fwdbwd", "id": 1, "ts": 1, "pid": 1, "tid": 1, "name": "fwdbwd"},
    {"ph": "X", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "name": "gapscope::step step=1"},
]


@pytest.mark.parametrize("event", GPU_ONLY)
def test_a_capture_of_the_gpu_alone(read, event):
    assert read([event]).info.cpu_traced is False
    assert read([event, *BESIDE]).info.cpu_traced is False


@pytest.mark.parametrize("event", OF_HOST)
def test_any_host_event_shows_that_the_host_was_recorded(read, event):
    assert read([*GPU_ONLY, event]).info.cpu_traced is True
    assert read([event]).info.cpu_traced is True


def test_without_events_nothing_tells_if_the_host_was_recorded(read, raw):
    assert read([]).info.cpu_traced is None
    assert read(BESIDE).info.cpu_traced is None
    cut = raw(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": GPU_ONLY})[:-2])
    assert (cut.info.truncated, cut.info.cpu_traced) == (True, None)  # host events may have followed
    cut = raw(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": [*GPU_ONLY, OF_HOST[0]]})[:-2])
    assert (cut.info.truncated, cut.info.cpu_traced) == (True, True)


def test_old_names_of_categories(read):
    events = [
        x("Operator", 1, 1, "aten::mm"),
        x("Runtime", 2, 1, "cudaLaunchKernel", correlation=5),
        x("Kernel", 3, 1, "k", 0, "stream 7", correlation=5, **{"external id": 3}),
        x("Memcpy", 4, 1, "Memcpy HtoD", 0, "stream 7", bytes=4),
        x("Memset", 5, 1, "Memset", 0, "stream 7", bytes=8),
        {"ph": "s", "cat": "async", "id": 1, "ts": 1, "pid": 1, "tid": 1, "name": "launch"},
        x("CPU_OP", 6, 1, "gapscope::step step=1"),
    ]
    source = read(events)
    assert source.column("ops", "kind") == ["kernel", "memcpy", "memset"]
    assert source.frames["calls"].height == 1
    assert source.column("ranges", "kind") == ["op"]
    assert source.info.dropped == {"cpu_op": 1, "ac2g": 1}


# ---- clock -----------------------------------------------------------------------------------------------------------


def _instants(raw, text):
    source = raw(text)
    return source.column("ops", "start_ns"), source.info.clock, source.info.clock_origin


def test_the_base_counts_wherever_it_is(raw):
    """K08: at the head, at the tail, in neither; the same instant in all three files."""
    near, far = '[{"ph": "X", "cat": "kernel", "ts": ', ', "dur": 1.250, "pid": 0, "tid": 7}]'
    base, relative, absolute = 1_704_067_200_000_000_000, "12345678901.234", "1704079545678901.234"
    instant = 1_704_079_545_678_901_234
    head = f'{{"baseTimeNanoseconds": {base}, "traceEvents": {near}{relative}{far}}}'
    tail = f'{{"traceEvents": {near}{relative}{far}, "baseTimeNanoseconds": {base}}}'
    neither = f'{{"traceEvents": {near}{absolute}{far}}}'
    assert _instants(raw, head) == ([instant], "unix", "baseTimeNanoseconds + ts")
    assert _instants(raw, tail) == ([instant], "unix", "baseTimeNanoseconds + ts")
    assert _instants(raw, neither) == ([instant], "unix", "ts, microseconds since 1970")


def test_times_that_count_from_nowhere_are_relative(raw):
    source = raw(json.dumps({"traceEvents": [kernel(-12.5, 1), kernel(3, 1, 2)]}))
    assert source.column("ops", "start_ns") == [-12_500, 3_000]
    assert source.info.clock == "relative"
    assert source.findings["relative_clock"].level == "warning"


@pytest.mark.parametrize(
    ("base", "ts", "epoch"),
    [
        (BASE, 2, BASE),
        (str(BASE), 2, BASE),
        (BASE, BASE / 1000, None),  # not used: the times are absolute already
        (None, BASE / 1000, None),
        (None, 2, None),
        (99, 2, None),
        (0, 2, None),
    ],
)
def test_the_epoch_is_the_base_that_is_used(read, base, ts, epoch):
    info = read([kernel(ts, 1)], baseTimeNanoseconds=base).info
    assert (info.epoch_ns, info.system_clock_ns, info.counter_ns, info.shift_ns) == (epoch, None, None, 0)


def test_a_base_is_not_added_to_absolute_times(read):
    now = 1_700_000_000_000_000
    source = read([call(now, 1), kernel(now + 2, 1)])
    assert source.column("ops", "start_ns") == [(now + 2) * 1000]
    assert source.info.clock == "unix"
    assert set(source.findings) == {"base_time_not_added"}


@pytest.mark.parametrize("base", ["soon", -5, 1.5, 99, [1]])
def test_a_base_that_is_no_time_is_not_used(read, base):
    source = read([kernel(2, 1)], baseTimeNanoseconds=base)
    assert source.info.clock == "relative"
    assert {"base_time_unusable", "relative_clock"} == set(source.findings)


def test_a_base_as_text_counts(read):
    assert read([kernel(2, 1)], baseTimeNanoseconds=str(BASE)).column("ops", "start_ns") == [BASE + 2_000]


def test_two_scales_of_time_in_one_file_are_not_mixed(read):
    events = [
        *(call(k, 1, k) for k in range(5)),
        kernel(9, 1),
        call(1_700_000_000_000_000, 1, 9),
        kernel(1_700_000_000_000_001, 1, 9),
    ]
    source = read(events)
    assert source.frames["calls"].height == 5
    assert source.column("ops", "start_ns") == [BASE + 9_000, None]
    assert source.findings["other_clock"].count == 2
    assert source.info.dropped == {"other_clock": 1}


@pytest.mark.parametrize(
    ("times", "resolution"),
    [
        ([(1, 2), (3, 4)], 1000),
        ([(1.0, 2.0)], 1000),
        ([(1, 2), (3, 4.5)], 1),
        ([(1.001, 2)], 1),
    ],
)
def test_resolution_is_what_the_decimals_show(read, times, resolution):
    assert read([kernel(*t, correlation=k) for k, t in enumerate(times)]).info.resolution_ns == resolution


def test_a_quarter_microsecond_at_epoch_size_survives(raw):
    """K07."""
    event = '{{"ph": "X", "cat": "kernel", "ts": {}, "dur": 1, "args": {{"correlation": {}}}}}'
    events = [event.format("1712345678901234.567", 1), event.format("1712345678901234.817", 2)]
    first, second = raw(f"[{', '.join(events)}]").column("ops", "start_ns")
    assert (first, second - first) == (1_712_345_678_901_234_567, 250)


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_infinite_values_cost_nothing_and_infinite_times_their_event(raw):
    """K01."""
    source = raw(
        '{"traceEvents": ['
        '{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1, "dur": 0, '
        '"args": {"bytes": 4, "memory bandwidth (GB/s)": inf}},'
        '{"ph": "C", "name": "counter", "ts": 1, "args": {"value": nan}},'
        '{"ph": "X", "cat": "kernel", "ts": 1, "dur": NaN},'
        '{"ph": "X", "cat": "kernel", "ts": 2, "dur": 1}], "baseTimeNanoseconds": 1790857026000000000}'
    )
    assert source.column("ops", "kind") == ["memcpy", "kernel"]
    assert source.column("ops", "size_bytes") == [4, None]
    assert source.info.events == 4
    assert source.info.dropped == {"counter": 1, "damaged": 1}
    assert source.findings["non_finite_values"].count >= 1
    assert source.findings["damaged_events"].count == 1


def test_control_bytes_in_names_cost_nothing(raw):
    """K02."""
    names = [b"a\x01b", b"a\x1fb", b"a\xffb", b"good", b"a\x01b"]
    events = b",".join(
        b'{"ph": "X", "cat": "kernel", "name": "%b", "ts": %d, "dur": 1}' % (n, k) for k, n in enumerate(names)
    )
    source = raw(b'{"traceEvents": [' + events + b"]}")
    assert source.column("ops", "name") == ["a\ufffdb", "a\ufffdb", "a\ufffdb", "good", "a\ufffdb"]
    finding = source.findings["repaired_texts"]
    assert finding.count == 4
    at = (b'{"traceEvents": [' + events).index(b"\x01")
    assert f"byte {at:,} " in finding.message


def test_broken_escapes_cost_nothing(raw):
    """K03."""
    paths = [rb"a\cuda\new", rb"a\tmp", rb"a\users"]
    events = b",".join(
        b'{"ph": "X", "cat": "kernel", "name": "%b", "ts": %d, "dur": 1}' % (n, k) for k, n in enumerate(paths)
    )
    source = raw(
        b'{"traceName": "C:\\dir\\x.json", "traceEvents": ['
        + events
        + b'], "baseTimeNanoseconds": 1790857026000000000}'
    )
    assert source.column("ops", "name") == ["a\\cuda\new", "a\tmp", "a\\users"]
    assert source.column("ops", "start_ns") == [BASE, BASE + 1_000, BASE + 2_000]
    assert source.findings["repaired_texts"].count == 2


def _sixty():
    lines = [json.dumps(kernel(k, 0.5, k)) for k in range(60)]
    return b'{"baseTimeNanoseconds": %d, "traceEvents": [\n' % BASE + ",\n".join(lines).encode() + b"\n]}"


@pytest.mark.parametrize("rest", [b"", b",", b',\n{"ph": "X", "cat": "kern', b',\n{"ph": "X", "ts": 3', b"]"])
def test_a_cut_file_keeps_its_whole_events(raw, rest):
    """K05."""
    source = raw(b",\n".join(_sixty().split(b",\n")[:37]) + rest)
    assert source.frames["ops"].height == 37
    assert source.info.truncated
    assert source.info.events == 37
    assert source.findings["truncated"].level == "warning"
    assert "damaged_events" not in source.findings


def test_a_gzip_file_without_its_tail(raw):
    whole = raw(gzip.compress(_sixty()))
    cut = raw(gzip.compress(_sixty())[:-8])
    assert cut.frames["ops"].equals(whole.frames["ops"])
    assert not whole.info.truncated
    assert cut.info.truncated
    assert "gzip stream ends before its own end" in cut.findings["truncated"].message


def test_a_gzip_file_cut_in_the_middle(raw):
    packed = gzip.compress(_sixty())
    source = raw(packed[: len(packed) // 2])
    ops = source.frames["ops"]
    assert 0 < ops.height < 60
    assert ops["start_ns"].to_list() == [BASE + 1000 * k for k in range(ops.height)]
    assert source.info.truncated


def test_one_damaged_event_costs_one(raw):
    content = _sixty()
    at = content.index(b"\n", content.index(b'"ts": 20,'))
    start = content.rindex(b"\n", 0, at - 1) + 1
    source = raw(content[: start + 30] + b'"' + content[start + 30 :])
    assert [t for t in range(60) if BASE + t * 1000 not in source.column("ops", "start_ns")] == [20]
    assert source.info.dropped == {"damaged": 1}
    assert f"byte {start:,}." in source.findings["damaged_events"].message
    assert not source.info.truncated


def test_broken_metadata_before_the_events_costs_only_itself(raw):
    text = (
        '{"schemaVersion": 1, "distributedInfo": {"rank": 1, "x": [1, 2}, "deviceProperties": [], "traceEvents": [%s]}'
    )
    source = raw(text % json.dumps(call(1_700_000_000_000_000, 1)))
    assert source.column("calls", "start_ns") == [1_700_000_000_000_000_000]
    assert source.info.cpu_only
    assert source.column("processes", "file_rank") == [None]


def test_a_list_that_goes_on_after_what_looked_like_its_end(raw):
    events = [json.dumps(kernel(k, 0.5, k)) for k in range(4)]
    source = raw('{"traceEvents": [' + events[0] + ', "x": [1], "traceName": "y", ' + ", ".join(events[1:]) + "]}")
    assert source.column("ops", "correlation") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "ends or breaks before its list"),
        ("no JSON at all", "ends or breaks before its list"),
        ('{"schemaVersion": 1, "deviceProperties": [{"id"', "ends or breaks before its list"),
        ('{"schemaVersion": 1, "deviceProperties": []}', "no list of events"),
        ('{"traceEvents": {"a": 1}}', "no list of events"),
        ('{"traceEvents": null}', "no list of events"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "kernel"}, {"ph": "X", "cat": "kernel", "ts": inf}]}',
            "2 events, all broken, the first at byte 17",
        ),
        (
            '[{"ph": "X", "cat": "build", "ts": 1, "dur": 2, "name": "javac"}, {"ph": "M", "name": "process_name"}]',
            "none of its 2 events has a category",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(raw, content, found):
    with pytest.raises(MalformedTraceError, match=re.escape(found)) as caught:
        raw(content)
    assert caught.value.next_step


def test_an_empty_window_is_a_valid_report(read):
    for events in (
        [],
        [meta("process_name", 1, 0, "python3"), x("Trace", 1, 2, "PyTorch Profiler (0)", "Spans", "PyTorch Profiler")],
    ):
        source = read(events)
        assert all(frame.height == 0 for frame in source.frames.values())
        assert set(source.frames) == set(READER_TABLES)
        assert "schedule never reached an active step" in source.findings["no_events"].hint
        assert source.info.clock == "unix"


def test_a_folder_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        KINETO.read(tmp_path, ReadOptions(), no_progress)


_odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=12),
    st.sampled_from(
        ["[TP00] 7", "7", "-1", "stream 7", "stream 99999999999999999999", "9" * 30, "0xffffffffffffffff", "\ud800"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_odd_events = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from([*CATEGORIES_READ, "cpu_op", "Kernel"]),
        "ts": st.one_of(st.integers(-9, 9), _odd),
    },
    optional={
        "name": st.one_of(st.sampled_from(["record_param_comms", "cudaEventRecord", "Memcpy HtoD"]), _odd),
        "pid": _odd,
        "tid": _odd,
        "dur": st.one_of(st.integers(-9, 9), _odd),
        "args": st.one_of(st.dictionaries(st.sampled_from([key for key, _, _ in ARGS]), _odd, max_size=6), _odd),
    },
)
_odd_names = st.fixed_dictionaries(
    {"ph": st.just("M"), "name": st.sampled_from(["thread_name", "process_name"]), "pid": _odd, "tid": _odd},
    optional={"args": st.one_of(st.fixed_dictionaries({"name": _odd}), _odd)},
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(_odd_events, _odd_names), max_size=8),
    st.dictionaries(
        st.sampled_from(["baseTimeNanoseconds", "distributedInfo", "deviceProperties", "schemaVersion"]), _odd
    ),
    st.one_of(st.none(), st.tuples(st.integers(0, 2000), st.binary(max_size=9))),
)
def test_no_content_ends_in_a_traceback(tmp_path_factory, events, outer, damage):
    content = json.dumps({**outer, "traceEvents": events}).encode()
    if damage:
        at, noise = damage[0] % (len(content) + 1), damage[1]
        content = content[:at] + noise + content[at + len(noise) :]
    path = tmp_path_factory.mktemp("odd") / "trace.json"
    path.write_bytes(content)
    try:
        source = Source(path)
    except InputError as error:
        assert error.next_step  # noqa: PT017
        return
    for table, types in ((name, reader_dtypes(name)) for name in READER_TABLES):
        assert dict(source.frames[table].schema) == dict(types), table
        known = set(source.column("processes", "process"))
        assert set(source.column(table, "process")) <= known, table


# ---- as a whole ------------------------------------------------------------------------------------------------------


def _mixture():
    events = [*_two_ranks([83, 84], ["[TP00]", "[TP01]"])]
    for k in range(40):
        events += [call(k, 0.5, k + 100, pid="[TP00] 83"), kernel(k // 4, 2, k + 100, pid="[TP00] 0", name=f"k{k % 3}")]
        events += [comm(k // 4, "send", external=k, **{"In msg nelems": k}), kernel(0, 0, k + 300, pid="[TP01] 0")]
        events[-2]["pid"] = "[TP00] 83"
    return events


def test_the_order_of_events_does_not_matter(read):
    """K17: no table, number or finding depends on it, only the remark that the calls are not in order."""
    events = _mixture()
    first = read(events)
    for seed in (1, 2, 3):
        random.Random(seed).shuffle(events)
        again = read(events)
        assert (first.info.calls_in_order, again.info.calls_in_order) == (True, False)
        assert replace(again.info, calls_in_order=True) == first.info
        assert again.findings == first.findings
        for table, frame in first.frames.items():
            assert again.frames[table].equals(frame), (seed, table)


def test_rows_are_in_order_of_process_and_time(read):
    source = read(_mixture())
    for table in ("ops", "calls", "ranges", "comms"):
        frame = source.frames[table].drop_nulls("start_ns")
        assert frame.equals(frame.sort("process", "start_ns", maintain_order=True)), table


def test_every_event_is_in_a_table_or_counted(read):
    source = read(
        [
            *_mixture(),
            x("python_function", 1, 1),
            x("fwdbwd", 1, 1),
            x("strange", 1, 1),
            {"ph": "i", "name": "x", "ts": 1},
        ]
    )
    rows = sum(source.frames[table].height for table in ("ops", "calls", "ranges", "comms", "syncs"))
    names = 4  # of processes and threads
    assert source.info.events == rows + names + sum(source.info.dropped.values())
    assert source.info.dropped == {"fwdbwd": 1, "python_function": 1, "foreign": 1, "instant": 1, "trace": 2}


def test_progress_goes_up_to_one(write):
    seen = []
    Source(write([kernel(k, 0.5, k) for k in range(60_000)]), lambda what, fraction: seen.append((what, fraction)))
    fractions = [fraction for _, fraction in seen]
    assert len(fractions) > 2
    assert fractions == sorted(fractions)
    assert (fractions[0] >= 0, fractions[-1]) == (True, 1.0)


def test_version_of_the_schema(read):
    source = read([call(1, 1)], schemaVersion=1, torch_version="2.11.0")
    assert (source.info.schema_version, source.info.tool_version, source.info.host) == ("1", "2.11.0", None)

"""Recordings that others published, against the numbers counted when they were collected.

They are no part of this repository; without them these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gapscope.readers.base import ReadOptions, no_progress
from gapscope.readers.compression import head
from gapscope.readers.kineto import KINETO

PUBLIC = Path(__file__).parents[2].parent / "shared" / "traces" / "public"
pytestmark = pytest.mark.skipif(not PUBLIC.is_dir(), reason="the published recordings are not here")

MULTI_STREAM = "hta-event-sync-multi-stream/event_sync_trace.json.gz"
SIMPLE_ADD = "hta-simple-add/trace.json.gz"
NCCL = "hta-nccl-metadata/nccl_data.json.gz"
PAIR = ("hta-sampled-pair/sampled_rank-0.json.gz", "hta-sampled-pair/sampled_rank-1.json.gz")
GLOO = "hta-gloo-cpu-only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"
ROCM = "hta-rocm-mi250/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
OLDEST = "kineto-gpu-metrics/gpu_metrics_input.json"
VLLM = "tracelens-vllm-graph/graph_execution.json.gz"
ALL = [MULTI_STREAM, SIMPLE_ADD, NCCL, *PAIR, GLOO, ROCM, OLDEST, VLLM]


@pytest.fixture(scope="module")
def read():
    done = {}

    def read(name):
        if name not in done:
            source = KINETO.read(PUBLIC / name, ReadOptions(), no_progress)
            done[name] = (source, {table: frame.collect() for table, frame in source.tables.items()})
        return done[name]

    return read


def _kinds(frame, column="kind"):
    return dict(frame[column].cast(pl.String).value_counts().iter_rows())


@pytest.mark.parametrize("name", ALL)
def test_is_recognized_and_whole(read, name):
    assert KINETO.sniff(PUBLIC / name, head(PUBLIC / name))
    source, _ = read(name)
    assert source.findings == ()
    assert not source.info.truncated
    assert source.info.clock == "unix"


@pytest.mark.parametrize(
    ("name", "events", "dropped"),
    [
        (MULTI_STREAM, 149, {"cpu_op": 6, "trace": 1, "ac2g": 50, "instant": 2}),
        (SIMPLE_ADD, 1_348, {"cpu_op": 359, "trace": 1, "ac2g": 470, "instant": 2}),
        (NCCL, 40_573, {"cpu_op": 14_346 - 21, "trace": 1, "ac2g": 12_514, "fwdbwd": 1_086, "instant": 2}),
        (PAIR[0], 4_855, {"cpu_op": 2_329, "trace": 1}),
        (PAIR[1], 4_720, {"cpu_op": 2_302, "trace": 1}),
        (GLOO, 30, {"cpu_op": 4, "trace": 1, "instant": 2}),
        (ROCM, 220, {"cpu_op": 70, "trace": 1, "ac2g": 37, "fwdbwd": 8, "instant": 2}),
        (OLDEST, 340, {"cpu_op": 179, "trace": 1, "ac2g": 64, "instant": 2}),
        (VLLM, 1_993, {"cpu_op": 100, "python_function": 984, "ac2g": 454}),
    ],
)
def test_events_without_a_row(read, name, events, dropped):
    info = read(name)[0].info
    assert info.events == events
    assert {key: count for key, count in info.dropped.items() if key != "metadata"} == dropped


@pytest.mark.parametrize(
    ("name", "ops", "calls", "ranges"),
    [
        (MULTI_STREAM, {"kernel": 3, "memset": 3}, 39, {}),
        (SIMPLE_ADD, {"kernel": 79, "memcpy": 16, "memset": 3}, 331, {"annotation": 8}),
        (NCCL, {"kernel": 2_700, "memcpy": 960, "memset": 114}, 8_740, {"annotation": 42, "gpu_span": 30}),
        (PAIR[0], {"kernel": 1_154, "memcpy": 40, "memset": 10}, 1_204, {"annotation": 73}),
        (PAIR[1], {"kernel": 1_104, "memcpy": 40, "memset": 10}, 1_154, {"annotation": 65}),
        (GLOO, {}, 0, {"annotation": 11}),
        (ROCM, {"kernel": 14, "memcpy": 2}, 21, {"annotation": 3, "gpu_span": 2}),
        (OLDEST, {"kernel": 30, "memcpy": 2}, 42, {}),
        (VLLM, {"kernel": 425, "memcpy": 9}, 20, {"annotation": 1}),
    ],
)
def test_rows_by_category(read, name, ops, calls, ranges):
    tables = read(name)[1]
    assert _kinds(tables["ops"]) == ops
    assert tables["calls"].height == calls
    assert _kinds(tables["ranges"]) == ranges


@pytest.mark.parametrize("name", ALL)
def test_all_recorded_the_host(read, name):
    info = read(name)[0].info
    assert info.cpu_traced is True
    assert (info.epoch_ns is None) == (info.clock_origin == "ts, microseconds since 1970")


@pytest.mark.parametrize(
    ("name", "resolution", "origin", "pid", "rank"),
    [
        (MULTI_STREAM, 1000, "ts, microseconds since 1970", 3727853, 0),
        (SIMPLE_ADD, 1000, "ts, microseconds since 1970", 493459, 0),
        (NCCL, 1, "baseTimeNanoseconds + ts", 2910249, 0),
        (PAIR[0], 1000, "ts, microseconds since 1970", 4037, 0),
        (PAIR[1], 1000, "ts, microseconds since 1970", 4045, 1),
        (GLOO, 1, "baseTimeNanoseconds + ts", 1074, 34),
        (ROCM, 1, "baseTimeNanoseconds + ts", 597913, None),
        (OLDEST, 1000, "ts, microseconds since 1970", 24572, None),
        (VLLM, 1, "baseTimeNanoseconds + ts", None, 0),
    ],
)
def test_clock_and_process(read, name, resolution, origin, pid, rank):
    source, tables = read(name)
    assert (source.info.resolution_ns, source.info.clock_origin) == (resolution, origin)
    (process,) = tables["processes"].to_dicts()
    assert process["file_rank"] == rank
    if pid is not None:
        assert (process["process"], process["pid"]) == (pid, pid)
    for table in ("ops", "calls", "ranges", "syncs"):
        assert set(tables[table]["process"]) <= {process["process"]}


def test_multi_stream_synchronizations(read):
    tables = read(MULTI_STREAM)[1]
    assert sorted(tables["ops"].filter(pl.col("kind") == "kernel")["stream"]) == [20, 24, 28]
    syncs = {row["correlation"]: row for row in tables["syncs"].iter_rows(named=True)}
    assert _kinds(tables["syncs"]) == {"event_query": 3, "stream_wait": 1, "device_sync": 1, "event_record": 4}
    assert syncs[24]["record_correlation"] is None
    assert (syncs[54]["record_correlation"], syncs[1410]["record_correlation"]) == (32, 62)
    assert (syncs[54]["event"], syncs[1410]["event"]) == (9, 9)
    assert (syncs[32]["stream"], syncs[62]["stream"]) == (20, 28)
    wait = syncs[1389]
    assert (wait["kind"], wait["stream"], wait["event"], wait["record_correlation"]) == ("stream_wait", 24, 19, 1385)
    assert (syncs[1385]["kind"], syncs[1385]["stream"], syncs[1385]["event"]) == ("event_record", 20, 19)
    recorded = tables["syncs"].filter(pl.col("kind") != "event_record")
    assert recorded["stream"].null_count() == 4
    last = tables["ops"].filter(pl.col("kind") == "kernel")["end_ns"].max()
    assert last - recorded.filter(pl.col("kind") == "device_sync")["start_ns"].item() == 6_000
    calls = tables["calls"]
    assert calls["start_ns"].min() >= 1_712_867_402_348_256_000
    assert calls["end_ns"].max() <= 1_712_867_402_368_186_000


def test_simple_add_streams_and_waits(read):
    tables = read(SIMPLE_ADD)[1]
    kernels = tables["ops"].filter(pl.col("kind") == "kernel")
    assert dict(kernels["stream"].value_counts().iter_rows()) == {7: 73, 20: 6}
    assert (kernels["end_ns"] - kernels["start_ns"]).sum() == 10_728_000
    syncs = tables["syncs"].filter(pl.col("start_ns").is_not_null())
    assert _kinds(syncs) == {"stream_sync": 16, "device_sync": 5, "stream_wait": 20}
    assert syncs["record_correlation"].null_count() == 41
    assert set(syncs.filter(pl.col("kind") == "device_sync")["stream"]) == {None}
    assert (tables["calls"]["name"].cast(pl.String) == "cudaStreamWaitEvent").sum() == 34
    launches = tables["calls"].filter(pl.col("family") == "launch")["correlation"]
    assert kernels["correlation"].is_in(launches.implode()).all()


def test_nccl_metadata(read):
    comms = read(NCCL)[1]["comms"]
    for rows in (comms.filter(pl.col("thread").is_null()), comms.filter(pl.col("thread").is_not_null())):
        assert _kinds(rows, "op") == {"allreduce": 15, "broadcast": 6}
        assert set(rows["group_ranks"]) == {"[0, 1]"}
        assert (set(rows["group"]), set(rows["group_size"]), set(rows["seq"])) == ({"0"}, {2}, {None})
    gpu = comms.filter(pl.col("thread").is_null())
    host = comms.filter(pl.col("thread").is_not_null())
    assert gpu["correlation"].null_count() == 0
    assert host["correlation"].null_count() == 21
    assert set(gpu["external_id"]) == set(host["external_id"])
    assert gpu.filter(pl.col("dtype") == "Float")["size_bytes"].max() == 7_875_584 * 4
    assert sorted(gpu.filter(pl.col("dtype") == "Long")["size_bytes"]) == [53 * 8] * 3


def test_sampled_pair_is_on_two_devices(read):
    for rank, name in enumerate(PAIR):
        kernels = read(name)[1]["ops"].filter(pl.col("kind") == "kernel")
        assert set(kernels["device"]) == {rank}
        assert set(kernels["stream"]) == {7, 23, 84, 203}
        assert (kernels["name"].cast(pl.String).str.contains("ncclKernel_SendRecv")).sum() == 10


def test_gloo_job_without_a_gpu(read):
    source, tables = read(GLOO)
    assert (source.info.cpu_only, source.info.gpu_traced) == (True, None)
    names = dict(tables["ranges"]["name"].value_counts().iter_rows())
    assert names == {"gloo:all_reduce": 10, "ProfilerStep#551": 1}
    assert tables["ranges"]["thread"].n_unique() == 3


def test_rocm(read):
    tables = read(ROCM)[1]
    kernels = tables["ops"].filter(pl.col("kind") == "kernel")
    assert (set(kernels["device"]), set(kernels["stream"])) == ({2}, {0})
    names = dict(tables["calls"]["name"].cast(pl.String).value_counts().iter_rows())
    assert (names["hipLaunchKernel"], names["hipExtModuleLaunchKernel"]) == (12, 2)
    assert _kinds(tables["calls"], "family") == {"launch": 14, "memcpy": 2, "device_sync": 1, "other": 4}
    assert set(tables["ops"].filter(pl.col("kind") == "memcpy")["copy_kind"]) == {"HtoD"}


def test_oldest_names_and_text_tids(read):
    tables = read(OLDEST)[1]
    kernels = tables["ops"].filter(pl.col("kind") == "kernel")
    assert (set(kernels["stream"]), set(kernels["device"])) == ({7}, {0})
    assert (kernels["end_ns"] - kernels["start_ns"]).sum() == 48_000
    assert set(tables["calls"]["thread"]) == {24572, 24610}
    launches = tables["calls"].filter(pl.col("family") == "launch")["correlation"]
    assert kernels["correlation"].is_in(launches.implode()).all()


def test_graph_replay_has_one_call_for_many_kernels(read):
    tables = read(VLLM)[1]
    kernels = tables["ops"].filter(pl.col("kind") == "kernel")
    assert kernels["correlation"].n_unique() == 5
    replayed = kernels.filter(pl.col("correlation") == 505113)
    assert replayed.height == 421
    assert replayed["end_ns"].max() - replayed["start_ns"].min() == pytest.approx(10_388_900, abs=50)
    (launch,) = tables["calls"].filter(pl.col("correlation") == 505113).to_dicts()
    assert (launch["name"], launch["family"]) == ("hipGraphLaunch", "graph_launch")
    assert tables["ops"].filter(pl.col("kind") == "memcpy")["copy_kind"].cast(pl.String).to_list() == ["DtoD"] * 9

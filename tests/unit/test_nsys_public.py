"""Row counts of recordings of other projects and of our own lab; skipped where the recordings are not there."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import no_progress

SHARED = Path(__file__).parents[2].parent / "shared" / "traces"


@cache
def read(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not on this machine")
    reader = find_reader(path)
    assert reader.name == "nsys SQLite"
    return reader.read(path, ReadOptions(), no_progress)


def table(name, table_name):
    return read(name).tables[table_name].collect()


def counts(name, table_name, column):
    return dict(Counter(table(name, table_name)[column].cast(str).to_list()))


def messages(name):
    return {f.code: f.message for f in read(name).findings}


MORDRED = "public/mordred-oldest-schema/report1.sqlite.gz"
NSIGHTFUL = "public/nsightful-power-iteration/power_iteration__baseline.sqlite.gz"
MFU = "public/nsysai-mfu-2gpu-after/mfu_2gpu_after.sqlite.gz"
MOCK = "public/nsysai-mock/mock.sqlite"


@pytest.mark.parametrize(
    ("name", "kinds", "calls", "syncs", "ranges"),
    [
        (MORDRED, {"kernel": 12, "memcpy": 48, "memset": 12}, 111, {"device_sync": 9, "event_sync": 6}, {}),
        (NSIGHTFUL, {"kernel": 3689, "memcpy": 89}, 7417, {"stream_sync": 89, "device_sync": 1}, {"overhead": 5}),
        (
            MFU,
            {"kernel": 3587, "memcpy": 904, "memset": 242},
            6682,
            {"event_query": 124, "stream_wait": 180, "stream_sync": 30},
            {"push_pop": 480, "overhead": 6},
        ),
        (MOCK, {"kernel": 2, "memcpy": 1}, 9, {"stream_sync": 1}, {"overhead": 31}),
    ],
)
def test_rows_of_public_recordings(name, kinds, calls, syncs, ranges):
    assert counts(name, "ops", "kind") == kinds
    assert table(name, "calls").height == calls
    assert counts(name, "syncs", "kind") == syncs
    assert counts(name, "ranges", "kind") == ranges


def test_the_oldest_schema():
    info = read(MORDRED).info
    assert (info.schema_version, info.tool_version, info.clock) == (None, None, "relative")
    assert (info.gpu_traced, info.dropped) == (True, {})
    ops = table(MORDRED, "ops")
    kernels = ops.filter(kind="kernel")
    assert (kernels["start_ns"].min(), kernels["end_ns"].max()) == (2_048_174_606, 2_062_762_361)
    assert counts(MORDRED, "ops", "copy_kind") == {"HtoD": 45, "DtoH": 3, None: 24}
    assert (set(ops["process"]), set(ops["stream"]), set(ops["device"])) == ({2142}, {7}, {0})
    assert set(messages(MORDRED)) == {"no_absolute_time", "no_nvtx_ranges"}


def test_ranges_of_a_library_that_is_not_known():
    info = read(NSIGHTFUL).info
    assert (info.schema_version, info.tool_version, info.dropped) == ("3.20.2", "2025.3.1.90", {"foreign_ranges": 786})
    assert info.clock == "unix"
    assert table(NSIGHTFUL, "ops").filter(kind="kernel")["start_ns"].min() == 1_754_324_972_242_076_786 + 15_057_495
    assert Counter(table(NSIGHTFUL, "calls").filter(family="launch")["name"].to_list()) == {
        "cudaLaunchKernel_v7000": 1994,
        "cuLaunchKernel": 1695,
    }
    assert "launches_without_device_record" not in messages(NSIGHTFUL)


def test_two_ranks_in_one_report():
    info = read(MFU).info
    assert (info.schema_version, info.tool_version, info.gpu_traced) == ("3.25.0", "2026.2.1.210", True)
    assert info.dropped == {"foreign_ranges": 17_113 - 480}
    kernels = table(MFU, "ops").filter(kind="kernel")
    assert Counter(kernels.select("process", "device", "stream").rows()) == {(148, 0, 7): 1793, (149, 1, 15): 1794}
    nccl = kernels.filter(kernels["name"].cast(str).str.starts_with("ncclDevKernel_SendRecv"))
    assert Counter(nccl["device"]) == {0: 31, 1: 31}
    ranges = table(MFU, "ranges").filter(kind="push_pop")
    assert Counter(name.split(",")[0] for name in ranges["name"]) == {
        "nccl:all_to_all": 60,  # each with a number of its own
        "ncclSend": 120,
        "ncclRecv": 120,
        "ncclGroupStart": 60,
        "ncclGroupEnd": 60,
        "ncclCommCount": 60,
    }
    assert table(MFU, "processes").select("process", "pid").rows() == [(148, 148), (149, 149)]
    assert table(MFU, "threads").filter(autograd=True)["process"].to_list() == [148, 148, 149, 149]
    assert [f.count for f in read(MFU).findings if f.code == "launches_without_device_record"] == [2, 1]


@pytest.mark.parametrize(
    ("name", "epoch", "system_clock"),
    [
        (MORDRED, None, None),
        (NSIGHTFUL, 1_754_324_972_242_076_786, None),
        (MFU, 1_779_787_126_655_288_414, 38_133_239_887),
        (MOCK, 1_776_781_226_557_295_056, 515_396_806_359_142),
    ],
)
def test_what_the_files_state_about_their_zero(name, epoch, system_clock):
    info = read(name).info
    assert (info.epoch_ns, info.system_clock_ns, info.counter_ns) == (epoch, system_clock, None)
    assert (info.shift_ns, info.cpu_traced) == (0, None)


def test_an_option_that_denies_what_is_there():
    assert read(MOCK).info.gpu_traced is True
    assert "nvtx_not_traced" in messages(MOCK)


LAB = {  # kernels, copies, calls, syncs and event records, marks, of NCCL
    "lab/copy_engine_none_nsys": (1940, 60, 4165, 42 + 20, 120, 0),
    "lab/mailbox_both": (1940, 60, 4327, 62 + 40, 120, 0),
    "lab/mailbox_events_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/mailbox_graph_nsys": (20, 60, 565, 62 + 40, 120, 0),
    "lab/mailbox_graphnode_nsys": (1940, 60, 565, 62 + 40, 120, 0),
    "lab/mailbox_late_launch_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/mailbox_late_submit_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/mailbox_mixed_rank0": (960, 20, 2122, 21 + 20, 60, 0),
    "lab/mailbox_none_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/mailbox_slow_consumer_nsys": (2570, 90, 7245, 92 + 80, 180, 0),
    "lab/two-gpus/copy_engine_none_nsys": (1940, 60, 4165, 42 + 20, 120, 0),
    "lab/two-gpus/f1b1_nsys": (1901, 32, 7125, 1047 + 412, 8, 529),
    "lab/two-gpus/mailbox_late_submit_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/two-gpus/mailbox_none_nsys": (1940, 60, 4325, 62 + 40, 120, 0),
    "lab/two-gpus/mailbox_slow_consumer_nsys": (2570, 90, 7245, 92 + 80, 180, 0),
    "lab/two-gpus/nccl_late_submit_nsys": (1980, 20, 4762, 219 + 220, 120, 120),
    "lab/two-gpus/nccl_mixed_rank0": (980, 0, 2319, 84 + 120, 60, 60),
    "lab/two-gpus/nccl_none_nsys": (1980, 20, 4711, 182 + 220, 120, 120),
}


@pytest.mark.parametrize("name", LAB)
def test_rows_of_lab_recordings(name):
    path = f"{name}.sqlite.gz"
    kernels, copies, calls, syncs, marks, nccl = LAB[name]
    kinds = counts(path, "ops", "kind")
    assert (kinds.get("kernel", 0), kinds.get("memcpy", 0)) == (kernels, copies)
    assert table(path, "calls").height == calls
    assert table(path, "syncs").height == syncs
    ranges = table(path, "ranges").filter(kind="push_pop")
    assert ranges["name"].str.starts_with("gapscope::").sum() == marks
    assert (ranges["domain"].cast(str) == "NCCL").sum() == nccl
    assert ranges.height == marks + nccl
    assert read(path).info.dropped == {}
    assert not any(f.level == "error" for f in read(path).findings)


def test_a_graph_as_one_block_and_by_node():
    block = table("lab/mailbox_graph_nsys.sqlite.gz", "ops").filter(kind="graph")
    assert (block.height, set(block["name"].cast(str))) == (40, {"CUDA graph 1"})
    assert read("lab/mailbox_graph_nsys.sqlite.gz").findings[-1].code == "graph_level_tracing"
    by_node = table("lab/mailbox_graphnode_nsys.sqlite.gz", "ops")
    assert by_node["graph_node"].is_not_null().sum() == 1920
    assert "graph_level_tracing" not in messages("lab/mailbox_graphnode_nsys.sqlite.gz")


def test_waits_find_their_record():
    syncs = table("lab/mailbox_none_nsys.sqlite.gz", "syncs")
    assert counts("lab/mailbox_none_nsys.sqlite.gz", "syncs", "kind") == {
        "event_record": 40,
        "stream_wait": 40,
        "stream_sync": 20,
        "device_sync": 2,
    }
    key = ["process", "event_sync"]
    waits, records = syncs.filter(kind="stream_wait"), syncs.filter(kind="event_record")
    assert waits.join(records, on=key, how="inner").height == 40

"""Normalized tables of small exports, in both containers and on both ways through SQLite."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gapscope.errors import MalformedTraceError, UnsupportedVersionError
from gapscope.readers import ReadOptions, nsys_checks, nsys_database
from gapscope.readers.base import no_progress
from gapscope.readers.nsys_parquet import NSYS_PARQUET
from gapscope.readers.nsys_sqlite import NSYS_SQLITE
from gapscope.schema import READER_TABLES, reader_dtypes
from tests.unit.nsys_files import (
    EPOCH,
    EVENT,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    NO_ID,
    NVTX,
    RUNTIME,
    START,
    SYNC,
    A,
    B,
    at_start,
    call,
    compact_payload,
    normalized,
    nvtx,
    oldest,
    on_stream,
    process,
    small_export,
    thread,
)


@pytest.fixture(params=["sqlite", "pages", "parquet"])
def read(request, tmp_path, monkeypatch):
    """Write an export and read it: through SQLite, from its pages, or as parquet."""
    if request.param == "pages":
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)

    def write_and_read(export):
        if request.param == "parquet":
            return NSYS_PARQUET.read(export.write_parquet(tmp_path / "export"), ReadOptions(), no_progress)
        return NSYS_SQLITE.read(export.write_sqlite(tmp_path / "export.sqlite"), ReadOptions(), no_progress)

    return write_and_read


def rows(source, table, *columns):
    """Rows of a table, times without the epoch."""
    frame = source.tables[table].collect()
    relative = [c for c in ("start_ns", "end_ns") if c in columns and source.info.clock == "unix"]
    return frame.with_columns(pl.col(c) - EPOCH for c in relative).select(columns).rows()


def codes(source):
    return {f.code: f for f in source.findings}


def test_operations(read):
    columns = ("process", "device", "context", "stream", "start_ns", "end_ns", "correlation", "kind", "name")
    source = read(small_export())
    assert rows(source, "ops", *columns, "size_bytes", "copy_kind", "graph_node") == [
        (A, 0, 1, 7, 2000, 2500, 1, "kernel", "add(float *)", None, None, None),
        (A, 0, 1, 13, 2600, 2700, 2, "memcpy", "memcpy DtoH", 4096, "DtoH", None),
        (B, 1, 1, 17, 2000, 2600, 1, "kernel", "mul(float *)", None, None, None),
        (B, 1, 1, 17, 2700, 2710, 2, "memset", "memset", 64, None, None),
    ]


def test_calls(read):
    source = read(small_export())
    assert rows(source, "calls", "process", "thread", "start_ns", "end_ns", "correlation", "name", "family") == [
        (A, 101, 1000, 1200, 1, "cudaLaunchKernel_v7000", "launch"),
        (A, 101, 1300, 1350, 2, "cudaMemcpyAsync_v3020", "memcpy"),
        (A, 101, 1400, 1450, 3, "cudaEventRecord_v3020", "event_record"),
        (A, 101, 1500, 1550, 4, "cudaStreamWaitEvent_v3020", "stream_wait"),
        (A, 101, 1600, 1900, 5, "cudaStreamSynchronize_v3020", "stream_sync"),
        (B, 201, 1000, 1100, 1, "cudaLaunchKernel_v7000", "launch"),
        (B, 201, 1200, 1300, 2, "cudaMemsetAsync_v3020", "memset"),
    ]


def test_synchronizations(read):
    source = read(small_export())
    columns = ("process", "device", "context", "stream", "start_ns", "end_ns", "correlation", "kind", "event")
    assert rows(source, "syncs", *columns, "event_sync", "record_correlation") == [
        (A, 0, 1, 7, None, None, 3, "event_record", 9, 33, None),
        (A, 0, 1, 13, 1510, 1520, 4, "stream_wait", 9, 33, None),
        (A, 0, 1, 7, 1610, 1890, 5, "stream_sync", None, None, None),
    ]


def test_ranges(read):
    source = read(small_export())
    columns = ("process", "thread", "device", "stream", "start_ns", "end_ns", "kind", "domain", "name", "payload")
    assert rows(source, "ranges", *columns) == [
        (A, 101, None, None, 900, 3000, "push_pop", None, "gapscope::step step=1", None),
        (A, 101, None, None, 1010, 1020, "push_pop", "NCCL", "ncclSend", None),
        (B, 201, None, None, 2900, 2900, "instant", None, "gapscope::available src=0 dst=1 seq=1", None),
    ]
    assert source.info.dropped == {"foreign_ranges": 1}


def test_threads_and_processes(read):
    source = read(small_export())
    assert rows(source, "threads", "process", "thread", "name", "autograd") == [
        (A, 101, "python3", False),
        (A, 102, "pt_autograd_0", True),
    ]
    assert rows(source, "processes", "process", "pid", "label", "file_rank") == [
        (A, A, "r0", None),
        (B, B, "r1", None),
    ]
    assert source.tables["comms"].collect().is_empty()


def test_what_is_known_about_the_file(read):
    info = read(small_export()).info
    assert (info.tool, info.tool_version, info.schema_version, info.host) == ("nsys", "2025.3.2.0", "3.20.3", "node7")
    assert (info.clock, info.clock_origin, info.resolution_ns) == ("unix", "utcEpochNs + start", 1)
    assert (info.gpu_traced, info.cpu_only, info.truncated) == (True, False, False)
    assert info.events == 7 + 2 + 1 + 1 + 2 + 1 + 4


def test_a_good_file_has_no_findings(read):
    assert read(small_export()).findings == ()


def test_every_table_has_the_columns_of_the_schema(read):
    for export in (small_export(), oldest(small_export()), small_export().drop(KERNEL, RUNTIME, NVTX, SYNC)):
        source = read(export)
        for table in READER_TABLES:
            assert source.tables[table].collect_schema() == pl.Schema(reader_dtypes(table))


def test_order_of_rows_and_columns_does_not_matter(read):
    export = small_export()
    for n in range(40):  # ties: same process and start
        export.add(RUNTIME, call(A, 101 + n % 3, 5000, 5000 + n % 4, 100 + n, 1 + n % 6))
        export.add(KERNEL, on_stream(A, 6000, 6000 + n % 2, 100 + n, stream=7 + n % 3, demangledName=10 + 2 * (n % 2)))
    first, second = read(export), read(export.shuffled())
    for table in READER_TABLES:
        assert_frame_equal(first.tables[table].collect(), second.tables[table].collect())


# Ages of the schema


def test_the_oldest_schema(read):
    source = read(oldest(small_export()))
    assert (source.info.clock, source.info.schema_version, source.info.tool_version) == ("relative", None, None)
    assert set(codes(source)) == {"no_absolute_time"}
    assert rows(source, "ops", "process", "start_ns", "end_ns")[0] == (A, 2000, 2500)
    assert rows(source, "ranges", "name") == [
        ("gapscope::step step=1",),
        ("",),  # a row of the domain NCCL whose text the schema could not hold
        ("gapscope::available src=0 dst=1 seq=1",),
    ]
    assert rows(source, "syncs", "kind", "event", "event_sync") == [
        ("stream_wait", 9, None),
        ("stream_sync", None, None),
    ]
    assert rows(source, "processes", "process", "pid", "label") == [(A, A, None), (B, B, None)]


def test_older_name_of_the_table_of_versions(read):
    export = small_export().set("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", "2.4.1")
    export.tables["EXPORT_META_DATA"] = export.tables.pop("META_DATA_EXPORT")
    source = read(export)
    assert (source.info.schema_version, source.findings) == ("2.4.1", ())


def test_version_in_three_parts(read):
    export = small_export().set("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", None)
    for part, value in (("MAJOR", "3"), ("MINOR", "7"), ("MICRO", "2")):
        export.set("META_DATA_EXPORT", f"EXPORT_SCHEMA_VERSION_{part}", value)
    assert read(export).info.schema_version == "3.7.2"


def test_unknown_major_version_is_refused(read):
    with pytest.raises(UnsupportedVersionError, match=r"99\.0\.1.*up to major version 3"):
        read(small_export().set("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", "99.0.1"))


def test_newer_minor_version_is_said(read):
    source = read(small_export().set("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", "3.99.0"))
    assert codes(source)["newer_schema"].message.startswith("the export has schema version 3.99.0")
    assert source.tables["ops"].collect().height == 4


@pytest.mark.parametrize("missing", ["text", "textId", "domainId", "end"])
def test_absent_columns_of_ranges(read, missing):
    source = read(small_export().without(NVTX, missing))
    expected = {
        "text": [("ncclSend",)],  # and no name for the domain, which had its own in `text`
        "textId": [("gapscope::step step=1",), ("",), ("gapscope::available src=0 dst=1 seq=1",)],
        "domainId": [("gapscope::step step=1",), ("ncclSend",), ("gapscope::available src=0 dst=1 seq=1",)],
        "end": [("gapscope::step step=1",), ("ncclSend",), ("gapscope::available src=0 dst=1 seq=1",)],
    }
    assert rows(source, "ranges", "name") == expected[missing]
    assert ("missing_column" in codes(source)) == (missing == "end")


def test_payloads(read):
    export = small_export().empty(NVTX)
    export.add(
        NVTX,
        nvtx(A, 101, 1, 2, text="gapscope::a", int64Value=compact_payload(3)),
        nvtx(A, 101, 2, 3, text="gapscope::b", uint64Value=2**64 - 5),
        nvtx(A, 101, 3, 4, text="gapscope::c", int32Value=-7),
        nvtx(A, 101, 4, 5, text="gapscope::d", uint32Value=8),
        nvtx(A, 101, 5, 6, text="gapscope::e", doubleValue=9.0),
        nvtx(A, 101, 6, 7, text="gapscope::f", doubleValue=9.5),
        nvtx(A, 101, 7, 8, text="gapscope::g", floatValue=1e300),
        nvtx(A, 101, 8, 9, text="gapscope::h"),
    )
    assert rows(read(export), "ranges", "name", "payload") == [
        ("gapscope::a", compact_payload(3)),
        ("gapscope::b", -5),
        ("gapscope::c", -7),
        ("gapscope::d", 8),
        ("gapscope::e", 9),
        ("gapscope::f", None),
        ("gapscope::g", None),
        ("gapscope::h", None),
    ]


def test_compact_marks_of_a_domain_that_each_process_numbers_itself(read):
    export = small_export().empty(NVTX)
    export.add(
        NVTX,
        nvtx(A, 101, -9, None, kind=75, text_id=22, domain=3),
        nvtx(B, 201, -9, None, kind=75, text="CCCL", domain=3),
        nvtx(A, 101, 10, 20, text_id=23, domain=3, int64Value=compact_payload(1)),
        nvtx(B, 201, 10, 20, text="cub::DeviceReduce::Sum", domain=3),
    )
    source = read(export)
    assert rows(source, "ranges", "process", "domain", "name", "payload") == [
        (A, "gapscope", "gapscope::submit", compact_payload(1))
    ]
    assert source.info.dropped == {"foreign_ranges": 1}


def test_which_ranges_are_kept(read):
    export = small_export().empty(NVTX)
    kept = ["PP:1F1B", "ProfilerStep#3", "gapscope.user text", "gloo:send", "nccl:all_reduce", "ncclRecv"]
    foreign = ["Gapscope::x", "NCCL", "pp:x", "aten::nccl", "", "my gapscope::x", "glo"]
    for n, text in enumerate([*kept, *foreign]):
        export.add(NVTX, nvtx(A, 101, n, n + 1, text=text))
    source = read(export)
    assert sorted(name for (name,) in rows(source, "ranges", "name")) == kept
    assert source.info.dropped == {"foreign_ranges": len(foreign)}


def test_open_ranges_and_a_range_closed_on_another_thread(read):
    export = small_export().empty(NVTX)
    export.add(
        NVTX,
        nvtx(A, 101, 100, None, text="gapscope::open"),
        nvtx(A, 11, 200, 300, kind=60, text="gapscope::moved", rangeId=1, endGlobalTid=thread(A, 12)),
        nvtx(A, 11, 400, None, kind=60, text="gapscope::never", rangeId=2, endGlobalTid=None),
        nvtx(A, 11, 500, 450, text="gapscope::backwards"),
    )
    source = read(export)
    assert rows(source, "ranges", "thread", "start_ns", "end_ns", "kind", "name") == [
        (101, 100, None, "push_pop", "gapscope::open"),
        (11, 200, 300, "start_end", "gapscope::moved"),
        (11, 400, None, "start_end", "gapscope::never"),
        (11, 500, None, "push_pop", "gapscope::backwards"),
    ]
    assert codes(source)["impossible_times"].count == 1


def test_overhead_of_the_profiler(read):
    export = small_export()
    export.add("PROFILER_OVERHEAD", {"start": 40, "end": 60, "globalTid": thread(A, 101), "nameId": 24})
    export.add(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        {"start": 70, "end": 80, "globalTid": thread(A, 101), "nameId": None, "overheadType": 6},
    )
    export.add("ENUM_CUPTI_OVERHEAD_TYPE", {"id": 6, "name": "X", "label": "Lazy function loading"})
    source = read(export)
    assert [r for r in rows(source, "ranges", "kind", "start_ns", "end_ns", "name") if r[0] == "overhead"] == [
        ("overhead", 40, 60, "CUDA profiling data flush"),
        ("overhead", 70, 80, "Lazy function loading"),
    ]


# Processes


def test_equal_pids_of_two_machines_are_two_processes(read):
    export = small_export()
    other = on_stream(A, 3000, 3100, 1, demangledName=12)
    export.add(KERNEL, other | {"globalPid": process(A, machine=2)})
    export.add(NVTX, nvtx(A, 101, 1, 2, text="gapscope::x") | {"globalTid": thread(A, 101, machine=2)})
    source = read(export)
    first, second = process(A) >> 24, process(A, machine=2) >> 24
    assert rows(source, "processes", "process", "pid", "label") == [
        (B, B, "r1"),
        (first, A, "r0"),
        (second, A, None),
    ]
    assert [p for (p,) in rows(source, "ops", "process")] == [B, B, first, first, second]
    assert {p for (p,) in rows(source, "threads", "process")} == {first}


def test_operations_of_a_table_without_a_process(read):
    source = read(small_export().without(KERNEL, "globalPid"))
    assert rows(source, "ops", "process", "kind")[:2] == [(0, "kernel"), (0, "kernel")]
    assert rows(source, "processes", "process", "pid")[0] == (0, None)
    assert {"missing_column", "unknown_process"} <= set(codes(source))
    assert codes(source)["missing_column"].message == (
        f"table {KERNEL} has no column globalPid: its values count as not recorded"
    )


# Times


def test_untimed_and_impossible_operations_keep_their_place_without_times(read):
    export = small_export()
    export.add(KERNEL, on_stream(A, 0, 0, 8, demangledName=10), on_stream(A, 500, 400, 9, demangledName=10))
    source = read(export)
    assert rows(source, "ops", "start_ns", "end_ns", "correlation")[:2] == [(None, None, 8), (None, None, 9)]
    assert codes(source)["untimed_ops"].count == 1
    assert codes(source)["impossible_times"].count == 1


def test_a_call_with_an_impossible_start_is_left_out(read):
    export = small_export()
    export.add(RUNTIME, call(A, 101, 2**62, 2**62 + 5, 90, 1), call(A, 101, 3000, 2900, 91, 1))
    source = read(export)
    assert rows(source, "calls", "start_ns", "end_ns", "correlation")[5] == (3000, None, 91)
    assert source.info.dropped == {"foreign_ranges": 1, "damaged": 1}
    assert codes(source)["damaged_records"].count == 1


def test_normalized_times_are_not_shifted_twice(read):
    export = normalized(small_export())
    export.add(KERNEL, on_stream(A, EPOCH, EPOCH, 8, demangledName=10))  # 0/0 with the epoch added
    source = read(export)
    assert rows(source, "ops", "start_ns", "end_ns")[:2] == [(None, None), (2000, 2500)]
    assert (source.info.clock, source.info.clock_origin) == ("unix", "times normalized by nsys export")
    assert read(export.set("META_DATA_EXPORT", "EXPORT_PARAM_TIME_NORMALIZE", None)).info == source.info


def test_a_shift_at_export_is_said(read):
    source = read(small_export().set("META_DATA_EXPORT", "EXPORT_PARAM_TIME_SHIFT", "-5000"))
    assert "--ts-shift=-5000" in codes(source)["export_time_shift"].message
    assert source.info.shift_ns == -5000
    assert rows(source, "calls", "start_ns")[0] == (1000,)  # the shift stays in


@pytest.mark.parametrize(
    ("said", "shift", "found"),
    [
        ("0", 0, False),
        ("", 0, False),
        (None, 0, False),
        ("+7", 7, True),
        (" 86400000000000 ", 86_400_000_000_000, True),
        ("1.5", 0, True),
        ("1" * 30, 0, True),
    ],
)
def test_what_is_no_shift(read, said, shift, found):
    source = read(small_export().set("META_DATA_EXPORT", "EXPORT_PARAM_TIME_SHIFT", said))
    assert (source.info.shift_ns, "export_time_shift" in codes(source)) == (shift, found)


@pytest.mark.parametrize("how", ["no table", "no column", "null"])
def test_without_session_start_times_are_relative(read, how):
    export = small_export()
    if how == "no table":
        export.drop(START)
    elif how == "no column":
        export.without(START, "utcEpochNs")
    else:
        export.change(START, 0, utcEpochNs=None)
    source = read(export)
    assert (source.info.clock, set(codes(source))) == ("relative", {"no_absolute_time"})
    assert rows(source, "calls", "start_ns")[0] == (1000,)


def start_of(source):
    """What is known about the zero of the file."""
    info = source.info
    return (info.clock, info.epoch_ns, info.system_clock_ns, info.counter_ns)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"utcEpochNs": EPOCH, "systemClockNs": 38, "sessionStartCntVctNs": 41}, ("unix", EPOCH, 38, 41)),
        ({"sessionStartCntVctNs": 41, "systemClockNs": 38, "utcEpochNs": EPOCH}, ("unix", EPOCH, 38, 41)),
        ({"systemClockNs": 38, "utcTime": "x", "utcEpochNs": EPOCH}, ("unix", EPOCH, 38, None)),
        ({"utcEpochNs": EPOCH, "systemClockNs": None, "sessionStartCntVctNs": 41}, ("unix", EPOCH, None, 41)),
        ({"utcEpochNs": EPOCH, "systemClockNs": 0, "sessionStartCntVctNs": -1}, ("unix", EPOCH, None, None)),
        ({"systemClockNs": 38}, ("relative", None, 38, None)),
        ({"utcEpochNs": None, "systemClockNs": 38, "sessionStartCntVctNs": 41}, ("relative", None, 38, 41)),
        ({"utcTime": "x"}, ("relative", None, None, None)),
    ],
)
def test_what_the_file_states_about_its_zero(read, columns, expected):
    source = read(at_start(small_export(), **columns))
    assert start_of(source) == expected
    assert set(codes(source)) == (set() if expected[0] == "unix" else {"no_absolute_time"})
    assert rows(source, "calls", "start_ns")[0] == (1000,)
    assert (source.info.shift_ns, source.info.cpu_traced) == (0, None)


def test_nothing_is_known_about_the_zero_without_the_table(read):
    assert start_of(read(small_export().drop(START))) == ("relative", None, None, None)
    assert start_of(read(small_export().empty(START))) == ("relative", None, None, None)


def test_what_is_stated_about_the_zero_is_of_one_row(read):
    rest = {"systemClockNs": 38, "sessionStartCntVctNs": 41}
    export = at_start(small_export(), utcEpochNs=None, **rest).add(START, {"utcEpochNs": EPOCH})
    assert start_of(read(export)) == ("unix", EPOCH, None, None)
    export.add(START, {"utcEpochNs": EPOCH + 5, "systemClockNs": 43})
    assert start_of(read(export)) == ("unix", EPOCH + 5, 43, None)


def test_a_normalized_export_states_its_zero_too(read):
    export = at_start(normalized(small_export()), utcEpochNs=EPOCH, systemClockNs=38, sessionStartCntVctNs=41)
    export.set("META_DATA_EXPORT", "EXPORT_PARAM_TIME_SHIFT", "-5000")
    source = read(export)
    assert start_of(source) == ("unix", EPOCH, 38, 41)
    assert (source.info.shift_ns, source.info.clock_origin) == (-5000, "times normalized by nsys export")
    assert rows(source, "calls", "start_ns")[0] == (1000,)


NO_TIMES = [0, 1000, -5, 946_684_799_999_999_999, 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("epoch", NO_TIMES)
def test_a_session_start_that_is_no_time_is_not_used(read, epoch):
    source = read(at_start(small_export(), utcEpochNs=epoch, systemClockNs=38))
    assert start_of(source) == ("relative", None, 38, None)
    assert set(codes(source)) == {"session_start_unusable"}
    finding = codes(source)["session_start_unusable"]
    assert (finding.level, f"utcEpochNs is {epoch}, which is no time" in finding.message) == ("warning", True)
    assert "Check the clock of the machine" in finding.hint
    assert rows(source, "calls", "start_ns")[0] == (1000,)


@pytest.mark.parametrize("epoch", [946_684_800_000_000_000, 2**62 - 1])
def test_the_first_and_last_session_start_that_is_a_time(read, epoch):
    source = read(at_start(small_export(), utcEpochNs=epoch))
    assert (start_of(source), source.findings) == (("unix", epoch, None, None), ())
    assert source.tables["calls"].collect()["start_ns"][0] == epoch + 1000


@pytest.mark.parametrize("epoch", [1000, -(10**18), 3 * 10**17, 946_684_799_999_999_000])
def test_a_nonsense_session_start_that_was_added_is_taken_off(read, epoch):
    export = at_start(normalized(small_export(), epoch), utcEpochNs=epoch, systemClockNs=38)
    export.add(KERNEL, on_stream(A, epoch, epoch, 8, demangledName=10))  # 0/0 with the epoch added
    source = read(export)
    assert start_of(source) == ("relative", None, 38, None)
    assert rows(source, "ops", "start_ns", "end_ns")[:2] == [(None, None), (2000, 2500)]
    assert rows(source, "calls", "start_ns")[0] == (1000,)
    assert "session_start_unusable" in codes(source)


def test_absolute_times_stand_whatever_the_session_start_says(read):
    source = read(at_start(normalized(small_export()), utcEpochNs=1000, systemClockNs=38))
    assert start_of(source) == ("unix", None, 38, None)
    assert rows(source, "calls", "start_ns")[0] == (1000,)
    assert set(codes(source)) == {"session_start_unusable"}
    assert "unknown zero" not in codes(source)["session_start_unusable"].message


# Synchronizations


@pytest.mark.parametrize(
    ("event", "stream", "kind"),
    [(9, 7, "stream_wait"), (9, NO_ID, "event_sync"), (NO_ID, 7, "stream_sync"), (NO_ID, NO_ID, "device_sync")],
)
def test_kind_of_a_synchronization_without_its_call(read, event, stream, kind):
    export = small_export().empty(SYNC, EVENT)
    export.add(SYNC, on_stream(A, 10, 20, 77, stream=stream, syncType=2, eventId=event, eventSyncId=NO_ID))
    assert rows(read(export), "syncs", "kind") == [(kind,)]


def test_kind_by_call_uses_the_process(read):
    export = small_export().empty(SYNC, EVENT)
    export.add(RUNTIME, call(B, 201, 1500, 1550, 4, 5))  # stream synchronization; 4 is a wait in the other process
    for pid in (A, B):
        export.add(SYNC, on_stream(pid, 1510, 1520, 4, syncType=3, eventId=NO_ID, eventSyncId=NO_ID))
    assert rows(read(export), "syncs", "process", "kind") == [(A, "stream_wait"), (B, "stream_sync")]


def test_device_time_of_an_event_record(read):
    export = small_export().change(EVENT, 0, timestamp=1444)
    assert rows(read(export), "syncs", "start_ns", "end_ns", "kind")[0] == (1444, 1444, "event_record")
    export.change(EVENT, 0, timestamp=0)
    assert rows(read(export), "syncs", "start_ns", "end_ns", "kind")[0] == (None, None, "event_record")


# Copies and names


def test_copy_kinds(read):
    export = small_export().empty(MEMCPY)
    for n, kind in enumerate((0, 1, 8, 10, 11, 13, 99, None)):
        export.add(MEMCPY, on_stream(A, 100 + n, 101 + n, 40 + n, bytes=n, copyKind=kind))
    got = [r for r in rows(read(export), "ops", "kind", "name", "copy_kind") if r[0] == "memcpy"]
    assert [r[1:] for r in got] == [
        ("memcpy", "unknown"),
        ("memcpy HtoD", "HtoD"),
        ("memcpy DtoD", "DtoD"),
        ("memcpy PtoP", "PtoP"),
        ("memcpy HtoD", "HtoD"),
        ("memcpy DtoD", "DtoD"),
        ("memcpy", "unknown"),
        ("memcpy", "unknown"),
    ]


def test_kernel_names_fall_back(read):
    export = small_export().empty(KERNEL)
    export.add(
        KERNEL,
        on_stream(A, 10, 11, 1, demangledName=10, shortName=11),
        on_stream(A, 20, 21, 2, demangledName=None, shortName=13),
        on_stream(A, 30, 31, 3, demangledName=555, shortName=None),
        on_stream(A, 40, 41, 4, demangledName=None, shortName=None),
    )
    names = [r for (r, k) in rows(read(export), "ops", "name", "kind") if k == "kernel"]
    assert names == ["add(float *)", "mul", "unnamed (555)", "unnamed"]
    short = [
        r for (r, k) in rows(read(export.without(KERNEL, "demangledName")), "ops", "name", "kind") if k == "kernel"
    ]
    assert short == ["add", "mul", "unnamed", "unnamed"]
    source = read(export.without(KERNEL, "shortName"))
    assert "demangledName" in codes(source)["missing_column"].message
    assert rows(source, "ops", "name")[0] == ("unnamed",)


# Graphs, losses, and what was not traced


def with_graph_launch(export):
    return export.add(RUNTIME, call(A, 101, 4000, 4100, 50, 7))


def test_graph_traced_as_one_block(read):
    export = with_graph_launch(small_export())
    export.add(GRAPH, on_stream(A, 5000, 9000, 50, graphId=3, graphExecId=4))
    source = read(export)
    assert rows(source, "ops", "start_ns", "end_ns", "correlation", "kind", "name")[2] == (
        5000, 9000, 50, "graph", "CUDA graph 3",
    )  # fmt: skip
    finding = codes(source)["graph_level_tracing"]
    assert (finding.level, finding.count, "--cuda-graph-trace=node" in finding.hint) == ("info", 1, True)
    assert set(codes(source)) == {"graph_level_tracing"}


def test_graph_traced_by_node(read):
    export = with_graph_launch(small_export())
    for node in (11, 12):
        export.add(KERNEL, on_stream(A, 5000 + node, 5001 + node, 50, demangledName=10, graphNodeId=node))
    source = read(export)
    assert rows(source, "ops", "correlation", "graph_node")[2:4] == [(50, 11), (50, 12)]
    assert source.findings == ()


def test_graph_work_that_was_not_captured(read):
    finding = codes(read(with_graph_launch(small_export())))["graph_work_not_captured"]
    assert (finding.level, finding.count) == ("warning", 1)


def test_launches_without_a_record_are_counted_by_process(read):
    export = small_export()
    for n in range(3):
        export.add(RUNTIME, call(B, 201, 4000 + n, 4001 + n, 60 + n, 1))
    finding = codes(read(export))["launches_without_device_record"]
    assert finding.message == f"3 of 4 launch calls of process {B} have no GPU record"
    assert (finding.level, finding.count) == ("warning", 3)


def test_correlation_ids_of_huge_value(read):
    export = small_export()
    export.add(RUNTIME, call(A, 101, 4000, 4001, 2**40, 1), call(A, 101, 4002, 4003, 2**41, 1))
    export.add(KERNEL, on_stream(A, 4100, 4200, 2**40, demangledName=10))
    assert codes(read(export))["launches_without_device_record"].count == 1


def test_a_process_with_marks_but_no_gpu_activity(read):
    export = small_export().add(NVTX, nvtx(300, 301, 10, 20, text="gapscope::consume src=0 dst=1 seq=1"))
    finding = codes(read(export))["process_without_gpu_activity"]
    assert finding.message.startswith("process 300 has gapscope marks but no CUDA activity")


def gpu_free():
    return small_export().drop(KERNEL, MEMCPY, MEMSET, RUNTIME, SYNC, EVENT)


def test_gpu_was_traced_but_nothing_recorded(read):
    source = read(gpu_free())
    assert source.info.gpu_traced is True
    assert codes(source)["no_gpu_operations"].message == "CUDA was traced, but no GPU operation was recorded"


def test_gpu_was_not_traced(read):
    export = gpu_free()
    columns, old = export.tables["META_DATA_CAPTURE"]
    export.tables["META_DATA_CAPTURE"] = (columns, [r for r in old if r["value"] != "Cuda"])
    export.set("META_DATA_CAPTURE", "PROCESS_0:COLLECT_CUDA_TRACE", "false")
    source = read(export)
    assert source.info.gpu_traced is False
    assert "gpu_not_traced" in codes(source)


def test_not_known_if_the_gpu_was_traced(read):
    source = read(gpu_free().drop("META_DATA_CAPTURE"))
    assert source.info.gpu_traced is None
    assert "gpu_activity_unknown" in codes(source)


def test_rows_of_the_gpu_show_that_it_was_traced_whatever_the_option_says(read):
    export = small_export().drop("META_DATA_CAPTURE").set("META_DATA_CAPTURE", "PROCESS_0:COLLECT_CUDA_TRACE", "false")
    assert read(export).info.gpu_traced is True


@pytest.mark.parametrize(
    ("capture", "code"), [("true", "no_nvtx_ranges"), ("false", "nvtx_not_traced"), (None, "no_nvtx_ranges")]
)
@pytest.mark.parametrize("how", ["no table", "no rows"])
def test_no_ranges(read, capture, code, how):
    export = small_export().drop("META_DATA_CAPTURE").set("META_DATA_CAPTURE", "PROCESS_0:COLLECT_NVTX_TRACE", capture)
    source = read(export.drop(NVTX) if how == "no table" else export.empty(NVTX))
    assert set(codes(source)) == {code}


def test_only_ranges_of_others(read):
    export = small_export().empty(NVTX).add(NVTX, nvtx(A, 101, 1, 2, text="aten::add"))
    assert codes(read(export))["only_foreign_ranges"].count == 1


@pytest.mark.parametrize("how", ["no tables", "no rows"])
def test_a_valid_export_without_events(read, how):
    export = small_export()
    tables = (KERNEL, MEMCPY, MEMSET, RUNTIME, SYNC, EVENT, NVTX)
    source = read(export.drop(*tables) if how == "no tables" else export.empty(*tables))
    assert set(codes(source)) == {"no_events"}
    assert "capture range was probably never started" in codes(source)["no_events"].hint
    assert source.info.events == 0


def test_diagnostics_are_grouped_and_few(read):
    export = small_export()
    texts = ["Not all CUDA events might have been collected.", *(f"No {n} events collected." for n in "ABCDEF")]
    for text in [*texts, texts[0]]:
        export.add("DIAGNOSTIC_EVENT", {"timestamp": 1, "severity": 2, "text": text})
    export.add("DIAGNOSTIC_EVENT", {"timestamp": 1, "severity": 3, "text": "CUPTI ran out\nof  memory"})
    export.add("DIAGNOSTIC_EVENT", {"timestamp": 1, "severity": 1, "text": "Profiling has started."})
    found = [f for f in read(export).findings if f.code == "nsys_diagnostic"]
    assert [(f.level, f.count) for f in found] == [("warning", 1), ("info", 8)]
    assert found[0].message == "nsys reported errors while recording: CUPTI ran out of memory"
    assert found[1].message.startswith(
        "nsys warned while recording: Not all CUDA events might have been collected; No A"
    )
    assert found[1].message.endswith("No D events collected; and 2 more")


def test_limited_exports_are_said(read):
    export = small_export().set("META_DATA_EXPORT", "EXPORT_PARAM_TABLES_TO_EXPORT", "NVTX.* StringIds")
    assert "--tables=NVTX.* StringIds" in codes(read(export))["partial_export"].message
    export = small_export().set("META_DATA_EXPORT", "EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s")
    assert "--times=1s/2s" in codes(read(export))["partial_export"].message


def test_several_hosts(read):
    source = read(small_export().add("TARGET_INFO_SYSTEM_ENV", {"name": "Hostname", "value": "node8"}))
    assert source.info.host == "node7"
    assert "node7, node8" in codes(source)["several_hosts"].message


# Missing and renamed columns


@pytest.mark.parametrize("column", ["start", "deviceId", "streamId", "correlationId"])
def test_a_renamed_column_costs_its_values_only(read, column):
    source = read(small_export().rename(KERNEL, column, "renamed"))
    assert f"table {KERNEL} has no column {column}" in codes(source)["missing_column"].message
    assert source.tables["ops"].collect().height == 4
    target = {"start": "start_ns", "deviceId": "device", "streamId": "stream", "correlationId": "correlation"}[column]
    assert {v for (v, k) in rows(source, "ops", target, "kind") if k == "kernel"} == {None}


@pytest.mark.parametrize("column", ["start", "eventType", "globalTid"])
def test_ranges_need_some_columns(read, column):
    source = read(small_export().rename(NVTX, column, "renamed"))
    assert f"table {NVTX} has no column {column}" in codes(source)["missing_column"].message
    assert source.tables["ranges"].collect().is_empty()
    assert source.tables["ops"].collect().height == 4


def test_strings_that_are_gone(read):
    source = read(small_export().drop("StringIds"))
    assert rows(source, "ops", "name")[0] == ("unnamed (10)",)
    assert rows(source, "calls", "name", "family")[0] == ("unnamed (1)", "other")
    assert rows(source, "ranges", "name") == [
        ("gapscope::step step=1",), ("",), ("gapscope::available src=0 dst=1 seq=1",),
    ]  # fmt: skip


def test_many_processes_in_random_order(read):
    export = small_export().empty(KERNEL, RUNTIME, MEMCPY, MEMSET, SYNC, EVENT, NVTX)
    for n in range(600):
        pid = 1000 + n * 7 % 300
        export.add(RUNTIME, call(pid, pid, 10_000 - n, 10_001 - n, n, 1))
        export.add(KERNEL, on_stream(pid, 20_000 - n, 20_001 - n, n, demangledName=10))
    source = read(export)
    for table in ("ops", "calls"):
        got = rows(source, table, "process", "start_ns")
        assert len(got) == 600
        assert got == sorted(got)
    assert source.tables["processes"].collect()["process"].to_list() == list(range(1000, 1300))
    assert "launches_without_device_record" not in codes(source)


def test_all_tables_of_events_damaged(tmp_path):
    folder = small_export().drop(EVENT, MEMSET, SYNC, MEMCPY).write_parquet(tmp_path / "export")
    for table in (KERNEL, RUNTIME, NVTX):
        (folder / f"{table}.parquet").write_bytes(b"PAR1" * 20)
    with pytest.raises(MalformedTraceError, match="none of its 3 tables of events can be read"):
        NSYS_PARQUET.read(folder, ReadOptions(), no_progress)


@pytest.mark.parametrize("apart", [1, 3, 10**6, 10**12])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_ids_are_looked_for_near_and_far(apart, dtype):
    draw = np.random.default_rng(apart)
    ids = draw.permutation(np.arange(2000, dtype=dtype) * apart + 7)[:1500]
    for wanted in (ids, ids[:5] + 1, np.arange(40, dtype=dtype), draw.integers(0, 2100 * apart, 3000).astype(dtype)):
        assert nsys_checks._among(wanted, ids).tolist() == np.isin(wanted, ids).tolist()
        assert not nsys_checks._among(wanted, ids[:0]).any()

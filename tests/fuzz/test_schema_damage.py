"""Exports without one of their tables or columns, as other versions or a failed export leave them."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from gapscope.errors import InputError
from tests.fuzz import built, exports
from tests.fuzz.recordings import (
    DATA,
    SQLITE_FILES,
    Whole,
    analyzed,
    check_handoffs,
    content,
    difference,
    read,
    read_or_refuse,
    rows_of,
    told,
    whole_of,
)

RUNTIME, KERNEL, MEMCPY = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("RUNTIME", "KERNEL", "MEMCPY"))
GRAPH_TRACE, NVTX = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS"

READ_FROM = {
    RUNTIME: {"calls"},
    KERNEL: {"ops"},
    MEMCPY: {"ops"},
    GRAPH_TRACE: {"ops"},
    NVTX: {"ranges"},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {"syncs"},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": {"syncs"},
    "PROFILER_OVERHEAD": {"ranges"},
    "StringIds": {"ops", "calls", "ranges", "threads", "syncs"},
    "ThreadNames": {"threads"},
    "PROCESSES": {"processes"},
    "TARGET_INFO_SESSION_START_TIME": set(),
    "TARGET_INFO_CUDA_STREAM": {"streams"},
    "TARGET_INFO_CUDA_CONTEXT_INFO": {"streams"},
}
"""Tables of an export, and the tables of the product that change if they are gone. All others change nothing."""

AT_ENDS = {"producer_finish_ns", "consumer_start_ns"}
BETWEEN = {"movement_start_ns", "available_ns"}
HOST = {"submit_ns", "receive_post_ns"}
LOST_WITH = {
    "mailbox_graph_nsys.sqlite.gz": {RUNTIME: AT_ENDS | BETWEEN, MEMCPY: BETWEEN, GRAPH_TRACE: AT_ENDS},
    "mailbox_mixed_rank0.sqlite.gz": {RUNTIME: AT_ENDS | BETWEEN, MEMCPY: BETWEEN, KERNEL: AT_ENDS},
    "mailbox_both.sqlite.gz": {RUNTIME: AT_ENDS | BETWEEN, MEMCPY: BETWEEN, KERNEL: AT_ENDS},
}
"""Times that are lost with a table, besides all of them with NVTX_EVENTS and the derived ones with StringIds."""

NAMED = {
    RUNTIME: {"start", "end", "globalTid", "correlationId", "nameId"},
    KERNEL: {"start", "end", "deviceId", "streamId", "correlationId", "globalPid"},
    MEMCPY: {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind"},
    GRAPH_TRACE: {"start", "end", "deviceId", "streamId", "correlationId", "globalPid"},
    NVTX: {"start", "end", "eventType", "globalTid"},
}
"""Columns that every export has: if one is missing, a finding names it."""

DECIDING = {
    RUNTIME: {"start", "globalTid", "correlationId", "nameId"},
    KERNEL: {"start", "end", "correlationId", "globalPid"},
    MEMCPY: {"start", "end", "correlationId", "globalPid"},
    GRAPH_TRACE: {"start", "end", "correlationId", "globalPid"},
    NVTX: {"start", "end", "eventType", "globalTid", "text"},
}
"""Columns without which times are lost."""


@functools.cache
def alone(name: str) -> Whole:
    """An export without the other files of its run: another tool's marks would stand in for those that are gone."""
    return whole_of(read(DATA / name))


@functools.cache
def tables_of(name: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.sqlite"
        path.write_bytes(content(name))
        return exports.columns(path)


def damaged(tmp_path, name, statement):
    path = tmp_path / Path(name).name.removesuffix(".gz")
    path.write_bytes(content(name))
    exports.changed(path, statement)
    return read_or_refuse(path)


def lost_times(undamaged, source):
    info = replace(source.info, path=undamaged.source.info.path)
    if (rows_of(source), info) == (undamaged.rows, undamaged.source.info):
        return set()  # handoffs are made of nothing else
    lost = check_handoffs(undamaged, source)
    times = set().union(*lost.values())
    assert not lost or len(lost) == len(undamaged.handoffs)
    return times


def had(undamaged):
    """Times that the undamaged export has (a file of one rank has those of one side)."""
    return {time for row in undamaged.handoffs.values() for time, value in row.items() if value is not None}


def tables_that_are_read(*names):
    return [(name, table) for name in names for table in READ_FROM if table in tables_of(name)]


@pytest.mark.parametrize(("name", "table"), tables_that_are_read(*SQLITE_FILES))
def test_an_export_without_a_table_that_is_read(tmp_path, name, table):
    undamaged = alone(name)
    source = damaged(tmp_path, name, f'DROP TABLE "{table}"')
    found = difference(undamaged, source)
    changed = {t for t, rows in found.absent.items() if rows} | {t for t, rows in found.gained.items() if rows}
    assert changed <= READ_FROM[table]
    if table == NVTX:
        assert not analyzed(source).handoffs.height
        assert told(undamaged.source, source)
        return
    lost = AT_ENDS | BETWEEN if table == "StringIds" else LOST_WITH[name].get(table, set())
    assert lost_times(undamaged, source) == lost & had(undamaged)
    if table in (RUNTIME, "StringIds", "TARGET_INFO_SESSION_START_TIME"):
        assert told(undamaged.source, source)


@pytest.mark.parametrize("name", SQLITE_FILES)
def test_an_export_without_the_tables_that_are_not_read(tmp_path, name):
    undamaged = alone(name)
    others = tables_of(name).keys() - READ_FROM.keys()
    assert len(others) > 30
    path = tmp_path / Path(name).name.removesuffix(".gz")
    path.write_bytes(content(name))
    exports.changed(path, *(f'DROP TABLE "{table}"' for table in others))
    source = read(path)
    assert not difference(undamaged, source).count()
    assert not lost_times(undamaged, source)


@pytest.mark.parametrize(("name", "table"), tables_that_are_read(*SQLITE_FILES[:2]))  # the third has no other columns
def test_an_export_with_a_renamed_column(tmp_path, name, table):
    undamaged = alone(name)
    columns = tables_of(name)[table]
    used = NAMED.get(table, set()) | DECIDING.get(table, set())
    for column in [c for c in columns if c in used] + [c for c in columns if c not in used][:3]:
        source = damaged(tmp_path, name, f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"')
        assert not isinstance(source, InputError), column
        messages = {f.message for f in source.findings} - {f.message for f in undamaged.source.findings}
        named = any(table in message and column in message for message in messages)
        if column in NAMED.get(table, ()):
            assert named, (column, messages)
        if table == NVTX and column in {"start", "eventType", "globalTid", "text"}:
            assert not analyzed(source).handoffs.height
            assert told(undamaged.source, source)
            continue
        found = difference(undamaged, source)
        changed = {t for t, rows in found.absent.items() if rows} | {t for t, rows in found.gained.items() if rows}
        assert changed <= READ_FROM[table] | {"processes", "syncs"}, column
        deciding = column in DECIDING.get(table, ()) and not (table == KERNEL and GRAPH_TRACE in tables_of(name))
        lost = lost_times(undamaged, source)
        assert bool(lost) == (deciding or (table == "StringIds")), (column, lost)
        assert not lost & HOST, column


@pytest.mark.parametrize("table", ["StringIds", RUNTIME, KERNEL, NVTX, "META_DATA_EXPORT"])
def test_a_parquet_export_without_a_file(tmp_path, table):
    database, folder = tmp_path / "both.sqlite", tmp_path / "both_pqtdir"
    exports.build(database, built.recorded("plain", (1, 2, 3)))
    exports.as_parquet(database, folder)
    undamaged = whole_of(read(folder))
    assert undamaged.handoffs["0>1/0/2"] == {"status": "complete", **built.plain_times(2)}
    (folder / f"{table}.parquet").unlink()
    source = read(folder)
    if table == NVTX:
        assert not analyzed(source).handoffs.height
        assert told(undamaged.source, source)
        return
    derived = AT_ENDS | BETWEEN
    assert lost_times(undamaged, source) == (set() if table == "META_DATA_EXPORT" else derived)


def test_an_export_without_any_table_that_is_read_is_refused(tmp_path):
    name = SQLITE_FILES[0]
    path = tmp_path / "export.sqlite"
    path.write_bytes(content(name))
    exports.changed(path, *(f'DROP TABLE "{table}"' for table in tables_of(name).keys() - {"ENUM_CUPTI_SYNC_TYPE"}))
    assert isinstance(read_or_refuse(path), InputError)

"""From the stored tables of an Nsight Systems export to the normalized tables.

Communication metadata (`comms`) stays empty: NCCL's NVTX payloads (peer, size, communicator) are null in a default
export, and where ``binaryData`` is exported it is not decoded.
"""

from __future__ import annotations

import polars as pl

from gapscope.errors import MalformedTraceError
from gapscope.readers.base import Progress, SourceInfo, SourceTables
from gapscope.readers.nsys_calls import CALL_TABLES, EVENT, SYNC, read_calls, read_syncs
from gapscope.readers.nsys_checks import note_gaps_in_record
from gapscope.readers.nsys_ids import Names, pid_of, process_numbers, thread_of, whole_process
from gapscope.readers.nsys_meta import Meta, find_clock, note_diagnostics, read_meta
from gapscope.readers.nsys_ops import OP_TABLES, read_ops
from gapscope.readers.nsys_order import put_together, split_by_process
from gapscope.readers.nsys_ranges import NVTX, OVERHEAD_TABLES, read_ranges
from gapscope.readers.nsys_raw import RawTables, Tables
from gapscope.readers.nsys_reading import NO_PROCESS, Reading
from gapscope.readers.nsys_streams import CONTEXT, STREAM, read_streams
from gapscope.schema import conform, empty_reader_table, reader_dtypes

VERSION = 4
"""Version of the readers of Nsight Systems exports; see `gapscope.readers.base.Reader.version`."""

EVENT_TABLES = (*OP_TABLES, *CALL_TABLES, SYNC, EVENT, NVTX, *OVERHEAD_TABLES)
SIDE_TABLES = ("StringIds", "ThreadNames", "PROCESSES", "DIAGNOSTIC_EVENT", "TARGET_INFO_SYSTEM_ENV")
MARKER_TABLES = frozenset(
    (
        *EVENT_TABLES,
        *SIDE_TABLES,
        "META_DATA_EXPORT",
        "EXPORT_META_DATA",
        "META_DATA_CAPTURE",
        "TARGET_INFO_SESSION_START_TIME",
        STREAM,
        CONTEXT,
    )
)
"""Tables by which an export is recognized, and all that are read but for the ENUM_* tables."""


def normalize(raw: RawTables, path: str, format_name: str, progress: Progress) -> SourceTables:
    """Return the normalized tables of an export.

    Args:
        raw: The stored tables.
        path: The file as the user named it.
        format_name: Name of the reader.
        progress: Gets what is going on.

    Raises:
        UnsupportedVersionError: The major version of the schema is not known.
        MalformedTraceError: No table of events can be read although some are there.
    """
    tables = Tables(raw, path)
    meta = read_meta(tables)
    reading = Reading(tables, find_clock(tables, meta), Names(tables.strings))
    progress("reading GPU operations", 0.05)
    ops = read_ops(reading)
    progress("reading API calls", 0.35)
    calls = read_calls(reading)
    progress("reading synchronizations", 0.7)
    syncs = read_syncs(reading, calls)
    progress("reading ranges", 0.75)
    ranges = read_ranges(reading)
    _refuse_if_all_damaged(tables)
    progress("ordering", 0.85)
    parts = {"ops": ops, "calls": calls, "syncs": split_by_process(syncs), "ranges": split_by_process(ranges)}
    del ops, calls, syncs, ranges  # what is put together below replaces the parts one table at a time
    numbers = process_numbers(whole for table in parts.values() for whole, _ in table)
    frames: dict[str, pl.DataFrame] = {}
    for name, keys in _KEYS.items():
        rows = put_together(parts.pop(name), numbers, keys)
        frames[name] = empty_reader_table(name) if rows is None else rows.select(*reader_dtypes(name))
    frames["comms"] = empty_reader_table("comms")
    frames["threads"] = _threads(tables, numbers)
    frames["processes"] = _processes(tables, numbers)
    frames["streams"] = read_streams(tables, numbers)
    progress("checking", 0.95)
    note_diagnostics(tables)
    note_gaps_in_record(reading, meta, frames)
    traced = True if frames["ops"].height or frames["calls"].height else meta.cuda_traced
    clock, counts = reading.clock, reading.counts
    dropped = {"foreign_ranges": counts.foreign, "damaged": counts.damaged}
    info = SourceInfo(
        path=path,
        format=format_name,
        tool="nsys",
        tool_version=meta.export.get("EXPORT_PRODUCT_VERSION"),
        schema_version=meta.schema,
        host=_host(tables, meta),
        clock=clock.kind,
        clock_origin=clock.origin,
        epoch_ns=meta.epoch_ns,
        system_clock_ns=meta.start.system_clock_ns,
        counter_ns=meta.start.counter_ns,
        shift_ns=meta.shift_ns,
        gpu_traced=traced,
        events=counts.seen,
        dropped={reason: n for reason, n in dropped.items() if n},
    )
    return SourceTables(info, {name: frame.lazy() for name, frame in frames.items()}, tuple(tables.findings))


_KEYS = {
    "ops": ("end_ns", "correlation", "stream"),
    "calls": ("end_ns", "correlation", "thread"),
    "syncs": ("end_ns", "correlation", "stream"),
    "ranges": ("end_ns", "thread", "name"),
}


def _refuse_if_all_damaged(tables: Tables) -> None:
    there = [t for t in EVENT_TABLES if t in tables.raw.tables]
    if there and all(t in tables.damaged for t in there):
        reasons = [f.message for f in tables.findings if f.code == "damaged_table"]
        raise MalformedTraceError(
            tables.path,
            f"none of its {len(there)} tables of events can be read ({reasons[0]}).",
            "Export the report again; if the report was copied, check that the copy is whole.",
        )


def _threads(tables: Tables, numbers: dict[int, int]) -> pl.DataFrame:
    """Return the named threads of the processes; the name of the highest priority stands."""
    columns = dict.fromkeys(("globalTid", "nameId", "priority"), pl.Int64)
    frame = tables.read("ThreadNames", columns).drop_nulls("globalTid")
    names = tables.strings(frame["nameId"])
    frame = (
        frame.select(
            whole_process("globalTid").alias("process"),
            thread_of("globalTid").alias("thread"),
            pl.col("nameId").replace_strict(names, default=None, return_dtype=pl.String).alias("name"),
            "priority",
        )
        .filter(pl.col("process").is_in(list(numbers)))
        .sort("process", "thread", "priority", "name", descending=[False, False, True, False], nulls_last=True)
        .unique(["process", "thread"], keep="first", maintain_order=True)
        .with_columns(autograd=pl.col("name").fill_null("").str.starts_with("pt_autograd"))
    )
    frame = frame.with_columns(pl.col("process").replace_strict(numbers, return_dtype=pl.Int64))
    return conform(frame, "threads").sort("process", "thread")


def _processes(tables: Tables, numbers: dict[int, int]) -> pl.DataFrame:
    frame = tables.read("PROCESSES", {"globalPid": pl.Int64, "name": pl.String}).drop_nulls()
    labels = dict(frame.select(whole_process("globalPid"), "name").sort("globalPid", "name").reverse().iter_rows())
    rows = [(n, None if whole == NO_PROCESS else pid_of(whole), labels.get(whole)) for whole, n in numbers.items()]
    schema = {"process": pl.Int64, "pid": pl.Int64, "label": pl.String}
    return conform(pl.DataFrame(rows, schema=schema, orient="row"), "processes").sort("process")


def _host(tables: Tables, meta: Meta) -> str | None:
    if len(meta.hosts) > 1:
        tables.note(
            "several_hosts", "warning", f"the export names several hosts ({', '.join(meta.hosts)}); the first is used"
        )
    return meta.hosts[0] if meta.hosts else None

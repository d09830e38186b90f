"""From the stored tables of an Nsight Systems export to the normalized tables.

Communication metadata (`comms`) stays empty: NCCL's NVTX payloads (peer, size, communicator) are null in a default
export, and where ``binaryData`` is exported it is not decoded.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from gapscope.errors import MalformedTraceError
from gapscope.readers.base import Progress, SourceInfo, SourceTables, Window
from gapscope.readers.nsys_calls import CALL_TABLES, EVENT, SYNC, read_calls, read_syncs
from gapscope.readers.nsys_checks import note_gaps_in_record
from gapscope.readers.nsys_ids import Names, pid_of, process_numbers, thread_of, whole_process
from gapscope.readers.nsys_meta import Meta, find_clock, note_diagnostics, read_meta
from gapscope.readers.nsys_ops import OP_TABLES, read_ops
from gapscope.readers.nsys_order import Part, in_order, put_together, split_by_process
from gapscope.readers.nsys_ranges import NVTX, OVERHEAD_TABLES, read_ranges
from gapscope.readers.nsys_raw import RawTables, Tables
from gapscope.readers.nsys_reading import NO_PROCESS, Reading
from gapscope.readers.nsys_streams import CONTEXT, STREAM, read_streams
from gapscope.readers.packing import all_unpacked, packed, unpacked
from gapscope.readers.window import Ids, is_mark, stretch_of
from gapscope.schema import conform, empty_reader_table

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


def normalize(raw: RawTables, path: str, format_name: str, window: Window | None, progress: Progress) -> SourceTables:
    """Return the normalized tables of an export.

    Args:
        raw: The stored tables.
        path: The file as the user named it.
        format_name: Name of the reader.
        window: Steps that are wanted; None: everything.
        progress: Gets what is going on.

    Raises:
        UnsupportedVersionError: The major version of the schema is not known.
        MalformedTraceError: No table of events can be read although some are there.
    """
    tables = Tables(raw, path)
    meta = read_meta(tables)
    reading = Reading(tables, find_clock(tables, meta), Names(tables.strings))
    parts = _read_window(reading, window, progress) if window is not None else None
    is_part = parts is not None
    parts = parts or _read_all(reading, progress)
    _refuse_if_all_damaged(tables)
    progress("ordering", 0.85)
    numbers = process_numbers(whole for table in parts.values() for whole, _ in table)
    frames = {name: put_together(parts.pop(name), numbers, name) for name in list(parts)}
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
        is_part=is_part,
        events=counts.seen,
        dropped={reason: n for reason, n in dropped.items() if n},
    )
    frames = {name: packed(frame) if name not in _LARGE else frame for name, frame in frames.items()}
    return SourceTables(info, all_unpacked(frames), tuple(tables.findings), packed=frames)


_LARGE = ("ops", "calls", "syncs", "ranges")


def _read_all(reading: Reading, progress: Progress) -> dict[str, list[Part]]:
    """Return the rows of the tables of events, in order; of a large file several tables at once."""

    def ops() -> list[Part]:
        return in_order(read_ops(reading), "ops")

    def calls() -> tuple[list[Part], pl.DataFrame]:
        rows, synchronizing = read_calls(reading)
        return in_order(rows, "calls"), synchronizing

    def ranges() -> list[Part]:
        return in_order(split_by_process(read_ranges(reading)), "ranges")

    with ThreadPoolExecutor(len(_LARGE) if reading.tables.raw.concurrent else 1) as pool:
        progress("reading GPU operations and API calls", 0.05)
        of_calls, of_ops, of_ranges = pool.submit(calls), pool.submit(ops), pool.submit(ranges)
        of_calls.result()
        progress("reading synchronizations and ranges", 0.6)
        syncs = in_order(split_by_process(read_syncs(reading, of_calls.result()[1])), "syncs")
        return {"ops": of_ops.result(), "calls": of_calls.result()[0], "syncs": syncs, "ranges": of_ranges.result()}


def _read_window(reading: Reading, window: Window, progress: Progress) -> dict[str, list[Part]] | None:
    """Return the rows around some steps, in order; None if the marks name no step. See `gapscope.readers.window`."""
    progress("reading ranges", 0.05)
    ranges = read_ranges(reading)
    stretch = stretch_of(ranges, window)
    if stretch is None:
        return None
    progress("reading what was launched", 0.4)
    inside = reading.kept(stretch)
    calls, _ = read_calls(reading, inside)
    called = Ids.of(_ids(calls, "calls"))
    ops = read_ops(reading, reading.kept(stretch, called))
    ran = Ids.of(_ids(ops, "ops"))
    progress("reading API calls", 0.7)
    calls, synchronizing = read_calls(reading, reading.kept(stretch, ran))
    syncs = read_syncs(reading, synchronizing).filter(reading.kept(stretch, called).rows)
    return {
        "ops": in_order(ops, "ops"),
        "calls": in_order(calls, "calls"),
        "syncs": in_order(split_by_process(syncs), "syncs"),
        "ranges": in_order(split_by_process(ranges.filter(inside.rows | is_mark())), "ranges"),
    }


def _ids(parts: list[Part], table: str) -> pl.DataFrame:
    frames = [
        unpacked(rows.lazy(), table).select(pl.lit(whole, dtype=pl.Int64).alias("process"), "correlation")
        for whole, rows in parts
    ]
    return pl.concat([pl.DataFrame(schema={"process": pl.Int64, "correlation": pl.Int64}), *pl.collect_all(frames)])


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

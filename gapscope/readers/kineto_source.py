"""One torch.profiler file, read: its tables, what is known about it, and what was found on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import polars as pl

from gapscope.errors import MalformedTraceError
from gapscope.readers.base import Progress, SourceInfo, SourceTables
from gapscope.readers.kineto_clock import find_clock
from gapscope.readers.kineto_fields import Row
from gapscope.readers.kineto_findings import findings_of, is_cut
from gapscope.readers.kineto_pids import AmbiguousRanksError, find_processes
from gapscope.readers.kineto_rows import GROUPS, RowStore
from gapscope.readers.kineto_scan import Scanned, scan_file
from gapscope.readers.kineto_tables import Anomalies, TableBuilder
from gapscope.readers.packing import all_unpacked, packed

_DESCRIBING = {"metadata", "instant", "counter", "trace"}
"""Dropped events that say nothing about what ran."""
_FOREIGN = {"foreign", "uncategorized"}
_OF_HOST = {"cpu_op", "python_function", "user_annotation", "cpu_instant_event", "fwdbwd"}
"""Dropped events that are written only where the host was recorded; ``fwdbwd`` connects two of its operators."""


class _AboutTheJob(TypedDict):
    tool_version: str | None
    schema_version: str | None
    cpu_only: bool
    gpu_traced: bool | None


def read_source(path: Path, name: str, progress: Progress) -> SourceTables:
    """Read one file.

    Args:
        path: The file.
        name: Name of the format.
        progress: Called for each piece.

    Raises:
        MalformedTraceError: It holds no events that can be used.
        OSError: It cannot be read.
    """
    progress("preparing", 0.0)  # the first reader on a machine compiles the scanner, for some seconds
    rows = RowStore()
    scanned = scan_file(path, rows.take, progress)
    _refuse_unusable(path, scanned, rows.count)
    progress("building tables", 1.0)
    frames = {group: rows.frame(group) for group in GROUPS}
    cpu_traced = _cpu_traced(frames, scanned)  # asked before the tables take the rows
    texts, repairs = scanned.strings.readable(scanned.string_count)
    try:
        processes = find_processes(frames, texts, _file_rank(scanned.values.get("distributedInfo")))
    except AmbiguousRanksError as error:
        found = f"holds several ranks that cannot be told apart: {error}."
        raise MalformedTraceError(path, found, "Give the file of each rank instead of the merged one.") from error
    clock = find_clock(scanned.values.get("baseTimeNanoseconds"), rows, str(path))
    builder = TableBuilder(frames, texts, processes, clock)
    tables = builder.build()
    info = SourceInfo(
        path=str(path),
        format=name,
        tool="torch",
        clock=clock.kind,
        clock_origin=clock.origin,
        epoch_ns=clock.epoch_ns,
        resolution_ns=1000 if rows.whole_microseconds and rows.count else 1,
        cpu_traced=cpu_traced,
        truncated=is_cut(scanned),
        calls_in_order=builder.calls_in_order,
        events=scanned.events,
        dropped=_dropped(scanned, builder.anomalies),
        **_about_the_job(scanned, tables),
    )
    is_empty = not rows.count and scanned.dropped.keys() <= _DESCRIBING
    more = findings_of(
        str(path),
        scanned,
        repairs=repairs,
        anomalies=builder.anomalies,
        duplicates=processes.duplicate_correlations,
        is_empty=is_empty,
    )
    findings = [*clock.findings, *more]
    packed_tables = {name: packed(tables.pop(name)) for name in list(tables)}
    return SourceTables(info, all_unpacked(packed_tables), tuple(findings), packed=packed_tables)


def _refuse_unusable(path: Path, scanned: Scanned, kept: int) -> None:
    if not scanned.has_list:
        if scanned.whole:
            raise MalformedTraceError(path, "has no list of events (traceEvents).", "It is no trace; leave it out.")
        found = f"ends or breaks before its list of events (after {scanned.size:,} bytes)."
        raise MalformedTraceError(path, found, "Export or copy it again.")
    if not kept and scanned.damaged and scanned.damaged == scanned.events:
        found = f"holds {scanned.damaged:,} events, all broken, the first at byte {scanned.first_damage:,}."
        raise MalformedTraceError(path, found, "Export or copy it again.")
    if not kept and scanned.dropped.keys() & _FOREIGN and not scanned.dropped.keys() - _FOREIGN - _DESCRIBING:
        found = f"is a Chrome trace, but none of its {scanned.events:,} events has a category of torch.profiler."
        raise MalformedTraceError(path, found, "It is from another tool; leave it out.")


def _file_rank(info: object) -> int | None:
    """Return the rank in ``distributedInfo``, a number or a text."""
    rank = info.get("rank") if isinstance(info, dict) else None
    if isinstance(rank, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", rank):
        rank = int(rank)
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31 else None


def _text(value: object) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)


def _about_the_job(scanned: Scanned, tables: Mapping[str, pl.DataFrame]) -> _AboutTheJob:
    values = scanned.values
    devices = values.get("deviceProperties", values.get("computeProperties"))
    without_gpu = not tables["ops"].height and not tables["syncs"].height
    untraced = without_gpu and not tables["calls"].height and bool(devices) and not is_cut(scanned)
    return {
        "tool_version": _text(values.get("torch_version", values.get("pytorch_version"))),
        "schema_version": _text(values.get("schemaVersion")),
        "cpu_only": devices == [] and without_gpu,
        "gpu_traced": False if untraced and scanned.events else None,
    }


def _cpu_traced(frames: Mapping[str, pl.DataFrame], scanned: Scanned) -> bool | None:
    """Return `SourceInfo.cpu_traced`, by the rows as scanned: those that make no row of a table count, too."""
    of_host = frames["ranges"].filter(pl.col("row").is_in((Row.ANNOTATION, Row.OP))).height
    if of_host or frames["comms"].height or frames["autograd"].height or scanned.dropped.keys() & _OF_HOST:
        return True
    of_gpu = any(frames[group].height for group in ("ops", "calls", "syncs"))
    return False if of_gpu and not is_cut(scanned) else None


def _dropped(scanned: Scanned, anomalies: Anomalies) -> dict[str, int]:
    """Return events without a row by category, beside ``damaged`` and ``other_clock``.

    ``metadata`` are those besides the names of threads and processes. Communication records that only wait count as
    the cpu_op that they are.
    """
    dropped = dict(scanned.dropped)
    extra = {"cpu_op": anomalies.waits, "other_clock": anomalies.alien_dropped, "damaged": scanned.damaged}
    for name, count in extra.items():
        if count:
            dropped[name] = dropped.get(name, 0) + count
    return dropped

"""One torch.profiler file, read: its tables, what is known about it, and what was found on the way."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gapscope.errors import MalformedTraceError
from gapscope.findings import Finding
from gapscope.readers.base import Progress, SourceInfo, SourceTables
from gapscope.readers.kineto_clock import Clock, find_clock
from gapscope.readers.kineto_pids import AmbiguousRanksError, Processes, find_processes
from gapscope.readers.kineto_rows import GROUPS, RowStore
from gapscope.readers.kineto_scan import Scanned, scan_file
from gapscope.readers.kineto_strings import Repairs
from gapscope.readers.kineto_tables import Anomalies, TableBuilder

_FOREIGN = ("foreign", "uncategorized", "metadata", "instant", "counter")


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
    rows = RowStore()
    scanned = scan_file(path, rows.take, progress)
    _refuse_unusable(path, scanned, rows)
    progress("building tables", 1.0)
    frames = {group: rows.frame(group) for group in GROUPS}
    texts, repairs = scanned.strings.readable(scanned.string_count)
    try:
        processes = find_processes(frames, texts, _file_rank(scanned.values.get("distributedInfo")))
    except AmbiguousRanksError as error:
        found = f"holds several ranks that cannot be told apart: {error}."
        raise MalformedTraceError(path, found, "Give the file of each rank instead of the merged one.") from error
    clock = find_clock(scanned.values.get("baseTimeNanoseconds"), rows, str(path))
    builder = TableBuilder(frames, texts, processes, clock)
    tables = builder.build()
    info = _info(path, name, scanned, clock, rows, tables, builder.anomalies)
    findings = [*clock.findings, *_findings(str(path), scanned, repairs, builder.anomalies, processes)]
    return SourceTables(info, {table: frame.lazy() for table, frame in tables.items()}, tuple(findings))


def _refuse_unusable(path: Path, scanned: Scanned, rows: RowStore) -> None:
    if not scanned.has_list:
        if scanned.whole:
            raise MalformedTraceError(path, "has no list of events (traceEvents).", "It is no trace; leave it out.")
        where = f"ends or breaks before its list of events (after {scanned.size:,} bytes)."
        raise MalformedTraceError(path, where, "It was cut off: export or copy it again.")
    kept = rows.count
    useful = kept or any(name not in _FOREIGN for name in scanned.dropped)
    if scanned.events and not useful:
        if scanned.damaged:
            where = f"holds {scanned.damaged:,} events, all broken, the first at byte {scanned.first_damage:,}."
            raise MalformedTraceError(path, where, "Export or copy it again.")
        found = f"is a Chrome trace, but none of its {scanned.events:,} events has a category of torch.profiler."
        if not set(scanned.dropped) <= {"metadata", "instant", "counter"}:
            raise MalformedTraceError(path, found, "It is from another tool; leave it out.")


def _file_rank(info: object) -> int | None:
    """Return the rank in ``distributedInfo``, a number or a text."""
    rank = info.get("rank") if isinstance(info, dict) else None
    if isinstance(rank, str) and rank.strip().isdecimal():
        rank = int(rank)
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31 else None


def _text(value: object) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)


def _info(
    path: Path,
    name: str,
    scanned: Scanned,
    clock: Clock,
    rows: RowStore,
    tables: dict[str, pl.DataFrame],
    anomalies: Anomalies,
) -> SourceInfo:
    values = scanned.values
    devices = values.get("deviceProperties", values.get("computeProperties"))
    no_gpu_work = not tables["ops"].height and not tables["syncs"].height
    truncated = _is_cut(scanned)
    traced = no_gpu_work and not tables["calls"].height and bool(devices) and not truncated
    dropped = dict(scanned.dropped)
    if anomalies.waits:
        dropped["cpu_op"] = dropped.get("cpu_op", 0) + anomalies.waits
    if anomalies.alien_dropped:
        dropped["other_clock"] = anomalies.alien_dropped
    if scanned.damaged:
        dropped["damaged"] = scanned.damaged
    return SourceInfo(
        path=str(path),
        format=name,
        tool="torch",
        tool_version=_text(values.get("torch_version", values.get("pytorch_version"))),
        schema_version=_text(values.get("schemaVersion")),
        clock=clock.kind,
        clock_origin=clock.origin,
        resolution_ns=1000 if rows.whole_microseconds and rows.count else 1,
        cpu_only=devices == [] and no_gpu_work,
        gpu_traced=False if traced else None,
        truncated=truncated,
        events=scanned.events,
        dropped=dropped,
    )


def _is_cut(scanned: Scanned) -> bool:
    return not scanned.whole or scanned.stream_damage is not None


def _findings(
    path: str, scanned: Scanned, repairs: Repairs, anomalies: Anomalies, processes: Processes
) -> list[Finding]:
    found: list[Finding] = []

    def note(code: str, count: int | None, message: str, hint: str = "", info: bool = False) -> None:
        found.append(Finding(code, "info" if info else "warning", message, hint, path=path, count=count))

    if _is_cut(scanned):
        why = f" ({scanned.stream_damage})" if scanned.stream_damage else ""
        message = f"The file ends before its own end, after {scanned.size:,} bytes of JSON{why}; whole events were kept."
        note("truncated", None, message, "What was recorded after the cut is unknown; copy or export the file again.")
    if scanned.damaged:
        message = f"{scanned.damaged:,} events are broken and were left out, the first at byte {scanned.first_damage:,}."
        note("damaged_events", scanned.damaged, message)
    if not scanned.events:
        hint = "Nothing ran between start and stop of the profiler, or its schedule never reached an active step."
        note("no_events", 0, "The file is a valid report, but no event is in its window.", hint)
    if repairs.uses:
        message = f"Texts of {repairs.uses:,} events are no legal JSON and were repaired, the first at byte {repairs.first_byte:,}."
        note("repaired_texts", repairs.uses, message)
    if scanned.non_finite:
        message = f"{scanned.non_finite:,} values are inf or nan; they count as not recorded."
        note("non_finite_values", scanned.non_finite, message, info=True)
    if anomalies.untimed:
        message = f"{anomalies.untimed:,} GPU operations were recorded without a time; they are kept without one."
        note("untimed_ops", anomalies.untimed, message, "Handoffs that one of them decides stay incomplete.")
    if anomalies.negative:
        message = f"{anomalies.negative:,} events have a negative duration; their end is taken as not recorded."
        note("negative_durations", anomalies.negative, message)
    if anomalies.alien:
        message = f"{anomalies.alien:,} events count their time from another zero than the rest; their times are not used."
        note("other_clock", anomalies.alien, message)
    if processes.duplicate_correlations:
        message = f"{processes.duplicate_correlations:,} API calls share their correlation id with another call of their process."
        note("duplicate_correlations", processes.duplicate_correlations, message)
    return found

"""What an Nsight Systems export says about itself: versions, capture options, host, clock, diagnostics.

Sources: Nsight Systems user guide, SQLite schema reference (META_DATA_EXPORT, META_DATA_CAPTURE,
TARGET_INFO_SESSION_START_TIME, TARGET_INFO_SYSTEM_ENV, DIAGNOSTIC_EVENT), and exports of the years 2021 to 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from gapscope.errors import UnsupportedVersionError
from gapscope.readers.base import FIRST_UNIX_NS, LAST_UNIX_NS
from gapscope.readers.nsys_raw import Tables

NEWEST_MAJOR = 3
"""Newest major version of the schema; earlier ones differ in columns, which are looked up by name."""

NEWEST_MINOR = 28
"""Newest minor version of schema 3 whose columns were checked (3.28, Nsight Systems 2026.4)."""

_TIMED_TABLES = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "NVTX_EVENTS",
)
FAR_NS = 10**17
"""Three years. No time since a session's start is further away; Unix times of this century are."""

_START = "TARGET_INFO_SESSION_START_TIME"
_SEVERITIES = {"info": 1, "warning": 2, "error": 3}
_MOST_DIAGNOSTICS = 5


def _is_time(unix_ns: int | None) -> bool:
    return unix_ns is not None and FIRST_UNIX_NS <= unix_ns <= LAST_UNIX_NS


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What the export states about the zero of its times; None where it does not.

    Attributes:
        utc_ns: Unix time, as stated: it may be no plausible time.
        system_clock_ns: As `SourceInfo.system_clock_ns`.
        counter_ns: As `SourceInfo.counter_ns`.
    """

    utc_ns: int | None = None
    system_clock_ns: int | None = None
    counter_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Meta:
    """What the export says about itself.

    Attributes:
        export: META_DATA_EXPORT, name to value; empty in exports before 2022.
        capture: META_DATA_CAPTURE, name without the process number in front to values; empty before 2022.
        hosts: Host names, usually one.
        start: The session's start, which is the zero of its times.
        schema: Version of the schema as text; None if the file does not say.
    """

    export: dict[str, str]
    capture: dict[str, list[str]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    start: SessionStart = SessionStart()
    schema: str | None = None

    @property
    def epoch_ns(self) -> int | None:
        """Unix time at which the session's times are zero; None if the file states none or no plausible one."""
        return self.start.utc_ns if _is_time(self.start.utc_ns) else None

    @property
    def shift_ns(self) -> int:
        """Nanoseconds by which the times were moved at export; 0 if they were not or the value is no integer."""
        said = re.fullmatch(r"\s*([+-]?[0-9]{1,18})\s*", self.export.get("EXPORT_PARAM_TIME_SHIFT", ""))
        return int(said[1]) if said else 0

    def traced(self, event_type: str, option: str) -> bool | None:
        """Tell if a kind of event was asked for; None if the file does not tell.

        Asked are the session's list of event types and the per-process option: from 2026 on the latter
        may say false although the events are there.
        """
        types, options = self.capture.get("CAPTURE_EVENT_TYPE", []), self.capture.get(option, [])
        if event_type in types or "true" in options:
            return True
        return False if types or options else None

    @property
    def cuda_traced(self) -> bool | None:
        """Tell if CUDA was traced."""
        return self.traced("Cuda", "COLLECT_CUDA_TRACE")

    @property
    def nvtx_traced(self) -> bool | None:
        """Tell if NVTX was traced."""
        return self.traced("NvtxEvents", "COLLECT_NVTX_TRACE")


@dataclass(frozen=True, slots=True)
class Clock:
    """How recorded times become Unix time.

    Attributes:
        offset_ns: Added to every recorded time.
        zero: Recorded value that stands for "no time" in a pair of equal times.
        low: Smallest recorded value that can be a time.
        high: Largest recorded value that can be a time.
        kind: As `SourceInfo.clock`.
        origin: As `SourceInfo.clock_origin`.
    """

    offset_ns: int
    zero: int
    low: int
    high: int
    kind: Literal["unix", "relative"]
    origin: str


def read_meta(tables: Tables) -> Meta:
    """Read what the export says about itself.

    Raises:
        UnsupportedVersionError: The major version of the schema is not known.
    """
    export_table = "META_DATA_EXPORT" if tables.has("META_DATA_EXPORT") else "EXPORT_META_DATA"
    export = {name: values[0] for name, values in _named_values(tables, export_table).items()}
    capture: dict[str, list[str]] = {}
    for name, values in _named_values(tables, "META_DATA_CAPTURE").items():
        capture.setdefault(re.sub(r"^PROCESS_\d+:", "", name), []).extend(values)
    hosts = _named_values(tables, "TARGET_INFO_SYSTEM_ENV").get("Hostname", [])
    schema = export.get("EXPORT_SCHEMA_VERSION")
    if schema is None and "EXPORT_SCHEMA_VERSION_MAJOR" in export:
        schema = ".".join(export.get(f"EXPORT_SCHEMA_VERSION_{part}", "0") for part in ("MAJOR", "MINOR", "MICRO"))
    meta = Meta(export, capture, tuple(dict.fromkeys(h for h in hosts if h)), _session_start(tables), schema)
    _check_schema(tables, meta)
    _check_export_options(tables, meta)
    return meta


def _session_start(tables: Tables) -> SessionStart:
    """Return what one row states, of several the one that states the most, Unix time first.

    Readings of zero and less are none.
    """
    frame = tables.read(_START, dict.fromkeys(("utcEpochNs", "systemClockNs", "sessionStartCntVctNs"), pl.Int64))
    rows = [
        (utc, *(value if value is not None and value > 0 else None for value in readings))
        for utc, *readings in frame.iter_rows()
    ]
    stated = min(rows, key=lambda row: [value is None for value in row], default=(None, None, None))
    return SessionStart(*stated)


def _named_values(tables: Tables, table: str) -> dict[str, list[str]]:
    frame = tables.read(table, {"name": pl.String, "value": pl.String}).drop_nulls("name")
    out: dict[str, list[str]] = {}
    for name, value in frame.iter_rows():
        out.setdefault(name, []).append(value or "")
    return out


def _check_schema(tables: Tables, meta: Meta) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", meta.schema or "")
    if not numbers:
        return
    major, minor = int(numbers[1]), int(numbers[2])
    if major > NEWEST_MAJOR:
        raise UnsupportedVersionError(
            tables.path,
            f"the export has schema version {meta.schema}, and gapscope knows up to major version {NEWEST_MAJOR}.",
            "Export the report again with an older nsys, or update gapscope.",
        )
    if major == NEWEST_MAJOR and minor > NEWEST_MINOR:
        tables.note(
            "newer_schema",
            "info",
            f"the export has schema version {meta.schema}; checked were those up to {NEWEST_MAJOR}.{NEWEST_MINOR}",
            "Columns that gapscope needs and does not find are named in other findings.",
        )


def _check_export_options(tables: Tables, meta: Meta) -> None:
    shift = meta.export.get("EXPORT_PARAM_TIME_SHIFT", "0")
    if shift not in ("", "0"):
        tables.note(
            "export_time_shift",
            "warning",
            f"the export was made with --ts-shift={shift}: all its times are moved by that many nanoseconds",
            "Export it again without --ts-shift unless the shift is known to align the machines' clocks.",
        )
    times = meta.export.get("EXPORT_PARAM_TIMES_TO_EXPORT", "")
    if times:
        tables.note("partial_export", "warning", f"the export was limited to some times (--times={times})")


def find_clock(tables: Tables, meta: Meta) -> Clock:
    """Return how the times of the export become Unix time."""
    first = _first_time(tables)
    normalized = meta.export.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true" or (first or 0) > FAR_NS
    stated = meta.start.utc_ns
    if stated is not None and not _is_time(stated):
        return _clock_of_nonsense(tables, stated, first, normalized)
    if normalized:
        return _normalized_clock(stated)
    if stated is None:
        tables.note(
            "no_absolute_time",
            "warning",
            f"the export has no {_START}.utcEpochNs: its times count from an unknown zero",
            "It can be used with other files only if something aligns them; export the report with nsys 2022 or newer.",
        )
        return Clock(0, 0, -FAR_NS, FAR_NS, "relative", "session start unknown")
    return Clock(stated, 0, -FAR_NS, FAR_NS, "unix", "utcEpochNs + start")


def _normalized_clock(stated: int | None) -> Clock:
    return Clock(0, stated or 0, FAR_NS, LAST_UNIX_NS, "unix", "times normalized by nsys export")


def _clock_of_nonsense(tables: Tables, stated: int, first: int | None, normalized: bool) -> Clock:
    """Return the clock of an export whose stated Unix time is none; where nsys has added it, it is taken off again."""
    message = f"{_START}.utcEpochNs is {stated}, which is no time between the years 2000 and 2116; it is not used"
    hint = "Check the clock of the machine that recorded."
    added = normalized and abs(stated) <= LAST_UNIX_NS and (first is None or abs(first - stated) <= FAR_NS)
    if _is_time(first) and not added:
        tables.note("session_start_unusable", "warning", message, hint)
        return _normalized_clock(None)
    tables.note(
        "session_start_unusable",
        "warning",
        f"{message}, and the times count from an unknown zero",
        f"{hint} This file can be used with other files only if something aligns them.",
    )
    zero = stated if added else 0
    return Clock(-zero, zero, zero - FAR_NS, zero + FAR_NS, "relative", "session start unusable")


def _first_time(tables: Tables) -> int | None:
    """Return the middle one of some recorded times, so that one damaged value does not decide."""
    for table in _TIMED_TABLES:
        if "start" in tables.columns(table):
            starts = _some(tables, table)
            if starts:
                return sorted(starts)[len(starts) // 2]
    return None


def _some(tables: Tables, table: str) -> list[int]:
    return tables.guard(table, lambda: tables.raw.some(table, "start"), [])


def note_diagnostics(tables: Tables) -> None:
    """Add what nsys itself warned of, each text once; what concerns CUDA and NVTX comes first."""
    frame = tables.read("DIAGNOSTIC_EVENT", {"severity": pl.Int64, "text": pl.String}).drop_nulls()
    labels = tables.read("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", {"id": pl.Int64, "label": pl.String}).drop_nulls()
    severity_of = {number: _SEVERITIES.get(label.lower(), 0) for number, label in labels.iter_rows()}
    if not severity_of:
        severity_of = {number: number for number in _SEVERITIES.values()}
    counts: dict[tuple[int, str], int] = {}
    for number, text in frame.iter_rows():
        severity = severity_of.get(number, 0)
        if severity >= _SEVERITIES["warning"]:
            key = (severity, " ".join(text.split()))
            counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts, key=lambda k: (-k[0], not re.search("CUDA|NVTX|CUPTI", k[1]), -counts[k], k[1]))
    errors = [text for severity, text in ordered if severity == _SEVERITIES["error"]]
    warnings = [text for severity, text in ordered if severity != _SEVERITIES["error"]]
    for level, texts, said in (("warning", errors, "reported errors"), ("info", warnings, "warned")):
        if texts:
            shown = "; ".join(text.rstrip(".") for text in texts[:_MOST_DIAGNOSTICS])
            more = f"; and {len(texts) - _MOST_DIAGNOSTICS} more" if len(texts) > _MOST_DIAGNOSTICS else ""
            number = sum(count for (_, text), count in counts.items() if text in texts)
            tables.note("nsys_diagnostic", level, f"nsys {said} while recording: {shown}{more}", count=number)

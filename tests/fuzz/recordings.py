"""The small real recordings, what the product makes of them, and what a damaged copy may give instead.

The rules that the tests of this folder ask for, with `check_rows` and `check_handoffs`:

1. Reading gives tables or an `InputError`, never another exception and never a warning.
2. Every row of a damaged file is a row of the whole file. Only the fields in `MAY_BE_LOST`, which other records
   complete, may be null where the whole file has a value.
3. Rows that are missing are said: the file is marked as truncated, counts damaged records, or has a finding.
4. Each of the six times of a handoff, on the clock of its own file, is the whole file's or null; `complete` is only a
   handoff that has its five events. Where the clocks stand to each other may change with every record that is lost.
5. The analysis to the end, of a share of the damaged files, raises nothing.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import polars as pl

from gapscope.analysis import Analysis, analyze
from gapscope.clocks import Alignment, align
from gapscope.clocks.observations import OBSERVATION, Evidence
from gapscope.errors import InputError
from gapscope.events import find_ends
from gapscope.handoffs import build_handoffs
from gapscope.load import assemble
from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import SourceTables, no_progress
from gapscope.schema import EVENTS, TILES, dtypes, reader_dtypes

DATA = Path(__file__).parents[1] / "data"
TIMES = tuple(f"{event}_ns" for event in EVENTS)

RUNS = (
    ("mailbox_graph_nsys.sqlite.gz",),
    ("mailbox_graph_torch_rank0.json.gz", "mailbox_graph_torch_rank1.json.gz"),
    ("mailbox_mixed_rank0.sqlite.gz", "mailbox_mixed_rank1.json.gz"),
    ("mailbox_both.sqlite.gz", "mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"),
    ("gloo_none_torch_rank0.json.gz", "gloo_none_torch_rank1.json.gz"),
    ("two-gpus/copy_engine_none_torch_rank0.json.gz", "two-gpus/copy_engine_none_torch_rank1.json.gz"),
    ("two-gpus/nccl_none_torch_rank0.json.gz", "two-gpus/nccl_none_torch_rank1.json.gz"),
)
"""Files of the same recording; each run is analyzed with one of its files damaged."""

FILES = tuple(name for run in RUNS for name in run)
JSON_FILES = tuple(name for name in FILES if ".json" in name)
SQLITE_FILES = tuple(name for name in FILES if ".sqlite" in name)

NO_EVIDENCE = Evidence(pl.DataFrame(schema=OBSERVATION))
SHARE = 16
"""One in so many is analyzed to the end."""

MAY_BE_LOST = {
    # The event and stream of an event record are known from a wait that names it.
    "syncs": {"device", "context", "stream", "event"},
    # Names and ranks stand in records of their own.
    "threads": {"name", "autograd"},
    "processes": {"pid", "label", "file_rank"},
    "ranges": {"domain"},
}


OF_CALL = ("syncs", "kind")
"""The kind of a synchronization is that of its call; without the call it is the tool's own, coarser one."""


@dataclass(frozen=True)
class Whole:
    """An undamaged file: its tables as counted rows, and the handoffs of its run by name."""

    source: SourceTables
    rows: dict[str, Counter]
    others: tuple[SourceTables, ...]
    handoffs: dict[str, dict[str, object]]
    messages: set[str]


def read(path: Path) -> SourceTables:
    """Read one file without anything that would hide a foreign exception."""
    return find_reader(path).read(path, ReadOptions(), no_progress)


def read_or_refuse(path: Path) -> SourceTables | InputError:
    """Read one file; return the error of a file that cannot be used."""
    try:
        return read(path)
    except InputError as error:
        return error


def rows_of(source: SourceTables) -> dict[str, Counter]:
    """Return each table as counted rows."""
    return {name: Counter(frame.collect().rows()) for name, frame in source.tables.items()}


def handoffs_of(analysis: Analysis) -> dict[str, dict[str, object]]:
    """Return times and status of the handoffs by their ids."""
    table = analysis.handoffs.select("handoff_id", "status", *TIMES)
    return {row.pop("handoff_id"): row for row in table.to_dicts()}


class AsRecorded(Alignment):
    """Where each clock stands, with every time left on the clock of its file."""

    def offsets(self, clock: pl.Series, local_ns: pl.Series) -> pl.Series:
        return super().offsets(clock, local_ns) * 0


def analyzed(source: SourceTables, others: tuple[SourceTables, ...] = ()) -> Analysis:
    """Find the handoffs of one file beside the others of its run, each time on the clock of its file."""
    files = sorted((source, *others), key=lambda s: s.info.path)
    trace = assemble(files, findings=[finding for file in files for finding in file.findings])
    ends = find_ends(trace)
    with mock.patch("gapscope.clocks.align.gather", return_value=NO_EVIDENCE):
        alignment = align(trace, ends)
    kept = AsRecorded(*(getattr(alignment, field.name) for field in fields(alignment)))
    built = build_handoffs(trace, ends, kept)
    if built.table.height and trace.scan("calls").select(pl.len()).collect().item() % SHARE == 0:
        summary = analyze(trace).summary
        assert summary["handoffs"]["total"] == built.table.height
    return Analysis(
        lambda: trace,
        built.table,
        pl.DataFrame(schema=dtypes(TILES)),
        alignment.table,
        [*trace.findings, *built.findings],
        {},
        stages=lambda: SimpleNamespace(alignment=alignment, model=None),
    )


@functools.cache
def whole(name: str) -> Whole:
    """Return what an undamaged file of `FILES` gives."""
    run = next(run for run in RUNS if name in run)
    sources = {other: _source(other) for other in run}
    others = tuple(source for other, source in sources.items() if other != name)
    return whole_of(sources[name], others)


def whole_of(source: SourceTables, others: tuple[SourceTables, ...] = ()) -> Whole:
    """Return what an undamaged file gives."""
    analysis = analyzed(source, others)
    messages = {finding.message for finding in analysis.findings}
    return Whole(source, rows_of(source), others, handoffs_of(analysis), messages)


@functools.cache
def _source(name: str) -> SourceTables:
    return read(DATA / name)


@functools.cache
def content(name: str) -> bytes:
    """Return the decompressed bytes of a file of `FILES`."""
    return gzip.decompress((DATA / name).read_bytes())


@functools.cache
def events(name: str) -> tuple[tuple[int, int], ...]:
    """Return where the events of a JSON file begin and end."""
    return event_spans(content(name))


def event_spans(raw: bytes) -> tuple[tuple[int, int], ...]:
    """Return where the elements of ``traceEvents`` begin and end, found with Python's own decoder."""
    text = raw.decode("latin-1")  # one character a byte
    decoder = json.JSONDecoder()
    at = re.search(r'"traceEvents"\s*:\s*\[', text).end()
    spans = []
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()
        if text[at] == "]":
            return tuple(spans)
        _, end = decoder.raw_decode(text, at)
        spans.append((at, end))
        at = end


@dataclass(frozen=True)
class Difference:
    """Rows by table that only the damaged file has, and that only the whole one has."""

    gained: dict[str, Counter]
    absent: dict[str, Counter]

    def count(self, *tables: str) -> int:
        """Return how many rows of some tables (of all, if none is named) are missing or changed."""
        return max(sum(side[t].total() for t in tables or side) for side in (self.gained, self.absent))


def difference(undamaged: Whole, source: SourceTables) -> Difference:
    """Compare a damaged file with the whole one; rows that lack only what may be lost count as equal."""
    shift = _shift(undamaged.source, source)
    gained, absent = {}, {}
    for name, counted in rows_of(source).items():
        moved = _moved(counted, name, shift)
        gained[name], absent[name] = moved - undamaged.rows[name], undamaged.rows[name] - moved
        _take_out_degraded(name, gained[name], absent[name])
    return Difference(gained, absent)


def check_rows(undamaged: Whole, source: SourceTables) -> Difference:
    """Ask for rules 2 and 3."""
    found = difference(undamaged, source)
    for name, rows in found.gained.items():
        assert not rows, (
            f"{name}: not in the whole file: {[dict(zip(reader_dtypes(name), r, strict=True)) for r in rows]}"
        )
    assert told(undamaged.source, source) or not found.count(), f"lost in silence: {found.absent}"
    return found


def _shift(undamaged: SourceTables, source: SourceTables) -> int:
    """Return what to add to the times of a file that has lost the zero of its clock, and says so."""
    if undamaged.info.clock == "relative" or source.info.clock == "unix":
        return 0
    first = source.tables["ranges"].collect()["start_ns"].min()
    if first is None:
        return 0
    assert {"relative_clock", "no_absolute_time"} & codes(source)
    return undamaged.tables["ranges"].collect()["start_ns"].min() - first


def _moved(rows: Counter, table: str, shift: int) -> Counter:
    if not shift:
        return rows
    times = [k for k, column in enumerate(reader_dtypes(table)) if column in ("start_ns", "end_ns")]
    moved = Counter()
    for row, count in rows.items():
        fields = list(row)
        for k in times:
            fields[k] = None if fields[k] is None else fields[k] + shift
        moved[tuple(fields)] += count
    return moved


def _take_out_degraded(table: str, gained: Counter, absent: Counter) -> None:
    """Take out the pairs of rows of which one has lost fields that other records complete."""
    may = [column in MAY_BE_LOST.get(table, ()) for column in reader_dtypes(table)]
    free = [(table, column) == OF_CALL for column in reader_dtypes(table)]
    if not any(may):
        return
    for row in list(gained.elements()):
        fits = (
            other
            for other in absent
            if all(
                a == b or any_value or (lost and a in (None, False))
                for a, b, lost, any_value in zip(row, other, may, free, strict=True)
            )
        )
        other = next(fits, None)
        if other is not None:
            gained.subtract([row])
            absent.subtract([other])
    for rows in (gained, absent):
        for row in [row for row, count in rows.items() if count <= 0]:
            del rows[row]


def codes(source: SourceTables) -> set[str]:
    """Return the codes of the findings."""
    return {finding.code for finding in source.findings}


def told(undamaged: SourceTables, source: SourceTables) -> bool:
    """Tell if the file says that something of it is lost."""
    return bool(source.info.truncated or source.info.dropped.get("damaged") or codes(source) - codes(undamaged))


def check_handoffs(undamaged: Whole, source: SourceTables, touched: Collection[str] = ()) -> dict[str, set[str]]:
    """Ask for rule 4; return which handoffs have lost which times.

    Args:
        undamaged: The whole file.
        source: The damaged file.
        touched: Handoffs whose own records say something else, and which may do so, too.
    """
    analysis = analyzed(source, undamaged.others)
    found = handoffs_of(analysis)
    invented = found.keys() - undamaged.handoffs.keys() - set(touched)
    assert not invented, f"handoffs that the whole recording lacks: {invented}"
    shift = _shift(undamaged.source, source)
    lost = {}
    for name, right in undamaged.handoffs.items():
        if name in touched:
            continue
        row = found.get(name, dict.fromkeys(TIMES) | {"status": "absent"})
        gone = {time for time in TIMES if right[time] is not None and row[time] is None}
        wrong = {t: (row[t], right[t]) for t in TIMES if row[t] not in (None, right[t], (right[t] or 0) - shift)}
        assert not wrong, f"{name}: other times than in the whole recording: {wrong}"
        if gone - {"receive_post_ns"}:
            assert row["status"] != "complete", f"{name} lacks {gone} and is called complete"
        if gone:
            lost[name] = gone
    if lost:
        new = {finding.message for finding in analysis.findings} - undamaged.messages
        assert new, f"times are lost in silence: {lost}"
    return lost


def touched_by(undamaged: Whole, source: SourceTables, found: Difference) -> set[str]:
    """Return the handoffs that one of the changed rows belongs to, before or after the change."""
    tables = [{name: frame.collect() for name, frame in s.tables.items()} for s in (undamaged.source, source)]
    changed = {name: [*found.gained[name], *found.absent[name]] for name in found.gained}
    names = {row["name"] for row in _dicts("ranges", changed["ranges"])}
    called = [row["start_ns"] for row in _dicts("calls", changed["calls"])]
    for op in _dicts("ops", changed["ops"]):
        for frames in tables:
            if op["correlation"] is not None:
                called += frames["calls"].filter(correlation=op["correlation"])["start_ns"].to_list()
            spans = frames["ranges"].filter(pl.col("kind") == "gpu_span", pl.col("end_ns") >= op["end_ns"])
            names |= set(spans.filter(pl.col("start_ns") <= op["start_ns"])["name"])
    for frames in tables:
        for at in called:
            names |= set(frames["ranges"].filter(pl.col("start_ns") <= at, pl.col("end_ns") >= at)["name"])
    return {f"{m[1]}>{m[2]}/0/{m[3]}" for name in names if (m := _KEY.match(name))}


_KEY = re.compile(r"gapscope::(?:produce|submit|receive|consume) .*?src=(\d+) dst=(\d+) seq=(\d+)")


def _dicts(table: str, rows: list[tuple]) -> list[dict[str, object]]:
    return [dict(zip(reader_dtypes(table), row, strict=True)) for row in rows]

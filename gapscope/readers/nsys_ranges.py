"""NVTX ranges and profiler overhead of an Nsight Systems export.

Tables NVTX_EVENTS, PROFILER_OVERHEAD and CUPTI_ACTIVITY_KIND_OVERHEAD (Nsight Systems user guide, SQLite schema
reference). Times are nanoseconds.

A capture may hold millions of ranges of other libraries, so the choice is made where the rows are stored. Kept,
with case taken as it is, are:

- ranges whose text starts with ``gapscope``, ``nccl``, ``gloo:``, ``PP:`` or ``ProfilerStep``, in any domain;
- all ranges of the domains ``gapscope`` and ``NCCL``.

Text stands in ``text`` or, for registered strings, in StringIds by ``textId``; either column may be absent.
"""

from __future__ import annotations

import polars as pl

from gapscope.readers.nsys_ids import thread_of, whole_process
from gapscope.readers.nsys_meta import Clock
from gapscope.readers.nsys_ops import NO_PROCESS, Counts
from gapscope.readers.nsys_raw import RangeChoice, Tables
from gapscope.schema import NAME, RANGE_KIND, conform, empty_reader_table
from gapscope_instrumentation.contract import NVTX_DOMAIN

NVTX = "NVTX_EVENTS"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
KEPT_PREFIXES = ("gapscope", "nccl", "gloo:", "PP:", "ProfilerStep")
KEPT_DOMAINS = (NVTX_DOMAIN, "NCCL")

# ENUM_NSYS_EVENT_TYPE
INSTANT, PUSH_POP, START_END, DOMAIN_CREATE = 34, 59, 60, 75
_KINDS = {INSTANT: "instant", PUSH_POP: "push_pop", START_END: "start_end"}

_TEXT = {"text": pl.String, "textId": pl.Int64}
_WHO = {"globalTid": pl.Int64, "domainId": pl.Int64}
_WHOLE_PAYLOADS = ("int64Value", "uint64Value", "int32Value", "uint32Value")
_REAL_PAYLOADS = ("doubleValue", "floatValue")
_COLUMNS = {
    "start": pl.Int64,
    "end": pl.Int64,
    "eventType": pl.Int64,
    **_TEXT,
    **_WHO,
    **dict.fromkeys(_WHOLE_PAYLOADS, pl.Int64),
    **dict.fromkeys(_REAL_PAYLOADS, pl.Float64),
}


def read_ranges(tables: Tables, clock: Clock, counts: Counts) -> tuple[pl.DataFrame, int]:
    """Return the table `ranges`, with whole process ids and in the order of the file, and the number left out."""
    marks, foreign = _nvtx(tables, clock, counts)
    frames = [marks, *(_overhead(tables, table, clock, counts) for table in OVERHEAD_TABLES)]
    return pl.concat(frames), foreign


def _nvtx(tables: Tables, clock: Clock, counts: Counts) -> tuple[pl.DataFrame, int]:
    empty = empty_reader_table("ranges")
    there = tables.columns(NVTX)
    if not there or not tables.expect(NVTX, ("start", "eventType", "globalTid")):
        return empty, 0
    tables.expect(NVTX, ("end",))
    if not there & set(_TEXT):
        tables.expect(NVTX, tuple(_TEXT))
    domains = _domains(tables)
    kept = domains.filter(pl.col("domain").is_in(KEPT_DOMAINS))
    choice = RangeChoice(
        tuple(_KINDS),
        KEPT_PREFIXES if "text" in there else (),
        tables.guard("StringIds", lambda: tables.raw.string_ids(KEPT_PREFIXES), ()) if "textId" in there else (),
        tuple(kept.select("process", "domainId").iter_rows()) if "domainId" in there else (),
    )
    available = {c: t for c, t in _COLUMNS.items() if c in there}
    total = tables.guard(NVTX, lambda: tables.raw.count_ranges(choice.event_types), 0)
    frame = tables.guard(NVTX, lambda: tables.raw.ranges(available, choice), None)
    if frame is None:
        return empty, 0
    counts.seen += total
    return _normalized(tables, frame, domains, clock, counts), total - frame.height


def _domains(tables: Tables) -> pl.DataFrame:
    """Return the names of the domains, which are numbered per process: columns process, domainId, domain."""
    there = tables.columns(NVTX)
    columns = {c: t for c, t in (_WHO | _TEXT).items() if c in there}
    nothing = pl.DataFrame(schema=columns)
    frame = tables.guard(NVTX, lambda: tables.raw.ranges(columns, RangeChoice((DOMAIN_CREATE,))), nothing)
    frame = frame.with_columns(pl.lit(None, dtype=t).alias(c) for c, t in (_WHO | _TEXT).items() if c not in columns)
    return (
        frame.select(whole_process("globalTid").alias("process"), "domainId", _text(tables, frame).alias("domain"))
        .drop_nulls()
        .sort("process", "domainId", "domain")
        .unique(["process", "domainId"], keep="first", maintain_order=True)
    )


def _text(tables: Tables, frame: pl.DataFrame) -> pl.Series:
    """Return the text of each row, from either place."""
    strings = tables.strings(frame["textId"])
    registered = pl.col("textId").replace_strict(
        pl.Series(list(strings), dtype=pl.Int64), pl.Series(list(strings.values()), dtype=pl.String),
        default=None, return_dtype=pl.String,
    )  # fmt: skip
    return frame.select(pl.coalesce("text", registered)).to_series()


def _normalized(tables: Tables, frame: pl.DataFrame, domains: pl.DataFrame, clock: Clock, counts: Counts) -> pl.DataFrame:
    frame = frame.with_columns(pl.lit(None, dtype=t).alias(c) for c, t in _COLUMNS.items() if c not in frame.columns)
    start, end = pl.col("start"), pl.col("end")
    whole_numbers = [
        pl.when(pl.col(c).is_finite() & (pl.col(c) == pl.col(c).round()) & (pl.col(c).abs() < 2.0**63)).then(pl.col(c))
        for c in _REAL_PAYLOADS
    ]
    kind = pl.col("eventType").replace_strict(_KINDS, return_dtype=RANGE_KIND)
    out = (
        frame.with_columns(_text(tables, frame).alias("name"))
        .filter(start.is_between(clock.low, clock.high) & pl.col("globalTid").is_not_null())
        .select(
            whole_process("globalTid").alias("process"),
            thread_of("globalTid").alias("thread"),
            (start + clock.offset_ns).alias("start_ns"),
            pl.when(pl.col("eventType") == INSTANT).then(start + clock.offset_ns)
            .when(end.is_between(start, clock.high)).then(end + clock.offset_ns)
            .alias("end_ns"),
            ((pl.col("eventType") != INSTANT) & ~end.is_between(start, clock.high)).alias("impossible"),
            kind.alias("kind"),
            "domainId",
            pl.col("name").fill_null(""),
            pl.coalesce(*_WHOLE_PAYLOADS, *(w.cast(pl.Int64, strict=False) for w in whole_numbers)).alias("payload"),
        )
        .join(domains, on=["process", "domainId"], how="left", maintain_order="left")
        .with_columns(pl.col("domain").cast(NAME))
    )  # fmt: skip
    counts.damaged += frame.height - out.height
    counts.impossible += out["impossible"].sum()
    return conform(out, "ranges")


def _overhead(tables: Tables, table: str, clock: Clock, counts: Counts) -> pl.DataFrame:
    columns = dict.fromkeys(("start", "end", "globalTid", "nameId", "overheadType"), pl.Int64)
    frame = tables.read(table, columns, ("start", "end", "globalTid"))
    counts.seen += frame.height
    if frame.is_empty():
        return empty_reader_table("ranges")
    names = tables.strings(frame["nameId"])
    labels = dict(tables.read("ENUM_CUPTI_OVERHEAD_TYPE", {"id": pl.Int64, "label": pl.String}).drop_nulls().iter_rows())
    start, end = pl.col("start"), pl.col("end")
    out = frame.filter(start.is_between(clock.low, clock.high)).select(
        whole_process("globalTid").fill_null(NO_PROCESS).alias("process"),
        thread_of("globalTid").alias("thread"),
        (start + clock.offset_ns).alias("start_ns"),
        pl.when(end.is_between(start, clock.high)).then(end + clock.offset_ns).alias("end_ns"),
        pl.lit("overhead", dtype=RANGE_KIND).alias("kind"),
        pl.coalesce(
            pl.col("nameId").replace_strict(names, default=None, return_dtype=pl.String),
            pl.col("overheadType").replace_strict(labels, default=None, return_dtype=pl.String),
            pl.lit("profiler overhead"),
        ).alias("name"),
    )
    counts.damaged += frame.height - out.height
    return conform(out, "ranges")

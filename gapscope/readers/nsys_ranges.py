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
from gapscope_instrumentation.contract import NVTX_DOMAIN

from gapscope.readers.nsys_ids import thread_of, whole_process
from gapscope.readers.nsys_raw import PAYLOAD, Columns, RangeChoice, Tables
from gapscope.readers.nsys_reading import NO_PROCESS, Reading
from gapscope.schema import NAME, RANGE_KIND, conform, empty_reader_table

NVTX = "NVTX_EVENTS"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
KEPT_PREFIXES = ("gapscope", "nccl", "gloo:", "PP:", "ProfilerStep")
KEPT_DOMAINS = (NVTX_DOMAIN, "NCCL")

# ENUM_NSYS_EVENT_TYPE
INSTANT, PUSH_POP, START_END, DOMAIN_CREATE = 34, 59, 60, 75
_KINDS = {INSTANT: "instant", PUSH_POP: "push_pop", START_END: "start_end"}

_TEXT: Columns = {"text": pl.String, "textId": pl.Int64}
_WHO: Columns = {"globalTid": pl.Int64, "domainId": pl.Int64}
_COLUMNS: Columns = {"start": pl.Int64, "end": pl.Int64, "eventType": pl.Int64, **_TEXT, **_WHO}


def read_ranges(reading: Reading) -> pl.DataFrame:
    """Return the table `ranges`, with whole process ids and in the order of the file."""
    return pl.concat([_nvtx(reading), *(_overhead(reading, table) for table in OVERHEAD_TABLES)])


def _nvtx(reading: Reading) -> pl.DataFrame:
    tables = reading.tables
    empty = empty_reader_table("ranges")
    there = tables.columns(NVTX)
    if not there or not tables.expect(NVTX, ("start", "eventType", "globalTid")):
        return empty
    tables.expect(NVTX, ("end",))
    if not there & set(_TEXT):
        tables.expect(NVTX, tuple(_TEXT))
    domains = _domains(tables)
    kept = domains.filter(pl.col("domain").is_in(KEPT_DOMAINS))
    choice = RangeChoice(
        tuple(_KINDS),
        KEPT_PREFIXES if "text" in there else (),
        KEPT_PREFIXES if "textId" in there and _has_registered(tables) else (),
        tuple(kept.select("process", "domainId").iter_rows()) if "domainId" in there else (),
    )
    available = {c: t for c, t in _COLUMNS.items() if c in there}
    total = tables.guard(NVTX, lambda: tables.raw.count_ranges(choice.event_types), 0)
    frame = tables.guard(NVTX, lambda: tables.raw.ranges(available, choice), None)
    if frame is None or NVTX in tables.damaged:
        return empty
    reading.counts.seen += total
    reading.counts.foreign += total - frame.height
    return _normalized(reading, frame, domains)


def _has_registered(tables: Tables) -> bool:
    return tables.has("StringIds") and tables.guard("StringIds", lambda: tables.raw.has_strings(KEPT_PREFIXES), False)


def _domains(tables: Tables) -> pl.DataFrame:
    """Return the names of the domains, which are numbered per process: columns process, domainId, domain."""
    there = tables.columns(NVTX)
    columns = {c: t for c, t in {**_WHO, **_TEXT}.items() if c in there}
    nothing = pl.DataFrame(schema=columns)
    frame = tables.guard(
        NVTX, lambda: tables.raw.ranges(columns, RangeChoice((DOMAIN_CREATE,), everything=True)), nothing
    )
    frame = frame.with_columns(pl.lit(None, dtype=t).alias(c) for c, t in {**_WHO, **_TEXT}.items() if c not in columns)
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


def _normalized(reading: Reading, frame: pl.DataFrame, domains: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(pl.lit(None, dtype=t).alias(c) for c, t in _COLUMNS.items() if c not in frame.columns)
    instant = pl.col("eventType") == INSTANT
    out = (
        frame.with_columns(_text(reading.tables, frame).alias("name"))
        .filter(reading.can_start() & pl.col("globalTid").is_not_null())
        .select(
            whole_process("globalTid").alias("process"),
            thread_of("globalTid").alias("thread"),
            reading.start(),
            pl.when(instant).then(reading.start()).otherwise(reading.end()).alias("end_ns"),
            (~instant & ~reading.can_end()).alias("impossible"),  # null, and not counted, where the range is open
            pl.col("eventType").replace_strict(_KINDS, return_dtype=RANGE_KIND).alias("kind"),
            "domainId",
            pl.col("name").fill_null(""),
            PAYLOAD,
        )
        .join(domains, on=["process", "domainId"], how="left", maintain_order="left")
        .with_columns(pl.col("domain").cast(NAME))
    )
    reading.counts.damaged += frame.height - out.height
    reading.counts.impossible += int(out["impossible"].sum())
    return conform(out, "ranges")


def _overhead(reading: Reading, table: str) -> pl.DataFrame:
    columns = dict.fromkeys(("start", "end", "globalTid", "nameId", "overheadType"), pl.Int64)
    tables = reading.tables
    frame = tables.read(table, columns, ("start", "end", "globalTid"))
    reading.counts.seen += frame.height
    if frame.is_empty():
        return empty_reader_table("ranges")
    names = tables.strings(frame["nameId"])
    labels = tables.read("ENUM_CUPTI_OVERHEAD_TYPE", {"id": pl.Int64, "label": pl.String}).drop_nulls()
    out = frame.filter(reading.can_start()).select(
        whole_process("globalTid").fill_null(NO_PROCESS).alias("process"),
        thread_of("globalTid").alias("thread"),
        reading.start(),
        reading.end(),
        pl.lit("overhead", dtype=RANGE_KIND).alias("kind"),
        pl.coalesce(
            pl.col("nameId").replace_strict(names, default=None, return_dtype=pl.String),
            pl.col("overheadType").replace_strict(dict(labels.iter_rows()), default=None, return_dtype=pl.String),
            pl.lit("profiler overhead"),
        ).alias("name"),
    )
    reading.counts.damaged += frame.height - out.height
    return conform(out, "ranges")

"""API calls and synchronizations of an Nsight Systems export.

Tables CUPTI_ACTIVITY_KIND_RUNTIME (runtime and driver API alike, told apart by name), _SYNCHRONIZATION and
_CUDA_EVENT (Nsight Systems user guide, SQLite schema reference). Times are nanoseconds.
"""

from __future__ import annotations

import polars as pl

from gapscope.readers.api_calls import families
from gapscope.readers.nsys_ids import named, spread, thread_of, whole_process, without_sentinel
from gapscope.readers.nsys_meta import Clock
from gapscope.readers.nsys_ops import NO_PROCESS, Counts, timed
from gapscope.readers.nsys_raw import Tables
from gapscope.schema import CALL_FAMILY, SYNC_KIND, conform, empty_reader_table

CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")  # the second: should a schema split them
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId")
_SYNC_COLUMNS = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "eventId", "eventSyncId")
_EVENT_TIMES = ("timestamp", "deviceTimestamp")  # of the record on the device; zero unless asked for at recording


def read_calls(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    """Return the table `calls`, with whole process ids and in the order of the file."""
    frames = [f for f in (_calls(tables, table, clock, counts) for table in CALL_TABLES) if not f.is_empty()]
    return pl.concat(frames) if frames else empty_reader_table("calls")


def _calls(tables: Tables, table: str, clock: Clock, counts: Counts) -> pl.DataFrame:
    start, end = pl.col("start"), pl.col("end")

    def normalized(piece: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        frame = piece.lazy().filter(start.is_between(clock.low, clock.high)).select(
            whole_process("globalTid").fill_null(NO_PROCESS).alias("process"),
            thread_of("globalTid").alias("thread"),
            (start + clock.offset_ns).alias("start_ns"),
            pl.when(end.is_between(start, clock.high)).then(end + clock.offset_ns).alias("end_ns"),
            without_sentinel("correlationId").alias("correlation"),
            "nameId",
        )  # fmt: skip
        return frame.collect(), piece.height

    pieces = tables.pieces(table, _CALL_COLUMNS, normalized, _CALL_COLUMNS)
    if not pieces:
        return empty_reader_table("calls")
    frame = pl.concat([p for p, _ in pieces])
    seen = sum(n for _, n in pieces)
    counts.seen += seen
    counts.damaged += seen - frame.height
    counts.impossible += frame["end_ns"].null_count()
    ids = frame["nameId"]
    name, distinct, names = named(ids, tables.strings(ids))
    family = spread(ids, distinct, families(names) if len(names) else pl.Series([], dtype=CALL_FAMILY))
    return conform(frame.with_columns(name, family.alias("family")), "calls")


def read_syncs(tables: Tables, calls: pl.DataFrame, clock: Clock, counts: Counts) -> pl.DataFrame:
    """Return the table `syncs`, with whole process ids and in the order of the file.

    The kind is that of the API call with the same process and correlation id. Where no call is recorded, the ids
    tell it: ``syncType`` is numbered in four ways in exports of the years 2021 to 2026, and up to 3.24 a
    stream synchronization has the number that the export's own ENUM_CUPTI_SYNC_TYPE calls a stream wait. A row
    with a stream and an event is a stream waiting for an event, with only an event the host waiting for one, with
    only a stream a stream synchronization, and with neither a device or context synchronization.
    """
    syncs = tables.read(SYNC, dict.fromkeys(_SYNC_COLUMNS, pl.Int64), _SYNC_COLUMNS[:-1])
    events = tables.read(EVENT, dict.fromkeys((*_SYNC_COLUMNS[2:], *_EVENT_TIMES), pl.Int64), ("streamId", "globalPid", "eventId"))
    counts.seen += syncs.height + events.height
    waits = _with_kinds(syncs.select(*_sync_columns(), *timed(clock)), calls)
    time = pl.coalesce(pl.when(pl.col(c) != 0).then(pl.col(c)) for c in _EVENT_TIMES)
    records = events.with_columns(start=time, end=time).select(
        *_sync_columns(), *timed(clock), pl.lit("event_record", dtype=SYNC_KIND).alias("kind")
    )
    return pl.concat([conform(waits, "syncs"), conform(records, "syncs")])


def _sync_columns() -> list[pl.Expr]:
    return [
        whole_process("globalPid").fill_null(NO_PROCESS).alias("process"),
        pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
        without_sentinel("contextId").alias("context"),
        without_sentinel("streamId").alias("stream"),
        without_sentinel("correlationId").alias("correlation"),
        without_sentinel("eventId").alias("event"),
        without_sentinel("eventSyncId").alias("event_sync"),
    ]


def _with_kinds(syncs: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``kind``."""
    wanted = syncs["correlation"].drop_nulls().unique()
    by_call = (
        calls.lazy()
        .filter(pl.col("correlation").is_in(wanted.implode()))
        .select("process", "correlation", pl.col("family").cast(pl.String).cast(SYNC_KIND, strict=False).alias("by_call"))
        .drop_nulls()
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .collect()
    )
    has_stream, has_event = pl.col("stream").is_not_null(), pl.col("event").is_not_null()
    by_ids = (
        pl.when(has_stream & has_event).then(pl.lit("stream_wait"))
        .when(has_event).then(pl.lit("event_sync"))
        .when(has_stream).then(pl.lit("stream_sync"))
        .otherwise(pl.lit("device_sync"))
        .cast(SYNC_KIND)
    )  # fmt: skip
    joined = syncs.join(by_call, on=["process", "correlation"], how="left", maintain_order="left")
    return joined.with_columns(kind=pl.coalesce("by_call", by_ids)).drop("by_call")

"""API calls and synchronizations of an Nsight Systems export.

Tables CUPTI_ACTIVITY_KIND_RUNTIME (runtime and driver API alike, told apart by name), _SYNCHRONIZATION and
_CUDA_EVENT (Nsight Systems user guide, SQLite schema reference). Times are nanoseconds.
"""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from gapscope.readers.api_calls import family_of
from gapscope.readers.nsys_ids import Names, thread_of, whole_process, without_sentinel
from gapscope.readers.nsys_order import Part, split_by_process
from gapscope.readers.nsys_reading import NO_PROCESS, Kept, Reading
from gapscope.schema import CALL_FAMILY, SYNC_KIND, conform

CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")  # the second: should a schema split them
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId")
_SYNC_COLUMNS = (
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
    "globalPid",
    "eventId",
    "eventSyncId",
)
_EVENT_TIMES = ("timestamp", "deviceTimestamp")  # of the record on the device; zero unless asked for at recording

_BY_CALL: dict[str, pl.DataType | type[pl.DataType]] = {
    "process": pl.Int64,
    "correlation": pl.Int64,
    "by_call": SYNC_KIND,
}
"""Which kind of synchronization the call of a process and correlation id is."""

_SYNCHRONIZES = pl.Series(
    "by_call", [kind if kind in SYNC_KIND.categories else None for kind in CALL_FAMILY.categories], SYNC_KIND
)
"""The kind of synchronization of the calls of a family, by its number; null where they are of none."""

_family = lru_cache(maxsize=4096)(family_of)


def read_calls(reading: Reading, kept: Kept | None = None) -> tuple[list[Part], pl.DataFrame]:
    """Return the rows of the table `calls`, and of those that synchronize process, correlation id and `_BY_CALL`.

    Both are in the order of the file.

    Args:
        reading: The export.
        kept: Which rows are wanted; None: all.
    """
    named = Names(reading.tables.strings)  # not those of kernels: each name is asked for its family

    def normalized(piece: pl.DataFrame) -> tuple[list[Part], pl.DataFrame, int, int, int]:
        rows = piece.filter(reading.can_start())
        names, positions = named.of(rows["nameId"])
        family = pl.Series([_family(n) for n in names], dtype=CALL_FAMILY)
        frame = rows.select(
            whole_process("globalTid").fill_null(NO_PROCESS).alias("process"),
            thread_of("globalTid").alias("thread"),
            reading.start(),
            reading.end(),
            without_sentinel("correlationId").alias("correlation"),
            names.gather(positions).alias("name"),
            family.gather(positions).alias("family"),
        )
        lost = piece.height - rows.height
        frame = frame if kept is None else frame.filter(kept.rows)
        return split_by_process(frame), _synchronizing(frame), piece.height, lost, frame["end_ns"].null_count()

    near = () if kept is None else kept.near
    pieces = [p for t in CALL_TABLES for p in reading.tables.pieces(t, _CALL_COLUMNS, normalized, _CALL_COLUMNS, near)]
    reading.counts.seen += sum(seen for *_, seen, _, _ in pieces)
    reading.counts.damaged += sum(lost for *_, lost, _ in pieces)
    reading.counts.impossible += sum(impossible for *_, impossible in pieces)
    by_call = pl.concat([pl.DataFrame(schema=_BY_CALL), *(found for _, found, *_ in pieces)])
    return [part for parts, *_ in pieces for part in parts], by_call


def _synchronizing(calls: pl.DataFrame) -> pl.DataFrame:
    family = calls["family"].to_physical()
    found = pl.Series(_SYNCHRONIZES.is_not_null().to_numpy().take(family))
    kinds = _SYNCHRONIZES.gather(family.filter(found))
    return pl.DataFrame([calls["process"].filter(found), calls["correlation"].filter(found), kinds])


def read_syncs(reading: Reading, by_call: pl.DataFrame) -> pl.DataFrame:
    """Return the table `syncs`, with whole process ids and in the order of the file.

    The kind is that of the API call with the same process and correlation id. Where no call is recorded, the ids
    tell it: ``syncType`` is numbered in four ways in exports of the years 2021 to 2026, and up to 3.24 a
    stream synchronization has the number that the export's own ENUM_CUPTI_SYNC_TYPE calls a stream wait. A row
    with a stream and an event is a stream waiting for an event, with only an event the host waiting for one, with
    only a stream a stream synchronization, and with neither a device or context synchronization.
    """
    syncs = reading.tables.read(SYNC, dict.fromkeys(_SYNC_COLUMNS, pl.Int64), _SYNC_COLUMNS[:-1])
    columns = dict.fromkeys((*_SYNC_COLUMNS[2:], *_EVENT_TIMES), pl.Int64)
    events = reading.tables.read(EVENT, columns, ("streamId", "globalPid", "eventId"))
    reading.counts.seen += syncs.height + events.height
    waits = _with_kinds(syncs.select(*_sync_columns(), *reading.interval()), by_call)
    time = pl.coalesce(pl.when(pl.col(c) != 0).then(pl.col(c)) for c in _EVENT_TIMES)
    records = events.with_columns(start=time, end=time).select(
        *_sync_columns(), *reading.interval(), pl.lit("event_record", dtype=SYNC_KIND).alias("kind")
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


def _with_kinds(syncs: pl.DataFrame, by_call: pl.DataFrame) -> pl.DataFrame:
    """Add the column ``kind``."""
    of_these = by_call.join(syncs.select("process", "correlation"), on=["process", "correlation"], how="semi")
    by_call = of_these.unique(["process", "correlation"], keep="first", maintain_order=True)
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

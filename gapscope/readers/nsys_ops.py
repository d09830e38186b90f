"""GPU operations of an Nsight Systems export: kernels, copies, fills, and graphs traced as a whole.

Tables CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET and _GRAPH_TRACE (Nsight Systems user guide, SQLite schema
reference). Times are nanoseconds; a pair 0/0 means that CUPTI recorded none (CUPTI documentation,
CUpti_ActivityKernel).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gapscope.readers.nsys_ids import named, without_sentinel, whole_process
from gapscope.readers.nsys_meta import Clock
from gapscope.readers.nsys_raw import Tables
from gapscope.schema import COPY_KIND, NAME, OP_KIND, conform, empty_reader_table

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
OP_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)

NO_PROCESS = 0
"""Whole process id of rows that name none; no real one is zero."""

_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_UNIFIED = {11: 1, 12: 2, 13: 8}  # ENUM_CUDA_MEMCPY_OPER has copies of unified memory beyond CUPTI's own kinds


@dataclass(slots=True)
class Counts:
    """Rows of the file, by what became of them.

    Attributes:
        seen: Rows read, kept or not.
        untimed: Operations with a pair of zeros for their times.
        impossible: Rows whose times are out of range or end before they start.
        damaged: Rows left out because they cannot be placed in time.
    """

    seen: int = 0
    untimed: int = 0
    impossible: int = 0
    damaged: int = 0


def read_ops(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    """Return the table `ops`, with whole process ids and in the order of the file."""
    frames = [
        _kernels(tables, clock, counts),
        _copies(tables, clock, counts),
        _fills(tables, clock, counts),
        _graphs(tables, clock, counts),
    ]
    return pl.concat([f for f in frames if not f.is_empty()] or frames[:1])


def timed(clock: Clock) -> list[pl.Expr]:
    """Return ``start_ns`` and ``end_ns``, null where ``start`` and ``end`` are no times."""
    start, end = pl.col("start"), pl.col("end")
    good = start.is_between(clock.low, clock.high) & end.is_between(start, clock.high) & ~_without_time(clock)
    return [
        pl.when(good).then(start + clock.offset_ns).alias("start_ns"),
        pl.when(good).then(end + clock.offset_ns).alias("end_ns"),
    ]


def _without_time(clock: Clock) -> pl.Expr:
    start, end = pl.col("start"), pl.col("end")
    return (start == end) & ((start == 0) | (start == clock.zero)) | start.is_null() | end.is_null()


def _read(
    tables: Tables, table: str, more: tuple[str, ...], expected: tuple[str, ...], clock: Clock, counts: Counts
) -> pl.DataFrame:
    """Return what the four tables have in common, and the columns ``more`` as they are."""

    def normalized(piece: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        untimed = piece.select(_without_time(clock).sum()).item()
        frame = piece.select(
            whole_process("globalPid").fill_null(NO_PROCESS).alias("process"),
            pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
            without_sentinel("contextId").alias("context"),
            without_sentinel("streamId").alias("stream"),
            *timed(clock),
            without_sentinel("correlationId").alias("correlation"),
            *more,
        )
        return frame, untimed

    pieces = tables.pieces(table, (*_PLACE, *more), normalized, (*_PLACE[:3], *_PLACE[4:], *expected))
    if not pieces:
        return normalized(pl.DataFrame(schema=dict.fromkeys((*_PLACE, *more), pl.Int64)))[0]
    frame = pl.concat([p for p, _ in pieces])
    untimed = sum(n for _, n in pieces)
    counts.seen += frame.height
    counts.untimed += untimed
    counts.impossible += frame["start_ns"].null_count() - untimed
    return frame


def _kernels(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    names = [c for c in ("demangledName", "shortName") if c in tables.columns(KERNEL)]
    frame = _read(tables, KERNEL, (*names[:1], "graphNodeId"), () if names else ("demangledName",), clock, counts)
    if not names:
        return _finished(frame, "kernel", pl.lit("unnamed", dtype=pl.String))
    ids = frame[names[0]]
    if ids.null_count() and names[1:]:  # rare: only rows without the full name need the other column
        short = pl.concat(tables.pieces(KERNEL, names[1:], lambda piece: piece) or [pl.DataFrame({names[1]: ids})])
        if len(short) == len(ids):
            ids = ids.zip_with(ids.is_not_null(), short.to_series())
    column, _, _ = named(ids, tables.strings(ids))
    name = pl.lit(column).fill_null(pl.lit("unnamed", dtype=NAME)) if column.null_count() else column
    return _finished(frame, "kernel", name, graph_node=pl.col("graphNodeId"))


def _copies(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    frame = _read(tables, MEMCPY, ("bytes", "copyKind", "graphNodeId"), ("bytes", "copyKind"), clock, counts)
    kinds = COPY_KIND.categories
    number = pl.col("copyKind").replace(_UNIFIED)
    known = number.is_between(1, len(kinds) - 1)
    kind = pl.when(known).then(number).otherwise(0).fill_null(0)
    labels = pl.Series(["memcpy", *(f"memcpy {k}" for k in kinds[1:])], dtype=NAME)
    positions = frame.select(kind.cast(pl.UInt32)).to_series()
    frame = frame.with_columns(name=labels.gather(positions), copy_kind=kinds.cast(COPY_KIND).gather(positions))
    return _finished(frame, "memcpy", pl.col("name"), size_bytes=pl.col("bytes"), graph_node=pl.col("graphNodeId"))


def _fills(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    frame = _read(tables, MEMSET, ("bytes", "graphNodeId"), ("bytes",), clock, counts)
    name = pl.lit("memset", dtype=NAME)
    return _finished(frame, "memset", name, size_bytes=pl.col("bytes"), graph_node=pl.col("graphNodeId"))


def _graphs(tables: Tables, clock: Clock, counts: Counts) -> pl.DataFrame:
    frame = _read(tables, GRAPH_TRACE, ("graphId",), (), clock, counts)
    name = pl.when(pl.col("graphId").is_null()).then(pl.lit("CUDA graph")).otherwise(pl.format("CUDA graph {}", "graphId"))
    return _finished(frame, "graph", name.cast(NAME))


def _finished(frame: pl.DataFrame, kind: str, name: pl.Expr | pl.Series, **more: pl.Expr) -> pl.DataFrame:
    if frame.is_empty():
        return empty_reader_table("ops")
    column = name.alias("name") if isinstance(name, pl.Series) else name.cast(NAME).alias("name")
    return conform(frame.with_columns(column, kind=pl.lit(kind, dtype=OP_KIND), **more), "ops")

"""Tables in as few bytes as their values need, in memory and on disk, and back.

A table of `gapscope.schema` has 80 bytes a row, most of them zeros: ids are small, most columns of an operation are
null, and an end lies near its start. Packed, integers have the narrowest type that holds them, an end is a length
(``duration_ns``), and a column without any value is left out. What is read is unpacked column by column, so that a
query pays for the columns that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from gapscope.schema import reader_dtypes

_LENGTH = "duration_ns"
_TYPES = {8: pl.Int8, 16: pl.Int16, 32: pl.Int32}


def packed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows of one table in few bytes; `unpacked` gives them back."""
    columns = []
    for column in frame.get_columns():
        if column.name == "start_ns":
            columns.append(column)
        elif column.name == "process" or column.null_count() < len(column):
            length = _length(frame, column) if column.name == "end_ns" else None
            values = column if length is None else length
            columns.append(_narrowed(values) if values.dtype in {pl.Int64, pl.Int32} else values)
    return pl.DataFrame(columns)


def _narrowed(values: pl.Series) -> pl.Series:
    """Return integers in the narrowest type that holds them, without the checks of a cast of each value."""
    low, high = values.min(), values.max()
    for bits, dtype in _TYPES.items():
        if low is None or (-(2 ** (bits - 1)) <= low and high < 2 ** (bits - 1)):
            return values.cast(dtype, wrap_numerical=True)
    return values


def _length(frame: pl.DataFrame, end: pl.Series) -> pl.Series | None:
    """Return the end as a length; None if a row has an end and no start."""
    if "start_ns" not in frame.columns:
        return None
    start = frame["start_ns"]
    if start.null_count() and (start.is_null() & end.is_not_null()).any():
        return None
    return (end - start).alias(_LENGTH)


def unpacked(frame: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """Return packed rows in the columns and types of `gapscope.schema.reader_dtypes`."""
    there = frame.collect_schema()
    made = {}
    for name, dtype in reader_dtypes(table).items():
        if name not in there:
            made[name] = pl.lit(None, dtype=dtype)
        elif there[name] != dtype:
            made[name] = pl.col(name).cast(dtype)
    if _LENGTH in there:
        made["end_ns"] = pl.col("start_ns") + pl.col(_LENGTH).cast(pl.Int64)
    return frame.with_columns(**made).select(list(reader_dtypes(table)))


def is_packed(schema: pl.Schema, table: str) -> bool:
    """Tell if a frame of this schema holds packed rows of a table."""
    wanted = {**reader_dtypes(table), _LENGTH: pl.Int64()}

    def fits(dtype: pl.DataType, full: pl.DataType | type[pl.DataType] | None) -> bool:
        return dtype == full or (full in {pl.Int64, pl.Int32} and dtype.is_signed_integer())

    whole = {"process", "start_ns"} & reader_dtypes(table).keys() <= schema.keys()
    return whole and all(fits(dtype, wanted.get(name)) for name, dtype in schema.items())


def all_unpacked(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.LazyFrame]:
    """Return packed tables by name as a reader delivers them."""
    return {name: unpacked(frame.lazy(), name) for name, frame in frames.items()}


def length_for(column: str, frame: pl.DataFrame) -> str:
    """Return the column of a packed frame that orders rows of one start as ``column`` does."""
    return _LENGTH if column == "end_ns" and _LENGTH in frame.columns else column


def joined(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return packed rows of one table, one frame after the other, without a copy where their types agree."""
    frames = list(frames)
    lengths = [_LENGTH in f.columns for f in frames]
    if any(lengths):  # where one has ends that are no lengths, all have
        ends = any("end_ns" in f.columns for f in frames)
        frames = [_with_end(f) if ends and has else f for f, has in zip(frames, lengths, strict=True)]
    return pl.concat(frames, how="diagonal_relaxed")


def _with_end(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(end_ns=pl.col("start_ns") + pl.col(_LENGTH).cast(pl.Int64)).drop(_LENGTH)

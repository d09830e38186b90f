"""Order of the rows of a normalized table, the same whatever the order in the file.

Exports are nearly in order of time already, and hold a few processes. So rows are split by process piece by piece,
while they are still in the processor's cache, and what is put together again is mostly sorted: no general sort
and no copy of a table of millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.readers.packing import joined, length_for, packed
from gapscope.schema import empty_reader_table, reader_dtypes

Part = tuple[int, pl.DataFrame]
"""Whole process id, and packed rows of that process without the column ``process``."""

_FEW_PROCESSES = 8
"""Processes that are picked out one by one, which is faster than parting all at once."""

_FIRST = -(2**63)  # rows without a start come first
_FIRST_KEYS = {
    "ops": ("end_ns", "correlation", "stream"),
    "calls": ("end_ns", "correlation", "thread"),
    "syncs": ("end_ns", "correlation", "stream"),
    "ranges": ("end_ns", "thread", "name"),
}
"""Columns that rows with one start are ordered by before the others."""


def split_by_process(frame: pl.DataFrame) -> list[Part]:
    """Return the rows of each process, packed and in their order, without the column ``process``; may be in parts."""
    if frame.is_empty():
        return []
    process, rows = frame["process"], packed(frame.drop("process"))
    if (process == process[0]).all():
        return [(int(process[0]), rows)]
    if process.n_unique() > _FEW_PROCESSES:
        found = rows.with_columns(process).partition_by("process", maintain_order=True, include_key=False, as_dict=True)
        return [(number, part) for (number,), part in found.items()]
    return [(number, _rows_where(rows, process == number)) for number in process.unique(maintain_order=True)]


def _rows_where(rows: pl.DataFrame, chosen: pl.Series) -> pl.DataFrame:
    """Return some rows; column by column that takes a third of the time of a filter of the frame."""
    return pl.DataFrame([column.filter(chosen) for column in rows.get_columns()])


def in_order(parts: list[Part], table: str) -> list[Part]:
    """Return the rows of a table, one part a process, by start and the other columns; ``parts`` is emptied."""
    keys = ("start_ns", *_FIRST_KEYS[table], *reader_dtypes(table))
    of_process: dict[int, list[pl.DataFrame]] = {}
    while parts:
        whole, rows = parts.pop()
        if not rows.is_empty():
            of_process.setdefault(whole, []).append(rows)
    return [(whole, _in_one_piece(_by_start(of_process.pop(whole)[::-1], keys))) for whole in sorted(of_process)]


def put_together(parts: Iterable[Part], numbers: Mapping[int, int], table: str) -> pl.DataFrame:
    """Return the packed rows of a table in the order of their process, from one part a process.

    Args:
        parts: The rows, each part in order.
        numbers: Number of each process within the file, by whole process id.
        table: The table.
    """
    frames = []
    for whole, rows in sorted(parts, key=lambda part: numbers[part[0]]):
        number = pl.Series("process", [numbers[whole]], dtype=pl.Int64).shrink_dtype()
        frames.append(rows.with_columns(number.new_from_index(0, rows.height)))
    return joined(frames) if frames else packed(empty_reader_table(table))


def _in_one_piece(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Return rows one frame after the other; column by column, so that no more than one is there twice."""
    columns = joined(frames).get_columns()
    frames.clear()
    for k, column in enumerate(columns):
        columns[k] = column.rechunk()
    return pl.DataFrame(columns)


def _by_start(frames: list[pl.DataFrame], keys: Sequence[str]) -> list[pl.DataFrame]:
    """Order the rows of one process: each frame by itself, then what lies between the first starts of two frames."""
    runs = [_sorted_run(f) for f in frames]
    firsts = np.unique([start[0] for _, start in runs])
    buckets: list[list[pl.DataFrame]] = [[] for _ in firsts]
    for rows, start in runs:
        cuts = [*np.searchsorted(start, firsts[1:]).tolist(), start.size]  # equal starts fall into one bucket
        first = 0
        for bucket, end in zip(buckets, cuts, strict=True):
            if end > first:
                bucket.append(rows[first:end])
            first = max(first, end)
    return [_merged(bucket, keys) for bucket in buckets if bucket]


def _starts(frame: pl.DataFrame) -> npt.NDArray[np.int64]:
    start = frame["start_ns"]
    return (start.fill_null(_FIRST) if start.null_count() else start).to_numpy()


def _sorted_run(frame: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    start = _starts(frame)
    if (start[1:] >= start[:-1]).all():
        return frame, start
    order = np.argsort(start, kind="stable")
    return frame[pl.Series(order.astype(np.uint32))], start[order]


def _merged(slices: list[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Return the rows of some sorted frames by ``keys``, of which the start is the first."""
    frame, start = _sorted_run(joined(slices).rechunk() if len(slices) > 1 else slices[0])
    same = start[1:] == start[:-1]
    if not same.any():
        return frame
    tied = np.append(same, False)
    tied[1:] |= same
    by = dict.fromkeys(length_for(c, frame) for c in keys)
    at = np.flatnonzero(tied)
    rows = frame[pl.Series(at.astype(np.uint32))].with_row_index("at")
    inner = rows.sort([c for c in by if c in frame.columns], maintain_order=True)["at"].to_numpy()
    if (inner[1:] > inner[:-1]).all():
        return frame
    order = np.arange(frame.height, dtype=np.uint32)
    order[at] = at[inner]
    return frame[pl.Series(order)]

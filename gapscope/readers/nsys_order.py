"""Order of the rows of a normalized table, the same whatever the order in the file.

Exports are nearly in order of time already, and hold a few processes. So rows are split by process piece by piece,
while they are still in the processor's cache, and what is put together again is mostly sorted: no general sort
and no copy of a table of millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

Part = tuple[int, pl.DataFrame]
"""Whole process id, and rows of that process without the column ``process``."""

_FIRST = -(2**63)  # rows without a start come first


def split_by_process(frame: pl.DataFrame) -> list[Part]:
    """Return the rows of each process, in their order, without the column ``process``."""
    parts = frame.partition_by("process", maintain_order=True, include_key=False, as_dict=True)
    return [(whole, rows) for (whole,), rows in parts.items()]


def put_together(parts: Iterable[Part], numbers: Mapping[int, int], first_keys: tuple[str, ...]) -> pl.DataFrame | None:
    """Return the rows by process, start, ``first_keys`` and all other columns; None if there are none.

    Args:
        parts: The rows, in any order.
        numbers: Number of each process within the file, by whole process id.
        first_keys: Columns to order by before the others.
    """
    of_process: dict[int, list[pl.DataFrame]] = {}
    for whole, rows in parts:
        if not rows.is_empty():
            of_process.setdefault(numbers[whole], []).append(rows)
    frames = []
    for number in sorted(of_process):
        process = pl.lit(number, dtype=pl.Int64).alias("process")
        frames += [rows.with_columns(process) for rows in _by_start(of_process.pop(number), first_keys)]
    return pl.concat(frames) if frames else None


def _by_start(frames: list[pl.DataFrame], first_keys: tuple[str, ...]) -> list[pl.DataFrame]:
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
    return [_merged(bucket, first_keys) for bucket in buckets if bucket]


def _starts(frame: pl.DataFrame) -> npt.NDArray[np.int64]:
    return frame["start_ns"].fill_null(_FIRST).to_numpy()


def _sorted_run(frame: pl.DataFrame) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    start = _starts(frame)
    if (start[1:] >= start[:-1]).all():
        return frame, start
    order = np.argsort(start, kind="stable")
    return frame[pl.Series(order.astype(np.uint32))], start[order]


def _merged(slices: list[pl.DataFrame], first_keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows of some sorted frames by start, ``first_keys`` and all other columns."""
    frame, start = _sorted_run(pl.concat(slices, rechunk=True) if len(slices) > 1 else slices[0])
    same = start[1:] == start[:-1]
    if not same.any():
        return frame
    tied = np.append(same, False)
    tied[1:] |= same
    keys = ["start_ns", *first_keys]
    keys += [c for c in frame.columns if c not in keys]
    at = np.flatnonzero(tied)
    inner = frame[pl.Series(at.astype(np.uint32))].with_row_index("at").sort(keys, maintain_order=True)["at"].to_numpy()
    if (inner[1:] > inner[:-1]).all():
        return frame
    order = np.arange(frame.height, dtype=np.uint32)
    order[at] = at[inner]
    return frame[pl.Series(order)]

"""Operations by stream: which was enqueued last before a call, or first from it on, and which had ended by a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

NONE = -1
STREAM = ["source", "process", "device", "stream"]


@dataclass(frozen=True)
class Streams:
    """Operations in order of their stream, and where each stream stands among them.

    Attributes:
        table: One row per stream: ``source, process, device, stream, first, until`` (from which to before which
            operation).
        correlation: Correlation id of each operation. Ids count calls, so that they tell the order.
        start: Start of each operation.
        end: End of each operation.
    """

    table: pl.DataFrame
    correlation: pl.Series
    start: Ints
    end: Ints

    def beside(
        self, frame: pl.DataFrame, device: str, stream: str, column: str, into: str, *, behind: bool
    ) -> pl.DataFrame:
        """Add the number of the operation of a stream that was enqueued last up to a call, or first from it on.

        Args:
            frame: Has ``source``, ``process``, ``device``, ``stream`` and ``column``.
            device: Column with the device.
            stream: Column with the stream.
            column: Column with the correlation id of the call.
            into: Name of the new column; null: there is no such operation.
            behind: The first operation from the call on, not the last up to it.
        """
        found = np.full(frame.height, NONE, np.int32)
        wanted = frame[column].fill_null(0).to_numpy()
        for mine, first, until in self._by_stream(frame, device, stream, column):
            ids = self.correlation[first:until]
            ops = np.flatnonzero(ids.is_not_null().to_numpy()) + first
            keys = ids.drop_nulls().to_numpy()
            if not (keys[1:] >= keys[:-1]).all():
                by_id = np.argsort(keys, kind="stable")
                ops, keys = ops[by_id], keys[by_id]
            at = np.searchsorted(keys, wanted[mine], side="left" if behind else "right") - (0 if behind else 1)
            there = (at >= 0) & (at < len(ops))
            found[mine[there]] = ops[at[there]]
        return frame.with_columns(pl.Series(into, found).replace(NONE, None))

    def ended_by(self, frame: pl.DataFrame, device: str, stream: str, column: str, into: str) -> pl.DataFrame:
        """Add the number of the operation of a stream that had ended last by a time; of equal ones the last.

        Args:
            frame: Has ``source``, ``process``, ``device``, ``stream`` and ``column``.
            device: Column with the device.
            stream: Column with the stream.
            column: Column with the time.
            into: Name of the new column; null: there is no such operation.
        """
        found = np.full(frame.height, NONE, np.int32)
        wanted = frame[column].fill_null(0).to_numpy()
        for mine, first, until in self._by_stream(frame, device, stream, column):
            ends = self.end[first:until]
            order = np.argsort(ends, kind="stable")
            at = np.searchsorted(ends[order], wanted[mine], side="right") - 1
            found[mine[at >= 0]] = first + order[at[at >= 0]]
        return frame.with_columns(pl.Series(into, found).replace(NONE, None))

    def _by_stream(
        self, frame: pl.DataFrame, device: str, stream: str, column: str
    ) -> list[tuple[npt.NDArray[np.intp], int, int]]:
        """Return for each stream that rows with a known key ask about these rows, and where the stream stands."""
        place = frame.select("source", "process", column, device=device, stream=stream)
        numbered = self.table.with_row_index("lane")
        lanes = place.join(numbered, on=STREAM, how="left", maintain_order="left", nulls_equal=True)
        known = pl.when(pl.col(column).is_not_null()).then("lane")
        number = lanes.select(known.fill_null(self.table.height)).to_series().to_numpy()
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number[order], np.arange(self.table.height + 1))
        stands = self.table.select("first", "until").rows()
        return [
            (order[bounds[k] : bounds[k + 1]], first, until)
            for k, (first, until) in enumerate(stands)
            if bounds[k + 1] > bounds[k]
        ]


def streams_of(ops: pl.DataFrame) -> Streams:
    """Return the streams of operations that are few enough to be looked at as they are.

    Args:
        ops: ``source, process, device, stream, correlation, start_ns, end_ns``, those of one stream together and in the
            order in which they were enqueued.
    """
    table = (
        ops.select(STREAM)
        .with_row_index("_op")
        .group_by(STREAM, maintain_order=True)
        .agg(first=pl.col("_op").min().cast(pl.Int64), until=pl.col("_op").max().cast(pl.Int64) + 1)
    )
    return Streams(table, ops["correlation"], ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())

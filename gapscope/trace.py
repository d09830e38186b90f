"""Trace: the normalized tables of one run, over all its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from gapscope.findings import Finding
from gapscope.readers.base import SourceTables
from gapscope.schema import READER_TABLES, dtypes


@dataclass
class Trace:
    """The recordings of one run.

    Tables are polars frames with the columns of `gapscope.schema`. Small ones are attributes (`sources`,
    `processes`, `marks`); the large ones (`ops`, `calls`, ...) are read on first use, or lazily with `scan`.

    Attributes:
        sources: One row per file.
        processes: One row per process of a file, with its rank, how the rank was had (``rank_source``), whether
            GPU operations of it were recorded (``has_ops``), its window, and whether its marks are used
            (``primary``; not where another tool saw the same rank with its GPU work).
        marks: One row per gapscope mark, ranks filled in.
        findings: What was found while reading.
    """

    sources: pl.DataFrame
    processes: pl.DataFrame
    marks: pl.DataFrame
    findings: list[Finding]
    _files: Sequence[SourceTables] = ()
    _loaded: dict[str, pl.DataFrame] = field(default_factory=dict)

    def scan(self, table: str) -> pl.LazyFrame:
        """Return one table of all files lazily, with ``source`` and ``rank``.

        Args:
            table: A name of `gapscope.schema.READER_TABLES`.
        """
        wanted = dtypes(READER_TABLES[table])
        parts = []
        for number, file in enumerate(self._files):
            of_file = self.processes.filter(pl.col("source") == number)
            rank = pl.col("process").replace_strict(
                of_file["process"], of_file["rank"], default=None, return_dtype=pl.Int32
            )
            source = pl.lit(number, dtype=pl.Int32)
            parts.append(file.tables[table].with_columns(source=source, rank=rank).select(list(wanted)))
        return pl.concat(parts) if parts else pl.LazyFrame(schema=wanted)

    def table(self, table: str) -> pl.DataFrame:
        """Return one table of all files; it is kept for the next call."""
        if table not in self._loaded:
            self._loaded[table] = self.scan(table).collect()
        return self._loaded[table]

    @property
    def ops(self) -> pl.DataFrame:
        """GPU operations."""
        return self.table("ops")

    @property
    def calls(self) -> pl.DataFrame:
        """Host API calls."""
        return self.table("calls")

    @property
    def syncs(self) -> pl.DataFrame:
        """Event records, stream waits and host synchronizations."""
        return self.table("syncs")

    @property
    def ranges(self) -> pl.DataFrame:
        """Host annotations that were kept, and torch's GPU spans of them."""
        return self.table("ranges")

    @property
    def comms(self) -> pl.DataFrame:
        """Communication metadata."""
        return self.table("comms")

    @property
    def threads(self) -> pl.DataFrame:
        """Thread names."""
        return self.table("threads")

    def __repr__(self) -> str:
        ranks = sorted(r for r in self.processes["rank"].drop_nulls().unique())
        return f"Trace({self.sources.height} files, ranks {ranks}, {self.marks.height} marks)"

    def _repr_html_(self) -> str:
        shown = self.sources.select("path", "format", "tool", "version", "ranks", "clock", "events")
        return f"<p>{self!r}</p>{shown._repr_html_()}"

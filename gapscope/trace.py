"""Trace: the normalized tables of one run, over all its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gapscope.findings import Finding
from gapscope.readers.base import SourceTables, Window
from gapscope.schema import READER_TABLES, dtypes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where results of a trace may be kept, and under what.

    Attributes:
        cache_dir: Folder of the cache.
        digest: Tells the recordings, their order, names and ranks from all others.
    """

    cache_dir: Path
    digest: str


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
        window: Steps that were asked for, where the rest of the recordings was not read; None: all was read.
        origin: Where results of it may be kept; None: nothing is kept, or the recordings are small.
    """

    sources: pl.DataFrame
    processes: pl.DataFrame
    marks: pl.DataFrame
    findings: list[Finding]
    _files: Sequence[SourceTables] = ()
    origin: Origin | None = None
    window: Window | None = None
    _loaded: dict[str, pl.DataFrame] = field(default_factory=dict)
    _found: dict[str, pl.DataFrame] = field(default_factory=dict, init=False, repr=False)

    def scan(self, table: str, *, used: bool = False) -> pl.LazyFrame:
        """Return one table of all files lazily, with ``source`` and ``rank``.

        Args:
            table: A name of `gapscope.schema.READER_TABLES`.
            used: Only rows of processes that have a rank and whose marks are used.
        """
        wanted = dtypes(READER_TABLES[table])
        parts = []
        for number, file in enumerate(self._files):
            of_file = self.processes.filter(pl.col("source") == number)
            rows = file.tables[table]
            if used:
                chosen = of_file.filter(pl.col("rank").is_not_null() & pl.col("primary"))["process"]
                if chosen.len() < of_file.height:  # else nothing is copied
                    rows = rows.filter(_is_any(chosen.to_list()))
            source = pl.lit(number, dtype=pl.Int32)
            parts.append(rows.with_columns(source=source, rank=_ranks(of_file)).select(list(wanted)))
        return pl.concat(parts) if parts else pl.LazyFrame(schema=wanted)

    @property
    def read_steps(self) -> tuple[int, int] | None:
        """First and last of the steps that were asked for; None: all was read, or marks name no steps."""
        steps = self.marks["step"].drop_nulls()
        return None if self.window is None or steps.is_empty() else self.window.steps_of(steps)

    def once(self, name: str, find: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return what was found in the tables before; the first time it is looked for.

        Args:
            name: What it is.
            find: Finds it.
        """
        if name not in self._found:
            self._found[name] = find()
        return self._found[name]

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


_FEW = 8
"""Processes of one file that are compared one by one: that is many times faster than looking each row's up."""


def _is_any(processes: list[int]) -> pl.Expr:
    """Return whether a row is of one of these processes."""
    if 0 < len(processes) <= _FEW:
        return pl.any_horizontal([pl.col("process") == p for p in processes])
    return pl.col("process").is_in(processes)


def _ranks(processes: pl.DataFrame) -> pl.Expr:
    """Return the rank of each row's process; null: it has none."""
    pids, ranks = processes["process"], processes["rank"].cast(pl.Int32)
    if processes.height > _FEW:
        return pl.col("process").replace_strict(pids, ranks, default=None, return_dtype=pl.Int32)
    found = pl.lit(None, dtype=pl.Int32)
    for pid, rank in zip(pids, ranks, strict=True):
        found = pl.when(pl.col("process") == pid).then(pl.lit(rank, dtype=pl.Int32)).otherwise(found)
    return found

"""What the parts of reading one Nsight Systems export share: tables, clock, counts, and which values are times."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from gapscope.readers.nsys_ids import Names
from gapscope.readers.nsys_meta import Clock
from gapscope.readers.nsys_raw import Near, Tables
from gapscope.readers.window import Ids, Stretch

NO_PROCESS = 0
"""Whole process id of rows that name none; no real one is zero."""


@dataclass(slots=True)
class Counts:
    """Rows of the file, by what became of them.

    Attributes:
        seen: Rows read, kept or not.
        untimed: Operations with a pair of zeros for their times.
        impossible: Rows whose times are out of range or end before they start.
        damaged: Rows left out because they cannot be placed in time.
        foreign: Ranges left out because they are of other programs.
    """

    seen: int = 0
    untimed: int = 0
    impossible: int = 0
    damaged: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """Which rows are wanted.

    Attributes:
        rows: The test, in the columns of a normalized table, with whole process ids.
        near: Tests of the stored rows; a row that passes none of them does not pass ``rows``.
    """

    rows: pl.Expr
    near: tuple[Near, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One export while it is read."""

    tables: Tables
    clock: Clock
    names: Names
    counts: Counts = field(default_factory=Counts)

    def untimed(self) -> pl.Expr:
        """Tell if ``start`` and ``end`` say that no time was recorded."""
        start, end = pl.col("start"), pl.col("end")
        return (start == end) & ((start == 0) | (start == self.clock.zero)) | start.is_null() | end.is_null()

    def kept(self, stretch: Stretch, ids: Ids | None = None) -> Kept:
        """Return the rows that lie in a stretch of time in part, or have one of some correlation ids."""
        low, high = (max(min(ns, 2**62), -(2**62)) - self.clock.offset_ns for ns in (stretch.begin_ns, stretch.end_ns))
        in_time, near = stretch.overlaps().fill_null(value=False), (Near(("start", "end"), low, high),)
        if ids is None:
            return Kept(in_time, near)
        return Kept(in_time | ids.include(), (*near, Near(("correlationId", "correlationId"), *ids.whole)))

    def interval(self) -> list[pl.Expr]:
        """Return ``start_ns`` and ``end_ns``, both null where ``start`` and ``end`` are no times."""
        start, end = pl.col("start"), pl.col("end")
        good = self.can_start() & self.can_end() & ~self.untimed()
        return [
            pl.when(good).then(start + self.clock.offset_ns).alias("start_ns"),
            pl.when(good).then(end + self.clock.offset_ns).alias("end_ns"),
        ]

    def can_start(self) -> pl.Expr:
        """Tell if ``start`` can be a time."""
        return pl.col("start").is_between(self.clock.low, self.clock.high)

    def can_end(self) -> pl.Expr:
        """Tell if ``end`` can be a time that follows ``start``."""
        return pl.col("end").is_between(pl.col("start"), self.clock.high)

    def start(self) -> pl.Expr:
        """Return ``start_ns`` of rows that can start."""
        return (pl.col("start") + self.clock.offset_ns).alias("start_ns")

    def end(self) -> pl.Expr:
        """Return ``end_ns``, null where ``end`` is no time that follows ``start``."""
        return pl.when(self.can_end()).then(pl.col("end") + self.clock.offset_ns).alias("end_ns")

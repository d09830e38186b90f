"""The tables of one Nsight Systems export as they are stored, whatever the container.

Columns are looked up by name: their order and number differ between the versions of Nsight Systems
(Nsight Systems user guide, SQLite schema reference). Tables are made lazily, so an absent one has
had no rows, was not traced, or was left out by the export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import polars as pl

from gapscope.findings import Finding

T = TypeVar("T")
DType = type[pl.DataType]
Columns = Mapping[str, DType]
"""Wanted columns of a stored table, with the type to deliver: ``pl.Int64``, ``pl.Float64`` or ``pl.String``."""


class DamagedTableError(Exception):
    """A table cannot be read; the others may be.

    Raised by `RawTables` and turned into a finding by `Tables`: it never leaves a reader.
    """


PAYLOAD = "payload"
WHOLE_PAYLOADS = ("int64Value", "uint64Value", "int32Value", "uint32Value")
REAL_PAYLOADS = ("doubleValue", "floatValue")
"""Columns of NVTX_EVENTS, at most one of them not null; unsigned values beyond 63 bits wrap, as SQLite stores them."""


@dataclass(frozen=True, slots=True)
class RangeChoice:
    """Which rows of NVTX_EVENTS to load: those of the event types that fit any of the other fields.

    Columns that the other fields need must exist.

    Attributes:
        event_types: Values of ``eventType``.
        prefixes: Starts of ``text``, case-sensitive.
        registered_prefixes: Starts of the registered string that ``textId`` names, case-sensitive.
        domains: Pairs of process (global id without its thread part) and ``domainId``.
        everything: All rows of the event types.
    """

    event_types: tuple[int, ...]
    prefixes: tuple[str, ...] = ()
    registered_prefixes: tuple[str, ...] = ()
    domains: tuple[tuple[int, int], ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Near:
    """A test of rows: two integer columns, in order, span an interval that has something of this one.

    A row that lacks one of the values passes.

    Attributes:
        columns: Names of the columns with the begin and the end.
        low: First value of the interval.
        high: Its last value.
    """

    columns: tuple[str, str]
    low: int
    high: int


class RawTables(Protocol):
    """One container of tables. Every method but `tables` raises `DamagedTableError` if the table is broken."""

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables that are there."""
        ...

    @property
    def concurrent(self) -> bool:
        """Tell if reading several tables at once, from threads, is worth it."""
        ...

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table."""
        ...

    def read(self, table: str, columns: Columns) -> pl.DataFrame:
        """Return some columns of a table, which must exist; values of another kind become null."""
        ...

    def some(self, table: str, column: str) -> list[int]:
        """Return a few values of an integer column that are neither null nor zero."""
        ...

    def pieces(
        self, table: str, integers: Sequence[str], apply: Callable[[pl.DataFrame], T], near: Sequence[Near] = ()
    ) -> list[T]:
        """Read integer columns of a large table in pieces and return what ``apply`` makes of each, in order.

        ``apply`` may be called from several threads at once. With ``near``, rows that pass none of these tests may be
        left out, or may not.
        """
        ...

    def ranges(self, columns: Columns, choice: RangeChoice) -> pl.DataFrame:
        """Return some columns of the chosen rows of NVTX_EVENTS, and a column `PAYLOAD`.

        The payload is the first integer of `WHOLE_PAYLOADS` and `REAL_PAYLOADS`; null if there is none.
        """
        ...

    def count_ranges(self, event_types: tuple[int, ...]) -> int:
        """Return the number of rows of NVTX_EVENTS of some event types."""
        ...

    def strings(self, ids: pl.Series) -> pl.DataFrame:
        """Return columns ``id`` and ``value`` of StringIds for some ids; ids that it lacks are left out."""
        ...

    def has_strings(self, prefixes: tuple[str, ...]) -> bool:
        """Tell if a string of StringIds starts with one of ``prefixes``; reads all of them, so damage shows here."""
        ...


class Tables:
    """Stored tables with absent columns filled in, and a record of what could not be read.

    Args:
        raw: The container.
        path: The file as the user named it, for the findings.
    """

    def __init__(self, raw: RawTables, path: str) -> None:
        self.raw = raw
        self.path = path
        self.findings: list[Finding] = []
        self.damaged: set[str] = set()

    def has(self, table: str) -> bool:
        """Tell if the table is there and not known to be damaged."""
        return table in self.raw.tables and table not in self.damaged

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none if it is absent or damaged."""
        if not self.has(table):
            return frozenset()
        return self.guard(table, lambda: self.raw.columns(table), frozenset())

    def guard(self, table: str, action: Callable[[], T], instead: T) -> T:
        """Return ``action()``, or ``instead`` with a finding if the table turns out to be damaged."""
        try:
            return action()
        except DamagedTableError as error:
            if table not in self.damaged:
                self.damaged.add(table)
                self.note("damaged_table", "error", f"table {table} cannot be read ({error}); the others are used")
            return instead

    def read(self, table: str, columns: Columns, expected: Sequence[str] = ()) -> pl.DataFrame:
        """Return the columns of a table, null where it lacks one; no rows if it is absent or damaged."""
        empty = pl.DataFrame(schema=dict(columns))
        there = self.columns(table)
        if not there:
            return empty
        self.expect(table, expected)
        wanted = {c: t for c, t in columns.items() if c in there}
        if not wanted:
            return empty
        return with_columns(self.guard(table, lambda: self.raw.read(table, wanted), empty), columns)

    def pieces(
        self,
        table: str,
        integers: Sequence[str],
        apply: Callable[[pl.DataFrame], T],
        expected: Sequence[str] = (),
        near: Sequence[Near] = (),
    ) -> list[T]:
        """Read integer columns in pieces, null where the table lacks one, and return what ``apply`` makes of each."""
        there = self.columns(table)
        near = near if all(column in there for test in near for column in test.columns) else ()
        wanted = [c for c in integers if c in there]
        if not wanted:
            return []
        self.expect(table, expected)
        schema = dict.fromkeys(integers, pl.Int64)
        return self.guard(
            table, lambda: self.raw.pieces(table, wanted, lambda f: apply(with_columns(f, schema)), near), []
        )

    def strings(self, ids: pl.Series) -> dict[int, str]:
        """Return the strings of StringIds for some ids; ids that it lacks are left out."""
        distinct = ids.drop_nulls().unique().sort()
        if not distinct.is_empty() and "StringIds" not in self.raw.tables:
            message = "the export has no table StringIds: what calls, operations and threads are called is lost"
            self.note("missing_table", "warning", message, "Export the report again, with all its tables.")
        if distinct.is_empty() or not self.has("StringIds"):
            return {}
        empty = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
        frame = self.guard("StringIds", lambda: self.raw.strings(distinct), empty)
        return dict(frame.drop_nulls().iter_rows())

    def expect(self, table: str, columns: Sequence[str]) -> bool:
        """Tell if the table has all of ``columns``; a finding names each that it lacks."""
        missing = [c for c in columns if c not in self.columns(table)]
        for column in missing:
            self.note(
                "missing_column",
                "warning",
                f"table {table} has no column {column}: its values count as not recorded",
                "It may have been renamed by a newer Nsight Systems: please report the version.",
            )
        return not missing

    def note(self, code: str, level: str, message: str, hint: str = "", count: int | None = None) -> None:
        """Add a finding about this file, once."""
        finding = Finding(code, level, message, hint, path=self.path, count=count)  # type: ignore[arg-type]
        if finding not in self.findings:
            self.findings.append(finding)


def with_columns(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Return ``frame`` with exactly ``columns``, null where it lacks one."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in columns.items()
    )

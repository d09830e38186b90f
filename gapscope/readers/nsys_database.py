"""Stored tables of an Nsight Systems export in a SQLite database.

Tables of small files are read through SQLite, large tables of others by `gapscope.readers.nsys_pages`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import numpy as np
import polars as pl

from gapscope.collector import without_cycle_collection
from gapscope.readers.nsys_ids import PID_BITS
from gapscope.readers.nsys_raw import (
    PAYLOAD,
    REAL_PAYLOADS,
    WHOLE_PAYLOADS,
    Columns,
    DamagedTableError,
    Near,
    RangeChoice,
)

if TYPE_CHECKING:
    from gapscope.readers.nsys_pages import PlainTable
    from gapscope.readers.nsys_records import Ints, Records

T = TypeVar("T")

LARGE_BYTES = 48 << 20
"""From this size of the file on, tables of integers are decoded from their pages: the compiled code takes half a
second to load, which SQLite needs for half a million rows."""

BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What the sqlite3 module raises on a damaged file; the second where SQLite's message quotes damaged bytes."""

_FETCH = 1 << 16
_PARAMETERS = 500  # SQLite takes at least 999 in one statement
_MANY_STRINGS = 20_000  # from so many on, reading all of them is faster than asking for each
_BOUNDED = ("start", "end", "correlationId")  # columns by which pages are left out
_WORKERS = min(8, os.cpu_count() or 1)


def reason_of(error: Exception) -> str:
    """Return what SQLite says."""
    if isinstance(error, UnicodeDecodeError):  # SQLite's own message quotes the damaged bytes
        return error.object.decode("utf-8", "replace")
    return str(error)


class SqliteTables:
    """`gapscope.readers.nsys_raw.RawTables` of a SQLite file.

    Args:
        path: The database; nobody writes to it meanwhile.

    Raises:
        sqlite3.Error: The database cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_WORKERS)  # of all tables: threads that take turns only cost time
        try:
            schema = self._connection.execute(
                "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
        except BROKEN:
            self.close()
            raise
        self._roots = {name: root for name, root in schema if isinstance(name, str) and isinstance(root, int)}
        self._bounds: dict[str, tuple[Ints, Ints]] = {}
        self._large = path.stat().st_size >= LARGE_BYTES

    def close(self) -> None:
        """Close the database."""
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's own connection: one is locked while a statement runs."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            uri = f"file:{quote(str(self._path.absolute()))}?mode=ro&immutable=1"
            connection = self._local.connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            self._connections.append(connection)
        return connection

    @property
    def concurrent(self) -> bool:
        """Tell if reading several tables at once, from threads, is worth it."""
        return self._large

    def damage(self) -> str | None:
        """Return the first thing that is wrong with the structure of the file; None if nothing, or if it is large."""
        if self._large:
            return None
        try:
            found = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        except BROKEN as error:
            return reason_of(error)
        return None if found == ("ok",) else " ".join(str(found[0]).split())

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables."""
        return frozenset(self._roots)

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns."""
        return frozenset(row[1] for row in self._info(table))

    def read(self, table: str, columns: Columns) -> pl.DataFrame:
        """Return some columns of all rows."""
        if self._large and all(t == pl.Int64 for t in columns.values()):
            return pl.concat(
                self.pieces(table, list(columns), lambda piece: piece) or [pl.DataFrame(schema=dict(columns))]
            )
        return self._frame(f"SELECT {_names(columns)} FROM {_name(table)}", columns)

    def some(self, table: str, column: str) -> list[int]:
        """Return a few values that are neither null nor zero."""
        values = self._rows(f"SELECT {_name(column)} FROM {_name(table)} WHERE {_name(column)} <> 0 LIMIT 9")
        return [v for (v,) in values if isinstance(v, int)]

    def pieces(
        self, table: str, integers: Sequence[str], apply: Callable[[pl.DataFrame], T], near: Sequence[Near] = ()
    ) -> list[T]:
        """Read integer columns in pieces; in parallel where the table is stored plainly, and then only pages near."""
        if self._large:
            decoded = self._decoded(table, integers, apply, near)
            if decoded is not None:
                return decoded
        columns = dict.fromkeys(integers, pl.Int64)
        sql = f"SELECT {_names(columns)} FROM {_name(table)}"
        return self._with_text(lambda: [apply(frame) for frame in self._frames(sql, columns)])

    def _decoded(
        self, table: str, integers: Sequence[str], apply: Callable[[pl.DataFrame], T], near: Sequence[Near]
    ) -> list[T] | None:
        def read(plain: PlainTable) -> list[T]:
            leaves = self._near(table, plain, near) if near else plain.leaves

            def applied(records: Records) -> T:
                return apply(pl.DataFrame([records.integers(k, c) for k, c in enumerate(integers)]))

            return plain.pages.decode(leaves, [plain.position[c] for c in integers], applied, self._pool)

        return self._from_pages(table, integers, read)

    def _from_pages(self, table: str, columns: Iterable[str], read: Callable[[PlainTable], T]) -> T | None:
        """Return what ``read`` makes of a table; None if it, or one of the columns, is not stored plainly."""
        from gapscope.readers.nsys_pages import PageFile, PlainTable  # noqa: PLC0415 - loads a compiler
        from gapscope.readers.nsys_records import NotPlainError  # noqa: PLC0415 - loads a compiler

        info = self._info(table)
        if any(row[1] in columns and (row[5] or row[4] is not None) for row in info):
            return None  # stored elsewhere, or absent rows have a default
        try:
            with PageFile(self._path) as pages:
                return read(PlainTable(pages, pages.leaves(self._roots[table]), {row[1]: row[0] for row in info}))
        except NotPlainError:
            return None

    def _near(self, table: str, plain: PlainTable, near: Sequence[Near]) -> Ints:
        """Return the leaves that may have a row near; what is known of each leaf is kept for the next time."""
        pages, leaves, position = plain
        columns = [c for c in _BOUNDED if c in position]
        if table not in self._bounds:
            self._bounds[table] = pages.bounds(leaves, [position[c] for c in columns], self._pool)
        low, high = (dict(zip(columns, of_column, strict=True)) for of_column in self._bounds[table])
        passes = np.zeros(leaves.size, bool)
        for test in near:
            begin, end = test.columns
            passes |= (low[begin] <= test.high) & (np.maximum(high[begin], high[end]) >= test.low)
        return leaves[passes]

    def ranges(self, columns: Columns, choice: RangeChoice) -> pl.DataFrame:
        """Return some columns of the chosen rows of NVTX_EVENTS."""
        chosen = self._chosen_from_pages(columns, choice) if self._large else None
        return self._chosen_by_sql(columns, choice) if chosen is None else chosen

    def _chosen_from_pages(self, columns: Columns, choice: RangeChoice) -> pl.DataFrame | None:
        from gapscope.readers.nsys_range_pages import chosen_ranges  # noqa: PLC0415 - loads a compiler

        prefixes = choice.registered_prefixes
        sql = f"SELECT id FROM StringIds WHERE {_globs(prefixes)}"
        rows = self._rows(sql, [p + "*" for p in prefixes]) if prefixes else []
        registered = [i for (i,) in rows if isinstance(i, int)]
        return self._from_pages(
            "NVTX_EVENTS",
            (*columns, "eventType", *WHOLE_PAYLOADS, *REAL_PAYLOADS),
            lambda plain: chosen_ranges(plain, columns, choice, registered, self._pool),
        )

    def _chosen_by_sql(self, columns: Columns, choice: RangeChoice) -> pl.DataFrame:
        tests: list[str] = ["1"] if choice.everything else []
        parameters: list[object] = [p + "*" for p in (*choice.prefixes, *choice.registered_prefixes)]
        tests += ["text GLOB ?"] * len(choice.prefixes)
        if choice.registered_prefixes:
            tests.append(f"textId IN (SELECT id FROM StringIds WHERE {_globs(choice.registered_prefixes)})")
        for process, domain in choice.domains:
            tests.append(f"(domainId = ? AND globalTid >> {PID_BITS} = ?)")
            parameters += (domain, process)
        there = self.columns("NVTX_EVENTS")
        values = [_name(c) for c in WHOLE_PAYLOADS if c in there]
        values += [_whole(_name(c)) for c in REAL_PAYLOADS if c in there]
        payload = f"coalesce({', '.join(values)}, NULL)" if values else "NULL"
        sql = (
            f"SELECT {_names(columns)}, {payload} FROM NVTX_EVENTS "
            f"WHERE eventType IN ({', '.join(map(str, choice.event_types))}) AND ({' OR '.join(tests) or '0'})"
        )
        return self._frame(sql, {**columns, PAYLOAD: pl.Int64}, parameters)

    def count_ranges(self, event_types: tuple[int, ...]) -> int:
        """Return the number of rows of NVTX_EVENTS of some types."""
        counts = self._large and self._decoded(
            "NVTX_EVENTS", ["eventType"], lambda piece: _count(piece, event_types), ()
        )
        if counts:
            return sum(counts)
        types = ", ".join(map(str, event_types))
        ((count,),) = self._rows(f"SELECT count(*) FROM NVTX_EVENTS WHERE eventType IN ({types})")
        return count if isinstance(count, int) else 0

    def strings(self, ids: pl.Series) -> pl.DataFrame:
        """Return id and value of some strings."""
        columns = {"id": pl.Int64, "value": pl.String}
        if len(ids) > _MANY_STRINGS:
            return self.read("StringIds", columns).filter(pl.col("id").is_in(ids.implode()))
        frames = [
            self._frame(f"SELECT id, value FROM StringIds WHERE id IN ({_marks(some)})", columns, some)
            for some in _chunks(ids.to_list())
        ]
        return pl.concat(frames) if frames else pl.DataFrame(schema=columns)

    def has_strings(self, prefixes: tuple[str, ...]) -> bool:
        """Tell if a string has one of the prefixes."""
        rows = self._rows(f"SELECT count(*) FROM StringIds WHERE {_globs(prefixes)}", [p + "*" for p in prefixes])
        return rows[0][0] != 0

    def _info(self, table: str) -> list[tuple[int, str, str, int, object, int]]:
        return self._rows(f"PRAGMA table_info({_name(table)})")  # type: ignore[return-value]

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self._with_text(lambda: self._connection.execute(sql, parameters).fetchall())

    def _frame(self, sql: str, columns: Columns, parameters: Sequence[object] = ()) -> pl.DataFrame:
        return self._with_text(lambda: pl.concat(self._frames(sql, columns, parameters)))

    def _with_text(self, action: Callable[[], T]) -> T:
        """Do it again with a tolerant decoder of text if a text is not UTF-8."""
        try:
            return action()
        except BROKEN as error:
            if "Could not decode" not in str(error):
                raise DamagedTableError(reason_of(error)) from error
        self._connection.text_factory = _tolerant_text
        try:
            return action()
        except BROKEN as error:
            raise DamagedTableError(reason_of(error)) from error
        finally:
            self._connection.text_factory = str

    def _frames(self, sql: str, columns: Columns, parameters: Sequence[object] = ()) -> Iterator[pl.DataFrame]:
        """Yield the rows in frames, at least one."""
        cursor = self._connection.execute(sql, parameters)
        while True:
            with without_cycle_collection():
                rows = cursor.fetchmany(_FETCH)
                values = zip(*rows, strict=True) if rows else ((),) * len(columns)
                frame = pl.DataFrame([_series(c, v, t) for (c, t), v in zip(columns.items(), values, strict=True)])
            yield frame
            if len(rows) < _FETCH:
                return


def _count(piece: pl.DataFrame, event_types: tuple[int, ...]) -> int:
    return int(piece["eventType"].is_in(event_types).sum())


def _series(name: str, values: Sequence[object], dtype: type[pl.DataType]) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):  # a damaged row: its value is of another kind
        return pl.Series(name, values, dtype=dtype, strict=False)


def _tolerant_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _names(columns: Columns) -> str:
    return ", ".join(_name(c) for c in columns)


def _whole(real: str) -> str:
    """Return SQL for a real number as an integer, null if it is none."""
    return f"CASE WHEN {real} = CAST({real} AS INTEGER) THEN CAST({real} AS INTEGER) END"


def _globs(prefixes: Sequence[str]) -> str:
    return " OR ".join("value GLOB ?" for _ in prefixes)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _chunks(values: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(values), _PARAMETERS):
        yield values[first : first + _PARAMETERS]

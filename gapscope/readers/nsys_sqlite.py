"""Reader of Nsight Systems SQLite exports (``nsys export --type sqlite``), plain or compressed.

The database is opened read-only and as immutable: nothing is written beside it, and its folder may be read-only.
Small files are read through SQLite, large tables of others by `gapscope.readers.nsys_pages`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import numpy as np
import polars as pl

from gapscope.collector import without_cycle_collection
from gapscope.errors import InputError, MalformedTraceError, UnknownFormatError
from gapscope.findings import Finding
from gapscope.readers.base import Progress, ReadOptions, SourceTables
from gapscope.readers.compression import ByteStream, copy_decompressed
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
from gapscope.readers.nsys_tables import MARKER_TABLES, VERSION, normalize

if TYPE_CHECKING:
    from gapscope.readers.nsys_pages import PlainTable
    from gapscope.readers.nsys_records import Ints, Records

T = TypeVar("T")

MAGIC = b"SQLite format 3\0"
LARGE_BYTES = 48 << 20
"""From this size of the file on, tables of integers are decoded from their pages: the compiled code takes half a
second to load, which SQLite needs for half a million rows."""

_BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What the sqlite3 module raises on a damaged file; the second where SQLite's message quotes damaged bytes."""

_FETCH = 1 << 16
_PARAMETERS = 500  # SQLite takes at least 999 in one statement
_MANY_STRINGS = 20_000  # from so many on, reading all of them is faster than asking for each
_BOUNDED = ("start", "end", "correlationId")  # columns by which pages are left out
_WORKERS = min(8, os.cpu_count() or 1)


class NsysSqliteReader:
    """Reads SQLite exports of any schema from 2021 on."""

    name = "nsys SQLite"
    version = VERSION

    def sniff(self, path: Path, head: bytes) -> bool:
        """Tell if the content is a SQLite database; `read` finds out if it is an export of nsys."""
        return head.startswith(MAGIC)

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Read one export.

        Raises:
            MalformedTraceError: The compressed stream or the database is broken as a whole.
            UnsupportedVersionError: The schema's major version is not known.
            UnknownFormatError: A SQLite database of something else.
            InputError: The file cannot be read, or there is no room for a copy of it.
        """
        try:
            return read_sqlite(path, str(path), self.name, options, progress)
        except OSError as error:
            raise InputError(path, f"cannot be read ({error.strerror or error}).") from error


NSYS_SQLITE = NsysSqliteReader()


def read_sqlite(path: Path, shown: str, format_name: str, options: ReadOptions, progress: Progress) -> SourceTables:
    """Read the export at ``path`` under the name ``shown``; see `NsysSqliteReader.read`."""
    with _plain_copy(path, shown, options.cache_dir, progress) as database:
        try:
            raw = SqliteTables(database)
        except _BROKEN as error:
            raise MalformedTraceError(
                shown,
                f"the SQLite database {_damage(database, error)}.",
                "Export the report again; if the file was copied, check that the copy is whole.",
            ) from error
        with closing(raw):
            if raw.tables & MARKER_TABLES:
                return _with_damage(normalize(raw, shown, format_name, options.window, progress), raw.damage())
            some = ", ".join(sorted(raw.tables)[:3]) or "none"
            raise UnknownFormatError(shown, f"a SQLite database, but no export of Nsight Systems (its tables: {some}).")


def _with_damage(source: SourceTables, damage: str | None) -> SourceTables:
    """Return the tables of a database with what is wrong with its structure: rows can be gone without an error."""
    if damage is None:
        return source
    findings = list(source.findings)
    if all(finding.code != "damaged_table" for finding in findings):
        message = f"the database is damaged ({damage}): rows may be missing or wrong"
        hint = "Export the report again; if the file was copied, check that the copy is whole."
        findings.append(Finding("damaged_database", "warning", message, hint, path=source.info.path))
    dropped = {**source.info.dropped, "damaged": source.info.dropped.get("damaged", 0) + 1}
    return replace(source, info=replace(source.info, dropped=dropped), findings=tuple(findings))


def _scratch(cache_dir: Path | None) -> Path | None:
    """Return where copies go: a folder in the cache if it can be had, else None for the system's own."""
    if cache_dir is None:
        return None
    try:
        (cache_dir / "tmp").mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return cache_dir / "tmp"


def _damage(database: Path, error: Exception) -> str:
    """Say what is wrong with a database that SQLite does not open."""
    size = database.stat().st_size
    with database.open("rb") as file:
        header = file.read(32)
    page = int.from_bytes(header[16:18], "big")
    whole = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    if size < whole:
        return f"is cut off: {size:,} of its {whole:,} bytes are there"
    return f"is damaged ({_reason(error)})"


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):  # SQLite's own message quotes the damaged bytes
        return error.object.decode("utf-8", "replace")
    return str(error)


@contextmanager
def _plain_copy(path: Path, shown: str, cache_dir: Path | None, progress: Progress) -> Iterator[Path]:
    """Yield a database file that can be opened as immutable: ``path`` itself, or a temporary copy.

    A copy is made of a compressed file, and of a database with changes that are not in it yet (in a write-ahead log
    or a rollback journal beside it): SQLite brings these in, which must not happen to the user's own file.
    """
    pending = [
        p for p in (path.with_name(path.name + s) for s in ("-wal", "-journal")) if p.is_file() and p.stat().st_size
    ]
    compressed = ByteStream(path).compression is not None
    if not pending and not compressed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="gapscope-", dir=_scratch(cache_dir)) as folder:
        copy = Path(folder) / "export.sqlite"
        if compressed:
            progress("decompressing", 0.0)
            damage = copy_decompressed(path, copy)
            if damage:
                raise MalformedTraceError(shown, f"{damage}.", "Copy or compress the file again.")
        else:
            shutil.copyfile(path, copy)
            for file in pending:
                shutil.copyfile(file, folder + "/export.sqlite" + file.name[len(path.name) :])
            try:
                with closing(sqlite3.connect(copy)) as connection:
                    connection.execute("PRAGMA journal_mode = DELETE")
            except _BROKEN as error:
                raise MalformedTraceError(
                    shown, f"its journal cannot be applied ({_reason(error)}).", "Export the report again."
                ) from error
        yield copy


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
        except _BROKEN:
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
        except _BROKEN as error:
            return _reason(error)
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
        except _BROKEN as error:
            if "Could not decode" not in str(error):
                raise DamagedTableError(_reason(error)) from error
        self._connection.text_factory = _tolerant_text
        try:
            return action()
        except _BROKEN as error:
            raise DamagedTableError(_reason(error)) from error
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

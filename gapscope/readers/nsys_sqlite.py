"""Reader of Nsight Systems SQLite exports (``nsys export --type sqlite``), plain or compressed.

The database is opened read-only and as immutable: nothing is written beside it, and its folder may be read-only.
What is stored in it is read by `gapscope.readers.nsys_database`.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from errno import EDQUOT, ENOSPC
from pathlib import Path

from gapscope.errors import InputError, MalformedTraceError, UnknownFormatError
from gapscope.findings import Finding
from gapscope.readers.base import Progress, ReadOptions, SourceTables
from gapscope.readers.compression import ByteStream, copy_decompressed
from gapscope.readers.nsys_database import BROKEN, SqliteTables, reason_of
from gapscope.readers.nsys_tables import MARKER_TABLES, VERSION, normalize

MAGIC = b"SQLite format 3\0"


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
    try:
        return _read_plain(path, shown, format_name, options, progress)
    except OSError as error:
        if error.errno not in {ENOSPC, EDQUOT}:
            raise
        folder = _scratch(options.cache_dir) or tempfile.gettempdir()
        raise InputError(
            shown,
            f"has to be unpacked to be read, and there is no room for that in {folder}.",
            "Make room, or set GAPSCOPE_CACHE and TMPDIR to folders with room.",
        ) from error


def _read_plain(path: Path, shown: str, format_name: str, options: ReadOptions, progress: Progress) -> SourceTables:
    with _plain_copy(path, shown, options.cache_dir, progress) as database:
        try:
            raw = SqliteTables(database)
        except BROKEN as error:
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
    return f"is damaged ({reason_of(error)})"


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
            except BROKEN as error:
                raise MalformedTraceError(
                    shown, f"its journal cannot be applied ({reason_of(error)}).", "Export the report again."
                ) from error
        yield copy

"""Reader of Nsight Systems parquet exports (``nsys export --type parquetdir``): a folder with one file per table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from gapscope.errors import InputError
from gapscope.readers.base import Progress, ReadOptions, SourceTables
from gapscope.readers.nsys_ids import whole_process
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

T = TypeVar("T")

_SUFFIX = ".parquet"
_MAGIC = b"PAR1"
_PIECE_ROWS = 1 << 20
_NEEDED: Columns = {  # to choose rows of NVTX_EVENTS by
    "eventType": pl.Int64,
    "globalTid": pl.Int64,
    "domainId": pl.Int64,
    "textId": pl.Int64,
    "text": pl.String,
}
_BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises on a damaged file; on some damage its decoder panics."""


class NsysParquetReader:
    """Reads parquet exports of any schema; nsys writes them from 2023.4 on."""

    name = "nsys parquet"
    version = VERSION

    def sniff(self, path: Path, head: bytes) -> bool:
        """Tell if the folder has parquet files named like tables of nsys."""
        return not head and path.is_dir() and bool(_files(path).keys() & MARKER_TABLES)

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Read one export.

        Raises:
            MalformedTraceError: None of its tables of events can be read.
            UnsupportedVersionError: The schema's major version is not known.
            InputError: The folder cannot be listed.
        """
        try:
            return read_parquet(path, str(path), self.name, options, progress)
        except OSError as error:
            raise InputError(path, f"the folder cannot be listed ({error.strerror or error}).") from error


NSYS_PARQUET = NsysParquetReader()


def read_parquet(path: Path, shown: str, format_name: str, options: ReadOptions, progress: Progress) -> SourceTables:
    """Read the export in the folder ``path`` under the name ``shown``; see `NsysParquetReader.read`."""
    return normalize(ParquetTables(_files(path)), shown, format_name, options.window, progress)


def _files(folder: Path) -> dict[str, Path]:
    return {
        p.name.removesuffix(_SUFFIX): p for p in sorted(folder.iterdir()) if p.name.endswith(_SUFFIX) and p.is_file()
    }


class ParquetTables:
    """`gapscope.readers.nsys_raw.RawTables` of a folder of parquet files.

    Args:
        files: File of each table.
    """

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files
        self._schemas: dict[str, pl.Schema] = {}

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables."""
        return frozenset(self._files)

    @property
    def concurrent(self) -> bool:
        """Tell if several tables should be read at once: each is read in parallel already."""
        return False

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns."""
        return frozenset(self._schema(table))

    def read(self, table: str, columns: Columns) -> pl.DataFrame:
        """Return some columns of all rows."""
        return _collected(self._scan(table).select(self._typed(table, columns)))

    def some(self, table: str, column: str) -> list[int]:
        """Return a few values that are neither null nor zero."""
        value = self._typed(table, {column: pl.Int64})[0]
        return _collected(self._scan(table).select(value).filter(pl.col(column) != 0).head(9)).to_series().to_list()

    def pieces(
        self, table: str, integers: Sequence[str], apply: Callable[[pl.DataFrame], T], near: Sequence[Near] = ()
    ) -> list[T]:
        """Read integer columns in pieces; with ``near``, the rows that pass."""
        frames = self._scan(table)
        if near:
            frames = frames.filter(pl.any_horizontal(_is_near(test) for test in near))
        frames = frames.select(self._typed(table, dict.fromkeys(integers, pl.Int64)))
        try:
            return [apply(f) for f in frames.collect_batches(chunk_size=_PIECE_ROWS, maintain_order=True)]
        except _BROKEN as error:
            raise DamagedTableError(_reason(error)) from error

    def ranges(self, columns: Columns, choice: RangeChoice) -> pl.DataFrame:
        """Return some columns of the chosen rows of NVTX_EVENTS."""
        wanted = pl.lit(choice.everything)
        text, registered = pl.col("text"), pl.col("textId")
        for prefix in choice.prefixes:
            wanted = wanted | text.str.starts_with(prefix).fill_null(False)
        if choice.registered_prefixes:
            wanted = wanted | registered.is_in(self._string_ids(choice.registered_prefixes).implode()).fill_null(False)
        for process, domain in choice.domains:
            wanted = wanted | ((pl.col("domainId") == domain) & (whole_process("globalTid") == process)).fill_null(
                False
            )
        there = self._schema("NVTX_EVENTS")
        whole = self._typed("NVTX_EVENTS", {c: pl.Int64 for c in WHOLE_PAYLOADS if c in there})
        real = (pl.col(c).cast(pl.Float64) for c in REAL_PAYLOADS if c in there)
        values = [*whole, *(pl.when(r == r.round()).then(r).cast(pl.Int64, strict=False) for r in real)]
        payload = pl.coalesce(*values, pl.lit(None, dtype=pl.Int64)).alias(PAYLOAD)
        typed = self._typed("NVTX_EVENTS", columns)
        needed = self._typed("NVTX_EVENTS", {c: t for c, t in _NEEDED.items() if c in there and c not in columns})
        rows = self._scan("NVTX_EVENTS").select(*typed, *needed, payload)
        types = pl.col("eventType").is_in(choice.event_types)
        return _collected(rows.filter(types & wanted).select(*columns, PAYLOAD))

    def count_ranges(self, event_types: tuple[int, ...]) -> int:
        """Return the number of rows of NVTX_EVENTS of some types."""
        types = self._typed("NVTX_EVENTS", {"eventType": pl.Int64})[0]
        return int(_collected(self._scan("NVTX_EVENTS").select(types.is_in(event_types).sum())).item())

    def strings(self, ids: pl.Series) -> pl.DataFrame:
        """Return id and value of some strings."""
        return _collected(self._strings().filter(pl.col("id").is_in(ids.implode())))

    def has_strings(self, prefixes: tuple[str, ...]) -> bool:
        """Tell if a string has one of the prefixes."""
        return not self._string_ids(prefixes).is_empty()

    def _string_ids(self, prefixes: tuple[str, ...]) -> pl.Series:
        starts = pl.any_horizontal(pl.col("value").str.starts_with(p) for p in prefixes)
        return _collected(self._strings().filter(starts).select("id")).to_series()

    def _strings(self) -> pl.LazyFrame:
        return self._scan("StringIds").select(self._typed("StringIds", {"id": pl.Int64, "value": pl.String}))

    def _scan(self, table: str) -> pl.LazyFrame:
        return pl.scan_parquet(self._files[table], glob=False)

    def _schema(self, table: str) -> pl.Schema:
        if table not in self._schemas:
            try:
                _check_ends(self._files[table])
                self._schemas[table] = self._scan(table).collect_schema()
            except _BROKEN as error:
                raise DamagedTableError(_reason(error)) from error
        return self._schemas[table]

    def _typed(self, table: str, columns: Columns) -> list[pl.Expr]:
        """Return the columns in the wanted types. nsys writes ids as unsigned; SQLite has them signed, so they wrap."""
        schema = self._schema(table)
        out = []
        for name, dtype in columns.items():
            column = pl.col(name)
            if schema[name] == pl.UInt64 and dtype == pl.Int64:
                column = column.reinterpret(signed=True)
            out.append(column if schema[name] == dtype else column.cast(dtype, strict=False))
        return out


def _check_ends(path: Path) -> None:
    """Refuse a file that was cut off, which polars answers with a panic.

    A parquet file starts and ends with ``PAR1``; before the end stands the length of the footer.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(max(size - 8, 0))
        end = file.read(8)
    if start != _MAGIC or end[4:] != _MAGIC or int.from_bytes(end[:4], "little") + 12 > size:
        raise DamagedTableError("it is no whole parquet file")


def _is_near(test: Near) -> pl.Expr:
    begin, end = (pl.col(c).cast(pl.Int64, strict=False) for c in test.columns)
    return ((begin <= test.high) & (pl.max_horizontal(begin, end) >= test.low)) | begin.is_null() | end.is_null()


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except _BROKEN as error:
        raise DamagedTableError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

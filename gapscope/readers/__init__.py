"""Readers of input formats, and the registry that picks one by content.

To add a format, write one file with a `Reader` (see `gapscope.readers.base`) and add it to `READERS`.
"""

from __future__ import annotations

from pathlib import Path

from gapscope.errors import InputError, MalformedTraceError, UnknownFormatError
from gapscope.readers.base import Reader, ReadOptions, SourceInfo, SourceTables
from gapscope.readers.compression import head
from gapscope.readers.kineto import KINETO
from gapscope.readers.mark_log import MARK_LOG
from gapscope.readers.nsys_parquet import NSYS_PARQUET
from gapscope.readers.nsys_report import NSYS_REPORT
from gapscope.readers.nsys_sqlite import NSYS_SQLITE

__all__ = ["READERS", "ReadOptions", "Reader", "SourceInfo", "SourceTables", "find_reader"]

READERS: tuple[Reader, ...] = (NSYS_SQLITE, NSYS_PARQUET, NSYS_REPORT, MARK_LOG, KINETO)
"""Asked in this order; the first that recognizes the content reads the file."""


def find_reader(path: Path) -> Reader:
    """Return the reader that recognizes the content of ``path``.

    Raises:
        UnknownFormatError: None does; the message says what the file starts with and what can be read.
        InputError: The file cannot be opened.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(path, "is no regular file.", "Write the recording to a file first.")
        first = b"" if path.is_dir() else head(path)
    except OSError as error:
        raise InputError(path, f"cannot be opened ({error.strerror or error}).") from error
    for reader in READERS:
        if reader.sniff(path, first):
            return reader
    if not first and path.is_file() and path.stat().st_size:
        raise MalformedTraceError(path, "the compressed stream is broken from its start.", "Copy or export it again.")
    raise UnknownFormatError(
        path, f"{_describe(path, first)}.", "Readable are " + ", ".join(r.name for r in READERS) + "."
    )


def _describe(path: Path, first: bytes) -> str:
    if path.is_dir():
        return "the folder is no nsys parquet export"
    if not first:
        return "the file is empty"
    shown = first[:24].decode("ascii", "backslashreplace")
    return f"the content is not a format that gapscope knows (it starts with {shown!r})"

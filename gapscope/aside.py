"""A table that is not needed for a while, on the disk instead of in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl


def put_aside(table: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    """Write a table where temporary files go, and return what gives it back, once; the file is gone then.

    Where there is no room for it, it stays in memory.
    """
    folder = tempfile.TemporaryDirectory(prefix="gapscope-")
    file = Path(folder.name) / "table.arrow"
    try:
        table.write_ipc(file, compression="lz4")
    except (OSError, pl.exceptions.PolarsError):
        folder.cleanup()
        return lambda: table

    def back() -> pl.DataFrame:
        with folder:
            return pl.read_ipc(file)

    return back

"""Files are written beside their place and moved there when whole: whoever reads sees the old or the new one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES
from io import BytesIO
from os import PathLike
from pathlib import Path
from secrets import token_hex

import polars as pl


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """Replace a file by what the body writes, once the body is through; after an error nothing has changed.

    Links are followed, and the permissions of a file that is replaced stay. What is no file (``/dev/null``, a pipe)
    cannot be replaced: there the body writes to the path itself.

    Args:
        path: The file; it need not exist, its folder has to.

    Yields:
        The path to write to: an empty file in the same folder.

    Raises:
        OSError: The file cannot be written or replaced.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        yield Path(path)
        return
    if mode is not None and not os.access(path, os.W_OK):  # the folder alone decides on a move
        raise PermissionError(EACCES, os.strerror(EACCES), os.fspath(path))
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".gapscope-{token_hex(8)}.tmp")
    try:
        beside.touch(exist_ok=False)
        yield beside
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def table_file(table: pl.DataFrame, metadata: Mapping[str, str]) -> memoryview:
    """Return a table as a Parquet file.

    Args:
        table: The table.
        metadata: What else the file says of itself.
    """
    whole = BytesIO()  # polars, writing to the file itself, does not tell a full disk from a broken table
    table.write_parquet(whole, metadata=dict(metadata))
    return whole.getbuffer()

"""Integer columns of a large SQLite table, decoded from its b-tree leaf pages.

SQLite's own interface hands out one value at a time, which costs five to ten times what the rest of reading a
trace of millions of rows does. The file format is documented and has not changed since 2004
("Database File Format", sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1). Whatever is not plain (a record
that spills onto overflow pages, a value that is no integer, a page that is no leaf) raises `NotPlainError`, and
the caller reads the table through SQLite, which also decides if the file is broken.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_INTERIOR, _LEAF = 0x05, 0x0D  # page types of a table b-tree
_PIECE_BYTES = 4 << 20  # of leaf pages decoded at once
_PADDING = 64  # bytes after the last page, so that a varint cut off there is not read past the buffer
_MOST = 2**63 - 1
_DEEPEST = 20  # levels of a tree of 2**32 pages with two children each would be more, but no writer makes one


class NotPlainError(Exception):
    """The table is not stored in the plain way that this module reads."""


class PageFile:
    """Leaf pages of one SQLite file.

    Args:
        path: A database without a write-ahead log.

    Raises:
        NotPlainError: The header is not that of a database file.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._files: list[io.FileIO] = []
        header = self._file().read(100)
        if len(header) < 100:
            self.close()
            raise NotPlainError("no header")
        size = int.from_bytes(header[16:18], "big")
        self.page_size = 65536 if size == 1 else size
        self.usable = self.page_size - header[20]
        if self.page_size < 512 or self.page_size & (self.page_size - 1) or self.usable < 480:
            self.close()
            raise NotPlainError("bad page size")
        self.pages = path.stat().st_size // self.page_size

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        for file in self._files:
            file.close()

    def _file(self) -> io.FileIO:
        """Return this thread's own file, so that threads do not share a position."""
        file: io.FileIO | None = getattr(self._local, "file", None)
        if file is None:
            file = self._local.file = io.FileIO(self._path)
            self._files.append(file)
        return file

    def _read(self, page: int, into: memoryview) -> None:
        """Read as many bytes as ``into`` holds from the start of a page on."""
        file = self._file()
        file.seek((page - 1) * self.page_size)
        while into:
            got = file.readinto(into)
            if not got:
                raise NotPlainError("the file is shorter than its tables")
            into = into[got:]

    def bounds(self, leaves: Ints, positions: Sequence[int], workers: int) -> tuple[Ints, Ints]:
        """Return the lowest and the highest value of some columns in each leaf, one row a column.

        A null counts as any value; in a leaf without rows the lowest is above the highest.

        Args:
            leaves: Page numbers of leaves.
            positions: Positions of the columns in the table.
            workers: Threads to use.

        Raises:
            NotPlainError: Something in the table is not plain.
        """

        def of_piece(values: list[Ints], nulls: list[Bytes], rows: Ints) -> tuple[Ints, Ints]:
            first, some = np.cumsum(rows) - rows, rows > 0
            low = np.full((len(values), rows.size), _MOST, np.int64)
            high = np.full((len(values), rows.size), -_MOST, np.int64)
            if some.any():
                for k, (column, null) in enumerate(zip(values, nulls, strict=True)):
                    unknown = np.bitwise_or.reduceat(null, first[some]) > 0
                    low[k, some] = np.where(unknown, -_MOST, np.minimum.reduceat(column, first[some]))
                    high[k, some] = np.where(unknown, _MOST, np.maximum.reduceat(column, first[some]))
            return low, high

        pieces = self._pieces(leaves, positions, of_piece, workers)
        lows, highs = zip(*pieces, strict=True)
        return np.concatenate(lows, axis=1), np.concatenate(highs, axis=1)

    def decode(
        self, leaves: Ints, positions: Sequence[int], apply: Callable[[list[Ints], list[Bytes]], T], workers: int
    ) -> list[T]:
        """Decode columns of some leaves and return what ``apply`` makes of each piece, in order.

        Args:
            leaves: Page numbers of leaves.
            positions: Positions of the wanted columns in the table.
            apply: Gets, for each column, the values and a mask that is 1 where the value is null.
            workers: Threads to use; decoding releases the interpreter lock.

        Raises:
            NotPlainError: Something in the table is not plain; no result is complete.
        """
        return self._pieces(leaves, positions, lambda values, nulls, _: apply(values, nulls), workers)

    def _pieces(
        self,
        leaves: Ints,
        positions: Sequence[int],
        apply: Callable[[list[Ints], list[Bytes], Ints], T],
        workers: int,
    ) -> list[T]:
        """Return what ``apply`` makes of each piece: of values, masks, and the number of rows of each leaf."""
        slots = np.full(max(positions) + 1, -1, np.int64)
        slots[list(positions)] = np.arange(len(positions))
        step = max(1, _PIECE_BYTES // self.page_size)

        def piece(first: int) -> T:
            values, nulls, rows = self._piece(leaves[first : first + step], slots, len(positions))
            return apply(list(values), list(nulls), rows)

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(piece, range(0, leaves.size, step)))

    def _piece(self, leaves: Ints, slots: Ints, width: int) -> tuple[Ints, Bytes, Ints]:
        size = self.page_size
        buffer = self._buffer(leaves.size * size + _PADDING)
        view = buffer.data
        start = 0
        for stop in [*(np.flatnonzero(np.diff(leaves) != 1) + 1).tolist(), leaves.size]:  # runs of neighbours on disk
            self._read(int(leaves[start]), view[start * size : stop * size])
            start = stop
        pages = buffer[: leaves.size * size].reshape(-1, size)
        of_leaf = pages[:, 3].astype(np.int64) * 256 + pages[:, 4]
        rows = int(of_leaf.sum())
        values = np.empty((width, rows), np.int64)
        nulls = np.empty((width, rows), np.uint8)
        if _decode(buffer, leaves.size, size, self.usable, slots, values, nulls) != rows:
            raise NotPlainError("a record is not plain")
        return values, nulls, of_leaf

    def _buffer(self, size: int) -> Bytes:
        """Return this thread's buffer: fresh memory for each piece costs as much as decoding it."""
        buffer: Bytes | None = getattr(self._local, "buffer", None)
        if buffer is None or buffer.size < size:
            buffer = self._local.buffer = np.zeros(size, np.uint8)
        return buffer

    def leaves(self, root: int) -> Ints:
        """Return the page numbers of the leaves of the table with a root page, in key order.

        Raises:
            NotPlainError: The tree is not plain.
        """
        level: Ints = np.array([root], np.int64)
        for _ in range(_DEEPEST):
            if level.min() < 1 or level.max() > self.pages or level.size > self.pages:
                raise NotPlainError("a page number is out of range")
            if self._page(int(level[0]))[0] == _LEAF:
                return level
            level = np.concatenate([self._children(int(page)) for page in level])
        raise NotPlainError("the tree is too deep")

    def _page(self, page: int) -> Bytes:
        data = np.empty(self.page_size, np.uint8)
        self._read(page, data.data)
        return data

    def _children(self, page: int) -> Ints:
        data = self._page(page)
        if data[0] != _INTERIOR:
            raise NotPlainError("a page is neither a leaf nor an interior page")
        count = int(data[3]) << 8 | int(data[4])
        if 12 + 2 * count > self.usable:
            raise NotPlainError("an interior page has too many cells")
        cells = data[12 : 12 + 2 * count].view(">u2").astype(np.int64)
        if count and cells.max() + 4 > self.usable:
            raise NotPlainError("a cell lies outside its page")
        at = np.append(cells, 8)  # the right-most child stands in the page header
        wide = data.astype(np.int64)
        return cast("Ints", wide[at] << 24 | wide[at + 1] << 16 | wide[at + 2] << 8 | wide[at + 3])


def integer_series(name: str, values: Ints, nulls: Bytes) -> pl.Series:
    """Return the values as a column, null where ``nulls`` is 1."""
    if not nulls.any():
        return pl.Series(name, values)
    if nulls.all():
        return pl.Series(name, [None], dtype=pl.Int64).new_from_index(0, values.size)
    frame = pl.DataFrame({name: values, "null": nulls})
    return frame.select(pl.when(pl.col("null") == 0).then(pl.col(name))).to_series()


def _compiled(function: F) -> F:
    """Compile without the interpreter lock, and keep the machine code on disk where a folder for it can be written."""
    try:
        return cast("F", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba found no folder that it may write to
        return cast("F", numba.njit(nogil=True)(function))


@_compiled
def _varint(data: Bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at a position and the position after it."""
    value = 0
    for _ in range(8):
        byte = int(data[at])
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | int(data[at]), at + 1


@_compiled
def _decode(data: Bytes, pages: int, page_size: int, usable: int, slots: Ints, values: Ints, nulls: Bytes) -> int:  # noqa: C901, PLR0911, PLR0912, PLR0917 - one loop for speed
    """Decode all records of some leaf pages; return the number of rows, or -1 if something is not plain."""
    row = 0
    for page in range(pages):
        base = page * page_size
        limit = base + usable
        cells = int(data[base + 3]) << 8 | int(data[base + 4])
        if data[base] != 0x0D or 8 + 2 * cells > usable:
            return -1
        for cell in range(cells):
            pointer = base + 8 + 2 * cell
            at = base + (int(data[pointer]) << 8 | int(data[pointer + 1]))
            if at >= limit:
                return -1
            payload, at = _varint(data, at)
            _, at = _varint(data, at)  # row id
            if payload < 1 or payload > usable - 35 or at + payload > limit:  # more would spill onto overflow pages
                return -1
            end = at + payload
            header, serial_at = _varint(data, at)
            value_at = at + header
            header_end = value_at
            if header < 1 or value_at > end:
                return -1
            for column in range(slots.size):
                serial = 0  # a record may be shorter than the table: columns added later are null
                if serial_at < header_end:
                    serial = int(data[serial_at])
                    serial_at += 1
                    if serial >= 0x80:
                        serial, serial_at = _varint(data, serial_at - 1)
                if serial < 5:
                    width = serial
                elif serial < 12:
                    width = 6 if serial == 5 else 8 if serial <= 7 else 0
                else:
                    width = (serial - 12) >> 1
                if width < 0 or value_at + width > end:
                    return -1
                slot = slots[column]
                if slot >= 0:
                    value = 0
                    if 1 <= serial <= 6:
                        value = int(data[value_at])
                        value -= (value & 0x80) << 1  # the first byte has the sign
                        for k in range(1, width):
                            value = value << 8 | int(data[value_at + k])
                    elif serial == 9:
                        value = 1
                    elif serial not in (0, 8):  # null and the integer 0; the others are no integers
                        return -1
                    values[slot, row] = value
                    nulls[slot, row] = serial == 0
                value_at += width
            row += 1
    return row

"""Columns of a large SQLite table, decoded from its b-tree leaf pages.

SQLite's own interface hands out one value at a time, which costs five to ten times what the rest of reading a
trace of millions of rows does. The file format is documented and has not changed since 2004
("Database File Format", sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1). Whatever is not plain (a record
that spills onto overflow pages, a value of another kind, a page that is no leaf) raises `NotPlainError`, and
the caller reads the table through SQLite, which also decides if the file is broken.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, wait
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np

from gapscope.readers.nsys_records import PADDING, Bytes, Ints, NotPlainError, Records, decoded

T = TypeVar("T")

_INTERIOR, _LEAF = 0x05, 0x0D  # page types of a table b-tree
_PIECE_BYTES = 4 << 20  # of leaf pages decoded at once
_UTF8 = 1  # the text encoding, as the header tells it
_MOST = 2**63 - 1
_DEEPEST = 20  # levels of a tree of 2**32 pages with two children each would be more, but no writer makes one


class PlainTable(NamedTuple):
    """A table whose records can be decoded.

    Attributes:
        pages: The file.
        leaves: Page numbers of its leaves.
        position: Position of each column.
    """

    pages: PageFile
    leaves: Ints
    position: Mapping[str, int]


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
        self._is_utf8 = int.from_bytes(header[56:60], "big") == _UTF8
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

    def bounds(self, leaves: Ints, positions: Sequence[int], pool: Executor) -> tuple[Ints, Ints]:
        """Return the lowest and the highest value of some columns in each leaf, one row a column.

        A null counts as any value; in a leaf without rows the lowest is above the highest.

        Args:
            leaves: Page numbers of leaves.
            positions: Positions of the columns in the table.
            pool: Threads to use.

        Raises:
            NotPlainError: Something in the table is not plain.
        """

        def of_piece(records: Records) -> tuple[Ints, Ints]:
            rows = records.of_leaf
            first, some = np.cumsum(rows) - rows, rows > 0
            low = np.full((len(positions), rows.size), _MOST, np.int64)
            high = np.full((len(positions), rows.size), -_MOST, np.int64)
            if some.any():
                for k, (column, null) in enumerate(zip(records.values, records.nulls, strict=True)):
                    unknown = np.bitwise_or.reduceat(null, first[some]) > 0
                    low[k, some] = np.where(unknown, -_MOST, np.minimum.reduceat(column, first[some]))
                    high[k, some] = np.where(unknown, _MOST, np.maximum.reduceat(column, first[some]))
            return low, high

        lows, highs = zip(*self.decode(leaves, positions, of_piece, pool), strict=True)
        return np.concatenate(lows, axis=1), np.concatenate(highs, axis=1)

    def decode(
        self,
        leaves: Ints,
        positions: Sequence[int],
        apply: Callable[[Records], T],
        pool: Executor,
        texts: Sequence[int] = (),
    ) -> list[T]:
        """Decode columns of some leaves and return what ``apply`` makes of each piece, in order.

        Args:
            leaves: Page numbers of leaves.
            positions: Positions of the wanted columns in the table.
            apply: Gets the records of a piece.
            pool: Threads to use; decoding releases the interpreter lock.
            texts: Those of the positions that hold texts; the others hold integers.

        Raises:
            NotPlainError: Something in the table is not plain; no result is complete.
        """
        if texts and not self._is_utf8:
            raise NotPlainError("texts are no UTF-8")
        step = max(1, _PIECE_BYTES // self.page_size)

        def piece(first: int) -> T:
            data = self._pages(leaves[first : first + step])
            return apply(decoded(data, self.page_size, self.usable, positions, texts))

        pieces = [pool.submit(piece, first) for first in range(0, leaves.size, step)]
        try:
            return [made.result() for made in pieces]
        finally:
            for made in pieces:
                made.cancel()
            wait(pieces)  # none reads on in a file that was closed

    def _pages(self, leaves: Ints) -> Bytes:
        """Return the content of some leaves, and padding; there until this thread reads the next."""
        size = self.page_size
        data = self._buffer(leaves.size * size + PADDING)
        view = data.data
        start = 0
        for stop in [*(np.flatnonzero(np.diff(leaves) != 1) + 1).tolist(), leaves.size]:  # runs of neighbours on disk
            self._read(int(leaves[start]), view[start * size : stop * size])
            start = stop
        return data

    def _buffer(self, size: int) -> Bytes:
        """Return this thread's buffer: fresh memory for each piece costs as much as decoding it."""
        buffer: Bytes | None = getattr(self._local, "buffer", None)
        if buffer is None or buffer.size < size:
            buffer = self._local.buffer = np.zeros(size, np.uint8)
        return buffer[:size]

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

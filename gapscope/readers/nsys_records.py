"""Columns of the records on leaf pages of a SQLite table, decoded by compiled loops.

See "Database File Format", sqlite.org/fileformat2.html, sections 1.6 and 2.1. A text is only found, and is fetched
where it is wanted: of millions of ranges, those of gapscope may be few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
import polars as pl

F = TypeVar("F", bound=Callable[..., object])
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

PADDING = 64
"""Bytes after the last page, so that a varint or a value cut off there is not read past the buffer."""

_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((serial - 12) >> 1 for serial in range(12, 128))], np.int64)
"""Bytes of a value by the serial type, as far as that is one byte."""

_LENGTH = 0xFFFF  # the lowest bits of where a text lies: it is shorter than its page, and that has 65536 bytes at most


class NotPlainError(Exception):
    """The table is not stored in the plain way that this module reads."""


@dataclass(frozen=True, slots=True)
class Records:
    """Some columns of the records on some leaves; the pages themselves are there until the next leaves are read.

    Attributes:
        values: Integers, or where texts lie, one row a column.
        nulls: 1 where the value is null.
        of_leaf: Number of records of each leaf.
        data: The pages.
    """

    values: Ints
    nulls: Bytes
    of_leaf: Ints
    data: Bytes

    def integers(self, column: int, name: str) -> pl.Series:
        """Return a column of integers under a name."""
        return integer_series(name, self.values[column], self.nulls[column])

    def starts_with(self, column: int, prefixes: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Tell which rows have a text that starts with one of some prefixes."""
        found = np.zeros(self.values.shape[1], np.bool_)
        for prefix in prefixes:
            _mark_prefixed(self.data, self.values[column], np.frombuffer(prefix.encode(), np.uint8), found)
        return found

    def texts(self, column: int, name: str) -> pl.Series:
        """Return a column of texts under a name.

        Raises:
            NotPlainError: A text is no UTF-8, or has a zero byte.
        """
        places = self.values[column]
        if not places.size:
            return pl.Series(name, [], pl.String)
        joined = np.empty(int((places & _LENGTH).sum()) + places.size, np.uint8)
        _join(self.data, places, joined)
        try:
            whole = joined[:-1].tobytes().decode()
        except UnicodeDecodeError as error:
            raise NotPlainError("a text is no UTF-8") from error
        texts = pl.Series(name, [whole]).str.split("\0").explode()
        if len(texts) != places.size:
            raise NotPlainError("a text has a zero byte")
        nulls = pl.Series(self.nulls[column]) > 0
        return texts.set(nulls, None) if nulls.any() else texts


def decoded(data: Bytes, page_size: int, usable: int, positions: Sequence[int], texts: Sequence[int]) -> Records:
    """Return some columns of all records on some leaves.

    Args:
        data: The leaves and `PADDING`.
        page_size: Bytes of a page.
        usable: Bytes of it that are not reserved.
        positions: Positions of the columns in the table.
        texts: Those of them that hold texts; the others hold integers.

    Raises:
        NotPlainError: A record spills onto overflow pages, or a value is of another kind.
    """
    pages = data[: data.size - PADDING].reshape(-1, page_size)
    of_leaf = pages[:, 3].astype(np.int64) * 256 + pages[:, 4]
    rows = int(of_leaf.sum())
    values, nulls = np.empty((len(positions), rows), np.int64), np.empty((len(positions), rows), np.uint8)
    slots = np.argsort(positions)
    wanted = np.asarray(positions, np.int64)[slots]
    is_text = np.isin(wanted, texts)
    if _decode(data, len(pages), page_size, usable, wanted, slots, is_text, _WIDTHS, values, nulls) != rows:
        raise NotPlainError("a record is not plain")
    return Records(values, nulls, of_leaf, data)


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
def _integer(data: Bytes, at: int, width: int) -> int:
    """Return the signed integer of 1 to 8 bytes at a position; unsigned arithmetic, so that it is one load."""
    k = np.uint64(at)
    whole = (
        np.uint64(data[k]) << np.uint64(56)
        | np.uint64(data[k + np.uint64(1)]) << np.uint64(48)
        | np.uint64(data[k + np.uint64(2)]) << np.uint64(40)
        | np.uint64(data[k + np.uint64(3)]) << np.uint64(32)
        | np.uint64(data[k + np.uint64(4)]) << np.uint64(24)
        | np.uint64(data[k + np.uint64(5)]) << np.uint64(16)
        | np.uint64(data[k + np.uint64(6)]) << np.uint64(8)
        | np.uint64(data[k + np.uint64(7)])
    )
    return np.int64(whole) >> (64 - 8 * width)  # type: ignore[return-value]


@_compiled
def _decode(  # noqa: C901, PLR0911, PLR0912, PLR0917 - one loop for speed
    data: Bytes,
    pages: int,
    page_size: int,
    usable: int,
    wanted: Ints,
    slots: Ints,
    is_text: npt.NDArray[np.bool_],
    widths: Ints,
    values: Ints,
    nulls: Bytes,
) -> int:
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
            column = 0
            for k in range(wanted.size):
                serial = 0
                width = 0
                while column <= wanted[k]:
                    value_at += width
                    serial = 0  # a record may be shorter than the table: columns added later are null
                    width = 0
                    if serial_at < header_end:
                        serial = int(data[serial_at])
                        serial_at += 1
                        if serial < 0x80:
                            width = widths[serial]
                        else:
                            serial, serial_at = _varint(data, serial_at - 1)
                            width = (serial - 12) >> 1
                            if width < 0 or width > payload:
                                return -1
                    column += 1
                if value_at + width > end:
                    return -1
                value = 0
                if is_text[k]:
                    if serial >= 13 and serial & 1:
                        value = value_at << 16 | width
                    elif serial != 0:
                        return -1
                elif 1 <= serial <= 6:
                    value = _integer(data, value_at, width)
                elif serial == 9:
                    value = 1
                elif serial not in (0, 8):  # null and the integer 0; the others are no integers
                    return -1
                values[slots[k], row] = value
                nulls[slots[k], row] = serial == 0
                value_at += width
            row += 1
    return row


@_compiled
def _mark_prefixed(data: Bytes, places: Ints, prefix: Bytes, found: npt.NDArray[np.bool_]) -> None:
    """Mark the texts that begin with a prefix."""
    for row in range(places.size):
        at = places[row] >> 16
        if places[row] & 0xFFFF >= prefix.size:
            same = True
            for k in range(prefix.size):
                same &= data[at + k] == prefix[k]
            found[row] |= same


@_compiled
def _join(data: Bytes, places: Ints, joined: Bytes) -> None:
    """Write texts one after the other, each followed by a zero byte."""
    out = 0
    for place in places:
        at = place >> 16
        for k in range(place & 0xFFFF):
            joined[out] = data[at + k]
            out += 1
        joined[out] = 0
        out += 1

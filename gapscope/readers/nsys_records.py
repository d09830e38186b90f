"""Columns of the records on leaf pages of a SQLite table, decoded by compiled loops.

See "Database File Format", sqlite.org/fileformat2.html, sections 1.6 and 2.1. A text is only found, and is fetched
where it is wanted: of millions of ranges, those of gapscope may be few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.loops import loop

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

PADDING = 64
"""Bytes after the last page, so that a varint or a value cut off there is not read past the buffer."""

_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((serial - 12) >> 1 for serial in range(12, 128))], np.int64)
"""Bytes of a value by the serial type, as far as that is one byte."""

_LENGTH = 0xFFFF  # the lowest bits of where a text lies: it is shorter than its page, and that has 65536 bytes at most

_KEPT = 256
"""Headers of records that are kept at once; a power of two."""

_HEADER_WORDS = 8
"""Of eight bytes, in the headers that are kept: a longer one is looked into each time."""

_TOP = np.uint64(64 - 8)
_MIX = np.uint64(0x9E3779B97F4A7C15)


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


@loop
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


@loop
def _eight(data: Bytes, at: int) -> np.uint64:
    """Return the eight bytes at a position as an unsigned integer; unsigned arithmetic, so that it is one load."""
    k = np.uint64(at)
    return (
        np.uint64(data[k]) << np.uint64(56)
        | np.uint64(data[k + np.uint64(1)]) << np.uint64(48)
        | np.uint64(data[k + np.uint64(2)]) << np.uint64(40)
        | np.uint64(data[k + np.uint64(3)]) << np.uint64(32)
        | np.uint64(data[k + np.uint64(4)]) << np.uint64(24)
        | np.uint64(data[k + np.uint64(5)]) << np.uint64(16)
        | np.uint64(data[k + np.uint64(6)]) << np.uint64(8)
        | np.uint64(data[k + np.uint64(7)])
    )


@loop
def _word(data: Bytes, at: int, size: int) -> np.uint64:
    """Return up to eight bytes at a position as an unsigned integer, zeros behind them."""
    rest = np.uint64(max(64 - 8 * size, 0))
    return _eight(data, at) >> rest << rest


@loop
def _find_values(  # noqa: PLR0917 - one loop for speed
    data: Bytes, at: int, header_end: int, wanted: Ints, is_text: npt.NDArray[np.bool_], widths: Ints, places: Ints
) -> int:
    """Find the wanted values of a record by its header; return how many bytes of values they reach, -1 if not plain.

    ``places`` gets a row a value: where it begins, its bytes, the value if it has none, and 1 if it is null.
    """
    _, at = _varint(data, at)
    value_at = column = 0
    for k in range(wanted.size):
        serial = width = 0
        while column <= wanted[k]:
            value_at += width
            serial = width = 0  # a record may be shorter than the table: columns added later are null
            if at < header_end:
                serial, at = _varint(data, at)
                width = widths[serial] if 0 <= serial < widths.size else (serial - 12) >> 1
                if width < 0 or width > _LENGTH or at > header_end:
                    return -1
            column += 1
        if is_text[k]:
            if serial != 0 and (serial < 13 or serial & 1 == 0):
                return -1
        elif serial == 7 or serial > 9:  # a real number, or one that stands for other things
            return -1
        places[k, 0], places[k, 1], places[k, 2], places[k, 3] = value_at, width, serial == 9, serial == 0
        value_at += width
    return value_at


@loop
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
    """Decode all records of some leaf pages; return the number of rows, or -1 if something is not plain.

    Records of few different headers make up a table, so where the values lie is kept for headers seen before.
    """
    headers = np.zeros((_KEPT, _HEADER_WORDS), np.uint64)  # the first byte of a header is its length: never zero
    places = np.empty((_KEPT, wanted.size, 4), np.int64)
    reach = np.empty(_KEPT, np.int64)
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
            header, _ = _varint(data, at)
            value_at = at + header
            if header < 1 or value_at > end:
                return -1
            words = (header + 7) >> 3
            mixed = np.uint64(0)
            for w in range(min(words, _HEADER_WORDS)):
                mixed = (mixed ^ _word(data, at + 8 * w, header - 8 * w)) * _MIX
            kept = np.int64(mixed >> _TOP)
            is_known = words <= _HEADER_WORDS
            for w in range(min(words, _HEADER_WORDS)):
                is_known &= headers[kept, w] == _word(data, at + 8 * w, header - 8 * w)
            if not is_known:
                reach[kept] = _find_values(data, at, value_at, wanted, is_text, widths, places[kept])
                if reach[kept] < 0:
                    return -1
                headers[kept] = 0
                for w in range(words if words <= _HEADER_WORDS else 0):
                    headers[kept, w] = _word(data, at + 8 * w, header - 8 * w)
            if value_at + reach[kept] > end:
                return -1
            for k in range(wanted.size):
                place, width = value_at + places[kept, k, 0], places[kept, k, 1]
                null = places[kept, k, 3]
                if is_text[k]:
                    value = 0 if null else place << 16 | width
                elif width:
                    value = np.int64(_eight(data, place)) >> (64 - 8 * width)
                else:
                    value = places[kept, k, 2]
                values[slots[k], row] = value
                nulls[slots[k], row] = null
            row += 1
    return row


@loop
def _mark_prefixed(data: Bytes, places: Ints, prefix: Bytes, found: npt.NDArray[np.bool_]) -> None:
    """Mark the texts that begin with a prefix."""
    for row in range(places.size):
        at = places[row] >> 16
        if places[row] & 0xFFFF >= prefix.size:
            same = True
            for k in range(prefix.size):
                same &= data[at + k] == prefix[k]
            found[row] |= same


@loop
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

"""Rows in order of their lane (stream or thread), and within a lane of when they came.

Recordings come ordered, or nearly: rows are counted into their lanes, and only lanes that are out of order are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Columns = tuple[Ints, Ints, Ints, Ints]

_NULL = -(2**62)  # stands for null among numbers of devices, streams and threads
_MOST_COLUMNS = 4
_PIECE = 1 << 18
"""Rows whose lanes are looked up at once: their columns fit into the processor's cache."""

_MIX = np.int64(0x9E3779B97F4A7C1)


def lanes_of(
    frame: pl.DataFrame | pl.LazyFrame, columns: list[str], *, nulls_last: bool
) -> tuple[pl.DataFrame, Indices]:
    """Return the lanes, ordered, and the number of the lane of each row.

    Args:
        frame: Has ``columns``; a lazy one is read piece by piece.
        columns: Integers that name a lane, four at most.
        nulls_last: Where a lane stands that has a null among them.
    """
    if len(columns) > _MOST_COLUMNS:
        raise ValueError(f"{len(columns)} columns for a lane: {_MOST_COLUMNS} at most")
    frame = frame.select(columns)
    codes, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    numbers: dict[tuple[int, ...], int] = {}
    for piece in _pieces(frame):
        values = [_numbers(column) for column in piece]
        begins = _changes(values)  # rows of one lane often stand together
        parts: list[Ints] = [_constant(of_column[begins].astype(np.int64)) for of_column in values]
        parts += parts[-1:] * (_MOST_COLUMNS - len(parts))
        of_stretch, first = _number(len(begins), (parts[0], parts[1], parts[2], parts[3]))
        found = zip(*(part[first].tolist() for part in parts), strict=True)
        number = np.array([numbers.setdefault(lane, len(numbers)) for lane in found], np.int32)
        codes.append(number[of_stretch])
        lengths.append(np.diff(begins, append=piece.height).astype(np.int32))
    named = [[None if number == _NULL else number for number in lane[: len(columns)]] for lane in numbers]
    lanes = pl.DataFrame(named, schema=frame.collect_schema(), orient="row").with_row_index("_code")
    lanes = lanes.sort(*columns, nulls_last=nulls_last)
    rank = np.empty(lanes.height, np.int32)
    rank[lanes["_code"].to_numpy()] = np.arange(lanes.height, dtype=np.int32)
    return lanes.drop("_code"), np.repeat(rank[np.concatenate(codes)], np.concatenate(lengths))


def _pieces(frame: pl.DataFrame | pl.LazyFrame) -> Iterator[pl.DataFrame]:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect_batches(chunk_size=_PIECE, maintain_order=True)
    return frame.iter_slices(_PIECE)


def _numbers(column: pl.Series) -> npt.NDArray[np.integer]:
    if column.null_count():
        column = column.cast(pl.Int64).fill_null(_NULL)
    return column.to_numpy()


def _changes(columns: list[npt.NDArray[np.integer]]) -> npt.NDArray[np.intp]:
    """Return the rows that are not like the row before."""
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[:1] = True
    for values in columns:
        differs[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(differs)


def order_by_lane(lane: Indices, n_lanes: int, keys: list[Ints], *, second_down: bool = False) -> Indices | None:
    """Return the numbers of rows ordered by lane and keys; None: so they stand. Equal ones keep their order.

    Args:
        lane: Lane of each row.
        n_lanes: Number of lanes.
        keys: Columns to order the rows of a lane by, three at most.
        second_down: The greatest value of the second column comes first.
    """
    one, two, three = (_constant(key) for key in keys + keys[-1:] * (3 - len(keys)))
    if second_down:
        three = one  # says nothing more, and is not ordered the other way
    sign = -1 if second_down else 1
    if _is_in_order(lane, one, two, three, sign):
        return None
    order, first = _counted(lane, n_lanes)
    for number in np.flatnonzero(_out_of_order(order, first, one, two, three, sign)).tolist():
        of_lane = order[first[number] : first[number + 1]]
        by = np.lexsort([three[of_lane], sign * two[of_lane], one[of_lane]])
        order[first[number] : first[number + 1]] = of_lane[by]
    return order


def _constant(values: Ints) -> Ints:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = values.view()
    values.flags.writeable = False
    return values


@loop
def _number(n: int, rows: Columns) -> tuple[Indices, Ints]:
    """Number the different rows of four columns in order of appearance; return numbers and first rows."""
    a, b, c, d = rows  # taken apart once: an array taken from a tuple costs far more than a look into it
    code, first, table = np.empty(n, np.int32), np.empty(16, np.int64), np.full(64, -1, np.int32)
    count = 0
    for i in range(n):
        slot = _slot(a, b, c, d, i, first, table)
        if table[slot] < 0:
            if count == len(first):
                first = np.concatenate((first, np.empty(count, np.int64)))
            first[count], table[slot] = i, count
            count += 1
        code[i] = table[slot]
        if 2 * count > len(table):
            table = np.full(2 * len(table), -1, np.int32)
            for k in range(count):
                table[_slot(a, b, c, d, first[k], first, table)] = k
    return code, first[:count]


@loop
def _slot(  # noqa: PLR0917 - one row of four columns
    a: Ints, b: Ints, c: Ints, d: Ints, i: int, first: Ints, table: Indices
) -> int:
    """Return where in a hash table the number of a row stands, or would stand."""
    mask = len(table) - 1
    mixed = (((a[i] * _MIX + b[i]) * _MIX + c[i]) * _MIX + d[i]) * _MIX
    slot = (mixed ^ (mixed >> 29)) & mask
    while table[slot] >= 0:
        f = first[table[slot]]
        if a[i] == a[f] and b[i] == b[f] and c[i] == c[f] and d[i] == d[f]:
            break
        slot = (slot + 1) & mask
    return int(slot)


@loop
def _counted(lane: Indices, n_lanes: int) -> tuple[Indices, Ints]:
    """Return row numbers by lane, and where each lane begins."""
    first = np.zeros(n_lanes + 1, np.int64)
    for i in range(len(lane)):
        first[lane[i] + 1] += 1
    for k in range(n_lanes):
        first[k + 1] += first[k]
    place = first.copy()
    order = np.empty(len(lane), np.int32)
    for i in range(len(lane)):
        order[place[lane[i]]] = i
        place[lane[i]] += 1
    return order, first


@loop
def _comes_before(  # noqa: PLR0917 - two rows of three columns
    i: int, j: int, one: Ints, two: Ints, three: Ints, sign: int
) -> bool:
    """Tell if row ``i`` has to stand before row ``j``."""
    if one[i] != one[j]:
        return bool(one[i] < one[j])
    if two[i] != two[j]:
        return bool(sign * two[i] < sign * two[j])
    return bool(three[i] < three[j])


@loop
def _is_in_order(lane: Indices, one: Ints, two: Ints, three: Ints, sign: int) -> bool:
    """Tell if rows stand in order of their lanes and keys."""
    for i in range(1, len(lane)):
        if lane[i] < lane[i - 1] or (lane[i] == lane[i - 1] and _comes_before(i, i - 1, one, two, three, sign)):
            return False
    return True


@loop
def _out_of_order(  # noqa: PLR0917 - columns
    order: Indices, first: Ints, one: Ints, two: Ints, three: Ints, sign: int
) -> npt.NDArray[np.bool_]:
    """Tell which lanes do not stand in order of the keys."""
    found = np.zeros(len(first) - 1, np.bool_)
    for k in range(len(first) - 1):
        for at in range(first[k] + 1, first[k + 1]):
            if _comes_before(order[at], order[at - 1], one, two, three, sign):
                found[k] = True
                break
    return found

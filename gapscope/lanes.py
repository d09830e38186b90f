"""Rows in order of their lane (stream or thread), and within a lane of when they came.

Recordings come ordered, or nearly: rows are counted into their lanes, and only lanes that are out of order are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Columns = tuple[Ints, Ints, Ints, Ints]

_NULL = -(2**62)  # stands for null among numbers of devices, streams and threads
_MOST_COLUMNS = 4
_PIECE = 1 << 17
"""Rows whose lanes are looked up at once: their columns, made wide, fit into the processor's cache."""

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
    codes = [np.zeros(0, np.int32)]
    numbers: dict[tuple[int | None, ...], int] = {}
    for piece in _pieces(frame):
        parts = [_constant(values.cast(pl.Int64).fill_null(_NULL).to_numpy()) for values in piece]
        parts += parts[-1:] * (_MOST_COLUMNS - len(parts))
        of_piece, first = _number(piece.height, (parts[0], parts[1], parts[2], parts[3]))
        number = np.array([numbers.setdefault(lane, len(numbers)) for lane in piece[first].rows()], np.int32)
        codes.append(number[of_piece])
    code = np.concatenate(codes)
    lanes = pl.DataFrame(list(numbers), schema=frame.collect_schema(), orient="row").with_row_index("_code")
    lanes = lanes.sort(*columns, nulls_last=nulls_last)
    rank = np.empty(lanes.height, np.int32)
    rank[lanes["_code"].to_numpy()] = np.arange(lanes.height, dtype=np.int32)
    is_in_order = (rank[1:] > rank[:-1]).all()
    return lanes.drop("_code"), code if is_in_order else rank[code]


def _pieces(frame: pl.DataFrame | pl.LazyFrame) -> Iterator[pl.DataFrame]:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect_batches(chunk_size=_PIECE, maintain_order=True)
    return frame.iter_slices(_PIECE)


def order_by_lane(lane: Indices, n_lanes: int, keys: list[Ints]) -> Indices:
    """Return the numbers of rows ordered by lane and keys; equal ones keep their order.

    Args:
        lane: Lane of each row.
        n_lanes: Number of lanes.
        keys: Columns to order the rows of a lane by, three at most.
    """
    order, first = _counted(lane, n_lanes)
    keys = [_constant(key) for key in keys + keys[-1:] * (3 - len(keys))]
    for number in np.flatnonzero(_out_of_order(order, first, *keys)).tolist():
        of_lane = order[first[number] : first[number + 1]]
        order[first[number] : first[number + 1]] = of_lane[np.lexsort([key[of_lane] for key in reversed(keys)])]
    return order


def _constant(values: Ints) -> Ints:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = values.view()
    values.flags.writeable = False
    return values


@nb.njit(cache=True, nogil=True)
def _number(n: int, rows: Columns) -> tuple[Indices, Ints]:
    """Number the different rows of four columns in order of appearance; return numbers and first rows."""
    a, b, c, d = rows  # taken apart once: an array taken from a tuple costs far more than a look into it
    code, first, table = np.empty(n, np.int32), np.empty(16, np.int64), np.full(64, -1, np.int32)
    count, last = 0, -1
    for i in range(n):
        if last >= 0:  # rows of one lane often stand together
            f = first[last]
            if a[i] == a[f] and b[i] == b[f] and c[i] == c[f] and d[i] == d[f]:
                code[i] = last
                continue
        slot = _slot(a, b, c, d, i, first, table)
        if table[slot] < 0:
            if count == len(first):
                first = np.concatenate((first, np.empty(count, np.int64)))
            first[count], table[slot] = i, count
            count += 1
        last = table[slot]
        if 2 * count > len(table):
            table = np.full(2 * len(table), -1, np.int32)
            for k in range(count):
                table[_slot(a, b, c, d, first[k], first, table)] = k
        code[i] = last
    return code, first[:count]


@nb.njit(cache=True, nogil=True)
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


@nb.njit(cache=True, nogil=True)
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


@nb.njit(cache=True, nogil=True)
def _out_of_order(order: Indices, first: Ints, one: Ints, two: Ints, three: Ints) -> npt.NDArray[np.bool_]:
    """Tell which lanes do not stand in order of the keys."""
    found = np.zeros(len(first) - 1, np.bool_)
    for k in range(len(first) - 1):
        for at in range(first[k] + 1, first[k + 1]):
            i, j = order[at - 1], order[at]
            if one[i] > one[j] or (
                one[i] == one[j] and (two[i] > two[j] or (two[i] == two[j] and three[i] > three[j]))
            ):
                found[k] = True
                break
    return found

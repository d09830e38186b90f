"""Rows in order of their lane (stream or thread), and within a lane of when they came.

Recordings come ordered, or nearly: rows are counted into their lanes, and only lanes that are out of order are sorted.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_NULL = -(2**62)  # stands for null among numbers of devices, streams and threads
_MIX = np.int64(0x9E3779B97F4A7C1)


def lanes_of(frame: pl.DataFrame, columns: list[str], *, nulls_last: bool) -> tuple[pl.DataFrame, Indices]:
    """Return the lanes, ordered, and the number of the lane of each row.

    Args:
        frame: Has ``columns``.
        columns: Integers that name a lane, four at most.
        nulls_last: Where a lane stands that has a null among them.
    """
    parts = [frame[c].cast(pl.Int64).fill_null(_NULL).to_numpy() for c in columns]
    parts += [np.zeros(1, np.int64)] * (4 - len(parts))
    code, first = _number(frame.height, *parts)
    del parts
    lanes = frame[first].select(columns).with_row_index("_code") if frame.height else frame.select(columns).clear()
    if not frame.height:
        return lanes, code
    lanes = lanes.sort(*columns, nulls_last=nulls_last)
    rank = np.empty(lanes.height, np.int32)
    rank[lanes["_code"].to_numpy()] = np.arange(lanes.height, dtype=np.int32)
    return lanes.drop("_code"), rank[code]


def order_by_lane(lane: Indices, n_lanes: int, keys: list[Ints]) -> Indices:
    """Return the numbers of rows ordered by lane and keys; equal ones keep their order.

    Args:
        lane: Lane of each row.
        n_lanes: Number of lanes.
        keys: Columns to order the rows of a lane by, three at most.
    """
    order, first = _counted(lane, n_lanes)
    keys = keys + keys[-1:] * (3 - len(keys))
    for number in np.flatnonzero(_out_of_order(order, first, *keys)).tolist():
        of_lane = order[first[number] : first[number + 1]]
        order[first[number] : first[number + 1]] = of_lane[np.lexsort([key[of_lane] for key in reversed(keys)])]
    return order


@nb.njit(cache=True, nogil=True)
def _number(n: int, a: Ints, b: Ints, c: Ints, d: Ints) -> tuple[Indices, Ints]:
    """Number the different rows of up to four columns in order of appearance; return numbers and first rows."""
    code = np.empty(n, np.int32)
    first = np.empty(16, np.int64)
    table = np.full(64, -1, np.int32)
    count, last = 0, -1
    many = len(d) == n
    for i in range(n):
        w = d[i] if many else d[0]
        if last >= 0:
            j = first[last]
            if a[i] == a[j] and b[i] == b[j] and c[i] == c[j] and (not many or w == d[j]):
                code[i] = last
                continue
        mask = len(table) - 1
        slot = (((a[i] * _MIX + b[i]) * _MIX + c[i]) * _MIX + w) * _MIX
        slot = (slot ^ (slot >> 29)) & mask
        while table[slot] >= 0:
            j = first[table[slot]]
            if a[i] == a[j] and b[i] == b[j] and c[i] == c[j] and (not many or w == d[j]):
                break
            slot = (slot + 1) & mask
        if table[slot] < 0:
            if count == len(first):
                first = np.concatenate((first, np.empty(count, np.int64)))
            first[count] = i
            table[slot] = count
            count += 1
            if 2 * count > len(table):
                table = np.full(2 * len(table), -1, np.int32)
                mask = len(table) - 1
                for k in range(count):
                    j = first[k]
                    v = d[j] if many else d[0]
                    at = (((a[j] * _MIX + b[j]) * _MIX + c[j]) * _MIX + v) * _MIX
                    at = (at ^ (at >> 29)) & mask
                    while table[at] >= 0:
                        at = (at + 1) & mask
                    table[at] = k
            last = count - 1
        else:
            last = table[slot]
        code[i] = last
    return code, first[:count]


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

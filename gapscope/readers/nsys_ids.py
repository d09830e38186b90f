"""Processes, threads, sentinels and names of Nsight Systems rows.

A ``globalTid`` holds, from the top: 8 bits of hardware, 8 bits of virtual machine, 24 bits of process id,
24 bits of thread id; a ``globalPid`` is the same with no thread (Nsight Systems user guide, SQLite schema
reference, "Serialized Process and Thread Identifiers").
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from gapscope.schema import NAME

PID_BITS = 24
_ONE_PROCESS = 1 << PID_BITS
_PID_MASK = _ONE_PROCESS - 1
_NO_ID_32 = 2**32 - 1
_WIDEST_LOOKUP = 1 << 24


def whole_process(global_id: str) -> pl.Expr:
    """Return the process part of a global id: pid, virtual machine and hardware."""
    return pl.col(global_id) // _ONE_PROCESS


def thread_of(global_tid: str) -> pl.Expr:
    """Return the thread id of a global thread id."""
    return pl.col(global_tid) & _PID_MASK


def without_sentinel(column: str) -> pl.Expr:
    """Return an id column, null where it says that there is no id (-1 in 32 or 64 bits)."""
    return pl.when((pl.col(column) >= 0) & (pl.col(column) != _NO_ID_32)).then(pl.col(column))


def pid_of(whole: int) -> int:
    """Return the pid of a whole process id."""
    return whole & _PID_MASK


def process_numbers(wholes: Iterable[int]) -> dict[int, int]:
    """Return the number of each process within the file: its pid, or the whole id where pids collide.

    Processes of one report may share a pid: on several machines, or in several pid namespaces.

    >>> process_numbers([0x1000007, 0x1000008])
    {16777223: 7, 16777224: 8}
    >>> process_numbers([0x1000007, 0x2000007])
    {16777223: 16777223, 33554439: 33554439}
    """
    distinct = sorted(set(wholes))
    sharing: dict[int, int] = {}
    for whole in distinct:
        sharing[pid_of(whole)] = sharing.get(pid_of(whole), 0) + 1
    return {w: pid_of(w) if sharing[pid_of(w)] == 1 else w for w in distinct}


def positions_of(ids: pl.Series, distinct: pl.Series) -> pl.Series:
    """Return for each of ``ids`` its position in the sorted ``distinct``, as UInt32; null stays null."""
    lowest, highest = distinct.min(), distinct.max()
    if not isinstance(lowest, int) or not isinstance(highest, int):
        return pl.Series(ids.name, [None], dtype=pl.UInt32).new_from_index(0, len(ids))
    known = distinct.to_numpy()
    if highest - lowest < _WIDEST_LOOKUP:
        table = np.zeros(highest - lowest + 1, np.uint32)
        table[known - lowest] = np.arange(known.size, dtype=np.uint32)
        found = pl.Series(ids.name, table[ids.fill_null(lowest).to_numpy() - lowest])
    else:
        found = pl.Series(ids.name, np.searchsorted(known, ids.fill_null(lowest).to_numpy()).astype(np.uint32))
    if ids.null_count():
        found = pl.select(pl.when(ids.is_not_null()).then(found)).to_series().alias(ids.name)
    return found


def spread(ids: pl.Series, distinct: pl.Series, values: pl.Series) -> pl.Series:
    """Return ``values[i]`` where ``ids`` equals ``distinct[i]``; one look at each distinct id has made ``values``."""
    return values.gather(positions_of(ids, distinct)).alias(ids.name)


def named(ids: pl.Series, strings: dict[int, str]) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return names for a column of string ids: the column of names, the distinct ids and their names.

    An id that has no string is named by its number, so that a name is never null where an id is there.
    """
    distinct = ids.drop_nulls().unique().sort()
    names = pl.Series("name", [strings.get(i, f"unnamed ({i})") for i in distinct], dtype=pl.String)
    return spread(ids, distinct, names.cast(NAME)), distinct, names

"""Processes, threads, sentinels and names of Nsight Systems rows.

A ``globalTid`` holds, from the top: 8 bits of hardware, 8 bits of virtual machine, 24 bits of process id,
24 bits of thread id; a ``globalPid`` is the same with no thread (Nsight Systems user guide, SQLite schema
reference, "Serialized Process and Thread Identifiers").
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.schema import NAME

PID_BITS = 24
_ONE_PROCESS = 1 << PID_BITS
_PID_MASK = _ONE_PROCESS - 1
_NO_ID_32 = 2**32 - 1
_WIDEST_LOOKUP = 1 << 24
_UNNAMED = "unnamed"


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


class Names:
    """Names by string id, looked up once for each id; may be used from several threads.

    An id that has no string is named by its number, so that a name is never null.

    Args:
        look_up: Returns the strings of some ids; ids without one are left out.
    """

    def __init__(self, look_up: Callable[[pl.Series], dict[int, str]]) -> None:
        self._look_up = look_up
        self._names = pl.Series([_UNNAMED], dtype=NAME)
        self._known: dict[int, int] = {}
        self._position = np.zeros(0, np.uint32)  # of each small id; zero where it is not known
        self._lock = threading.Lock()

    def of(self, ids: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the names known by now, and for each row of a column of ids the position of its own among them."""
        there = ids.drop_nulls().to_numpy()
        positions = self._positions(there)
        if ids.null_count():
            rows = np.zeros(len(ids), np.uint32)
            rows[ids.is_not_null().to_numpy()] = positions
            positions = rows
        return self._names, pl.Series(positions)

    def column(self, ids: pl.Series) -> pl.Series:
        """Return the names for a column of ids."""
        names, positions = self.of(ids)
        return names.gather(positions)

    def _positions(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        if not ids.size:
            return np.zeros(0, np.uint32)
        if ids.min() < 0 or ids.max() >= _WIDEST_LOOKUP:
            distinct, found = np.unique(ids, return_inverse=True)
            self._learn(distinct.tolist())
            return np.array([self._known[i] for i in distinct.tolist()], np.uint32)[found]
        table = self._position
        positions = table[ids] if ids.max() < table.size else None
        if positions is None or not positions.all():
            self._learn(np.unique(ids).tolist())
            positions = self._position[ids]
        return positions

    def _learn(self, ids: list[int]) -> None:
        with self._lock:
            new = [i for i in ids if i not in self._known]
            if not new:
                return
            strings = self._look_up(pl.Series(new, dtype=pl.Int64))
            found = pl.Series([strings.get(i, f"unnamed ({i})") for i in new], dtype=NAME)
            positions = range(len(self._names), len(self._names) + len(new))
            self._names = pl.concat([self._names, found])
            self._known.update(zip(new, positions, strict=True))
            small = [i for i in new if 0 <= i < _WIDEST_LOOKUP]
            table = np.zeros(max([self._position.size, *(i + 1 for i in small)]), np.uint32)
            table[: self._position.size] = self._position
            table[small] = [self._known[i] for i in small]
            self._position = table  # last: who finds a position in it finds the name, too

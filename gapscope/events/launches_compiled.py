"""Loops over all launches of a recording, compiled: tables would need a column of millions for each step."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).min


@nb.njit(cache=True, nogil=True)
def outside_transfers(mark: Indices, call: Indices, same: Indices, is_transfer: Bools, began: Ints) -> Bools:
    """Return which rows stay: those of transfers, and those of a stage that no transfer which it encloses launched.

    Args:
        mark: Mark of each row.
        call: Call of each row.
        same: First call with the id of each call; -1: it has none. Empty: each call has an id of its own.
        is_transfer: Whether each mark is a transfer.
        began: When each mark began.
    """
    n_calls = 0
    for row in range(len(call)):
        n_calls = max(n_calls, call[row] + 1)
    innermost = np.full(n_calls, _NEVER, np.int64)
    kept = np.ones(len(mark), np.bool_)
    for row in range(len(mark)):
        if is_transfer[mark[row]]:
            number = same[call[row]] if len(same) else call[row]
            if number >= 0:
                innermost[number] = max(innermost[number], began[mark[row]])
    for row in range(len(mark)):
        if not is_transfer[mark[row]]:
            number = same[call[row]] if len(same) else call[row]
            kept[row] = number < 0 or number >= n_calls or innermost[number] < began[mark[row]]
    return kept


@nb.njit(cache=True, nogil=True)
def operations(call: Indices, low: Indices, high: Indices, order: Indices) -> tuple[Indices, Indices]:
    """Return a row for each operation of each call, or one with -1 for a call without any.

    Args:
        call: Calls.
        low: Where in ``order`` the operations of each call begin.
        high: Where they end.
        order: Numbers of operations.

    Returns:
        Position in ``call``, and the operation.
    """
    n = 0
    for at in range(len(call)):
        n += max(1, high[call[at]] - low[call[at]])
    row, found, count = np.empty(n, np.int32), np.empty(n, np.int32), 0
    for at in range(len(call)):
        begin, until = low[call[at]], high[call[at]]
        if begin == until:
            row[count], found[count] = at, -1
            count += 1
        for k in range(begin, until):
            row[count], found[count] = at, order[k]
            count += 1
    return row, found

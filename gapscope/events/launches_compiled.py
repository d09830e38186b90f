"""Loops over all launches of a recording, compiled: tables would need a column of millions for each step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNTIMED = np.iinfo(np.int64).min
_LATE = np.iinfo(np.int64).max


@loop
def innermost_transfers(  # noqa: PLR0917 - columns
    mark: Indices, low: Indices, high: Indices, same: Indices, is_transfer: Bools, began: Ints, n_calls: int
) -> Indices:
    """Return for each call the transfer around it that began last; -1: none.

    Args:
        mark: Mark of each stretch of calls.
        low: From which call on.
        high: Before which call.
        same: First call with the id of each call, by which it is known; -1: it has none. Empty: each has its own.
        is_transfer: Whether each mark is a transfer.
        began: When each mark began.
        n_calls: Number of calls.
    """
    innermost = np.full(n_calls, -1, np.int32)
    for stretch in range(len(mark)):
        number = mark[stretch]
        if is_transfer[number]:
            for call in range(low[stretch], high[stretch]):
                known = same[call] if len(same) else call
                if known >= 0 and (innermost[known] < 0 or began[innermost[known]] < began[number]):
                    innermost[known] = number
    return innermost


@loop
def kept_rows(  # noqa: PLR0917 - columns
    mark: Indices,
    low: Indices,
    high: Indices,
    order: Indices,
    same: Indices,
    innermost: Indices,
    is_transfer: Bools,
    began: Ints,
    after: Ints,
    start: Ints,
) -> tuple[Indices, Indices]:
    """Return a row for each call of each stretch that belongs to its mark: the stretch, and the call.

    Not those of a stage that a transfer which it encloses launched, and none that started too early.

    Args:
        mark: Mark of each stretch of calls.
        low: From which place on.
        high: Before which place.
        order: Call at each place; empty: places are calls.
        same: See `innermost_transfers`.
        innermost: Its result.
        is_transfer: Whether each mark is a transfer.
        began: When each mark began.
        after: When the first call of each mark may start.
        start: When each call started.
    """
    most = 0
    for stretch in range(len(mark)):
        most += high[stretch] - low[stretch]
    of_stretch, of_call, n = np.empty(most, np.int32), np.empty(most, np.int32), 0
    for stretch in range(len(mark)):
        number = mark[stretch]
        for place in range(low[stretch], high[stretch]):
            call = order[place] if len(order) else place
            if start[call] < after[number]:
                continue
            if not is_transfer[number]:
                known = same[call] if len(same) else call
                if known >= 0 and innermost[known] >= 0 and began[innermost[known]] >= began[number]:
                    continue
            of_stretch[n], of_call[n] = stretch, call
            n += 1
    return of_stretch[:n], of_call[:n]


@loop
def telling_rows(  # noqa: PLR0917 - columns
    mark: Indices,
    call: Indices,
    called: Ints,
    low: Indices,
    high: Indices,
    order: Indices,
    start: Ints,
    end: Ints,
    device: Indices,
    n_devices: int,
    is_graph: Bools,
    is_whole: Bools,
) -> tuple[Indices, Indices]:
    """Return a row for each operation of each row that tells something about its mark.

    These are the operations that started first or ended last on a device, all without a time, the first graph, and of
    calls without an operation the first and the last. Of some marks it is every row.

    Args:
        mark: Mark of each row.
        call: Call of each row.
        called: When each call started.
        low: Where in ``order`` the operations of each call begin.
        high: Where they end.
        order: Numbers of operations.
        start: Start of each operation, or `UNTIMED`.
        end: End of each operation, or `UNTIMED`.
        device: Device of each operation.
        n_devices: Number of devices.
        is_graph: Whether each operation is a graph.
        is_whole: Of which marks every row is wanted.

    Returns:
        The row, and the operation; -1: the call has none.
    """
    n_marks, n = len(is_whole), 0
    first, last = np.full(n_marks * n_devices, _LATE, np.int64), np.full(n_marks * n_devices, UNTIMED, np.int64)
    early, late = np.full(n_marks, _LATE, np.int64), np.full(n_marks, UNTIMED, np.int64)
    for row in range(len(mark)):
        begin, until = low[call[row]], high[call[row]]
        if begin == until:
            early[mark[row]] = min(early[mark[row]], called[call[row]])
            late[mark[row]] = max(late[mark[row]], called[call[row]])
            n += 1
        for at in range(begin, until):
            op = order[at]
            if start[op] != UNTIMED:
                place = mark[row] * n_devices + device[op]
                first[place], last[place] = min(first[place], start[op]), max(last[place], end[op])
            n += 1
    graphs = np.zeros(n_marks, np.bool_)
    of_row, of_op, n_told = np.empty(n, np.int32), np.empty(n, np.int32), 0
    for row in range(len(mark)):
        number, begin, until = mark[row], low[call[row]], high[call[row]]
        if begin == until:
            when = called[call[row]]
            if is_whole[number] or when == early[number] or when == late[number]:
                of_row[n_told], of_op[n_told] = row, -1
                n_told += 1
        for at in range(begin, until):
            op = order[at]
            place = number * n_devices + device[op]
            tells = is_whole[number] or start[op] == UNTIMED or end[op] == UNTIMED
            tells = tells or start[op] == first[place] or end[op] == last[place]
            if tells or (is_graph[op] and not graphs[number]):
                graphs[number] |= is_graph[op]
                of_row[n_told], of_op[n_told] = row, op
                n_told += 1
    return of_row[:n_told].copy(), of_op[:n_told].copy()

"""The graph of a run, made small for replays: stretches that move as one are one node.

A node that only one way leads to, and before which no time may go, is always as much earlier as what the way comes
from. So is one that several ways lead to from nodes which move as one. A way is left out where another that leads to
the same node is satisfied later whatever moves. Operations in a row that wait for launches which move as one are one
node (`gapscope.graph.queues`). What is left gives the same times, to the nanosecond, as the whole
(`tests/unit/test_contraction.py`), and is a small part of it: replays are of that part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.kernels import (
    LAUNCH,
    NONE,
    STREAM,
    Arrays,
    before_of,
    binding,
    leaf,
    most_ways,
    part,
    place,
    put,
    time_of,
)
from gapscope.graph.narrow import Narrow, filled, length_at, put_length, room_for
from gapscope.graph.queues import (
    BASE,
    BASE_SLACK,
    CALLED,
    CALLED_SLACK,
    FIELDS,
    ITEM,
    QUEUE,
    ROW,
    begin,
    follow,
)
from gapscope.graph.ways import next_of_hosts, ways_to, window_of

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

UNKNOWN, WANTED, SOURCE, QUEUED = -1, -2, -3, -4
"""What stands for the root of a node that has not been looked at, of one that has to be its own, of an operation's
start that has not been looked at and that, or the end of which, an edge comes from, and of what a queue took up."""

_MANY = 8
"""Ways to one node of which each pair is looked at; nodes with more stay as they are."""


class Contracted(NamedTuple):
    """Nodes that stand for themselves or for others that move as they do, and the ways between them.

    Attributes:
        node: Number of each in the whole graph.
        first: ``first[k]`` to ``first[k + 1]`` are the ways that lead to the k-th.
        held_by: Node of the whole graph that the way which was satisfied last comes from; NONE: there is no way.
        residual: What passed between that and each node; of a queue, its number.
        source: Which of the nodes each way comes from.
        slack: By how much sooner each way was satisfied than the last that leads there.
        kind: Type of edge of each way; `QUEUE`: of the two to a queue.
        queues: What is known of each queue (`gapscope.graph.queues`, up to `ROW`).
    """

    node: Indices
    first: Indices
    held_by: Indices
    residual: Narrow
    source: Indices
    slack: Narrow
    kind: Bytes
    queues: Ints


@part
def _is_behind(node: int, j: int, k: int, by: int) -> bool:
    """Tell whether row j never comes last if row k is always at least ``by`` later."""
    return bool(by > 0 or (by == 0 and (k > j) == (node % 2 == 0)))


@part
def _fewer(  # noqa: C901, PLR0917 - all that it looks at
    node: int,
    n: int,
    found: Ints,
    root: Indices,
    residual: Narrow,
    first: Indices,
    via: Indices,
    slack: Narrow,
    kind: Bytes,
) -> int:
    """Strike out rows that never come last; return how many are left, in their order."""
    for j in range(n):
        from_j = root[found[j, 0]]
        for k in range(n):
            from_k, by = root[found[k, 0]], found[k, 1] - found[j, 1]
            if by < 0 or k == j or found[k, 0] < 0 or from_j < 0 or from_k < 0:
                continue
            is_behind = from_k == from_j and _is_behind(node, j, k, by)
            if from_k != from_j:
                # What k comes from waits for what j comes from, and for so long that j is over by then.
                low, high = first[from_k], first[from_k + 1]
                if high - low > _MANY or (high > low and kind[low] == QUEUE):
                    continue
                ahead = by - length_at(residual, from_k)
                if ahead < 0:
                    continue
                for w in range(low, high):
                    if root[via[w]] == from_j and _is_behind(node, j, k, ahead - length_at(slack, w)):
                        is_behind = True
            if is_behind:
                found[j, 0] = NONE
                break
    left = 0
    for k in range(n):
        if found[k, 0] != NONE:
            put(found, left, found[k, 0], found[k, 1], found[k, 2], found[k, 3])
            left += 1
    return left


@part
def _launched_ahead(  # noqa: PLR0917 - what it looks at
    item: int, n: int, found: Ints, root: Indices, ahead_of: int, ahead: int, over: int
) -> tuple[int, int, int]:
    """Strike out the launch of an operation if what was before it on its stream is always over later.

    Args:
        item: The operation.
        n: Number of ways to its start.
        found: The ways.
        root: What each node moves as.
        ahead_of: Of the end of the operation before on the stream: what it waits for,
        ahead: and when it is at the soonest if that is not earlier.
        over: When it was, as recorded.

    Returns:
        How many ways are left, and the last two for the start of this operation.
    """
    launch, stream = NONE, NONE
    for j in range(n):
        if found[j, 2] == LAUNCH:
            launch = j
        elif found[j, 2] == STREAM and found[j, 0] == 2 * item - 1:
            stream = j
    low = ahead + found[stream, 1] - over if stream != NONE else np.int64(0)
    if launch == NONE:
        return n, (ahead_of if stream != NONE else NONE), int(low)
    called, at = np.int64(root[found[launch, 0]]), found[launch, 1]
    if stream == NONE or called != ahead_of:
        return n, int(called), int(at)
    left = 0
    for j in range(n):
        if (
            found[j, 2] != LAUNCH
            or root[found[j, 0]] != called
            or not _is_behind(2 * item, j, stream, low - found[j, 1])
        ):
            put(found, left, found[j, 0], found[j, 1], found[j, 2], found[j, 3])
            left += 1
    return left, int(called), int(max(low, at))


def contract(g: Arrays, bounds: Ints, edges: Ints, root: Indices, wanted: int, floor: Ints) -> Contracted:
    """Return the nodes that have to be their own, and the ways between them.

    Args:
        g: The graph.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        edges: Where windows begin, and the end of the last.
        root: `UNKNOWN` per node, `WANTED` for those that have to be their own; filled: which of the nodes that are
            left each one moves as.
        wanted: How many are `WANTED`, at the most.
        floor: Result of `gapscope.graph.floors.floors`.
    """
    # Room for the most that there can be: starts of operations, nodes with edges and what encloses them, the first of
    # each thread. What is not used of it takes no memory.
    n, n_ops, n_edges = len(g.start), int(g.n_ops[0]), len(g.source)
    room = n_ops + wanted + 2 * n_edges + int(g.lane.max(initial=0)) + 2
    ways = 3 * room + n_edges
    node, first, held_by = np.empty(room, np.int32), np.zeros(room + 1, np.int32), np.empty(room, np.int32)
    source, kind = np.empty(ways, np.int32), np.empty(ways, np.int8)
    residual, slack = room_for(room), room_for(ways)
    queues = np.empty((n_ops, ROW), np.int64)
    stack, within = np.empty(n - n_ops + 1, np.int32), np.empty(n - n_ops + 1, np.int32)
    found = np.empty((most_ways(g.first) + 2, 4), np.int64)
    k, total, q = _contract(
        g, bounds, edges, root, node, first, held_by, residual, source, slack, kind, queues, stack, within, found,
        np.full(FIELDS, NONE, np.int64), floor,
    )  # fmt: skip
    return Contracted(node[:k], first[: k + 1], held_by[:k], filled(residual, k), source[:total], filled(slack, total),
                      kind[:total], queues[:q])  # fmt: skip


@part
def _is_next(item: int, rows: int, at: int, found: Ints, root: Indices, called: int) -> bool:
    """Tell whether an operation waits for the one before it on its stream, and for no more than one launch besides.

    Args:
        item: The operation.
        rows: Number of ways to its start.
        at: When that was.
        found: The ways.
        root: What each node moves as.
        called: What the launch has to come from; NONE: from anything that is known.
    """
    last = rows - 1
    if rows < 1 or rows > 2 or found[last, 2] != STREAM or found[last, 0] != 2 * item - 1:
        return False
    if rows == 1:
        return bool(at >= found[0, 1])
    from_launch = root[found[0, 0]]
    return bool(found[0, 2] == LAUNCH and (from_launch == called or (called == NONE and from_launch >= 0)))


@part
def _put_queue(  # noqa: PLR0917 - where it goes
    queue: Ints,
    k: int,
    total: int,
    q: int,
    kept: Indices,
    root: Indices,
    first: Indices,
    held_by: Indices,
    residual: Narrow,
    via: Indices,
    slack: Narrow,
    kind: Bytes,
    queues: Ints,
) -> None:
    """Write down a queue as the k-th node: the last of its operations."""
    node = 2 * queue[ITEM]
    kept[k], held_by[k], root[node] = node, NONE, k
    put_length(residual, k, q)
    via[total], via[total + 1] = kept[queue[CALLED]], kept[queue[BASE]]
    put_length(slack, total, queue[CALLED_SLACK])
    put_length(slack, total + 1, queue[BASE_SLACK])
    kind[total], kind[total + 1] = QUEUE, QUEUE
    first[k + 1] = total + 2
    for field in range(ROW):
        queues[q, field] = queue[field]
    queue[ITEM] = NONE


@leaf
def _contract(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one pass that carries its state
    g: Arrays,
    bounds: Ints,
    edges: Ints,
    root: Indices,
    kept: Indices,
    first: Indices,
    held_by: Indices,
    residual: Narrow,
    via: Indices,
    slack: Narrow,
    kind: Bytes,
    queues: Ints,
    stack: Indices,
    within: Indices,
    found: Ints,
    queue: Ints,
    floor: Ints,
) -> tuple[int, int, int]:
    """Fill what `contract` returns; return how many nodes, ways and queues there are."""
    start, end = g.start, g.end
    n, n_ops = len(start), g.n_ops[0]
    k, total, q, window = 0, 0, 0, 0
    for j in range(len(g.source)):
        if g.source[j] < 2 * n_ops and root[g.source[j] & ~1] == UNKNOWN:
            root[g.source[j] & ~1] = SOURCE
    # Of the operation before: it is over no sooner than `ahead`, less what that root is earlier.
    ahead_of, ahead = np.int64(NONE), np.int64(0)
    # Hosts first: none of what follows on a thread needs an operation. The end of a host item comes once what is
    # within it is known. Operations then follow on their streams.
    host, depth, op_node = n_ops, 0, np.int64(0)
    while True:
        inner = np.int64(NONE)
        if host < n or depth > 0:
            node, inner, host, depth = next_of_hosts(g, host, depth, stack, within)
        elif op_node < 2 * n_ops:
            node, op_node = op_node, op_node + 1
        else:
            break
        item = node // 2
        at = end[item] if node % 2 == 1 else start[item]
        # Most nodes have no edge: what leads to them is at hand.
        if root[node] == UNKNOWN and inner == NONE and place(g.held, node) == NONE:
            if node % 2 == 1:
                root[node] = root[node - 1]
                ahead += end[item] - start[item]
                continue
            b = np.int64(before_of(g, item)) if item >= n_ops else np.int64(NONE)
            if b != NONE and root[b] >= 0:
                root[node] = root[b]
                continue
        window = window_of(edges, at, window)
        rows = ways_to(g, node, bounds[window], inner, found)
        if item < n_ops and node % 2 == 1:
            ahead += min(end[item] - start[item], 0)
            if queue[ITEM] == item:
                _put_queue(queue, k, total, q, kept, root, first, held_by, residual, via, slack, kind, queues)
                k, total, q = k + 1, total + 2, q + 1
        elif item < n_ops:
            over = end[item - 1] if item > 0 else np.int64(0)
            rows, ahead_of, ahead = _launched_ahead(item, rows, found, root, ahead_of, ahead, over)
        if 1 < rows <= _MANY:
            rows = _fewer(node, rows, found, root, residual, first, via, slack, kind)
        is_free = root[node] == UNKNOWN or root[node] == SOURCE
        if item < n_ops and node % 2 == 0:
            is_open = queue[ITEM] != NONE
            is_next = is_free and _is_next(item, rows, at, found, root, queue[CALLED] if is_open else np.int64(NONE))
            if is_open and is_next and rows == 2:
                is_next = follow(queue, item, at, found, floor)
            elif is_open and is_next:  # it moves as the one before it does
                queue[ITEM] = item
                ahead += at - found[0, 1]
            if is_open and not is_next:
                is_asked = False
                for j in range(rows):
                    is_asked |= found[j, 0] == 2 * item - 1
                if is_asked:
                    _put_queue(queue, k, total, q, kept, root, first, held_by, residual, via, slack, kind, queues)
                    root[2 * item - 1] = k
                    k, total, q = k + 1, total + 2, q + 1
                queue[ITEM] = NONE
                is_next = is_free and _is_next(item, rows, at, found, root, NONE)
            if queue[ITEM] != item and is_next and rows == 2 and root[2 * item - 1] >= 0:
                begin(queue, root[found[0, 0]], root[2 * item - 1])
                follow(queue, item, at, found, floor)
            if queue[ITEM] == item:
                is_source = root[node] == SOURCE
                root[node] = QUEUED
                if is_source:
                    _put_queue(queue, k, total, q, kept, root, first, held_by, residual, via, slack, kind, queues)
                    k, total, q = k + 1, total + 2, q + 1
                continue
        if rows == 1 and is_free and root[found[0, 0]] >= 0 and at >= found[0, 1]:
            root[node] = root[found[0, 0]]
            ahead += at - found[0, 1]
            continue
        kept[k], held_by[k], since = node, NONE, at
        if rows > 0:
            last, _ = binding(node, rows, found)
            held_by[k], since = found[last, 0], found[last, 1]
        put_length(residual, k, at - since)
        for j in range(rows):
            via[total], kind[total] = found[j, 0], found[j, 2]
            put_length(slack, total, since - found[j, 1])
            total += 1
        first[k + 1] = total
        root[node] = k
        k += 1
    for j in range(total):
        via[j] = root[via[j]]
    return k, total, q

"""The graph of a run, made small for replays: stretches that move as one are one node.

A node that only one way leads to, and before which no time may go, is always as much earlier as what the way comes
from. So is one that several ways lead to from nodes which move as one. A way is left out where another that leads to
the same node is satisfied later whatever moves. What is left gives the same times, to the nanosecond, as the whole
(`tests/unit/test_contraction.py`), and is a small part of it: replays are of that part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import (
    LAUNCH,
    NONE,
    STREAM,
    THREAD,
    Arrays,
    before_of,
    binding,
    leaf,
    most_ways,
    part,
    place,
    put,
    time_of,
    ways_back,
)
from gapscope.graph.narrow import Narrow, filled, length_at, put_length, room_for

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

OWN_START = len(TYPES)
"""Kind of the way from a node's own start to its end."""

UNKNOWN, WANTED = -1, -2
"""What stands for the root of a node that has not been looked at, and of one that has to be its own."""

TOP = 1 << 15
"""Residuals below are counted by nanosecond; the others are kept."""

_MANY = 8
"""Ways to one node of which each pair is looked at; nodes with more stay as they are."""


class Contracted(NamedTuple):
    """Nodes that stand for themselves or for others that move as they do, and the ways between them.

    Attributes:
        node: Number of each in the whole graph.
        first: ``first[k]`` to ``first[k + 1]`` are the ways that lead to the k-th.
        held_by: Node of the whole graph that the way which was satisfied last comes from; NONE: there is no way.
        residual: What passed between that and each node.
        source: Which of the nodes each way comes from.
        slack: By how much sooner each way was satisfied than the last that leads there.
        kind: Type of edge of each way.
        counts: ``[kind, residual]``: how many nodes of the whole graph were held by a way of that kind and came that
            long after it, below `TOP`.
        long_kind: Kind of way of each node that came later than that.
        long: What passed since.
    """

    node: Indices
    first: Indices
    held_by: Indices
    residual: Narrow
    source: Indices
    slack: Narrow
    kind: Bytes
    counts: Indices
    long_kind: Bytes
    long: Ints


@part
def window_of(edges: Ints, at: int, guess: int) -> int:
    """Return the window of a time, looked for from another on; times beyond all windows are in the nearest."""
    while guess > 0 and at < edges[guess]:
        guess -= 1
    while guess < len(edges) - 2 and at >= edges[guess + 1]:
        guess += 1
    return int(guess)


@part
def ways_to(g: Arrays, node: int, bound: Ints, inner: int, found: Ints) -> int:
    """Write down all ways to a node: rows of node, ready time, type of edge (`OWN_START` for its own start).

    An operation that began before the call that launched it had returned moves with that return, but begins no sooner
    than the call.

    Args:
        g: The graph.
        node: The node.
        bound: ``[clock, clock]``: uncertainty of time differences.
        inner: The last host item within this one whose end waits for something; NONE: there is none.
        found: Room for two rows more than `most_ways`.

    Returns:
        Number of rows; those that hold on equal times come last (of a start; of an end, first).
    """
    at = time_of(g, node)
    n, _ = ways_back(g, node, at, bound, found)
    if n > 0 and found[0, 2] == NONE:
        found[0, 2] = OWN_START
    elif n > 0 and found[0, 2] == LAUNCH and found[0, 0] % 2 == 1 and found[0, 1] < g.end[found[0, 0] // 2]:
        call = found[0, 0] // 2
        for k in range(n, 0, -1):
            put(found, k, found[k - 1, 0], found[k - 1, 1], found[k - 1, 2], found[k - 1, 3])
        put(found, 0, 2 * call, min(g.start[call], at), LAUNCH, 0)
        n += 1
    if inner != NONE:
        put(found, n, 2 * inner + 1, g.end[inner], OWN_START, 0)
        n += 1
    return int(n)


@part
def _is_behind(node: int, j: int, k: int, by: int) -> bool:
    """Tell whether row j never comes last if row k is always at least ``by`` later."""
    return bool(by > 0 or (by == 0 and (k > j) == (node % 2 == 0)))


@part
def _fewer(  # noqa: C901, PLR0917 - all that it looks at
    node: int, n: int, found: Ints, root: Indices, residual: Narrow, first: Indices, via: Indices, slack: Narrow
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
                ahead = by - length_at(residual, from_k)
                if ahead < 0 or first[from_k + 1] - first[from_k] > _MANY:
                    continue
                for w in range(first[from_k], first[from_k + 1]):
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


def contract(g: Arrays, bounds: Ints, edges: Ints, root: Indices, wanted: int) -> Contracted:
    """Return the nodes that have to be their own, and the ways between them.

    Args:
        g: The graph.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        edges: Where windows begin, and the end of the last.
        root: `UNKNOWN` per node, `WANTED` for those that have to be their own; filled: which of the nodes that are
            left each one moves as.
        wanted: How many are `WANTED`.
    """
    # Room for the most that there can be: starts of operations, nodes with edges and what encloses them, the first of
    # each thread. What is not used of it takes no memory.
    n, n_ops, n_edges = len(g.start), int(g.n_ops[0]), len(g.source)
    room = n_ops + wanted + 2 * n_edges + int(g.lane.max(initial=0)) + 2
    ways = 3 * room + n_edges
    node, first, held_by = np.empty(room, np.int32), np.zeros(room + 1, np.int32), np.empty(room, np.int32)
    source, kind = np.empty(ways, np.int32), np.empty(ways, np.int8)
    residual, slack = room_for(room), room_for(ways)
    counts = np.zeros((OWN_START + 1, TOP), np.int32)
    long_kind, long = np.empty(n + n_edges, np.int8), np.empty(n + n_edges, np.int64)
    stack, within = np.empty(n - n_ops + 1, np.int32), np.empty(n - n_ops + 1, np.int32)
    found = np.empty((most_ways(g.first) + 2, 4), np.int64)
    k, total, longs = _contract(
        g, bounds, edges, root, node, first, held_by, residual, source, slack, kind, counts, long_kind, long, stack,
        within, found,
    )  # fmt: skip
    return Contracted(node[:k], first[: k + 1], held_by[:k], filled(residual, k), source[:total], filled(slack, total),
                      kind[:total], counts, long_kind[:longs], long[:longs])  # fmt: skip


@part
def _count(  # noqa: PLR0917 - where it goes
    counts: Indices, long_kind: Bytes, long: Ints, longs: int, kind: int, rest: int
) -> int:
    """Count a residual, or keep it if it is long; return how many are kept."""
    if 0 <= rest < TOP:
        counts[kind, rest] += 1
        return longs
    long_kind[longs], long[longs] = kind, rest
    return longs + 1


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
    counts: Indices,
    long_kind: Bytes,
    long: Ints,
    stack: Indices,
    within: Indices,
    found: Ints,
) -> tuple[int, int, int]:
    """Fill what `contract` returns; return how many nodes, ways and long residuals there are."""
    start, end = g.start, g.end
    n, n_ops = len(start), g.n_ops[0]
    k, total, depth, longs, window = 0, 0, 0, 0, 0
    # Of the operation before: it is over no sooner than `ahead`, less what that root is earlier.
    ahead_of, ahead = np.int64(NONE), np.int64(0)
    # Hosts first: none of what follows on a thread needs an operation. The end of a host item comes once what is
    # within it is known. Operations then follow on their streams.
    host, op_node = n_ops, np.int64(0)
    while True:
        inner = np.int64(NONE)
        if host < n or depth > 0:
            top = np.int64(stack[depth - 1]) if depth > 0 else np.int64(NONE)
            if depth > 0 and (host == n or g.lane[top] != g.lane[host] or end[top] <= start[host]):
                depth -= 1
                node, inner = 2 * top + 1, np.int64(within[depth])
            else:
                if depth > 0 and end[host] <= end[top] and place(g.held, 2 * host + 1) != NONE:
                    within[depth - 1] = host
                stack[depth], within[depth], node = host, NONE, 2 * host
                depth, host = depth + 1, host + 1
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
                longs = _count(counts, long_kind, long, longs, THREAD, at - min(time_of(g, b), at))
                root[node] = root[b]
                continue
        window = window_of(edges, at, window)
        rows = ways_to(g, node, bounds[window], inner, found)
        if rows > 0:
            last, _ = binding(node, rows, found)
            if found[last, 2] != OWN_START:
                longs = _count(counts, long_kind, long, longs, found[last, 2], at - found[last, 1])
        if item < n_ops and node % 2 == 1:
            ahead += min(end[item] - start[item], 0)
        elif item < n_ops:
            over = end[item - 1] if item > 0 else np.int64(0)
            rows, ahead_of, ahead = _launched_ahead(item, rows, found, root, ahead_of, ahead, over)
        if 1 < rows <= _MANY:
            rows = _fewer(node, rows, found, root, residual, first, via, slack)
        if rows == 1 and root[node] == UNKNOWN and root[found[0, 0]] >= 0 and at >= found[0, 1]:
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
    return k, total, longs

"""The graph of a run, made small for replays: stretches that move as one are one node.

A node that only one way leads to, and before which no time may go, is always as much earlier as what the way comes
from. So is one that several ways lead to from nodes which move as one. A way is left out where another that leads to
the same node is satisfied later whatever moves (`gapscope.graph.striking`). Operations in a row that wait for launches
which move as one are one node, too (`gapscope.graph.queues`). What is left gives the same times, to the nanosecond, as
the whole (`tests/unit/test_contraction.py`), and is a small part of it: replays are of that part.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.kept import Kept, put_node, put_queue, room_for_nodes, used
from gapscope.graph.kernels import LAUNCH, NONE, STREAM, Arrays, before_of, leaf, most_ways, part, place
from gapscope.graph.queues import CALLED, FIELDS, ITEM, begin, follow
from gapscope.graph.striking import fewer, launched_ahead
from gapscope.graph.ways import BLOCK, is_flat, next_of_hosts, ways_to, window_of

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

UNKNOWN, WANTED, SOURCE, QUEUED = -1, -2, -3, -4
"""What stands for the root of a node that has not been looked at, of one that has to be its own, of an operation's
start that has not been looked at and that, or the end of which, an edge comes from, and of what a queue took up."""

_EARLY = -(2**61)


def contract(  # noqa: PLR0917 - what it needs
    g: Arrays, bounds: Ints, edges: Ints, root: Indices, wanted: int, floor: Ints
) -> Kept:
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
    # Starts of operations, nodes with edges and what encloses them, the first of each thread.
    n, n_ops, n_edges = len(g.start), int(g.n_ops[0]), len(g.source)
    most = n_ops + wanted + 2 * n_edges + int(g.lane.max(initial=0)) + 2
    kept = room_for_nodes(most, 3 * most + n_edges, n_ops)
    stack, within = np.empty(n - n_ops + 1, np.int32), np.empty(n - n_ops + 1, np.int32)
    found = np.empty((most_ways(g.first) + 2, 4), np.int64)
    # Hosts first: none of what follows on a thread needs an operation.
    k, total = _hosts(g, bounds, edges, root, kept, stack, within, found)
    counts = _operations(g, bounds, edges, root, kept, k, total, np.full(FIELDS, NONE, np.int64), found, floor)
    return used(kept, *counts)


@part
def _none_is_wanted(root: Indices, node: int) -> bool:
    """Tell whether none of the nodes of `BLOCK` items has to be its own."""
    is_free = True
    for i in range(node, node + 2 * BLOCK):
        is_free &= root[i] == UNKNOWN
    return is_free


@leaf
def _hosts(  # noqa: PLR0917 - what it needs
    g: Arrays,
    bounds: Ints,
    edges: Ints,
    root: Indices,
    kept: Kept,
    stack: Indices,
    within: Indices,
    found: Ints,
) -> tuple[int, int]:
    """Write down what is kept of host items; return how many nodes and ways that is."""
    n, host, depth, k, total, window = len(g.start), g.n_ops[0], 0, 0, 0, 0
    while host < n or depth > 0:
        if depth == 0 and is_flat(g, host) and _none_is_wanted(root, 2 * host):
            before = np.int64(before_of(g, host))
            if root[before] >= 0:
                for i in range(2 * host, 2 * host + 2 * BLOCK):
                    root[i] = root[before]
                host += BLOCK
                continue
        node, inner, host, depth = next_of_hosts(g, host, depth, stack, within)
        # Most nodes have no edge: what leads to them is at hand.
        if root[node] == UNKNOWN and inner == NONE and place(g.held, node) == NONE:
            before = np.int64(node - 1 if node % 2 == 1 else before_of(g, node // 2))
            if before != NONE and root[before] >= 0:
                root[node] = root[before]
                continue
        at = g.end[node // 2] if node % 2 == 1 else g.start[node // 2]
        window = window_of(edges, at, window)
        rows = ways_to(g, node, bounds[window], inner, found)
        rows = fewer(node, rows, found, root, kept)
        if rows == 1 and root[node] == UNKNOWN and root[found[0, 0]] >= 0 and at >= found[0, 1]:
            root[node] = root[found[0, 0]]
            continue
        total = put_node(kept, k, total, node, at, rows, found)
        root[node] = k
        k += 1
    return k, total


@part
def _is_next(g: Arrays, item: int, root: Indices, called: int) -> bool:
    """Tell whether an operation waits for the one before it on its stream, and besides at most for its launch.

    Args:
        g: The graph.
        item: The operation.
        root: What each node moves as.
        called: What the call that launched it has to move as.
    """
    call, at = np.int64(g.call[item]), g.start[item]
    if g.lane[item - 1] != g.lane[item] or g.start[item - 1] >= at or place(g.held, 2 * item) != NONE:
        return False
    if call == NONE:
        return True
    if g.start[call] > at or place(g.held, 2 * call + 1) != NONE:  # as well if it waits for what it launches
        return False
    return bool(root[2 * call] == called and root[2 * call + 1] == called)


@leaf
def _operations(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one pass that carries its state
    g: Arrays,
    bounds: Ints,
    edges: Ints,
    root: Indices,
    kept: Kept,
    k: int,
    total: int,
    queue: Ints,
    found: Ints,
    floor: Ints,
) -> tuple[int, int, int]:
    """Write down what is kept of operations; return how many nodes, ways and queues there are then."""
    q, window, n_ops = 0, 0, g.n_ops[0]
    for j in range(len(g.source)):
        begun = g.source[j] & ~1
        if begun < 2 * n_ops and root[begun] == UNKNOWN:
            root[begun] = SOURCE
    # Of the operation before: it is over no sooner than `ahead`, less what that root is earlier.
    ahead_of, ahead = np.int64(NONE), np.int64(0)
    for node in range(2 * n_ops):
        item = node // 2
        if node % 2 == 1 and root[node] == UNKNOWN and place(g.held, node) == NONE:
            root[node] = root[node - 1]
            ahead += g.end[item] - g.start[item]
            continue
        at = g.end[item] if node % 2 == 1 else g.start[item]
        is_free, is_source, is_next = root[node] == UNKNOWN or root[node] == SOURCE, root[node] == SOURCE, False
        if queue[ITEM] != NONE:
            if node % 2 == 0 and is_free and _is_next(g, item, root, queue[CALLED]):
                call, stream = np.int64(g.call[item]), min(g.end[item - 1], at)
                launch = min(g.end[call], at) if call != NONE else np.int64(_EARLY)
                is_known = call == NONE or ahead_of == queue[CALLED]
                low = ahead + stream - g.end[item - 1]
                if is_known and low >= launch:  # it moves as the one before
                    queue[ITEM], ahead, is_next = item, low + at - stream, True
                elif follow(queue, item, at, launch, stream, 2 * call + 1, floor):
                    ahead_of, ahead, is_next = queue[CALLED], launch, True
            is_over = not is_next or is_source
            if is_over and (is_next or node % 2 == 1 or g.lane[item - 1] == g.lane[item]):
                # What comes next comes from its last operation.
                begun = 2 * queue[ITEM]
                put_queue(kept, k, total, q, queue)
                root[begun] = k
                if node > begun:
                    root[node - 1] = k
                k, total, q = k + 1, total + 2, q + 1
            if is_over:
                queue[ITEM] = NONE
            if is_next:
                root[node] = root[node] if is_source else QUEUED
                continue
        window = window_of(edges, at, window)
        rows = ways_to(g, node, bounds[window], NONE, found)
        if node % 2 == 1:
            ahead += min(g.end[item] - g.start[item], 0)
        else:
            over = g.end[item - 1] if item > 0 else np.int64(0)
            rows, ahead_of, ahead = launched_ahead(item, rows, found, root, ahead_of, ahead, over)
        rows = fewer(node, rows, found, root, kept)
        if node % 2 == 0 and root[node] == UNKNOWN and rows == 2 and found[0, 2] == LAUNCH and found[1, 2] == STREAM:
            called, base = root[found[0, 0]], root[found[1, 0]]
            if called >= 0 and base >= 0:
                begin(queue, called, base)
                follow(queue, item, at, found[0, 1], found[1, 1], found[0, 0], floor)
                root[node] = QUEUED
                continue
        if rows == 1 and is_free and root[found[0, 0]] >= 0 and at >= found[0, 1]:
            root[node] = root[found[0, 0]]
            ahead += at - found[0, 1]
            continue
        total = put_node(kept, k, total, node, at, rows, found)
        root[node] = k
        k += 1
    for j in range(total):
        kept.source[j] = root[kept.source[j]]
    return k, total, q

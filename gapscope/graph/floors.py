"""The least that usually passes after each kind of way, over all nodes of a graph. It hangs on the graph alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.build import Graph
from gapscope.graph.kernels import NONE, THREAD, Arrays, before_of, binding, leaf, most_ways, part, place, time_of
from gapscope.graph.walks import clock_bounds
from gapscope.graph.ways import BLOCK, OWN_START, is_flat, next_of_hosts, ways_to, window_of

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

QUANTILE = 0.05
"""How many take less."""

TOP = 1 << 15
"""Times below are counted by nanosecond; the others are kept."""


def clocks_of(graph: Graph) -> tuple[Ints, Ints]:
    """Return by how much clocks can be off in the windows of a graph, and where those begin and the last ends."""
    edges, g = graph.context.alignment.solution.edges, graph.arrays
    used = np.arange(min(len(g.start), 1))
    if len(edges) > 2 and len(g.start):
        extremes = np.array([g.start.min(), g.end.max()])
        low, high = np.clip(np.searchsorted(edges, extremes, side="right") - 1, 0, len(edges) - 2)
        used = np.arange(low, high + 1)
    return clock_bounds(graph, used), edges[used[0] : used[-1] + 2] if len(used) else edges


def floors_of(graph: Graph) -> Ints:
    """Return the floors of a graph; see `floors`."""
    return floors(graph.arrays, *clocks_of(graph))


def floors(g: Arrays, bounds: Ints, edges: Ints) -> Ints:
    """Return per kind of way what a twentieth of the nodes takes less than, after the way that was satisfied last.

    How long an item itself takes says nothing about another: that has no floor.

    Args:
        g: The graph.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        edges: Where windows begin, and the end of the last.
    """
    most = len(g.start) + len(g.source)
    counts, long_kind, long = np.zeros((OWN_START, TOP), np.int32), np.empty(most, np.int8), np.empty(most, np.int64)
    hosts = len(g.start) - int(g.n_ops[0])
    stack, within = np.empty(hosts + 1, np.int32), np.empty(hosts + 1, np.int32)
    found = np.empty((most_ways(g.first) + 2, 4), np.int64)
    n = _count_all(g, bounds, edges, counts, long_kind, long, stack, within, found)
    return quantiles(counts, long_kind[:n], long[:n])


def quantiles(counts: Indices, long_kind: Bytes, long: Ints) -> Ints:
    """Return the floor of each kind.

    Args:
        counts: ``[kind, ns]``: how many nodes came that long after a way of that kind, below `TOP`.
        long_kind: Kind of way of each node that came later than that.
        long: What passed since.
    """
    floor = np.zeros(OWN_START + 1, np.int64)
    for kind in range(OWN_START):
        short, others = np.cumsum(counts[kind], dtype=np.int64), long[long_kind == kind]
        n = int(short[-1]) + len(others)
        if n:
            at = int(np.floor((n - 1) * QUANTILE))
            beyond = at - int(short[-1])
            floor[kind] = (
                np.searchsorted(short, at, side="right") if beyond < 0 else np.partition(others, beyond)[beyond]
            )
    return floor


@part
def _count(counts: Indices, long_kind: Bytes, long: Ints, n: int, kind: int, passed: int) -> int:  # noqa: PLR0917
    """Count a time, or keep it if it is long; return how many are kept."""
    if 0 <= passed < TOP:
        counts[kind, passed] += 1
        return n
    long_kind[n], long[n] = kind, passed
    return n + 1


@leaf
def _count_all(  # noqa: C901, PLR0917 - one pass that carries its state
    g: Arrays,
    bounds: Ints,
    edges: Ints,
    counts: Indices,
    long_kind: Bytes,
    long: Ints,
    stack: Indices,
    within: Indices,
    found: Ints,
) -> int:
    """Fill in the times of all nodes; return how many are long."""
    n, window = 0, 0
    host, depth, op_node = g.n_ops[0], 0, np.int64(0)
    while True:
        inner = np.int64(NONE)
        if depth == 0 and is_flat(g, host):
            before = time_of(g, before_of(g, host))
            n = _count(counts, long_kind, long, n, THREAD, g.start[host] - min(before, g.start[host]))
            for i in range(host, host + BLOCK - 1):
                n = _count(counts, long_kind, long, n, THREAD, g.start[i + 1] - g.end[i])
            host += BLOCK
            continue
        if host < len(g.start) or depth > 0:
            node, inner, host, depth = next_of_hosts(g, host, depth, stack, within)
        elif op_node < 2 * g.n_ops[0]:
            node, op_node = op_node, op_node + 1
        else:
            break
        at = time_of(g, node)
        if place(g.held, node) == NONE and (node % 2 == 1 or node >= 2 * g.n_ops[0]):
            if node % 2 == 0:
                before = np.int64(before_of(g, node // 2))
                if before != NONE:
                    n = _count(counts, long_kind, long, n, THREAD, at - min(time_of(g, before), at))
            continue
        window = window_of(edges, at, window)
        rows = ways_to(g, node, bounds[window], inner, found)
        if rows > 0:
            last, _ = binding(node, rows, found)
            if found[last, 2] != OWN_START:
                n = _count(counts, long_kind, long, n, found[last, 2], at - found[last, 1])
    return n

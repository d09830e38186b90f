"""Long walks that are mostly added up: what they pass of the items of interest, and how long they are elsewhere.

The path of a step or request passes hundreds of calls; all but a few are of no handoff, and no row is made for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.build import Graph
from gapscope.graph.kernels import (
    BODY,
    HOST_GAP,
    LEAD,
    LONGEST_STANDSTILL,
    NONE,
    RESIDUAL,
    UNKNOWN,
    Arrays,
    Indices,
    Ints,
    binding,
    kind_of,
    leaf,
    most_ways,
    part,
    time_of,
    ways_back,
)
from gapscope.graph.walks import Walks

Bools = npt.NDArray[np.bool_]

KINDS = 1 + max(RESIDUAL, BODY, HOST_GAP, UNKNOWN, LEAD)
"""How many numbers there are for what a tile is of."""


class _Sums(NamedTuple):
    """What a walk has added up so far.

    Attributes:
        total: By group and kind.
        touched: Numbers of those that are not 0.
        n: How many there are, one element.
        rows: Of walks that are over: walk, group, kind, length.
    """

    total: Ints
    touched: Ints
    n: Ints
    rows: Ints


class _Sorts(NamedTuple):
    """Which items are wanted (not 0), and the groups of the others: by lane, and one more for marked operations."""

    wanted: Indices
    of_lane: Indices
    is_marked: Bools


def walk_paths(graph: Graph, walks: Walks, wanted: Indices, of_lane: Indices, is_marked: Bools) -> tuple[Ints, Ints]:
    """Walk as `gapscope.graph.walk_handoffs` does; return the steps at wanted items, and how long the others are.

    Args:
        graph: The graph.
        walks: Where they begin and end.
        wanted: Of each item; not 0: its steps are wanted.
        of_lane: Of each lane the group that other steps at its items are added up in.
        is_marked: Of each operation; true: that is the next group.

    Returns:
        Rows of walk, start, end, kind of step, item, latest first within each walk; and rows of walk, group (-1: of no
        item), kind of step, length of all such others.
    """
    ways = np.empty((most_ways(graph.arrays.first), 4), np.int64)
    n_walks, cells = len(walks.begin), (int(of_lane.max(initial=0)) + 3) * KINDS
    steps, rows = (np.empty((max(32 * n_walks, 4096) + more, 5), np.int64) for more in (0, cells))
    sums = _Sums(np.zeros(cells, np.int64), np.empty(cells, np.int64), np.zeros(1, np.int64), rows)
    sorts = _Sorts(wanted, of_lane, is_marked)
    w, n, n_rows = 0, 0, 0
    while True:
        w, n, n_rows = _walk_paths(
            graph.arrays, walks.begin, walks.finish, walks.consumer, walks.bounds, walks.window, sorts, steps, sums,
            ways, w, n, n_rows,
        )  # fmt: skip
        if w == n_walks:
            return steps[:n], sums.rows[:n_rows, :4]
        steps, rows = (np.concatenate([a, np.empty_like(a)]) for a in (steps, sums.rows))
        sums = sums._replace(rows=rows)


@part
def _pass(  # noqa: PLR0917 - a step
    g: Arrays, sorts: _Sorts, steps: Ints, sums: _Sums, n: int, w: int, low: int, at: int, what: int, item: int
) -> int:
    """Write one step down or add it up; return how many are written then."""
    if item != NONE and sorts.wanted[item] != 0:
        steps[n, 0], steps[n, 1], steps[n, 2], steps[n, 3], steps[n, 4] = w, low, at, what, item
        return n + 1
    group = 0
    if item != NONE:
        group = 1 + sorts.of_lane[g.lane[item]]
        if item < len(sorts.is_marked) and sorts.is_marked[item]:
            group += 1
    cell = group * KINDS + what
    if sums.total[cell] == 0:
        sums.touched[sums.n[0]] = cell
        sums.n[0] += 1
    sums.total[cell] += at - low
    return n


@leaf
def _walk_paths(  # noqa: C901, PLR0917 - one loop that carries its state
    g: Arrays,
    begin: Ints,
    finish: Ints,
    consumer: Ints,
    bounds: Ints,
    window: Ints,
    sorts: _Sorts,
    steps: Ints,
    sums: _Sums,
    ways: Ints,
    w: int,
    n: int,
    n_rows: int,
) -> tuple[int, int, int]:
    """Walk from walk ``w`` on; return which is next (all: there was room), and how many steps and sums there are."""
    rows = sums.rows
    while w < len(begin):
        at, node, idle, limit, n_before = consumer[w], begin[w], 0, finish[w], n
        bound = bounds[window[w]]
        if n >= len(steps) or n_rows + len(sums.total) > len(rows):
            return w, n, n_rows
        if node != NONE and max(time_of(g, node), limit) < at:
            low = max(time_of(g, node), limit)
            n, at = _pass(g, sorts, steps, sums, n, w, low, at, LEAD, node // 2), low
        while at > limit:
            if n >= len(steps):
                for k in range(sums.n[0]):
                    sums.total[sums.touched[k]] = 0
                sums.n[0] = 0
                return w, n_before, n_rows
            idle += 1
            count = 0
            if node != NONE and idle <= LONGEST_STANDSTILL:
                count, _ = ways_back(g, node, at, bound, ways)
            if count == 0:
                n = _pass(g, sorts, steps, sums, n, w, limit, at, UNKNOWN, NONE if node == NONE else node // 2)
                break
            best, _ = binding(node, count, ways)
            low = min(max(ways[best, 1], limit), at)
            if low < at:
                n = _pass(g, sorts, steps, sums, n, w, low, at, kind_of(g, node), node // 2)
                at, idle = low, 0
            node = ways[best, 0]
        for k in range(sums.n[0]):
            cell = sums.touched[k]
            rows[n_rows, 0], rows[n_rows, 1], rows[n_rows, 2] = w, cell // KINDS - 1, cell % KINDS
            rows[n_rows, 3], sums.total[cell] = sums.total[cell], 0
            n_rows += 1
        sums.n[0] = 0
        w += 1
    return w, n, n_rows

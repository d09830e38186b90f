"""Replay of the whole graph forward in time: when everything would have happened, had some of its time been gone.

Waits are elastic: what waited moves with what it waited for, sooner and later. Everything else takes as long as it
took. What moves as one is one node (`gapscope.graph.contraction`). `tests/unit/test_forward.py` holds the loops against
plain versions, and every replay that changes nothing has to give back each recorded time to the nanosecond
(`Forward.diverging`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from gapscope.graph.build import Graph
from gapscope.graph.contraction import OWN_START, UNKNOWN, WANTED, Contracted, contract, ways_to, window_of
from gapscope.graph.kernels import NONE, Arrays, most_ways, place, time_of
from gapscope.graph.walks import clock_bounds

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

STICKY, FLOOR = 0, 1
"""What becomes of the time between the last of what something waited for and itself, if something else is the last
now: it stays as measured (less is gained), or is the least that such an edge usually takes (more is gained)."""

_FLOOR_QUANTILE = 0.05
UNSEEN, OPEN, DONE = 0, 1, 2


@dataclass(frozen=True)
class Forward:
    """The graph in an order in which nothing comes before what held it.

    Its nodes are those of the graph that stand for themselves; they are numbered anew (`places`).

    Attributes:
        node: Number of each node in the graph: twice an item's number, plus one for its end.
        asked: Numbers in the graph, ascending, of the nodes that can be asked for,
        place: and where each of them stands here.
        time: Recorded time of each node.
        order: Nodes, what held them first.
        first: ``first[node]`` to ``first[node + 1]`` are the ways that lead to a node.
        source: Node that each way comes from.
        via: The same as it is numbered in the graph; what comes from it moves as the node does.
        lag: From the time of that node to when the way was satisfied; negative within clock error.
        kind: Type of edge of each way (`gapscope.graph.edges.TYPES`, or one more: from an item's own start).
        binding: The way that was satisfied last; NONE: nothing is known to have held the node, so it stays.
        residual: What passed between that and the node.
        floor: Per kind, the least that usually passes (a twentieth takes less).
        dropped: Ways left out since they lead in a circle (records of equal times).
    """

    node: Indices
    asked: Ints
    place: Indices
    time: Ints
    order: Indices
    first: Indices
    source: Indices
    via: Indices
    lag: Ints
    kind: Bytes
    binding: Indices
    residual: Ints
    floor: Ints
    dropped: int

    def places(self, nodes: Ints) -> Ints:
        """Return where nodes of the graph stand here.

        Args:
            nodes: Their numbers in the graph; of those that were asked for (`forward_of`).
        """
        found = np.searchsorted(self.asked, nodes)
        if (found == len(self.asked)).any() or (self.asked[found] != nodes).any():
            raise KeyError("a node that was not asked for")
        return self.place[found].astype(np.int64)

    def replay(self, gone: dict[int, int] | tuple[Ints, Ints], residuals: int = STICKY) -> Ints:
        """Return when each node would have happened.

        Args:
            gone: Nodes (as they stand here), and how much of the time right before each is gone (no more than there is
                of it).
            residuals: `STICKY` or `FLOOR`.
        """
        nodes, lengths = (
            gone
            if isinstance(gone, tuple)
            else (np.fromiter(gone.keys(), np.int64, len(gone)), np.fromiter(gone.values(), np.int64, len(gone)))
        )
        less = np.zeros(len(self.time), np.int64)
        np.add.at(less, nodes, lengths)
        return _replay(
            self.node, self.order, self.first, self.source, self.lag, self.kind, self.binding, self.residual,
            self.time, less, self.floor, residuals == FLOOR,
        )  # fmt: skip

    def diverging(self) -> int | None:
        """Return the first node that a replay without a change does not give back exactly; None: there is none."""
        again = self.replay({})
        wrong = np.flatnonzero(again[self.order] != self.time[self.order])
        return int(self.order[wrong[0]]) if len(wrong) else None


def forward_of(graph: Graph, asked: Ints) -> Forward:
    """Return the graph of a run in an order to replay it in.

    Args:
        graph: The graph.
        asked: Nodes that may lose time, or of which times will be asked for.
    """
    edges, g = graph.context.alignment.solution.edges, graph.arrays
    used = np.zeros(0, np.int64)
    if len(g.start):
        extremes = np.array([g.start.min(), g.end.max()])
        low, high = np.clip(np.searchsorted(edges, extremes, side="right") - 1, 0, len(edges) - 2)
        used = np.arange(low, high + 1)
    bounds = clock_bounds(graph, used)
    inside = edges[used[0] : used[-1] + 2] if len(used) else edges
    return contracted(g, bounds, inside, asked)


def contracted(g: Arrays, bounds: Ints, edges: Ints, asked: Ints) -> Forward:
    """Return as few nodes as give the same times; all of them if some are in a circle (records of equal times).

    Args:
        g: The graph.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        edges: Where the windows begin, and where the last ends.
        asked: Nodes that may lose time, or of which times will be asked for.
    """
    root = np.full(2 * len(g.start), UNKNOWN, np.int32)
    root[asked] = WANTED
    asked = np.flatnonzero(root == WANTED)
    c = contract(g, bounds, edges, root, len(asked))
    order, dropped = _ordered(c.first, c.source, c.ready)
    if dropped:
        return whole(g, bounds, edges)
    lag = c.ready
    lag -= c.time[c.source]
    binding, residual = _bindings(c.node, c.first, c.source, lag, np.zeros(0, np.bool_), c.time)
    return Forward(c.node, asked, root[asked], c.time, order, c.first, c.source, c.via, lag, c.kind, binding, residual,
                   _floors_of(c), 0)  # fmt: skip


def whole(g: Arrays, bounds: Ints, edges: Ints) -> Forward:
    """Return all nodes and ways of a graph; see `contracted`."""
    n = 2 * len(g.start)
    time = np.empty(n, np.int64)
    time[0::2], time[1::2] = g.start, g.end
    inner = inner_waits(g.start, g.end, g.lane, int(g.n_ops[0]), g.held)
    first, source, ready, kind = _ways(g, bounds, edges, inner, len(g.source) + 4 * len(g.start) + 1)
    order, dropped = _ordered(first, source, ready)
    kept = ready < _DROPPED
    lag = np.where(kept, ready - time[source], 0)
    every = np.arange(n)
    number = every.astype(np.int32)
    binding, residual = _bindings(number, first, source, lag, kept, time)
    floor = _floors(kind, binding, residual)
    # A way that is left out must never hold anything: it comes from the node that it leads to an age ago.
    lag = np.where(kept, lag, -_DROPPED)
    return Forward(number, every, number, time, order, first, source, source, lag, kind,
                   binding, residual, floor, int(dropped))  # fmt: skip


_DROPPED = np.int64(2**61)


@nb.njit(cache=True, nogil=True)
def inner_waits(start: Ints, end: Ints, lane: Indices, n_ops: int, held: Ints) -> Indices:
    """Return for each host item the last one within it whose end waits for something; NONE: there is none.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        lane: Lanes of all items; host items of a thread stand together, ordered by start, enclosing ones first.
        n_ops: Number of the first host item.
        held: See `gapscope.graph.edges.Edges`.
    """
    found = np.full(len(start), NONE, np.int32)
    stack = np.empty(max(len(start) - n_ops, 1), np.int32)
    depth = 0
    for i in range(n_ops, len(start)):
        if i == n_ops or lane[i] != lane[i - 1]:
            depth = 0
        while depth > 0 and end[stack[depth - 1]] <= start[i]:
            depth -= 1
        if depth > 0 and end[i] <= end[stack[depth - 1]] and place(held, 2 * i + 1) != NONE:
            found[stack[depth - 1]] = i
        stack[depth] = i
        depth += 1
    return found


@nb.njit(cache=True, nogil=True)
def _ways(g: Arrays, bounds: Ints, edges: Ints, inner: Indices, capacity: int) -> tuple[Indices, Indices, Ints, Bytes]:
    """Return all ways to all nodes: ``first, source, ready, kind``."""
    n = 2 * len(g.start)
    first, source = np.zeros(n + 1, np.int32), np.empty(capacity, np.int32)
    ready, kind = np.empty(capacity, np.int64), np.empty(capacity, np.int8)
    found = np.empty((most_ways(g.first) + 2, 4), np.int64)
    total, window = 0, 0
    for node in range(n):
        window = window_of(edges, time_of(g, node), window)
        within = inner[node // 2] if node % 2 == 1 else NONE
        for k in range(ways_to(g, node, bounds[window], within, found)):
            source[total], ready[total], kind[total] = found[k, 0], found[k, 1], found[k, 2]
            total += 1
        first[node + 1] = total
    return first, source[:total].copy(), ready[:total].copy(), kind[:total].copy()


@nb.njit(cache=True, nogil=True)
def _ordered(first: Indices, source: Indices, ready: Ints) -> tuple[Indices, int]:
    """Return the nodes so that what holds a node comes before it; ways that lead in a circle are struck out.

    Struck out are those of which ``ready`` is set to an age from now.
    """
    n = len(first) - 1
    order, state = np.empty(n, np.int32), np.zeros(n, np.int8)
    stack, place = np.empty(n + 1, np.int32), np.empty(n + 1, np.int32)
    count, dropped = 0, 0
    for root in range(n):
        if state[root] != UNSEEN:
            continue
        stack[0], place[0], depth = root, first[root], 1
        state[root] = OPEN
        while depth > 0:
            node, j = stack[depth - 1], place[depth - 1]
            if j == first[node + 1]:
                state[node] = DONE
                order[count] = node
                count += 1
                depth -= 1
                continue
            place[depth - 1] = j + 1
            other = source[j]
            if state[other] == OPEN:
                ready[j] = _DROPPED
                dropped += 1
            elif state[other] == UNSEEN:
                state[other] = OPEN
                stack[depth], place[depth] = other, first[other]
                depth += 1
    return order, dropped


@nb.njit(cache=True, nogil=True)
def _bindings(  # noqa: PLR0917 - columns
    number: Indices, first: Indices, source: Indices, lag: Ints, kept: npt.NDArray[np.bool_], time: Ints
) -> tuple[Indices, Ints]:
    """Return which way was satisfied last for each node, and what passed since.

    Args:
        number: Number of each node in the graph: odd ones are ends.
        first: See `Forward`.
        source: See there.
        lag: See there.
        kept: Which ways count; empty: all.
        time: See there.
    """
    n = len(time)
    binding, residual = np.full(n, NONE, np.int32), np.zeros(n, np.int64)
    for node in range(n):
        latest = np.int64(-(2**62))
        for j in range(first[node], first[node + 1]):
            r = time[source[j]] + lag[j]
            # On equal times the later way holds, as in the walk.
            if (len(kept) == 0 or kept[j]) and (r > latest or (r == latest and number[node] % 2 == 0)):
                binding[node], latest = j, r
        if binding[node] != NONE:
            residual[node] = time[node] - latest
    return binding, residual


def _floors(kind: Bytes, binding: Indices, residual: Ints) -> Ints:
    """Return per kind what a twentieth of the nodes takes less than, after the way that was satisfied last."""
    held = binding != NONE
    kinds, values = kind[binding[held]], residual[held]
    floor = np.zeros(OWN_START + 1, np.int64)
    for k in np.unique(kinds):
        if k != OWN_START:  # how long an operation takes says nothing about another
            floor[k] = int(np.quantile(values[kinds == k], _FLOOR_QUANTILE, method="lower"))
    return floor


def _floors_of(c: Contracted) -> Ints:
    """Return the same from the residuals of all nodes, of which short ones were counted."""
    floor = np.zeros(OWN_START + 1, np.int64)
    for k in range(OWN_START):
        short, long = np.cumsum(c.counts[k], dtype=np.int64), c.long[c.long_kind == k]
        n = int(short[-1]) + len(long)
        if n:
            at = int(np.floor((n - 1) * _FLOOR_QUANTILE))
            is_short = at < short[-1]
            floor[k] = (
                np.searchsorted(short, at, side="right")
                if is_short
                else np.partition(long, at - short[-1])[at - short[-1]]
            )
    return floor


@nb.njit(cache=True, nogil=True)
def _replay(  # noqa: PLR0917 - what a replay needs
    number: Indices,
    order: Indices,
    first: Indices,
    source: Indices,
    lag: Ints,
    kind: Bytes,
    binding: Indices,
    residual: Ints,
    time: Ints,
    less: Ints,
    floor: Ints,
    is_floor: bool,
) -> Ints:
    """Return when each node would have happened (see `Forward.replay`)."""
    # A way that is left out may come from a node that has no value yet.
    value = time.copy()
    for i in range(len(order)):
        node = order[i]
        held_by = binding[node]
        if held_by == NONE:
            value[node] = time[node]
            continue
        latest, last = np.int64(-(2**62)), np.int64(NONE)
        for j in range(first[node], first[node + 1]):
            r = value[source[j]] + lag[j]
            if r > latest or (r == latest and number[node] % 2 == 0):
                latest, last = r, np.int64(j)
        rest = residual[node] - less[node]
        if is_floor and last != held_by and kind[last] != OWN_START and kind[held_by] != OWN_START:
            rest = min(rest, np.int64(floor[kind[last]]))
        value[node] = latest + max(rest, 0)
    return value

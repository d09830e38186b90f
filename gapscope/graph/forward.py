"""Replay of the whole graph forward in time: when everything would have happened, had some of its time been gone.

Waits are elastic: what waited moves with what it waited for, sooner and later. Everything else takes as long as it
took. `tests/unit/test_forward.py` holds the loops against plain versions, and every replay that changes nothing has to
give back each recorded time to the nanosecond (`Forward.diverging`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from gapscope.graph.build import Graph
from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import LAUNCH, NONE, Arrays, most_ways, time_of, ways_back
from gapscope.graph.walks import clock_bounds

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

STICKY, FLOOR = 0, 1
"""What becomes of the time between the last of what something waited for and itself, if something else is the last
now: it stays as measured (less is gained), or is the least that such an edge usually takes (more is gained)."""

_FLOOR_QUANTILE = 0.05
_OWN_START = len(TYPES)
"""Kind of the way from a node's own start to its end."""

UNSEEN, OPEN, DONE = 0, 1, 2


@dataclass(frozen=True)
class Forward:
    """The graph in an order in which nothing comes before what held it.

    Attributes:
        time: Recorded time of each node (twice an item's number, plus one for its end).
        order: Nodes, what held them first.
        first: ``first[node]`` to ``first[node + 1]`` are the ways that lead to a node.
        source: Node that each way comes from.
        lag: From the time of that node to when the way was satisfied; negative within clock error.
        kind: Type of edge of each way (`gapscope.graph.edges.TYPES`, or one more: from an item's own start).
        binding: The way that was satisfied last; NONE: nothing is known to have held the node, so it stays.
        residual: What passed between that and the node.
        floor: Per kind, the least that usually passes (a twentieth takes less).
        dropped: Ways left out since they lead in a circle (records of equal times).
    """

    time: Ints
    order: Indices
    first: Ints
    source: Indices
    lag: Ints
    kind: Bytes
    binding: Ints
    residual: Ints
    floor: Ints
    dropped: int

    def replay(self, gone: dict[int, int] | tuple[Ints, Ints], residuals: int = STICKY) -> Ints:
        """Return when each node would have happened.

        Args:
            gone: Nodes, and how much of the time right before each is gone (no more than there is of it).
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
            self.order, self.first, self.source, self.lag, self.kind, self.binding, self.residual, self.time, less,
            self.floor, residuals == FLOOR,
        )  # fmt: skip

    def diverging(self) -> int | None:
        """Return the first node that a replay without a change does not give back exactly; None: there is none."""
        again = self.replay({})
        wrong = np.flatnonzero(again[self.order] != self.time[self.order])
        return int(self.order[wrong[0]]) if len(wrong) else None


def forward_of(graph: Graph) -> Forward:
    """Return the graph of a run in an order to replay it in."""
    g = graph.arrays
    solution = graph.context.alignment.solution
    n = 2 * len(g.start)
    time = np.empty(n, np.int64)
    time[0::2], time[1::2] = g.start, g.end
    window = np.clip(np.searchsorted(solution.edges, time, side="right") - 1, 0, len(solution.edges) - 2)
    used, position = np.unique(window, return_inverse=True)
    bounds = clock_bounds(graph, used)
    inner = inner_waits(g.start, g.end, g.lane, int(g.n_ops[0]), g.first)
    capacity = len(g.source) + 4 * len(g.start) + 1
    first, source, ready, kind = _ways(g, bounds, position.astype(np.int32), inner, capacity)
    order, dropped = _ordered(first, source, ready)
    lag = np.where(ready >= _DROPPED, 0, ready - time[source])
    kept = ready < _DROPPED
    binding, residual = _bindings(first, source, lag, kept, time)
    floor = _floors(kind, binding, residual)
    # A way that is left out must never hold anything: it comes from the node that it leads to an age ago.
    lag = np.where(kept, lag, -_DROPPED)
    return Forward(time, order, first, source, lag, kind, binding, residual, floor, int(dropped))


_DROPPED = np.int64(2**61)


@nb.njit(cache=True, nogil=True)
def inner_waits(start: Ints, end: Ints, lane: Indices, n_ops: int, first: Indices) -> Indices:
    """Return for each host item the last one within it whose end waits for something; NONE: there is none.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        lane: Lanes of all items; host items of a thread stand together, ordered by start, enclosing ones first.
        n_ops: Number of the first host item.
        first: See `gapscope.graph.edges.Edges`.
    """
    found = np.full(len(start), NONE, np.int32)
    stack = np.empty(max(len(start) - n_ops, 1), np.int32)
    depth = 0
    for i in range(n_ops, len(start)):
        if i == n_ops or lane[i] != lane[i - 1]:
            depth = 0
        while depth > 0 and end[stack[depth - 1]] <= start[i]:
            depth -= 1
        if depth > 0 and end[i] <= end[stack[depth - 1]] and first[2 * i + 2] > first[2 * i + 1]:
            found[stack[depth - 1]] = i
        stack[depth] = i
        depth += 1
    return found


@nb.njit(cache=True, nogil=True)
def _ways(g: Arrays, bounds: Ints, window: Indices, inner: Indices, capacity: int) -> tuple[Ints, Indices, Ints, Bytes]:
    """Return all ways to all nodes: ``first, source, ready, kind``.

    An operation that began before the call that launched it had returned moves with that return, but begins no sooner
    than the call.
    """
    n = 2 * len(g.start)
    first, source = np.zeros(n + 1, np.int64), np.empty(capacity, np.int32)
    ready, kind = np.empty(capacity, np.int64), np.empty(capacity, np.int8)
    found = np.empty((most_ways(g.first), 4), np.int64)
    total = 0
    for node in range(n):
        at = time_of(g, node)
        count, _ = ways_back(g, node, at, bounds[window[node]], found)
        for k in range(count):
            call = found[k, 0] // 2
            if found[k, 2] == LAUNCH and found[k, 0] % 2 == 1 and found[k, 1] < g.end[call]:
                source[total], ready[total], kind[total] = 2 * call, min(g.start[call], at), LAUNCH
                total += 1
            source[total], ready[total] = found[k, 0], found[k, 1]
            kind[total] = _OWN_START if found[k, 2] == NONE else found[k, 2]
            total += 1
        if node % 2 == 1 and inner[node // 2] != NONE:
            source[total], ready[total], kind[total] = 2 * inner[node // 2] + 1, g.end[inner[node // 2]], _OWN_START
            total += 1
        first[node + 1] = total
    return first, source[:total].copy(), ready[:total].copy(), kind[:total].copy()


@nb.njit(cache=True, nogil=True)
def _ordered(first: Ints, source: Indices, ready: Ints) -> tuple[Indices, int]:
    """Return the nodes so that what holds a node comes before it; ways that lead in a circle are struck out.

    Struck out are those of which ``ready`` is set to an age from now.
    """
    n = len(first) - 1
    order, state = np.empty(n, np.int32), np.zeros(n, np.int8)
    stack, place = np.empty(n + 1, np.int32), np.empty(n + 1, np.int64)
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
def _bindings(first: Ints, source: Indices, lag: Ints, kept: npt.NDArray[np.bool_], time: Ints) -> tuple[Ints, Ints]:
    """Return which way was satisfied last for each node, and what passed since."""
    n = len(time)
    binding, residual = np.full(n, NONE, np.int64), np.zeros(n, np.int64)
    for node in range(n):
        latest = np.int64(-(2**62))
        for j in range(first[node], first[node + 1]):
            r = time[source[j]] + lag[j]
            # On equal times the later way holds, as in the walk.
            if kept[j] and (r > latest or (r == latest and node % 2 == 0)):
                binding[node], latest = j, r
        if binding[node] != NONE:
            residual[node] = time[node] - latest
    return binding, residual


def _floors(kind: Bytes, binding: Ints, residual: Ints) -> Ints:
    """Return per kind what a twentieth of the nodes takes less than, after the way that was satisfied last."""
    held = binding != NONE
    kinds, values = kind[binding[held]], residual[held]
    floor = np.zeros(_OWN_START + 1, np.int64)
    for k in np.unique(kinds):
        if k != _OWN_START:  # how long an operation takes says nothing about another
            floor[k] = int(np.quantile(values[kinds == k], _FLOOR_QUANTILE, method="lower"))
    return floor


@nb.njit(cache=True, nogil=True)
def _replay(  # noqa: PLR0917 - what a replay needs
    order: Indices,
    first: Ints,
    source: Indices,
    lag: Ints,
    kind: Bytes,
    binding: Ints,
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
            if r > latest or (r == latest and node % 2 == 0):
                latest, last = r, np.int64(j)
        rest = residual[node] - less[node]
        if is_floor and last != held_by and kind[last] != _OWN_START and kind[held_by] != _OWN_START:
            rest = min(rest, np.int64(floor[kind[last]]))
        value[node] = latest + max(rest, 0)
    return value


NEVER = np.int64(2**62)
"""Later than anything: no end hangs on it."""


def latest(forward: Forward, ends: Ints, until: Ints) -> tuple[Ints, Ints]:
    """Return how late each node may be while none of some nodes is later than a time.

    Args:
        forward: The graph.
        ends: Nodes that must not be later; may repeat.
        until: Than when, each.

    Returns:
        The time of each node at the latest (`NEVER`: none of them hangs on it), and the way that allows no more (of
        those that lead on from the node; NONE: it is one of ``ends`` itself, or nothing hangs on it).
    """
    return _latest(forward.order, forward.first, forward.source, forward.lag, forward.binding, forward.residual,
                   len(forward.time), ends, until)  # fmt: skip


@nb.njit(cache=True, nogil=True)
def _latest(  # noqa: PLR0917 - what it needs
    order: Indices,
    first: Ints,
    source: Indices,
    lag: Ints,
    binding: Ints,
    residual: Ints,
    n: int,
    ends: Ints,
    until: Ints,
) -> tuple[Ints, Ints]:
    allowed, way = np.full(n, 2**62, np.int64), np.full(n, NONE, np.int64)
    for i in range(len(ends)):
        allowed[ends[i]] = min(allowed[ends[i]], until[i])
    for i in range(len(order) - 1, -1, -1):
        node = order[i]
        if allowed[node] == 2**62 or binding[node] == NONE:
            continue
        for j in range(first[node], first[node + 1]):
            if lag[j] == -(2**61):
                continue
            ready = allowed[node] - residual[node] - lag[j]
            if ready < allowed[source[j]]:
                allowed[source[j]], way[source[j]] = ready, j
    return allowed, way


@nb.njit(cache=True, nogil=True)
def _absorbers(first: Ints, source: Indices, binding: Ints, way: Ints, begin: Ints) -> Ints:
    found = np.full(len(begin), NONE, np.int64)
    for i in range(len(begin)):
        node = begin[i]
        while node != NONE and way[node] != NONE:
            j = way[node]
            low, high = 0, len(first) - 1  # the node that way j leads to
            while high - low > 1:
                middle = (low + high) // 2
                if first[middle] <= j:
                    low = middle
                else:
                    high = middle
            if binding[low] != j:
                found[i] = source[binding[low]]
                break
            node = low
    return found


def absorbers(forward: Forward, way: Ints, begin: Ints) -> Ints:
    """Return what held the first node behind each of some nodes that waited for something else; NONE: there is none.

    Args:
        forward: The graph.
        way: Second result of `latest`.
        begin: The nodes; NONE is skipped.
    """
    return np.asarray(_absorbers(forward.first, forward.source, forward.binding, way, begin))

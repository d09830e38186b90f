"""Replay of the whole graph forward in time: when everything would have happened, had some of its time been gone.

Waits are elastic: what waited moves with what it waited for, sooner and later. Everything else takes as long as it
took. What moves as one is one node (`gapscope.graph.contraction`). `tests/unit/test_forward.py` holds the loops against
plain versions, and every replay that changes nothing has to give back each recorded time to the nanosecond
(`Forward.diverging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gapscope.graph.build import Graph
from gapscope.graph.contraction import UNKNOWN, WANTED, contract
from gapscope.graph.floors import QUANTILE, clocks_of
from gapscope.graph.kernels import NONE, Arrays, leaf, most_ways, part, place, time_of
from gapscope.graph.narrow import Narrow, length_at, narrow
from gapscope.graph.queues import BASE_NS, CALLED_NS, QUEUE, ROW, TURN_NS
from gapscope.graph.ways import OWN_START, ways_to, window_of
from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

STICKY, FLOOR = 0, 1
"""What becomes of the time between the last of what something waited for and itself, if something else is the last
now: it stays as measured (less is gained), or is the least that such an edge usually takes (more is gained)."""

STRUCK = 2**61
"""Slack of a way that is left out: it must never hold anything."""

UNSEEN, OPEN, DONE = 0, 1, 2


@dataclass(frozen=True)
class Forward:
    """The graph in an order in which nothing comes before what held it.

    Its nodes are those of the graph that stand for themselves; they are numbered anew (`places`). Times are kept as
    differences from what was recorded: a way is satisfied as much sooner as the node that it comes from.

    Attributes:
        node: Number of each node in the graph: twice an item's number, plus one for its end.
        asked: Numbers in the graph, ascending, of the nodes that can be asked for,
        place: and where each of them stands here.
        order: Nodes, what held them first.
        first: ``first[node]`` to ``first[node + 1]`` are the ways that lead to a node.
        source: Node that each way comes from.
        slack: By how much sooner each way was satisfied than the last of those to the same node; `STRUCK`: left out,
            since it leads in a circle (records of equal times).
        kind: Type of edge of each way (`gapscope.graph.edges.TYPES`, or from an item's own start, or `QUEUE`).
        held_by: Where the way that was satisfied last comes from, as numbered in the graph; what comes from there moves
            as `source` does. NONE: nothing is known to have held the node, so it stays; or it is a queue.
        residual: What passed between that and the node; of a queue, its row in `queues`.
        queues: What is known of each queue (`gapscope.graph.queues`).
        floor: Per kind, the least that usually passes (a twentieth takes less).
        dropped: Number of ways that are struck.
        start: Start of each item of the graph.
        end: End of each.
    """

    node: Indices
    asked: Ints
    place: Indices
    order: Indices
    first: Indices
    source: Indices
    slack: Narrow
    kind: Bytes
    held_by: Indices
    residual: Narrow
    queues: Ints
    floor: Ints
    dropped: int
    start: Ints
    end: Ints

    @property
    def time(self) -> Ints:
        """Recorded time of each node."""
        item = self.node // 2
        return np.where(self.node % 2 == 1, self.end[item], self.start[item])

    def places(self, nodes: Ints) -> Ints:
        """Return where nodes of the graph stand here.

        Args:
            nodes: Their numbers in the graph; of those that were asked for (`forward_of`).
        """
        found = np.empty(len(nodes), np.int64)
        if _places(self.asked, self.place, nodes, found) < len(nodes):
            raise KeyError("a node that was not asked for")
        return found

    @cached_property
    def _room(self) -> Ints:
        return np.empty((len(self.node), 2), np.int64)

    def forget(self) -> None:
        """Free the room for a replay; the next one makes it again."""
        self.__dict__.pop("_room", None)

    def sooner(self, gone: tuple[Ints, Ints]) -> Ints:
        """Return by how much sooner each node would have happened: columns `STICKY` and `FLOOR`.

        They are written over by the next replay.

        Args:
            gone: Nodes (as they stand here), and how much of the time right before each is gone (no more than there is
                of it).
        """
        _replay(
            self.node, self.order, self.first, self.source, self.slack, self.kind, self.residual, self.queues,
            self.floor, *gone, self._room,
        )  # fmt: skip
        return self._room

    def replay(self, gone: Mapping[int, int], residuals: int = STICKY) -> Ints:
        """Return when each node would have happened.

        Args:
            gone: How much of the time right before some nodes (as they stand here) is gone.
            residuals: `STICKY` or `FLOOR`.
        """
        some = np.array(list(gone.keys()), np.int64), np.array(list(gone.values()), np.int64)
        return np.asarray(self.time - self.sooner(some)[:, residuals])

    def diverging(self) -> int | None:
        """Return the first node that a replay without a change does not give back exactly; None: there is none."""
        nothing = np.zeros(0, np.int64)
        sooner = self.sooner((nothing, nothing))
        if not sooner.any():
            return None
        return int(self.order[np.flatnonzero(sooner[self.order].any(axis=1))[0]])


def forward_of(graph: Graph, asked: Ints, floor: Ints) -> Forward:
    """Return the graph of a run in an order to replay it in.

    Args:
        graph: The graph.
        asked: Nodes that may lose time, or of which times will be asked for.
        floor: Result of `gapscope.graph.floors.floors_of`.
    """
    return contracted(graph.arrays, *clocks_of(graph), asked, floor)


def contracted(g: Arrays, bounds: Ints, edges: Ints, asked: Ints, floor: Ints) -> Forward:
    """Return as few nodes as give the same times; all of them if some are in a circle (records of equal times).

    Args:
        g: The graph.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        edges: Where the windows begin, and where the last ends.
        asked: Nodes that may lose time, or of which times will be asked for; may repeat.
        floor: Result of `gapscope.graph.floors.floors`.
    """
    asked = np.sort(asked)  # numpy's unique takes thirty times as long
    asked = asked[np.append(asked[:-1] != asked[1:], True)[: len(asked)]]
    root = np.full(2 * len(g.start), UNKNOWN, np.int32)
    root[asked] = WANTED
    c = contract(g, bounds, edges, root, len(asked), floor)
    place = root[asked]
    del root
    order, dropped = _ordered(c.first, c.source, np.zeros(0, np.bool_))
    if dropped:
        return whole(g, bounds, edges)
    return Forward(c.node, asked, place, order, c.first, c.source, c.slack, c.kind, c.held_by, c.residual, c.queues,
                   floor, 0, g.start, g.end)  # fmt: skip


def whole(g: Arrays, bounds: Ints, edges: Ints) -> Forward:
    """Return all nodes and ways of a graph; see `contracted`."""
    n = 2 * len(g.start)
    time = np.empty(n, np.int64)
    time[0::2], time[1::2] = g.start, g.end
    inner = inner_waits(g.start, g.end, g.lane, int(g.n_ops[0]), g.held)
    first, source, ready, kind = _ways(g, bounds, edges, inner, len(g.source) + 4 * len(g.start) + 1)
    struck = np.zeros(len(source), np.bool_)
    order, dropped = _ordered(first, source, struck)
    binding, residual = _bindings(first, ready, struck, time)
    is_held = binding != NONE
    every, held_by, last = np.arange(n), np.full(n, NONE, np.int32), np.zeros(n, np.int64)
    held_by[is_held], last[is_held] = source[binding[is_held]], ready[binding[is_held]]
    slack = np.where(struck, STRUCK, np.repeat(last, np.diff(first)) - ready)
    return Forward(every.astype(np.int32), every, every.astype(np.int32), order, first, source, narrow(slack), kind,
                   held_by, narrow(residual), np.zeros((0, ROW), np.int64), _floors(kind, binding, residual),
                   int(dropped), g.start, g.end)  # fmt: skip


@loop
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


@loop
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


@loop
def _ordered(first: Indices, source: Indices, struck: Bools) -> tuple[Indices, int]:
    """Return the nodes so that what holds a node comes before it, and how many ways had to be struck out for that.

    Args:
        first: See `Forward`.
        source: See there.
        struck: Room for which ways lead in a circle, all false; empty: it is enough to know how many do.
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
                if len(struck) > 0:
                    struck[j] = True
                dropped += 1
            elif state[other] == UNSEEN:
                state[other] = OPEN
                stack[depth], place[depth] = other, first[other]
                depth += 1
    return order, dropped


@loop
def _bindings(first: Indices, ready: Ints, struck: Bools, time: Ints) -> tuple[Indices, Ints]:
    """Return which way was satisfied last for each node of a whole graph, and what passed since; NONE: there is none.

    Args:
        first: See `Forward`.
        ready: When each way was satisfied.
        struck: Which ways do not count.
        time: Time of each node.
    """
    n = len(time)
    binding, residual = np.full(n, NONE, np.int32), np.zeros(n, np.int64)
    for node in range(n):
        latest = np.int64(-(2**62))
        for j in range(first[node], first[node + 1]):
            # On equal times the later way holds a start, as in the walk.
            if not struck[j] and (ready[j] > latest or (ready[j] == latest and node % 2 == 0)):
                binding[node], latest = j, ready[j]
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
            floor[k] = int(np.quantile(values[kinds == k], QUANTILE, method="lower"))
    return floor


@leaf
def _places(asked: Ints, place: Indices, nodes: Ints, found: Ints) -> int:
    """Fill in where nodes stand; return how many of them there are before the first that was not asked for."""
    at = -1
    for i in range(len(nodes)):
        at += 1  # mostly they come in order
        if at >= len(asked) or asked[at] != nodes[i]:
            low, high = 0, len(asked)
            while low < high:
                middle = (low + high) // 2
                if asked[middle] < nodes[i]:
                    low = middle + 1
                else:
                    high = middle
            at = low
            if at == len(asked) or asked[at] != nodes[i]:
                return i
        found[i] = place[at]
    return len(nodes)


@part
def held(number: int, low: int, high: int, slack: Narrow) -> int:
    """Return which of the ways from ``low`` to before ``high`` was satisfied last; NONE: none counts.

    On equal times the later way holds a start, as in the walk.

    Args:
        number: Number in the graph of the node that they lead to.
        low: The first way.
        high: The one behind the last.
        slack: See `Forward`.
    """
    way = NONE
    for j in range(low, high):
        if slack.value[j] == 0 and (way == NONE or number % 2 == 0):
            way = j
    return way


@leaf
def _replay(  # noqa: C901, PLR0917 - what a replay needs
    number: Indices,
    order: Indices,
    first: Indices,
    source: Indices,
    slack: Narrow,
    kind: Bytes,
    residual: Narrow,
    queues: Ints,
    floor: Ints,
    nodes: Ints,
    lengths: Ints,
    sooner: Ints,
) -> None:
    """Fill in by how much sooner each node would have happened (see `Forward.sooner`)."""
    # Until its turn comes, what is gone before a node stands in its place.
    for node in range(len(order)):
        sooner[node, 0] = 0
    for i in range(len(nodes)):
        sooner[nodes[i], 0] += lengths[i]
    for i in range(len(order)):
        node = order[i]
        low, high = first[node], first[node + 1]
        if high > low and kind[low] == QUEUE:
            row = length_at(residual, node)
            called, base = source[low], source[low + 1]
            sooner[node, 0] = min(
                sooner[called, 0] + length_at(slack, low), sooner[base, 0] + length_at(slack, low + 1)
            )
            is_launched = sooner[called, 1] - sooner[base, 1] < queues[row, TURN_NS]
            sooner[node, 1] = (
                sooner[called, 1] + queues[row, CALLED_NS] if is_launched else sooner[base, 1] + queues[row, BASE_NS]
            )
            continue
        less, is_start = sooner[node, 0], number[node] % 2 == 0
        sticky, least, last, before = np.int64(2**62), np.int64(2**62), np.int64(NONE), np.int64(NONE)
        for j in range(low, high):
            earlier, of = length_at(slack, j), source[j]
            if earlier == STRUCK:
                continue
            if earlier == 0 and (before == NONE or is_start):
                before = np.int64(j)
            sticky = min(sticky, earlier + sooner[of, 0])
            here = earlier + sooner[of, 1]
            if here < least or (here == least and is_start):
                least, last = here, np.int64(j)
        if last == NONE:
            sooner[node, 0], sooner[node, 1] = 0, 0
            continue
        passed = length_at(residual, node)
        rest = passed - less
        sooner[node, 0] = sticky + passed - max(rest, 0)
        if last != before and kind[last] != OWN_START and kind[before] != OWN_START:
            rest = min(rest, floor[kind[last]])
        sooner[node, 1] = least + passed - max(rest, 0)

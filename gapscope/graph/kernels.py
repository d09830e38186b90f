"""The sequential loops over the graph, compiled. `tests/unit/test_walk.py` holds each against a plain version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.loops import kept, loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

NONE = -1

# What a tile is of.
RESIDUAL, BODY, HOST_GAP, UNKNOWN, LEAD = 0, 1, 2, 3, 4
"""``LEAD`` is host time right before a consumer that is itself no item: its item came before, or encloses it."""

# What the chain has passed on its way.
VIA_ACK, VIA_VIOLATION = 1, 2

LAUNCH, STREAM, THREAD = 0, 1, 2  # numbers of gapscope.graph.edges.TYPES
STRUCTURAL, RECORDED = 1, 0  # numbers of gapscope.graph.edges.EVIDENCE
ACK = 6
LEAST = 5

LONGEST_STANDSTILL = 100_000
"""Edges at one instant that a walk may pass; more are a circle of records with equal times."""


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}


def leaf(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that makes no array and so counts no references to any: that is most of the time of the others."""
    return kept(function, **_OPTIONS)


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what such a loop does at each step."""
    return kept(function, **_OPTIONS, forceinline=True)


def fixed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that cannot be written to, as polars gives most: loops are compiled for one kind only."""
    values = values.view()
    values.flags.writeable = False
    return values


_WORD = 32
"""Numbers of one element of a set: their bits are its lower half, how many come before them its upper."""


def numbered(numbers: npt.NDArray[np.integer], n: int) -> Ints:
    """Return the set of some numbers, as `place` takes it: a bit for each that may be in it, and a count per 32.

    That takes a quarter of a byte for each, where an array of what it has takes four, and mostly fits into the cache.

    Args:
        numbers: The numbers, ascending, each once.
        n: Their limit.
    """
    found = np.zeros(n // _WORD + 1, np.int64)
    np.bitwise_or.at(found, numbers // _WORD, np.left_shift(np.int64(1), numbers.astype(np.int64) % _WORD))
    counts = np.bincount(numbers // _WORD, minlength=len(found))
    found |= (np.cumsum(counts) - counts) << _WORD
    return found


@part
def place(numbers: Ints, number: int) -> int:
    """Return how many of a set are below a number of it; NONE: the number is not in it."""
    word, low = numbers[number >> 5], number & 31
    if (word >> low) & 1 == 0:
        return NONE
    below = word & ((np.int64(1) << low) - 1)  # bits are added up in pairs, fours and eights
    below -= (below >> 1) & 0x55555555
    below = (below & 0x33333333) + ((below >> 2) & 0x33333333)
    below = (below + (below >> 4)) & 0x0F0F0F0F
    return int((word >> 32) + (((below * 0x01010101) >> 24) & 0xFF))


class Arrays(NamedTuple):
    """The graph as the loops take it.

    Attributes:
        start: Start of each item.
        end: End of each item.
        lane: Lane of each item.
        clock: Clock of each lane.
        jumped: Clock of each item, if the clock of some lane has jumped; else empty.
        n_ops: Number of operations, one element; further items are of hosts.
        call: Item that launched each operation, or NONE.
        call_level: How that is known.
        nested: First result of `thread_order`.
        before: Second result of `thread_order`.
        held: See `gapscope.graph.edges.Edges`.
        first: See there.
        source: See there.
        ready: See there.
        kind: See there.
        level: See there.
    """

    start: Ints
    end: Ints
    lane: Indices
    clock: Indices
    jumped: Indices
    n_ops: Ints
    call: Indices
    call_level: Bytes
    nested: Ints
    before: Indices
    held: Ints
    first: Indices
    source: Ints
    ready: Ints
    kind: Bytes
    level: Bytes


@loop
def thread_order(start: Ints, end: Ints, lane: Indices, first: int) -> tuple[Ints, Indices]:
    """Return for which host items `before_of` does not see the node before their start, and that node for each.

    That is the end of what came before, or the start of what encloses it.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        lane: Lanes of all items; host items of a thread stand together, ordered by start, enclosing ones first.
        first: Number of the first host item.

    Returns:
        The numbers of these items less ``first``, as `place` takes them, and the node before each.
    """
    n = len(start) - first
    nested, before, stack = np.zeros(n // _WORD + 1, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
    depth, count = 0, 0
    for i in range(first, len(start)):
        if i == first or lane[i] != lane[i - 1]:
            depth = 0
        last = NONE
        while depth > 0 and end[stack[depth - 1]] <= start[i]:
            depth -= 1
            last = stack[depth]
        if (i - first) % _WORD == 0:
            nested[(i - first) >> 5] = np.int64(count) << 32
        if last != NONE and last != i - 1:
            nested[(i - first) >> 5] |= np.int64(1) << ((i - first) & 31)
            before[count] = 2 * last + 1
            count += 1
        stack[depth] = i
        depth += 1
    return nested, before[:count].copy()


@loop
def most_ways(first: Indices) -> int:
    """Return the most ways that lead to any one node: its edges, its launch and what was before it on its stream."""
    most = np.int64(0)
    for node in range(len(first) - 1):
        most = max(most, first[node + 1] - first[node])
    return int(most) + 2


@part
def time_of(g: Arrays, node: int) -> int:
    """Return the time of a node."""
    return int(g.end[node // 2] if node % 2 == 1 else g.start[node // 2])


@part
def clock_of(g: Arrays, item: int) -> int:
    """Return the clock of an item."""
    return int(g.jumped[item] if len(g.jumped) > 0 else g.clock[g.lane[item]])


@part
def before_of(g: Arrays, item: int) -> int:
    """Return the node before the start of a host item on its thread; NONE for the first of a thread."""
    if item == g.n_ops[0] or g.lane[item - 1] != g.lane[item]:
        return NONE
    if g.end[item - 1] > g.start[item]:  # within the one before
        return 2 * item - 2
    at = place(g.nested, item - g.n_ops[0])
    return 2 * item - 1 if at == NONE else int(g.before[at])


@part
def edges_to(g: Arrays, node: int) -> tuple[int, int]:
    """Return from which to before which number the edges are that lead to a node."""
    at = place(g.held, node)
    return (0, 0) if at == NONE else (int(g.first[at]), int(g.first[at + 1]))


@part
def waits_for(g: Arrays, node: int, other: int) -> bool:
    """Return whether an edge leads to a node from another."""
    low, high = edges_to(g, node)
    for j in range(low, high):  # noqa: SIM110 - no generator when compiled
        if g.source[j] == other:
            return True
    return False


@part
def put(  # noqa: PLR0917 - a row
    found: Ints, row: int, node: int, ready: int, kind: int, level: int
) -> None:
    """Write one row of `ways_back`; a row written as a tuple would first become an array."""
    found[row, 0], found[row, 1], found[row, 2], found[row, 3] = node, ready, kind, level


@part
def ways_back(g: Arrays, node: int, at: int, bound: Ints, found: Ints) -> tuple[int, bool]:
    """Write down from where a node may have been held: its own start, its launch, what was before it, its edges.

    An edge that was satisfied only after the node, by more than the clocks can be off, is left out; by less, it counts
    as satisfied right then. So is one that the node was held by only after ``at``: there, the walk is already earlier
    than the node, within an operation that a later one of its stream overlaps.

    Args:
        g: The graph.
        node: The node.
        at: When the node is asked about; no later than its time.
        bound: ``[clock, clock]``: uncertainty of time differences.
        found: Room (see `most_ways`) for rows of node, ready time, type of edge, evidence; those that hold on equal
            times come last.

    Returns:
        Number of rows, and whether an edge was left out.
    """
    item = node // 2
    own, n, is_violated = clock_of(g, item), 0, False
    time = g.end[item] if node % 2 == 1 else g.start[item]
    limit = min(time, at)
    if node % 2 == 1:
        put(found, 0, 2 * item, min(g.start[item], limit), NONE, RECORDED)
        n = 1
    elif item < g.n_ops[0]:
        c = g.call[item]
        if c != NONE and g.start[c] <= limit + bound[own, clock_of(g, c)]:
            # The return of a call that waits for what it launches (a blocking copy) holds nothing of that.
            from_node, ready = (2 * c, g.start[c]) if waits_for(g, 2 * c + 1, node + 1) else (2 * c + 1, g.end[c])
            put(found, n, from_node, min(ready, limit), LAUNCH, g.call_level[item])
            n += 1
        # Operations of one stream may overlap lawfully: the later one then begins within the earlier.
        if item > 0 and g.lane[item - 1] == g.lane[item] and g.start[item - 1] < limit:
            put(found, n, 2 * item - 1, min(g.end[item - 1], limit), STREAM, STRUCTURAL)
            n += 1
    else:
        b = before_of(g, item)
        if b != NONE:
            put(found, 0, b, min(time_of(g, b), limit), THREAD, STRUCTURAL)
            n = 1
    low, high = edges_to(g, node)
    for j in range(low, high):
        r = g.ready[j]
        allowed = bound[own, clock_of(g, g.source[j] // 2)]
        if r - time > allowed:
            is_violated = True
        elif r - limit <= allowed:
            put(found, n, g.source[j], min(r, limit), g.kind[j], g.level[j])
            n += 1
    return n, is_violated


@part
def kind_of(g: Arrays, node: int) -> int:
    """Return what the time before a node is of: a body before an end, a residual or host time before a start."""
    if node % 2 == 1:
        return BODY
    return RESIDUAL if node // 2 < g.n_ops[0] else HOST_GAP


@part
def binding(node: int, count: int, ways: Ints) -> tuple[int, int]:
    """Return which of the ways to a node was satisfied last, and which second; NONE: there is no second.

    On equal times the later row holds for a start: an edge rather than the launch or the order on the stream.
    """
    best, second = 0, NONE
    for k in range(1, count):
        if ways[k, 1] > ways[best, 1] or (ways[k, 1] == ways[best, 1] and node % 2 == 0):
            best, second = k, best
        elif second == NONE or ways[k, 1] > ways[second, 1]:
            second = k
    return best, second


@part
def put_tile(  # noqa: PLR0917 - a row
    tiles: Ints, n: int, w: int, low: int, at: int, what: int, item: int, edge: int, level: int, node: int, passed: int
) -> None:
    """Write one tile without a runner-up."""
    tiles[n, 0], tiles[n, 1], tiles[n, 2], tiles[n, 3], tiles[n, 4] = w, low, at, what, item
    tiles[n, 5], tiles[n, 6], tiles[n, 7], tiles[n, 8], tiles[n, 9] = edge, level, node, NONE, 0
    tiles[n, 10] = passed


def walk(  # noqa: PLR0917 - what the loop takes
    g: Arrays, begin: Ints, finish: Ints, consumer: Ints, bounds: Ints, window: Ints, capacity: int
) -> tuple[Ints, int]:
    """Walk from each consumer back to its producer's finish; return tiles.

    Args:
        g: The graph.
        begin: Node that each walk begins at: the start of the consumer's first operation, or for work on the host the
            end of what came before on its thread.
        finish: When the producer finished.
        consumer: When the consumer started.
        bounds: ``[window, clock, clock]``: uncertainty of time differences.
        window: Window of each walk.
        capacity: Tiles that there is room for.

    Returns:
        Rows of walk, start, end, kind of tile, item, type of edge, evidence, next node, runner-up's node, its ready
        time, what the chain passed; and how many there are, or -1 if there was no room.
    """
    tiles = np.empty((capacity, 11), np.int64, order="F")  # what is made of it are columns
    ways = np.empty((most_ways(g.first), 4), np.int64)
    return tiles, _walk(g, begin, finish, consumer, bounds, window, tiles, ways)


@leaf
def _walk(  # noqa: C901, PLR0917 - one loop that carries its state
    g: Arrays, begin: Ints, finish: Ints, consumer: Ints, bounds: Ints, window: Ints, tiles: Ints, ways: Ints
) -> int:
    capacity, n = len(tiles), 0
    for w in range(len(begin)):
        at, node, passed, idle, limit = consumer[w], begin[w], 0, 0, finish[w]
        bound = bounds[window[w]]
        if n >= capacity:
            return -1
        if node != NONE and max(time_of(g, node), limit) < at:  # work on the host begins amid host time
            low = max(time_of(g, node), limit)
            put_tile(tiles, n, w, low, at, LEAD, node // 2, THREAD, STRUCTURAL, node, passed)
            n, at = n + 1, low
        while at > limit:
            if n >= capacity:
                return -1
            idle += 1
            count = 0
            if node != NONE and idle <= LONGEST_STANDSTILL:
                count, is_violated = ways_back(g, node, at, bound, ways)
                passed |= VIA_VIOLATION if is_violated else 0
            if count == 0:
                item = NONE if node == NONE else node // 2
                put_tile(tiles, n, w, limit, at, UNKNOWN, item, NONE, LEAST, NONE, passed)
                n += 1
                break
            best, second = binding(node, count, ways)
            low = min(max(ways[best, 1], limit), at)
            if low < at:
                put_tile(
                    tiles, n, w, low, at, kind_of(g, node), node // 2, ways[best, 2], ways[best, 3], ways[best, 0],
                    passed,
                )  # fmt: skip
                if second != NONE:
                    one, two = ways[best, 0] // 2, ways[second, 0] // 2
                    if ways[best, 1] - ways[second, 1] <= bound[clock_of(g, one), clock_of(g, two)]:
                        tiles[n, 8], tiles[n, 9] = ways[second, 0], ways[second, 1]
                n, at, idle = n + 1, low, 0
            if ways[best, 2] == ACK:
                passed |= VIA_ACK
            node = ways[best, 0]
    return n


@leaf
def turn(rows: Ints) -> None:
    """Turn the order of the rows of each walk (the first column) around."""
    first = 0
    for n in range(1, len(rows) + 1):
        if n < len(rows) and rows[n, 0] == rows[first, 0]:
            continue
        for column in range(rows.shape[1]):
            low, high = first, n - 1
            while low < high:
                rows[low, column], rows[high, column] = rows[high, column], rows[low, column]
                low, high = low + 1, high - 1
        first = n

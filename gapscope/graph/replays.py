"""Replay of a handoff's part of the graph with some of its time gone, compiled.

`tests/unit/test_walk.py` holds it against a plain version.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gapscope.graph.kernels import (
    ACK,
    LEAD,
    NONE,
    THREAD,
    VIA_ACK,
    VIA_VIOLATION,
    Arrays,
    Bytes,
    Indices,
    Ints,
    kind_of,
    leaf,
    most_ways,
    part,
    time_of,
    ways_back,
)

# What a replay knows of a node.
UNSEEN, LOOKED_AT, KNOWN, CHAINED = 0, 1, 2, 3

_MIX = 0x9E3779B97F4A7C1  # spreads numbers over a hash table

_NEVER = -(2**62)

_NO_ROOM, _TOO_MANY = -1, -2
"""What a replay gives up for: steps of chains, nodes that a walk looks at."""


class _Removed(NamedTuple):
    """What vanishes, by walk: ``first[w]`` to ``first[w + 1]`` are the parts of walk w."""

    first: Ints
    node: Ints
    length: Ints


class _Seen(NamedTuple):
    """What is known of the nodes that a walk has looked at, by their number within it; ``table`` finds that.

    Attributes:
        table: Number of the node of each slot of a hash table.
        nodes: Node of each number.
        slots: Where in the table it stands.
        state: What is known of it.
        value: When it would be.
        gone: What vanishes right before it.
        stack: Room for nodes to look at.
    """

    table: Indices
    nodes: Ints
    slots: Indices
    state: Bytes
    value: Ints
    gone: Ints
    stack: Ints


def replay(  # noqa: PLR0917 - what the loop takes
    g: Arrays,
    begin: Ints,
    finish: Ints,
    consumer: Ints,
    bounds: Ints,
    window: Ints,
    removed_first: Ints,
    removed_node: Ints,
    removed_ns: Ints,
    capacity: int,
) -> tuple[Ints, Ints, int]:
    """Let parts of each gap vanish, and return when the consumer would have started, and what would hold it then.

    Waits are elastic: what waited moves with what it waited for. Residuals stay as they were measured, whichever edge
    binds. Everything up to the producer's finish stays where it is.

    Args:
        g: The graph.
        begin: See `walk`.
        finish: See `walk`.
        consumer: See `walk`.
        bounds: See `walk`.
        window: See `walk`.
        removed_first: ``removed_first[w]`` to ``removed_first[w + 1]`` are the parts that vanish from walk w.
        removed_node: Node before which each part lies (see `kind_of`); NONE: right before the consumer.
        removed_ns: How long each is.
        capacity: Steps that there is room for.

    Returns:
        The new start of each consumer; the new chains as rows of walk, start, end (both as recorded), kind, item, edge,
        length now, what the chain passed; and how many rows there are, or -1 if there was no room.
    """
    removed = _Removed(removed_first, removed_node, removed_ns)
    starts, chains = np.empty(len(begin), np.int64), np.empty((capacity, 8), np.int64, order="F")
    ways = np.empty((most_ways(g.first), 4), np.int64)
    w, n, room = 0, 0, 2048
    while w < len(begin):
        w, n, status = _replay(
            g, begin, finish, consumer, bounds, window, removed, starts, chains, ways, _seen(room), w, n
        )
        if status == _NO_ROOM:
            return starts, chains, -1
        room *= 2
    return starts, chains, n


def _seen(room: int) -> _Seen:
    """Return room for so many nodes."""
    return _Seen(
        np.full(2 * room, NONE, np.int32), np.empty(room, np.int64), np.empty(room, np.int32), np.zeros(room, np.int8),
        np.zeros(room, np.int64), np.zeros(room, np.int64), np.empty(2 * room, np.int64),
    )  # fmt: skip


@leaf
def _replay(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop that carries its state
    g: Arrays,
    begin: Ints,
    finish: Ints,
    consumer: Ints,
    bounds: Ints,
    window: Ints,
    removed: _Removed,
    starts: Ints,
    chains: Ints,
    ways: Ints,
    seen: _Seen,
    w: int,
    n: int,
) -> tuple[int, int, int]:
    """Replay from walk ``w`` on; return which walk is next, how many rows of chains there are, and why it ended."""
    nodes, stack = seen.nodes, seen.stack
    state, value, gone = seen.state, seen.value, seen.gone
    known, capacity = 0, len(chains)
    while w < len(begin):
        bound, limit, n_before = bounds[window[w]], finish[w], n
        for i in range(known):
            seen.table[seen.slots[i]] = NONE
        known, lead = 0, np.int64(0)
        if removed.first[w + 1] - removed.first[w] >= len(nodes):
            return w, n, _TOO_MANY
        for j in range(removed.first[w], removed.first[w + 1]):
            if removed.node[j] == NONE:
                lead += removed.length[j]
            else:
                i = _number(seen, known, removed.node[j])
                known = max(known, i + 1)
                gone[i] += removed.length[j]
        depth = 0
        if begin[w] != NONE:
            stack[0], depth = begin[w], 1
        while depth > 0:
            if known + len(ways) + 1 > len(nodes) or depth + len(ways) >= len(stack):
                return w, n_before, _TOO_MANY
            node = stack[depth - 1]
            i = _number(seen, known, node)
            known = max(known, i + 1)
            if state[i] == KNOWN:
                depth -= 1
                continue
            state[i] = LOOKED_AT
            t = time_of(g, node)
            count, _ = ways_back(g, node, t, bound, ways)
            if t <= limit or count == 0:
                state[i], value[i] = KNOWN, t
                depth -= 1
                continue
            is_open = False
            held, now = np.int64(_NEVER), np.int64(_NEVER)
            for k in range(count):
                other = ways[k, 0]
                o = _number(seen, known, other)
                known = max(known, o + 1)
                if state[o] == KNOWN:
                    held = max(held, ways[k, 1])
                    now = max(now, value[o] + ways[k, 1] - time_of(g, other))
                elif state[o] == UNSEEN:
                    stack[depth] = other
                    depth += 1
                    is_open = True
            if is_open:
                continue
            state[i] = KNOWN
            value[i] = now + (t - held) - gone[i] if held > _NEVER // 2 else t
            depth -= 1
        starts[w] = consumer[w]
        node, passed = begin[w], 0
        if node != NONE:
            low = max(time_of(g, node), limit)
            i = _number(seen, known, node)
            starts[w] = value[i] + consumer[w] - time_of(g, node) - lead
            if consumer[w] - low - lead > 0:
                if n >= capacity:
                    return w, n, _NO_ROOM
                _put(chains, n, w, low, consumer[w], LEAD, node // 2, THREAD, consumer[w] - low - lead, passed)
                n += 1
        while node != NONE and time_of(g, node) > limit:
            i = _number(seen, known, node)  # every node of the new chain was looked at above
            if state[i] == CHAINED:
                break
            state[i] = CHAINED
            count, is_violated = ways_back(g, node, time_of(g, node), bound, ways)
            passed |= VIA_VIOLATION if is_violated else 0
            best, latest, held = NONE, np.int64(_NEVER), np.int64(_NEVER)
            for k in range(count):
                o = _number(seen, known, ways[k, 0])
                if state[o] >= KNOWN:
                    r = value[o] + ways[k, 1] - time_of(g, ways[k, 0])
                    held = max(held, ways[k, 1])
                    if r > latest or (r == latest and node % 2 == 0):
                        best, latest = k, r
            if best == NONE:
                break
            if n >= capacity:
                return w, n, _NO_ROOM
            low = max(held, limit)
            length = time_of(g, node) - low - gone[i]
            if length > 0:
                _put(chains, n, w, low, time_of(g, node), kind_of(g, node), node // 2, ways[best, 2], length, passed)
                n += 1
            if ways[best, 2] == ACK:
                passed |= VIA_ACK
            node = ways[best, 0]
        w += 1
    return w, n, 0


@part
def _put(  # noqa: PLR0917 - a row
    chains: Ints, n: int, w: int, low: int, at: int, what: int, item: int, edge: int, length: int, passed: int
) -> None:
    """Write one step of a chain."""
    chains[n, 0], chains[n, 1], chains[n, 2], chains[n, 3] = w, low, at, what
    chains[n, 4], chains[n, 5], chains[n, 6], chains[n, 7] = item, edge, length, passed


@part
def _number(seen: _Seen, known: int, node: int) -> int:
    """Return the number of a node among those that a walk has looked at; a new one gets the next, ``known``."""
    table = seen.table
    mask = len(table) - 1
    slot = ((node * _MIX) >> 20) & mask
    while table[slot] != NONE and seen.nodes[table[slot]] != node:
        slot = (slot + 1) & mask
    if table[slot] == NONE:
        table[slot], seen.nodes[known], seen.slots[known] = known, node, slot
        seen.state[known], seen.gone[known] = UNSEEN, 0
    return int(table[slot])

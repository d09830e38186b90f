"""Replay of a handoff's part of the graph with some of its time gone, compiled.

`tests/unit/test_walk.py` holds it against a plain version.
"""

from __future__ import annotations

import numba as nb
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
    most_ways,
    time_of,
    ways_back,
)

# What a replay knows of a node.
UNSEEN, LOOKED_AT, KNOWN, CHAINED = 0, 1, 2, 3

_MIX = 0x9E3779B97F4A7C1  # spreads numbers over a hash table


@nb.njit(cache=True, nogil=True)
def replay(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop that carries its state
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
    # What is known of the nodes that a walk has looked at, by their number within it; `table` finds that.
    table, nodes, slots = np.full(4096, NONE, np.int32), np.empty(2048, np.int64), np.empty(2048, np.int32)
    state, value, gone = np.zeros(2048, np.int8), np.zeros(2048, np.int64), np.zeros(2048, np.int64)
    known = 0
    ways = np.empty((most_ways(g.first), 4), np.int64)
    stack = np.empty(1024, np.int64)
    starts, chains, n = np.empty(len(begin), np.int64), np.empty((capacity, 8), np.int64), 0
    for w in range(len(begin)):
        bound, limit = bounds[window[w]], finish[w]
        table[slots[:known]] = NONE
        known, lead = 0, np.int64(0)
        most = removed_first[w + 1] - removed_first[w] + 1
        for j in range(removed_first[w], removed_first[w + 1]):
            if removed_node[j] == NONE:
                lead += removed_ns[j]
            else:
                if known + most > len(nodes):
                    table, nodes, slots, state, value, gone = _with_room(nodes, state, value, gone, known, most)
                i = _number(table, nodes, slots, known, removed_node[j])
                if i == known:
                    state[i], gone[i], known = UNSEEN, 0, known + 1
                gone[i] += removed_ns[j]
        depth = 0
        if begin[w] != NONE:
            stack[0], depth = begin[w], 1
        while depth > 0:
            if known + len(ways) + 1 > len(nodes):
                table, nodes, slots, state, value, gone = _with_room(nodes, state, value, gone, known, len(ways) + 1)
            node = stack[depth - 1]
            i = _number(table, nodes, slots, known, node)
            if i == known:
                state[i], gone[i], known = UNSEEN, 0, known + 1
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
            while depth + count >= len(stack):
                stack = np.concatenate((stack, np.empty(len(stack), np.int64)))
            is_open = False
            held, now = np.int64(-(2**62)), np.int64(-(2**62))
            for k in range(count):
                other = ways[k, 0]
                o = _number(table, nodes, slots, known, other)
                if o == known:
                    state[o], gone[o], known = UNSEEN, 0, known + 1
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
            value[i] = now + (t - held) - gone[i] if held > -(2**61) else t
            depth -= 1
        starts[w] = consumer[w]
        node, passed = begin[w], 0
        if node != NONE:
            low = max(time_of(g, node), limit)
            i = _number(table, nodes, slots, known, node)
            starts[w] = value[i] + consumer[w] - time_of(g, node) - lead
            if consumer[w] - low - lead > 0:
                if n >= capacity:
                    return starts, chains, -1
                chains[n] = (w, low, consumer[w], LEAD, node // 2, THREAD, consumer[w] - low - lead, passed)
                n += 1
        while node != NONE and time_of(g, node) > limit:
            i = _number(table, nodes, slots, known, node)  # every node of the new chain was looked at above
            if state[i] == CHAINED:
                break
            state[i] = CHAINED
            count, is_violated = ways_back(g, node, time_of(g, node), bound, ways)
            passed |= VIA_VIOLATION if is_violated else 0
            best, latest, held = NONE, np.int64(-(2**62)), np.int64(-(2**62))
            for k in range(count):
                o = _number(table, nodes, slots, known, ways[k, 0])
                if state[o] >= KNOWN:
                    r = value[o] + ways[k, 1] - time_of(g, ways[k, 0])
                    held = max(held, ways[k, 1])
                    if r > latest or (r == latest and node % 2 == 0):
                        best, latest = k, r
            if best == NONE:
                break
            if n >= capacity:
                return starts, chains, -1
            low = max(held, limit)
            length = time_of(g, node) - low - gone[i]
            if length > 0:
                chains[n] = (w, low, time_of(g, node), kind_of(g, node), node // 2, ways[best, 2], length, passed)
                n += 1
            if ways[best, 2] == ACK:
                passed |= VIA_ACK
            node = ways[best, 0]
    return starts, chains, n


@nb.njit(cache=True, nogil=True)
def _number(table: Indices, nodes: Ints, slots: Indices, known: int, node: int) -> int:
    """Return the number of a node among those that a walk has looked at; a new one gets the next, ``known``."""
    mask = len(table) - 1
    slot = ((node * _MIX) >> 20) & mask
    while table[slot] != NONE and nodes[table[slot]] != node:
        slot = (slot + 1) & mask
    if table[slot] == NONE:
        table[slot], nodes[known], slots[known] = known, node, slot
    return int(table[slot])


@nb.njit(cache=True, nogil=True)
def _with_room(  # noqa: PLR0917 - what a replay holds
    nodes: Ints, state: Bytes, value: Ints, gone: Ints, known: int, more: int
) -> tuple[Indices, Ints, Indices, Bytes, Ints, Ints]:
    """Return ``table, nodes, slots, state, value, gone`` with room for more nodes; what is known stays."""
    room = len(nodes)
    while known + more > room:
        room *= 2
    table, slots = np.full(2 * room, NONE, np.int32), np.empty(room, np.int32)
    larger, states, values, parts = (
        np.empty(room, np.int64), np.zeros(room, np.int8), np.zeros(room, np.int64), np.zeros(room, np.int64)
    )  # fmt: skip
    for i in range(known):
        _number(table, larger, slots, i, nodes[i])
    states[:known], values[:known], parts[:known] = state[:known], value[:known], gone[:known]
    return table, larger, slots, states, values, parts

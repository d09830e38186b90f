"""The sequential loops over the graph, compiled. `tests/unit/test_walk.py` holds each against a plain version."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

NONE = -1

# What a tile is of.
RESIDUAL, BODY, HOST_GAP, UNKNOWN = 0, 1, 2, 3
# What the chain has passed on its way.
VIA_ACK, VIA_VIOLATION = 1, 2

LAUNCH, STREAM, THREAD = 0, 1, 2  # numbers of gapscope.graph.edges.TYPES
STRUCTURAL, RECORDED = 1, 0  # numbers of gapscope.graph.edges.EVIDENCE
ACK = 6

_LONGEST_STANDSTILL = 100_000
"""Edges at one instant that a walk may pass; more are a circle of records with equal times."""


@nb.njit(cache=True, nogil=True)
def thread_order(start: Ints, end: Ints, lane: Indices, first: int) -> Ints:
    """Return for each host item the node before its start on its thread; NONE for the first of a thread.

    That is the end of what came before, or the start of what encloses it.

    Args:
        start: Starts of all items.
        end: Ends of all items.
        lane: Lanes of all items; host items of a thread stand together, ordered by start, enclosing ones first.
        first: Number of the first host item.
    """
    before = np.full(len(start), NONE, np.int64)
    stack = np.empty(len(start) - first, np.int64)
    depth = 0
    for i in range(first, len(start)):
        if i == first or lane[i] != lane[i - 1]:
            depth = 0
        last = NONE
        while depth > 0 and end[stack[depth - 1]] <= start[i]:
            depth -= 1
            last = stack[depth]
        if last != NONE:
            before[i] = 2 * last + 1
        elif depth > 0:
            before[i] = 2 * stack[depth - 1]
        stack[depth] = i
        depth += 1
    return before


@nb.njit(cache=True, nogil=True)
def walk(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one loop; calls of helpers would box what it carries
    begin: Ints,
    finish: Ints,
    consumer: Ints,
    start: Ints,
    end: Ints,
    lane: Indices,
    clock: Indices,
    n_ops: int,
    call: Indices,
    before: Ints,
    first: Ints,
    source: Ints,
    ready: Ints,
    kind: Bytes,
    level: Bytes,
    bound: Ints,
    window: Ints,
    capacity: int,
) -> tuple[Ints, int]:
    """Walk from each consumer back to its producer's finish; return tiles.

    Args:
        begin: Node that each walk begins at: the start of the consumer's first operation, or for work on the host the
            end of what came before on its thread.
        finish: When the producer finished.
        consumer: When the consumer started.
        start: Start of each item.
        end: End of each item.
        lane: Lane of each item.
        clock: Clock of each item.
        n_ops: Number of operations; further items are of hosts.
        call: Item that launched each operation, or NONE.
        before: Result of `thread_order`.
        first: See `gapscope.graph.edges.Edges`.
        source: See there.
        ready: See there.
        kind: See there.
        level: See there.
        bound: ``[window, clock, clock]``: uncertainty of time differences.
        window: Window of each walk.
        capacity: Tiles that there is room for.

    Returns:
        Rows of walk, start, end, kind of tile, item, type of edge, evidence, next node, runner-up's node, its ready
        time, what the chain passed; and how many there are, or -1 if there was no room.
    """
    tiles = np.empty((capacity, 11), np.int64)
    n = 0
    for w in range(len(begin)):
        at = consumer[w]
        node = begin[w]
        passed, idle = 0, 0
        uncertainty = bound[window[w]]
        if node != NONE and node % 2 == 1 and node // 2 >= n_ops and end[node // 2] < at:
            if n >= capacity:
                return tiles, -1
            low = max(end[node // 2], finish[w])
            tiles[n] = (w, low, at, HOST_GAP, node // 2, THREAD, STRUCTURAL, node, NONE, 0, passed)
            n += 1
            at = low
        while at > finish[w]:
            if n >= capacity:
                return tiles, -1
            idle += 1
            if node == NONE or idle > _LONGEST_STANDSTILL:
                tiles[n] = (w, finish[w], at, UNKNOWN, NONE, NONE, 5, NONE, NONE, 0, passed)
                n += 1
                break
            item = node // 2
            own = clock[item]
            best, best_ready, best_kind, best_level = NONE, np.int64(-(2**62)), NONE, 5
            second, second_ready = NONE, np.int64(-(2**62))
            is_end = node % 2 == 1
            limit = end[item] if is_end else start[item]
            what = RESIDUAL
            # Candidates that every item has at most one of.
            for candidate in range(3):
                other, r, k, e = NONE, np.int64(0), NONE, 0
                if is_end:
                    if candidate == 0:
                        other, r, k, e = 2 * item, start[item], NONE, RECORDED
                elif item < n_ops:
                    if candidate == 0 and call[item] != NONE:
                        c = call[item]
                        if start[c] <= start[item] + uncertainty[own, clock[c]]:
                            other, r, k, e = 2 * c + 1, min(end[c], start[item]), LAUNCH, RECORDED
                    elif candidate == 1 and item > 0 and lane[item - 1] == lane[item] and start[item - 1] < start[item]:
                        # Operations of one stream may overlap lawfully: the later one then begins within the earlier.
                        other, r, k, e = 2 * (item - 1) + 1, min(end[item - 1], start[item]), STREAM, STRUCTURAL
                elif candidate == 0 and before[item] != NONE:
                    other, k, e = before[item], THREAD, STRUCTURAL
                    r = end[other // 2] if other % 2 == 1 else start[other // 2]
                if other != NONE:
                    if r > best_ready:
                        second, second_ready = best, best_ready
                        best, best_ready, best_kind, best_level = other, r, k, e
                    elif r > second_ready:
                        second, second_ready = other, r
            for j in range(first[node], first[node + 1]):
                r = ready[j]
                if r > limit:
                    if r - limit > uncertainty[own, clock[source[j] // 2]]:
                        passed |= VIA_VIOLATION
                        continue
                    r = limit
                if r > best_ready or (r == best_ready and not is_end):
                    second, second_ready = best, best_ready
                    best, best_ready, best_kind, best_level = source[j], r, kind[j], level[j]
                elif r > second_ready:
                    second, second_ready = source[j], r
            if is_end:
                what = BODY
            elif item >= n_ops:
                what = HOST_GAP
            if best == NONE:
                tiles[n] = (w, finish[w], at, UNKNOWN, item, NONE, 5, NONE, NONE, 0, passed)
                n += 1
                break
            low = min(max(best_ready, finish[w]), at)
            close = NONE
            if second != NONE and best_ready - second_ready <= uncertainty[clock[best // 2], clock[second // 2]]:
                close = second
            if low < at:
                tiles[n] = (w, low, at, what, item, best_kind, best_level, best, close, second_ready, passed)
                n += 1
                at, idle = low, 0
            if best_kind == ACK:
                passed |= VIA_ACK
            node = best
    return tiles, n

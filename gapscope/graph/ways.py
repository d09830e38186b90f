"""All ways to a node, as replays follow them: those of `gapscope.graph.kernels.ways_back`, and two more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import LAUNCH, NONE, Arrays, part, place, put, time_of, ways_back

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

OWN_START = len(TYPES)
"""Kind of the way from a node's own start to its end."""

BLOCK = 16
"""Host items that are looked at together: their nodes share an element of a set (`gapscope.graph.kernels.numbered`)."""


@part
def window_of(edges: Ints, at: int, guess: int) -> int:
    """Return the window of a time, looked for from another on; times beyond all windows are in the nearest."""
    while guess > 0 and at < edges[guess]:
        guess -= 1
    while guess < len(edges) - 2 and at >= edges[guess + 1]:
        guess += 1
    return int(guess)


@part
def ways_to(g: Arrays, node: int, bound: Ints, inner: int, found: Ints) -> int:
    """Write down all ways to a node: rows of node, ready time, type of edge (`OWN_START` for its own start).

    An operation that began before the call that launched it had returned moves with that return, but begins no sooner
    than the call.

    Args:
        g: The graph.
        node: The node.
        bound: ``[clock, clock]``: uncertainty of time differences.
        inner: The last host item within this one whose end waits for something; NONE: there is none.
        found: Room for two rows more than `most_ways`.

    Returns:
        Number of rows; those that hold on equal times come last (of a start; of an end, first).
    """
    at = time_of(g, node)
    n, _ = ways_back(g, node, at, bound, found)
    if n > 0 and found[0, 2] == NONE:
        found[0, 2] = OWN_START
    elif n > 0 and found[0, 2] == LAUNCH and found[0, 0] % 2 == 1 and found[0, 1] < g.end[found[0, 0] // 2]:
        call = found[0, 0] // 2
        for k in range(n, 0, -1):
            put(found, k, found[k - 1, 0], found[k - 1, 1], found[k - 1, 2], found[k - 1, 3])
        put(found, 0, 2 * call, min(g.start[call], at), LAUNCH, 0)
        n += 1
    if inner != NONE:
        put(found, n, 2 * inner + 1, g.end[inner], OWN_START, 0)
        n += 1
    return int(n)


@part
def next_of_hosts(g: Arrays, host: int, depth: int, stack: Indices, within: Indices) -> tuple[int, int, int, int]:
    """Return the next node of a host item: an end comes once all that is within the item was there.

    Args:
        g: The graph.
        host: The first host item of which the start has not been there, or the number of all items.
        depth: How many items are open; with none, and no further item, there is no next node.
        stack: Those.
        within: Of each, the last item in it whose end waits for something; NONE: there is none yet.

    Returns:
        The node; of an end, the item within whose end waits for something, or NONE; and ``host`` and ``depth`` from
        now on.
    """
    n = len(g.start)
    top = np.int64(stack[depth - 1]) if depth > 0 else np.int64(NONE)
    if depth > 0 and (host == n or g.lane[top] != g.lane[host] or g.end[top] <= g.start[host]):
        return 2 * top + 1, np.int64(within[depth - 1]), host, depth - 1  # type: ignore[return-value]
    if depth > 0 and g.end[host] <= g.end[top] and place(g.held, 2 * host + 1) != NONE:
        within[depth - 1] = host
    stack[depth], within[depth] = host, NONE
    return 2 * host, np.int64(NONE), host + 1, depth + 1  # type: ignore[return-value]


@part
def is_flat(g: Arrays, host: int) -> bool:
    """Tell whether `BLOCK` host items follow one another on the thread of the one before, and wait for nothing else.

    None is within another, and none of their nodes has an edge.
    """
    if host % BLOCK != 0 or host + BLOCK >= len(g.start) or host == g.n_ops[0]:
        return False
    if g.lane[host - 1] != g.lane[host + BLOCK] or g.held[host // BLOCK] & 0xFFFFFFFF != 0:
        return False
    is_flat = True
    for i in range(host, host + BLOCK):
        is_flat &= g.end[i] <= g.start[i + 1]
    return is_flat

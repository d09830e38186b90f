"""How late each node of the graph may be with some ends no later than they were, and what would hold there then."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from gapscope.graph.forward import Forward
from gapscope.graph.kernels import NONE

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

NEVER = np.int64(2**62)
"""Later than anything: no end hangs on it."""


def latest(forward: Forward, ends: Ints, until: Ints) -> tuple[Ints, Indices]:
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
    first: Indices,
    source: Indices,
    lag: Ints,
    binding: Indices,
    residual: Ints,
    n: int,
    ends: Ints,
    until: Ints,
) -> tuple[Ints, Indices]:
    allowed, way = np.full(n, 2**62, np.int64), np.full(n, NONE, np.int32)
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
def _absorbers(first: Indices, via: Indices, binding: Indices, way: Indices, begin: Ints) -> Ints:
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
                found[i] = via[binding[low]]
                break
            node = low
    return found


def absorbers(forward: Forward, way: Indices, begin: Ints) -> Ints:
    """Return what held the first node behind each of some nodes that waited for something else; NONE: there is none.

    It is given by its number in the graph.

    Args:
        forward: The graph.
        way: Second result of `latest`.
        begin: The nodes; NONE is skipped.
    """
    return np.asarray(_absorbers(forward.first, forward.via, forward.binding, way, begin))

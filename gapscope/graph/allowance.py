"""How much later each node of the graph may be with some ends no later than they were, and what would hold it then."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.forward import STRUCK, Forward, held
from gapscope.graph.kernels import NONE, leaf
from gapscope.graph.narrow import Narrow, length_at

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

NEVER = 2**62
"""Later than anything: no end hangs on it."""


def latest(forward: Forward, ends: Ints, spare: Ints) -> tuple[Ints, Indices]:
    """Return how much later each node may be while none of some nodes is later than it may.

    Args:
        forward: The graph.
        ends: Nodes that must not be later; may repeat.
        spare: Than by how much, each.

    Returns:
        By how much each node may be later at the most (`NEVER`: none of them hangs on it), and the way that allows no
        more (of those that lead on from the node; NONE: it is one of ``ends`` itself, or nothing hangs on it).
    """
    later, way = np.full(len(forward.node), NEVER, np.int64), np.full(len(forward.node), NONE, np.int32)
    np.minimum.at(later, ends, spare)
    _latest(forward.order, forward.first, forward.source, forward.slack, later, way)
    return later, way


@leaf
def _latest(  # noqa: PLR0917 - what it needs
    order: Indices, first: Indices, source: Indices, slack: Narrow, later: Ints, way: Indices
) -> None:
    for i in range(len(order) - 1, -1, -1):
        node = order[i]
        if later[node] == NEVER:
            continue
        for j in range(first[node], first[node + 1]):
            earlier = length_at(slack, j)
            if earlier != STRUCK and later[node] + earlier < later[source[j]]:
                later[source[j]], way[source[j]] = later[node] + earlier, j


def reaching(forward: Forward, ends: Ints) -> Bools:
    """Return which nodes any of some nodes hangs on: those of which `latest` knows how late they may be.

    Args:
        forward: The graph.
        ends: Those nodes; may repeat.
    """
    is_reaching = np.zeros(len(forward.node), np.bool_)
    is_reaching[ends] = True
    _reaching(forward.order, forward.first, forward.source, forward.slack, is_reaching)
    return is_reaching


@leaf
def _reaching(order: Indices, first: Indices, source: Indices, slack: Narrow, is_reaching: Bools) -> None:
    for i in range(len(order) - 1, -1, -1):
        if is_reaching[order[i]]:
            for j in range(first[order[i]], first[order[i] + 1]):
                is_reaching[source[j]] |= length_at(slack, j) != STRUCK


@leaf
def _absorbers(  # noqa: PLR0917 - what it needs
    number: Indices, first: Indices, slack: Narrow, held_by: Indices, way: Indices, begin: Ints, found: Ints
) -> None:
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
            if held(number[low], first[low], first[low + 1], slack) != j:
                found[i] = held_by[low]
                break
            node = low


def absorbers(forward: Forward, way: Indices, begin: Ints) -> Ints:
    """Return what held the first node behind each of some nodes that waited for something else; NONE: there is none.

    It is given by its number in the graph.

    Args:
        forward: The graph.
        way: Second result of `latest`.
        begin: The nodes; NONE is skipped.
    """
    found = np.full(len(begin), NONE, np.int64)
    _absorbers(forward.node, forward.first, forward.slack, forward.held_by, way, begin, found)
    return found

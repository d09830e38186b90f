"""How much later each node of the graph may be with some ends no later than they were, and what takes that up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.forward import STRUCK, Forward, held
from gapscope.graph.kernels import NONE, leaf
from gapscope.graph.narrow import Narrow, length_at
from gapscope.graph.queues import CALLED_PAST, QUEUE

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
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
        By how much each node may be later at the most (`NEVER`: none of them hangs on it), and what takes it up: on
        the way that allows no more, what held the first node that did not wait for that way (its number in the graph;
        NONE: there is none).
    """
    later, absorber = np.full(len(forward.node), NEVER, np.int64), np.full(len(forward.node), NONE, np.int32)
    np.minimum.at(later, ends, spare)
    _latest(
        forward.node, forward.order, forward.first, forward.source, forward.slack, forward.kind, forward.held_by,
        forward.residual, forward.queues, later, absorber,
    )  # fmt: skip
    return later, absorber


@leaf
def _latest(  # noqa: PLR0917 - what it needs
    number: Indices,
    order: Indices,
    first: Indices,
    source: Indices,
    slack: Narrow,
    kind: Bytes,
    held_by: Indices,
    residual: Narrow,
    queues: Ints,
    later: Ints,
    absorber: Indices,
) -> None:
    for i in range(len(order) - 1, -1, -1):
        node = order[i]
        if later[node] == NEVER:
            continue
        low, high = first[node], first[node + 1]
        is_queue = high > low and kind[low] == QUEUE
        row = length_at(residual, node) if is_queue else 0
        binding = NONE if is_queue else held(number[node], low, high, slack)
        for j in range(low, high):
            earlier, of = length_at(slack, j), source[j]
            if earlier != STRUCK and later[node] + earlier < later[of]:
                past = queues[row, CALLED_PAST + j - low] if is_queue else held_by[node] if j != binding else NONE
                later[of], absorber[of] = later[node] + earlier, absorber[node] if past == NONE else past


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

"""The nodes of a graph that are kept for replays, and how one is written down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.kernels import NONE, binding, part
from gapscope.graph.narrow import Narrow, filled, put_length, room_for
from gapscope.graph.queues import BASE, BASE_SLACK, CALLED, CALLED_SLACK, ITEM, QUEUE, ROW

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]


class Kept(NamedTuple):
    """Nodes that stand for themselves or for others that move as they do, and the ways between them.

    Attributes:
        node: Number of each in the whole graph.
        first: ``first[k]`` to ``first[k + 1]`` are the ways that lead to the k-th.
        held_by: Node of the whole graph that the way which was satisfied last comes from; NONE: there is no way.
        residual: What passed between that and each node; of a queue, its row in ``queues``.
        source: What each way comes from: a node of the whole graph, and once all are there which of the kept ones.
        slack: By how much sooner each way was satisfied than the last that leads there.
        kind: Type of edge of each way; `QUEUE`: of the two to a queue.
        queues: What is known of each queue (`gapscope.graph.queues`, up to `ROW`).
    """

    node: Indices
    first: Indices
    held_by: Indices
    residual: Narrow
    source: Indices
    slack: Narrow
    kind: Bytes
    queues: Ints


def room_for_nodes(nodes: int, ways: int, queues: int) -> Kept:
    """Return room for the most that there can be. What is not used of it takes no memory."""
    return Kept(
        np.empty(nodes, np.int32), np.zeros(nodes + 1, np.int32), np.empty(nodes, np.int32), room_for(nodes),
        np.empty(ways, np.int32), room_for(ways), np.empty(ways, np.int8), np.empty((queues, ROW), np.int64),
    )  # fmt: skip


def used(kept: Kept, k: int, total: int, q: int) -> Kept:
    """Return the part of some room that was put to use: so many nodes, ways and queues."""
    return Kept(kept.node[:k], kept.first[: k + 1], kept.held_by[:k], filled(kept.residual, k), kept.source[:total],
                filled(kept.slack, total), kept.kind[:total], kept.queues[:q])  # fmt: skip


@part
def put_node(kept: Kept, k: int, total: int, node: int, at: int, rows: int, found: Ints) -> int:  # noqa: PLR0917
    """Write down the k-th node and the ways to it; return how many ways there are now."""
    held_by, since = np.int64(NONE), np.int64(at)
    if rows > 0:
        last, _ = binding(node, rows, found)
        held_by, since = found[last, 0], found[last, 1]
    kept.node[k], kept.held_by[k] = node, held_by
    put_length(kept.residual, k, at - since)
    for j in range(rows):
        kept.source[total + j], kept.kind[total + j] = found[j, 0], found[j, 2]
        put_length(kept.slack, total + j, since - found[j, 1])
    kept.first[k + 1] = total + rows
    return total + rows


@part
def put_queue(kept: Kept, k: int, total: int, q: int, queue: Ints) -> None:
    """Write down the q-th queue as the k-th node: the start of the last of its operations, with two ways to it."""
    kept.node[k], kept.held_by[k] = 2 * queue[ITEM], NONE
    put_length(kept.residual, k, q)
    kept.source[total], kept.source[total + 1] = kept.node[queue[CALLED]], kept.node[queue[BASE]]
    put_length(kept.slack, total, queue[CALLED_SLACK])
    put_length(kept.slack, total + 1, queue[BASE_SLACK])
    kept.kind[total], kept.kind[total + 1] = QUEUE, QUEUE
    kept.first[k + 1] = total + 2
    for field in range(ROW):
        kept.queues[q, field] = queue[field]

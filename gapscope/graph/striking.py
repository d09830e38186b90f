"""Ways to a node that never come last, whatever moves: they are left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.graph.kept import Kept
from gapscope.graph.kernels import LAUNCH, NONE, STREAM, part, put
from gapscope.graph.narrow import length_at
from gapscope.graph.queues import QUEUE

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_MANY = 8
"""Ways to one node of which each pair is looked at; nodes with more stay as they are."""


@part
def _is_behind(node: int, j: int, k: int, by: int) -> bool:
    """Tell whether row j never comes last if row k is always at least ``by`` later."""
    return bool(by > 0 or (by == 0 and (k > j) == (node % 2 == 0)))


@part
def fewer(  # noqa: C901 - all that it looks at
    node: int, n: int, found: Ints, root: Indices, kept: Kept
) -> int:
    """Strike out ways that never come last; return how many are left, in their order.

    Args:
        node: The node.
        n: Number of ways.
        found: The ways (`gapscope.graph.ways.ways_to`).
        root: What each node moves as; negative: that is not known.
        kept: The nodes that are kept so far.
    """
    if n < 2 or n > _MANY:
        return n
    for j in range(n):
        from_j = root[found[j, 0]]
        for k in range(n):
            from_k, by = root[found[k, 0]], found[k, 1] - found[j, 1]
            if by < 0 or k == j or found[k, 0] < 0 or from_j < 0 or from_k < 0:
                continue
            is_behind = from_k == from_j and _is_behind(node, j, k, by)
            if from_k != from_j:
                # What k comes from waits for what j comes from, and for so long that j is over by then.
                low, high = kept.first[from_k], kept.first[from_k + 1]
                if high - low > _MANY or (high > low and kept.kind[low] == QUEUE):
                    continue
                ahead = by - length_at(kept.residual, from_k)
                if ahead < 0:
                    continue
                for w in range(low, high):
                    if root[kept.source[w]] == from_j and _is_behind(node, j, k, ahead - length_at(kept.slack, w)):
                        is_behind = True
            if is_behind:
                found[j, 0] = NONE
                break
    left = 0
    for k in range(n):
        if found[k, 0] != NONE:
            put(found, left, found[k, 0], found[k, 1], found[k, 2], found[k, 3])
            left += 1
    return left


@part
def launched_ahead(  # noqa: PLR0917 - what it looks at
    item: int, n: int, found: Ints, root: Indices, ahead_of: int, ahead: int, over: int
) -> tuple[int, int, int]:
    """Strike out the launch of an operation if what was before it on its stream is always over later.

    Args:
        item: The operation.
        n: Number of ways to its start.
        found: The ways.
        root: What each node moves as.
        ahead_of: Of the end of the operation before on the stream: what it waits for,
        ahead: and when it is at the soonest if that is not earlier.
        over: When it was, as recorded.

    Returns:
        How many ways are left, and the last two for the start of this operation.
    """
    launch, stream = NONE, NONE
    for j in range(n):
        if found[j, 2] == LAUNCH:
            launch = j
        elif found[j, 2] == STREAM and found[j, 0] == 2 * item - 1:
            stream = j
    low = ahead + found[stream, 1] - over if stream != NONE else np.int64(0)
    if launch == NONE:
        return n, (ahead_of if stream != NONE else NONE), int(low)
    called, at = np.int64(root[found[launch, 0]]), found[launch, 1]
    if stream == NONE or called != ahead_of:
        return n, int(called), int(at)
    left = 0
    for j in range(n):
        if (
            found[j, 2] != LAUNCH
            or root[found[j, 0]] != called
            or not _is_behind(2 * item, j, stream, low - found[j, 1])
        ):
            put(found, left, found[j, 0], found[j, 1], found[j, 2], found[j, 3])
            left += 1
    return left, int(called), int(max(low, at))

"""How much of the time before each node is gone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.kernels import NONE, fixed, leaf
from gapscope.whatif.model import Model

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def gone_before(model: Model, gone_ns: Ints, chosen: Bools) -> tuple[Ints, Ints]:
    """Return nodes (as they stand in `Model.forward`), and how much of the time before each is gone.

    Tiles of several handoffs may be the same time of one thread: it counts once.

    Args:
        model: The model.
        gone_ns: How much of each tile is gone, in the order of `Model.parts`.
        chosen: Which of the rows of `Model.by_node` shrink. Tiles without a node cannot be replayed and change nothing.
    """
    row, place = model.by_node
    start, end = (fixed(model.parts[c].to_numpy()) for c in ("start_ns", "end_ns"))
    at, less = np.empty(len(row), np.int64), np.empty(len(row), np.int64)
    n = _gone_before(row, place, start, end, gone_ns, chosen, at, less)
    at, less = at[:n], less[:n]
    transfers, forward = model.transfers, model.forward
    if not len(transfers.node):
        return at, less
    removed = pl.DataFrame(
        {"walk": np.zeros(n, np.int64), "node": forward.node[at].astype(np.int64), "duration_ns": less}
    )
    both = transfers.with_peers(removed)
    return forward.places(both["node"].to_numpy()), both["duration_ns"].to_numpy()


def clock_error(model: Model, gone_ns: Ints, chosen: Bools) -> int | None:
    """Return the clock error of what is gained: the largest of the counted handoffs that lose time.

    All replays are on one timebase. What is gained hangs on where clocks stand only where something waits for another
    clock, and by no more than that wait is uncertain.

    Args:
        model: The model.
        gone_ns: How much of each tile is gone, in the order of `Model.parts`.
        chosen: Which tiles shrink.

    Returns:
        0 where all happen on one clock; None: of one handoff no bound is known.
    """
    errors = model.error_ns[chosen & (gone_ns > 0)]
    return None if errors.min(initial=0) == NONE else int(errors.max(initial=0))


@leaf
def _gone_before(  # noqa: PLR0917 - columns
    row: Indices,
    place: Indices,
    start: Ints,
    end: Ints,
    gone: Ints,
    chosen: Bools,
    at: Ints,
    less: Ints,
) -> int:
    n, node, reach = 0, -1, np.int64(0)
    for i in range(len(row)):
        if not chosen[i]:
            continue
        tile = row[i]
        if gone[tile] <= 0:
            continue
        if place[i] != node:
            n += 1 if n == 0 or less[n - 1] > 0 else 0
            node, reach = place[i], start[tile]
            at[n - 1], less[n - 1] = node, 0
        new = end[tile] - max(start[tile], reach)
        # Shares in this order and rounding to even, as a tile that is gone by itself.
        less[n - 1] += np.int64(np.rint(max(new, 0) * (gone[tile] / (end[tile] - start[tile]))))
        reach = max(reach, end[tile])
    return n - 1 if n > 0 and less[n - 1] == 0 else n

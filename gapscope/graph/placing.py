"""Times of items on the common timebase, compiled: one look per item, where tables would cost one per column."""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks import Alignment

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_PIECE = 1 << 20
"""Rows whose times are moved at once."""


def placed(
    lane: Indices, clock: Indices, frames: Sequence[pl.DataFrame], alignment: Alignment
) -> tuple[Indices, Ints, Ints, Indices]:
    """Return the clocks of items if some jumped (after a jump, a clock is another), their times, and those amid a jump.

    Times of a clock that has no place on the common timebase stay as they were recorded; those in the middle of a jump
    of their clock go on from before it. Within one file both are of use, across files they are not.

    Args:
        lane: Lane of each item.
        clock: Clock of each lane, before a jump.
        frames: ``start_ns``, ``end_ns`` of the items as recorded, one frame after the other.
        alignment: Where the clocks stand.

    Returns:
        Clocks (empty: none jumped), starts, ends, and numbers of the items in the middle of a jump.
    """
    n, done = len(lane), 0
    jumped = np.empty(n if alignment.domains.steps else 0, np.int32)
    start, end, amid = np.empty(n, np.int64), np.empty(n, np.int64), [np.zeros(0, np.int32)]
    solution = alignment.solution
    offsets = np.where(alignment.placed[None, :], solution.offset_ns, 0).astype(np.int64)
    for frame in frames:
        for piece in frame.select("start_ns", "end_ns").iter_slices(_PIECE):
            begin, until = piece["start_ns"].to_numpy(), piece["end_ns"].to_numpy()
            part = slice(done, done + piece.height)
            of_piece, sure = clock[lane[part]], begin
            if alignment.domains.steps:
                of_piece, sure, within = _stepped(of_piece, begin, alignment)
                jumped[part] = of_piece
                amid.append((np.flatnonzero(within) + done).astype(np.int32))
            shift = _offsets(of_piece, sure, solution.edges, solution.near_ns, offsets)
            np.add(begin, shift, out=start[part])
            np.add(until, shift, out=end[part])
            done += piece.height
    return jumped, start, end, np.concatenate(amid)


def _stepped(clock: Indices, time: Ints, alignment: Alignment) -> tuple[Indices, Ints, npt.NDArray[np.bool_]]:
    """Return the clocks of times, the times to place these by, and which are in the middle of a jump."""
    sure, is_amid = time, np.zeros(len(time), np.bool_)
    for step in alignment.domains.steps:
        amid = (clock == step.before) & (time > step.begin_ns) & (time < step.end_ns)
        sure, is_amid = np.where(amid, step.begin_ns, sure), is_amid | amid
        clock = np.where((clock == step.before) & (time >= step.end_ns), np.int32(step.after), clock)
    return clock, np.asarray(sure), is_amid


@nb.njit(cache=True, nogil=True)
def _offsets(clock: Indices, time: Ints, edges: Ints, near: Ints, offsets: Ints) -> Ints:
    """Return what to add to each time of a clock, by the window that it lies in."""
    found, window, last = np.empty(len(time), np.int64), 0, len(edges) - 2
    for i in range(len(time)):
        c = clock[i]
        at = time[i] + near[c]
        if not ((window == 0 or edges[window] <= at) and (window == last or at < edges[window + 1])):
            window = min(max(np.searchsorted(edges, at, side="right") - 1, 0), last)
        found[i] = offsets[window, c]
    return found

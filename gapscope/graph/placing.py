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
Bools = npt.NDArray[np.bool_]

_PIECE = 1 << 20
"""Rows whose times are moved at once."""


def placed(clock: Indices, frames: Sequence[pl.DataFrame], alignment: Alignment) -> tuple[Indices, Ints, Ints, Bools]:
    """Return the clocks of items (after a jump of a clock, another), their times, and which of these are known.

    Times of a clock that has no place on the common timebase stay as they were recorded; those in the middle of a jump
    of their clock go on from before it. Within one file both are of use, across files they are not.

    Args:
        clock: Clock of each item.
        frames: ``start_ns``, ``end_ns`` of the items as recorded, one frame after the other.
        alignment: Where the clocks stand.

    Returns:
        Clocks, starts, ends, and whether they are known.
    """
    n, done = len(clock), 0
    clock, start, end, known = clock.copy(), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_)
    for frame in frames:
        for piece in frame.select("start_ns", "end_ns").iter_slices(_PIECE):
            begin, until = piece["start_ns"].to_numpy(), piece["end_ns"].to_numpy()
            part = slice(done, done + piece.height)
            clock[part], shift, known[part] = _shifts(clock[part], begin, alignment)
            np.add(begin, shift, out=start[part])
            np.add(until, shift, out=end[part])
            done += piece.height
    return clock, start, end, known


def _shifts(clock: Indices, time: Ints, alignment: Alignment) -> tuple[Indices, Ints, Bools]:
    sure, is_amid = time, np.zeros(len(time), np.bool_)
    for step in alignment.domains.steps:
        amid = (clock == step.before) & (time > step.begin_ns) & (time < step.end_ns)
        sure, is_amid = np.where(amid, step.begin_ns, sure), is_amid | amid
        clock = np.where((clock == step.before) & (time >= step.end_ns), np.int32(step.after), clock)
    solution, stands = alignment.solution, alignment.placed
    offsets = np.where(stands[None, :], solution.offset_ns, 0).astype(np.int64)
    shift = _offsets(clock, np.asarray(sure), solution.edges, solution.near_ns, offsets)
    return clock, shift, stands[clock] & ~is_amid


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

"""Slices on tracks: what nests goes on one track, what crosses goes on a track beside it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

NEVER = 2**63 - 1
"""End of what never closed."""


@loop
def stack_up(lane: Indices, start_ns: Ints, end_ns: Ints, nested: bool) -> tuple[Indices, Ints]:
    """Put slices on tracks, and say in which order they begin and end there.

    Args:
        lane: Lane of each slice; the slices stand by lane, start, and longest first.
        start_ns: Their starts.
        end_ns: Their ends; `NEVER` where there is none.
        nested: A slice may lie within another of its track; else one begins where the one before has ended.

    Returns:
        The track of each slice within its lane, 0 for all that can be on the first, and the moments of all slices:
        twice the number of the slice where it begins, one more where it ends. On each track they stand as they come.
    """
    n = len(lane)
    track = np.zeros(n, np.int32)
    moments = np.empty(2 * n, np.int64)
    below = np.full(n, -1, np.int64)
    top = np.full(16, -1, np.int64)
    used = at = 0
    for i in range(n):
        if i > 0 and lane[i] != lane[i - 1]:
            for k in range(used):
                at = _close(k, NEVER, (top, below, end_ns), moments, at)
            used = 0
        k = 0
        while k < used:
            at = _close(k, start_ns[i], (top, below, end_ns), moments, at)
            if top[k] < 0 or (nested and end_ns[top[k]] >= end_ns[i]):
                break
            k += 1
        if k == used:
            if used == len(top):
                top = np.concatenate((top, np.full(used, -1, np.int64)))
            top[used] = -1
            used += 1
        track[i], below[i], top[k] = k, top[k], i
        moments[at] = 2 * i
        at += 1
    for k in range(used):
        at = _close(k, NEVER, (top, below, end_ns), moments, at)
    return track, moments[:at]


@loop
def _close(k: int, until_ns: int, stacks: tuple[Ints, Ints, Ints], moments: Ints, at: int) -> int:
    """Close what has ended on a track by a moment; return how many moments there are then."""
    top, below, end_ns = stacks
    while top[k] >= 0 and end_ns[top[k]] <= until_ns:
        if end_ns[top[k]] != NEVER:
            moments[at] = 2 * top[k] + 1
            at += 1
        top[k] = below[top[k]]
    return at

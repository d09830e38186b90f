"""Times of items on the common timebase, compiled: one look per item, where tables would cost one per column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gapscope.clocks import Alignment
from gapscope.correlation import constant
from gapscope.loops import loop

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.integer]
Recorded = tuple[Ints, Ints, Indices]
"""Starts and ends as recorded, in any order, and the order that they are wanted in; empty: that which they are in."""


@dataclass(frozen=True)
class Placed:
    """Where items stand on the common timebase.

    Times of a clock that has no place on it stay as they were recorded; those in the middle of a jump of their clock go
    on from before it. Within one file both are of use, across files they are not.

    Attributes:
        start: Start of each item.
        end: End of each item.
        lane: Number of the stream or thread of each item.
        clock: Clock of each lane; of one that has jumped, the clock before.
        jumped: Clock of each item, if some clock has jumped; else empty.
        stands: Whether each clock has a place on the common timebase.
        amid: Items in the middle of a jump of their clock, ascending.
        run: Items from which on, up to the next of these, times were moved by the same,
        shift: and by how much.
    """

    start: Ints
    end: Ints
    lane: Indices
    clock: Indices
    jumped: Indices
    stands: Bools
    amid: Indices
    run: Indices
    shift: Ints

    def clock_of(self, numbers: Numbers) -> Indices:
        """Return the clocks of some items."""
        found: Indices = self.jumped[numbers] if len(self.jumped) else self.clock[self.lane[numbers]]
        return found

    @property
    def all_known(self) -> bool:
        """Whether the times of all items are known on the common timebase."""
        return not len(self.amid) and bool(self.stands[self.jumped if len(self.jumped) else self.clock].all())

    def is_known(self, numbers: Numbers) -> Bools:
        """Tell of which items the times are known on the common timebase."""
        found: Bools = self.stands[self.clock_of(numbers)]
        return found & ~np.isin(numbers, self.amid)

    def raw_start(self, numbers: Numbers) -> Ints:
        """Return when some items started on the clock of their file."""
        found: Ints = self.start[numbers] - self.shift[np.searchsorted(self.run, numbers, side="right") - 1]
        return found

    def raw_starts(self, n: int) -> Ints:
        """Return the same of the first ``n`` items."""
        runs = np.diff(np.append(np.minimum(self.run, n), n))
        found: Ints = self.start[:n] - np.repeat(self.shift, runs)
        return found


def placed(lane: Indices, clock: Indices, parts: Sequence[Recorded], alignment: Alignment) -> Placed:
    """Return where items stand on the common timebase.

    Args:
        lane: Lane of each item.
        clock: Clock of each lane, before a jump.
        parts: Times as recorded, of some items, then of those that follow them.
        alignment: Where the clocks stand.
    """
    n, done, solution = len(lane), 0, alignment.solution
    (start, end, shift), run = (np.empty(n, np.int64) for _ in range(3)), np.empty(n, np.int32)
    steps = np.array([(s.before, s.after, s.begin_ns, s.end_ns) for s in alignment.domains.steps], np.int64)
    n_jumping = n if len(steps) else 0
    jumped, is_amid = np.empty(n_jumping, np.int32), np.zeros(n_jumping, np.bool_)
    offsets = np.where(alignment.placed[None, :], solution.offset_ns, 0).astype(np.int64)
    runs = 0
    for begin, until, order in parts:
        runs = _place(
            constant(begin), constant(until), order, lane, clock, steps.reshape(-1, 4), constant(solution.edges),
            constant(solution.near_ns), offsets, start, end, jumped, is_amid, run, shift, done, runs,
        )  # fmt: skip
        done += len(begin)
    amid = np.flatnonzero(is_amid).astype(np.int32)
    return Placed(start, end, lane, clock, jumped, alignment.placed, amid, run[:runs].copy(), shift[:runs].copy())


@loop
def _place(  # noqa: PLR0917 - what the loop takes and fills
    begin: Ints,
    until: Ints,
    order: Indices,
    lane: Indices,
    clock: Indices,
    steps: Ints,
    edges: Ints,
    near: Ints,
    offsets: Ints,
    start: Ints,
    end: Ints,
    jumped: Indices,
    is_amid: Bools,
    run: Indices,
    shift: Ints,
    done: int,
    runs: int,
) -> int:
    """Fill in the times of a part of the items, from number ``done`` on; return how many runs there are then."""
    window, last = 0, len(edges) - 2
    for k in range(len(begin)):
        row = np.int64(order[k]) if len(order) > 0 else np.int64(k)
        i, time = done + k, begin[row]
        c, sure = np.int64(clock[lane[i]]), time
        for s in range(len(steps)):
            if c == steps[s, 0] and time >= steps[s, 3]:
                c = steps[s, 1]
            elif c == steps[s, 0] and time > steps[s, 2]:
                sure, is_amid[i] = steps[s, 2], True
        if len(steps) > 0:
            jumped[i] = c
        at = sure + near[c]
        if not ((window == 0 or edges[window] <= at) and (window == last or at < edges[window + 1])):
            window = min(max(np.searchsorted(edges, at, side="right") - 1, 0), last)
        by = offsets[window, c]
        start[i], end[i] = time + by, until[row] + by
        if runs == 0 or shift[runs - 1] != by:
            run[runs], shift[runs] = i, by
            runs += 1
    return runs

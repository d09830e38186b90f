"""The arithmetic of difference constraints: envelopes over time, shortest paths, contradictions.

All in int64 nanoseconds. A bound that was observed at one time holds at another after it is loosened by what both
clocks may have drifted in between, so over time each bound is a lower envelope of cones; one pass forward and one
backward gives its value for every window (algorithms.md 1.2). Shortest paths then give the tightest bounds that all
constraints together imply (Floyd-Warshall, for all windows at once).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INFINITE = np.int64(2**61)
"""No bound. Recorded delays are far smaller; sums of two of these still fit into 64 bits."""

FINITE = np.int64(2**60)
"""Bounds below this are bounds."""

NO_RECORD = -1

_FEW_CLOCKS = 24
"""Up to so many, numpy is faster than the compiled loop would be to load."""


@dataclass(frozen=True)
class Facts:
    """Observations in arrays, times on the common timebase as far as it is known.

    Attributes:
        upper: Clock of the earlier moment: ``b[upper] - b[lower] <= weight``.
        lower: Clock of the later moment.
        weight: Recorded delay.
        first: The earlier of both times.
        last: The later of both times.
    """

    upper: Ints
    lower: Ints
    weight: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.weight)

    def only(self, chosen: Bools | Ints) -> Facts:
        """Return some of them."""
        return Facts(self.upper[chosen], self.lower[chosen], self.weight[chosen], self.first[chosen], self.last[chosen])


@dataclass(frozen=True)
class Rates:
    """How fast clocks may part, parts per billion.

    Attributes:
        clock: Host clock that each clock is mapped onto.
        own_ppb: Rate error of each clock: of a host clock against true time, of a device clock against its host's.
    """

    clock: Ints
    own_ppb: Ints

    def between(self, one: Ints, two: Ints) -> Ints:
        """Return how fast two clocks may part: within one file only what the mapping of device times allows."""
        device = np.where(self.clock[one] != one, self.own_ppb[one], 0)
        device = device + np.where(self.clock[two] != two, self.own_ppb[two], 0)
        hosts = self.own_ppb[self.clock[one]] + self.own_ppb[self.clock[two]]
        return np.where(self.clock[one] == self.clock[two], device, device + hosts)


@dataclass(frozen=True)
class Bounds:
    """Direct bounds of each window.

    Attributes:
        weight: ``[window, upper, lower]``; `INFINITE` where nothing is known.
        record: Position of the observation that it came from, -2 minus the position of an assumption, or `NO_RECORD`.
    """

    weight: Ints
    record: npt.NDArray[np.int32]


def drift(rate_ppb: Ints | int, distance_ns: Ints | int) -> Ints:
    """Return how far clocks of that rate error may part over a distance in time, rounded up."""
    rate = np.asarray(rate_ppb, np.int64)
    seconds, rest = np.divmod(np.asarray(distance_ns, np.int64), 1_000_000_000)  # the product of both could overflow
    return np.asarray(rate * seconds - (rate * rest // -1_000_000_000))


def envelope(facts: Facts, edges: Ints, rates: Rates) -> Bounds:
    """Return the direct bounds that hold throughout each window.

    Args:
        facts: The observations.
        edges: Limits of the windows, ascending; the first window begins at ``edges[0]``.
        rates: How fast clocks may part.
    """
    n, windows = len(rates.clock), len(edges) - 1
    weight = np.full((windows, n, n), INFINITE, np.int64)
    record = np.full((windows, n, n), NO_RECORD, np.int32)
    pairs, pair = np.unique(facts.upper * n + facts.lower, return_inverse=True)
    if not len(pairs):
        return Bounds(weight, record)
    upper, lower = pairs // n, pairs % n
    rate = rates.between(upper, lower)
    middle = facts.first + (facts.last - facts.first) // 2
    window = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, windows - 1)
    begin, end = edges[window], edges[window + 1]
    far = np.maximum(end - facts.first, facts.last - begin)
    cell = window * len(pairs) + pair
    own, own_record = _lowest(facts.weight + drift(rate[pair], far), cell, (windows, len(pairs)))
    ahead, ahead_record = _lowest(
        facts.weight + drift(rate[pair], np.maximum(end - facts.first, 0)), cell, (windows, len(pairs))
    )
    back, back_record = _lowest(
        facts.weight + drift(rate[pair], np.maximum(facts.last - begin, 0)), cell, (windows, len(pairs))
    )
    widening = drift(rate[None, :], np.diff(edges)[:, None])
    for reached, source in (
        _carried(ahead, ahead_record, widening),
        [part[::-1] for part in _carried(back[::-1], back_record[::-1], widening[::-1])],
    ):
        better = reached < own
        own, own_record = np.where(better, reached, own), np.where(better, source, own_record)
    weight[:, upper, lower] = own
    record[:, upper, lower] = own_record
    return Bounds(weight, record)


def _carried(bound: Ints, record: npt.NDArray[np.int32], widening: Ints) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return the lowest bound that reaches each window from one before it, and its record; of equal ones the first's.

    Args:
        bound: ``[window, pair]``: bounds at the end of each window.
        record: The observation that each came from.
        widening: How far the clocks of a pair may part in each window.
    """
    far = np.cumsum(widening, axis=0)  # less what the first windows add, bounds of all windows can be compared
    before = np.where(bound < FINITE, bound - far, INFINITE)
    lowest = np.minimum.accumulate(before, axis=0)
    is_new = np.ones(before.shape, np.bool_)
    is_new[1:] = before[1:] < lowest[:-1]
    where = np.maximum.accumulate(np.where(is_new, np.arange(len(bound))[:, None], 0), axis=0)
    reached = np.full(bound.shape, INFINITE, np.int64)
    source = np.full(bound.shape, NO_RECORD, np.int32)
    known = lowest[:-1] < FINITE
    reached[1:] = np.where(known, lowest[:-1] + far[1:], INFINITE)
    source[1:] = np.where(known, np.take_along_axis(record, where[:-1], axis=0), NO_RECORD)
    return reached, source


def _lowest(value: Ints, cell: Ints, shape: tuple[int, int]) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return the lowest value of each cell and its position."""
    lowest = np.full(shape[0] * shape[1], INFINITE, np.int64)
    where = np.full(shape[0] * shape[1], NO_RECORD, np.int32)
    order = np.lexsort((value, cell))
    cells = cell[order]
    first = order[np.concatenate([[True], cells[1:] != cells[:-1]])] if len(order) else order
    lowest[cell[first]] = value[first]
    where[cell[first]] = first
    return lowest.reshape(shape), where.reshape(shape)


def close(weight: Ints) -> Ints:
    """Return the tightest bounds that all of ``[window, upper, lower]`` together imply.

    A window whose bounds contradict each other has a negative entry on its diagonal; its other entries mean nothing.
    """
    closed = weight.copy()
    index = np.arange(closed.shape[1])
    closed[:, index, index] = np.minimum(closed[:, index, index], 0)
    if len(index) > _FEW_CLOCKS:
        from gapscope.clocks.closure_compiled import close_in_place  # noqa: PLC0415 - numba, for large jobs only

        close_in_place(closed, int(INFINITE), int(FINITE))
    else:
        close_plainly(closed)
    return closed


def close_plainly(closed: Ints) -> None:
    """Replace bounds by their closure, for all windows at once."""
    for k in range(closed.shape[1]):
        through = closed[:, :, k, None] + closed[:, None, k, :]
        np.minimum(closed, through, out=closed)
        np.maximum(closed, -FINITE, out=closed)  # contradictions grow without limit
        closed[closed >= FINITE] = INFINITE


def contradicted(closed: Ints) -> Bools:
    """Return which windows contradict themselves."""
    index = np.arange(closed.shape[1])
    return np.asarray((closed[:, index, index] < 0).any(axis=1))


def negative_cycle(weight: Ints) -> list[tuple[int, int]]:
    """Return the pairs ``(upper, lower)`` of one contradiction in ``[upper, lower]``; empty if there is none.

    Bellman-Ford: a bound that still improves after as many rounds as there are clocks lies behind a negative cycle.
    """
    n = len(weight)
    usable = np.where(weight < FINITE, weight, INFINITE)
    np.fill_diagonal(usable, np.minimum(np.diag(usable), INFINITE))
    reach = np.zeros(n, np.int64)
    before = np.full(n, -1, np.int64)
    changed = -1
    for _ in range(n):
        candidate = reach[:, None] + usable
        best = candidate.argmin(axis=0)
        value = candidate[best, np.arange(n)]
        better = value < reach
        if not better.any():
            return []
        reach = np.where(better, value, reach)
        before = np.where(better, best, before)
        changed = int(np.flatnonzero(better)[0])
    node = changed
    for _ in range(n):
        node = int(before[node])
    cycle, at = [], node
    while True:
        cycle.append((int(before[at]), at))
        at = int(before[at])
        if at == node:
            return cycle[::-1]

"""Which handoff each moment of a path belongs to, where the tiles of several lie, compiled.

The path's own come first: those of handoffs whose consumer it passed, of these of the one that it met first, from the
unit's end back. Else the handoff whose consumer started next owns the moment; of equal ones the first in the table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.graph.kernels import leaf, part

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class Tiles(NamedTuple):
    """Tiles by item, as the loop takes them.

    Attributes:
        place: Of each item the number of its first tile plus one; 0: it has none.
        item: Item of each tile.
        what: What each is of.
        start: Where it begins.
        end: Where it ends.
        handoff: Its handoff.
        consumer: When the consumer of each handoff started.
    """

    place: Indices
    item: Ints
    what: Ints
    start: Ints
    end: Ints
    handoff: Indices
    consumer: Ints


def owned_pieces(steps: Ints, tiles: Tiles) -> tuple[Ints, Ints]:
    """Return the pieces of steps that lie in tiles, and how much of each step does.

    Args:
        steps: Rows of walk, start, end, what, item; those of a walk stand together.
        tiles: The tiles.

    Returns:
        Rows of walk, tile (its number in ``tiles``), length; and the sum of these for each step.
    """
    n_steps, at, n = len(steps), 0, 0
    rows, inside = np.empty((max(2 * n_steps, 4096), 3), np.int64), np.zeros(n_steps, np.int64)
    met, room = np.full(len(tiles.consumer), -1, np.int64), 64
    while True:
        over = np.empty((room, 3), np.int64)
        at, n = _owned(steps, tiles, met, over, rows, inside, at, n)
        if at == n_steps:
            return rows[:n], inside
        rows, room = np.concatenate([rows, np.empty_like(rows)]), 2 * room


@part
def _overlap(steps: Ints, s: int, tiles: Tiles, t: int) -> tuple[int, int]:
    """Return the piece of a step that lies in a tile: from, to."""
    if tiles.what[t] != steps[s, 3]:
        return 0, 0
    return max(steps[s, 1], tiles.start[t]), min(steps[s, 2], tiles.end[t])


@part
def _is_before(tiles: Tiles, met: Ints, w: int, one: int, two: int) -> bool:
    """Tell whether the handoff of one tile comes before that of another."""
    a, b = tiles.handoff[one], tiles.handoff[two]
    if (met[a] == w) != (met[b] == w):
        return bool(met[a] == w)
    if tiles.consumer[a] != tiles.consumer[b]:
        return bool((tiles.consumer[a] > tiles.consumer[b]) == (met[a] == w))
    return bool(a < b)


@leaf
def _owned(  # noqa: C901, PLR0912, PLR0917 - one loop that carries its state
    steps: Ints, tiles: Tiles, met: Ints, over: Ints, rows: Ints, inside: Ints, at: int, n: int
) -> tuple[int, int]:
    """Go on from step ``at``, the first of its walk; return where it ended (all: there was room), and how many rows."""
    n_tiles = len(tiles.item)
    while at < len(steps):
        w, until, n_before = steps[at, 0], at, n
        while until < len(steps) and steps[until, 0] == w:
            item, t = steps[until, 4], np.int64(tiles.place[steps[until, 4]]) - 1
            while 0 <= t < n_tiles and tiles.item[t] == item:
                low, high = _overlap(steps, until, tiles, t)
                started = tiles.consumer[tiles.handoff[t]]
                if low < high and tiles.end[t] == started and steps[until, 2] == started:
                    met[tiles.handoff[t]] = w
                t += 1
            until += 1
        for s in range(at, until):
            item, t, k = steps[s, 4], np.int64(tiles.place[steps[s, 4]]) - 1, 0
            inside[s] = 0
            while 0 <= t < n_tiles and tiles.item[t] == item:
                low, high = _overlap(steps, s, tiles, t)
                if low < high:
                    if k == len(over):
                        return at, n_before
                    over[k, 0], over[k, 1], over[k, 2] = t, low, high
                    k += 1
                t += 1
            # From border to border the first of the tiles there owns the path.
            begin = steps[s, 1]
            while k > 0 and begin < steps[s, 2]:
                best, border = np.int64(-1), steps[s, 2]
                for j in range(k):
                    if over[j, 1] <= begin < over[j, 2]:
                        if best < 0 or _is_before(tiles, met, w, over[j, 0], best):
                            best = over[j, 0]
                        border = min(border, over[j, 2])
                    elif over[j, 1] > begin:
                        border = min(border, over[j, 1])
                if best >= 0:
                    if n == len(rows):
                        return at, n_before
                    rows[n, 0], rows[n, 1], rows[n, 2] = w, best, border - begin
                    inside[s] += border - begin
                    n += 1
                begin = border
        at = until
    return at, n

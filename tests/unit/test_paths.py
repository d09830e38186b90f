"""Walks that are added up, and who owns their moments: against the walks themselves, and against plain versions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from gapscope.causes.cutting import Spans, cut_at, cut_inside
from gapscope.causes.owners import Tiles, owned_pieces
from gapscope.graph.kernels import NONE
from gapscope.graph.paths import walk_paths
from gapscope.graph.walks import Walks
from tests.unit.test_walk import EXAMPLES, columns, graphs, walked

LAST = 12


@EXAMPLES
@given(graphs(), st.data())
def test_steps_and_sums_are_those_of_the_walk(case, data):
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]
    if not walks:
        return
    begin, finish, consumer, window = columns(walks)
    n, n_ops = len(g.start), int(g.n_ops[0])
    wanted = np.array([data.draw(st.integers(0, 1)) for _ in range(n)], np.int32)
    is_marked = np.array([data.draw(st.booleans()) for _ in range(n_ops)], np.bool_)
    of_lane = 2 * np.arange(int(g.lane.max(initial=0)) + 1, dtype=np.int32)
    steps, others = walk_paths(
        SimpleNamespace(arrays=g), Walks(begin, finish, consumer, bounds, window), wanted, of_lane, is_marked
    )
    expected, sums = [], Counter()
    for walk, start, end, what, item, *_ in walked(g, bounds, walks):
        if item != NONE and wanted[item]:
            expected.append((walk, start, end, what, item))
        else:
            group = NONE if item == NONE else of_lane[g.lane[item]] + (item < n_ops and is_marked[min(item, n_ops - 1)])
            sums[walk, int(group), what] += end - start
    assert [tuple(row) for row in steps.tolist()] == expected
    assert {tuple(row[:3]): row[3] for row in others.tolist()} == sums


@st.composite
def tiles_and_steps(draw):
    """Handoffs with disjoint tiles at items, and paths whose steps are contiguous."""
    consumers = draw(st.lists(st.integers(1, LAST), min_size=1, max_size=4))
    tiles = []
    for handoff, consumer in enumerate(consumers):
        borders = sorted(draw(st.sets(st.integers(0, consumer - 1), min_size=1, max_size=3)) | {consumer})
        for start, end in pairwise(borders):
            tiles.append((draw(st.integers(0, 1)), draw(st.integers(0, 1)), start, end, handoff))
    steps = []
    for walk in range(draw(st.integers(1, 2))):
        borders = sorted(draw(st.sets(st.integers(0, LAST), min_size=2, max_size=5)))
        for start, end in reversed(list(pairwise(borders))):
            steps.append((walk, start, end, draw(st.integers(0, 1)), draw(st.integers(0, 1))))
    return consumers, sorted(tiles), steps


@EXAMPLES
@given(tiles_and_steps())
def test_every_moment_has_the_owner_of_the_plain_version(case):
    consumers, tiles, steps = case
    item, what, start, end, handoff = (np.array([t[k] for t in tiles], np.int64) for k in range(5))
    place = np.zeros(2, np.int32)
    for k in range(len(tiles) - 1, -1, -1):
        place[tiles[k][0]] = k + 1
    pieces, inside = owned_pieces(
        np.array(steps, np.int64),
        Tiles(place, item, what, start, end, handoff.astype(np.int32), np.array(consumers, np.int64)),
    )
    met = {
        (walk, h)
        for walk, low, high, of, at in steps
        for i, w, one, two, h in tiles
        if (i, w) == (at, of) and max(low, one) < min(high, two) and two == high == consumers[h]
    }
    sums, lengths = Counter(), []
    for walk, low, high, of, at in steps:
        owned = 0
        for moment in range(low, high):
            there = [k for k, (i, w, one, two, _) in enumerate(tiles) if (i, w) == (at, of) and one <= moment < two]

            def order(k, walk=walk):
                h = tiles[k][4]
                return ((walk, h) not in met, -consumers[h] if (walk, h) in met else consumers[h], h)

            if there:
                sums[walk, min(there, key=order)] += 1
                owned += 1
        lengths.append(owned)
    found = Counter()
    for walk, tile, length in pieces.tolist():
        found[walk, tile] += length
    assert found == sums
    assert inside.tolist() == lengths


def some_steps(*rows):
    return pl.DataFrame(
        {"lane": [r[0] for r in rows], "start_ns": [r[1] for r in rows], "end_ns": [r[2] for r in rows]}
    )


def test_parts_take_the_place_of_their_step():
    steps = some_steps((0, 0, 10), (0, 10, 20), (0, 20, 30))
    cut, row = cut_at(steps, np.array([1, 1, 2]), np.array([12, 15, 20]))
    assert cut.rows() == [(0, 0, 10), (0, 10, 12), (0, 12, 15), (0, 15, 20), (0, 20, 30)]
    assert row.tolist() == [2, 3, 4]
    assert cut_inside(steps, pl.Series([10, 11, None])).rows() == [(0, 0, 10), (0, 10, 11), (0, 11, 20), (0, 20, 30)]


def test_steps_are_cut_where_spans_of_their_own_thread_begin_and_end():
    thread = {"source": [0, 0], "process": [1, 1], "thread": [7, None]}
    lanes = pl.DataFrame(thread)
    table = pl.DataFrame(
        {
            "source": 0,
            "process": 1,
            "thread": [7, 7, 8],
            "begin": [2, 8, 0],
            "until": [4, 12, 99],
            "told": ["a", "b", "c"],
        }
    )
    spans = Spans.of(lanes, table)
    steps = some_steps((0, 0, 10), (0, 10, 20), (1, 20, 30), (None, 30, 40))
    pairs = spans.met(steps, pl.Series([True] * 4))
    assert pairs.rows() == [(0, 0), (0, 1), (1, 1)]
    assert not spans.met(some_steps((0, 4, 8)), pl.Series([True])).height  # it lies between two
    cut, span = spans.cut(steps, pairs)
    told = spans.table["told"].gather(span)
    assert list(zip(cut["start_ns"], cut["end_ns"], told, strict=True)) == [
        (0, 2, None), (2, 4, "a"), (4, 8, None), (8, 10, "b"), (10, 12, "b"), (12, 20, None), (20, 30, None),
        (30, 40, None),
    ]  # fmt: skip

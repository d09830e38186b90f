"""The arithmetic of difference constraints, against the same in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.clocks.alignment import coarsen
from gapscope.clocks.closure import (
    FINITE,
    INFINITE,
    Facts,
    Rates,
    close,
    contradicted,
    drift,
    envelope,
    negative_cycle,
)

MANY = settings(max_examples=300, deadline=None)
INF = int(INFINITE)
WEIGHTS = st.one_of(st.none(), st.integers(-20, 60), st.integers(-(10**17), 10**17))


@st.composite
def systems(draw):
    n = draw(st.integers(1, 6))
    return [[draw(WEIGHTS) if i != j else None for j in range(n)] for i in range(n)]


def as_array(system):
    return np.array([[INF if w is None else w for w in line] for line in system], np.int64)


def shortest(system):
    """Return the closure by Bellman-Ford from each clock, or None where a cycle is negative."""
    n = len(system)
    found = []
    for start in range(n):
        reach = [None] * n
        reach[start] = 0
        for _ in range(n):
            before = list(reach)
            for i in range(n):
                for j in range(n):
                    if before[i] is not None and system[i][j] is not None:
                        through = before[i] + system[i][j]
                        if reach[j] is None or through < reach[j]:
                            reach[j] = through
            if reach == before:
                break
        else:
            return None
        found.append(reach)
    return found


@MANY
@given(systems())
def test_closure_is_that_of_shortest_paths(system):
    expected = shortest(system)
    closed = close(as_array(system)[None])
    assert bool(contradicted(closed)[0]) == (expected is None)
    if expected is not None:
        assert [[None if w >= FINITE else int(w) for w in line] for line in closed[0]] == expected


@MANY
@given(systems())
def test_a_contradiction_is_found_whenever_there_is_one_and_it_is_one(system):
    edges = negative_cycle(as_array(system))
    if shortest(system) is not None:
        assert edges == []
        return
    assert [v for _, v in edges] == [u for u, _ in edges[1:] + edges[:1]]  # a closed walk
    assert len({u for u, _ in edges}) == len(edges)  # without repetition
    assert sum(system[u][v] for u, v in edges) < 0


def test_windows_are_closed_one_by_one():
    one = [[None, 5, None], [None, None, 4], [None, None, None]]
    two = [[None, -5, None], [4, None, 4], [None, None, None]]
    closed = close(np.stack([as_array(one), as_array(two)]))
    assert closed[0].tolist() == [[0, 5, 9], [INF, 0, 4], [INF, INF, 0]]
    assert contradicted(closed).tolist() == [False, True]


def test_contradictions_and_missing_bounds_do_not_overflow():
    n = 40
    weight = np.full((1, n, n), -(10**18), np.int64)
    weight[0, 3] = INFINITE
    assert contradicted(close(weight)).tolist() == [True]


def test_drift_is_rounded_up():
    assert drift(30_000, 10**9) == 30_000
    assert [int(drift(30_000, d)) for d in (0, 1, 33_333, 33_334)] == [0, 1, 1, 2]


@pytest.mark.parametrize("days", [2, 5, 90])
def test_drift_over_days(days):
    assert drift(60_000, days * 86_400 * 10**9) == days * 86_400 * 60_000


def test_a_bound_between_moments_days_apart_is_never_too_tight():
    # Recorded 4 days apart (one clock is that far off), and so known to hold only to 50 ppm of that.
    days = 4 * 86_400 * 10**9
    bounds = envelope(as_facts([(0, 1, 1000, 0, days)]), np.array([0, days]), RATES)
    assert bounds.weight[0, 0, 1] == 1000 + 4 * 86_400 * 50_000


@st.composite
def facts(draw):
    """Observations between three clocks, windows, and rates; times may lie outside of the windows."""
    edges = [0, *np.cumsum(draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=6))).tolist()]
    rows = []
    for _ in range(draw(st.integers(0, 8))):
        upper, lower = draw(st.sampled_from([(a, b) for a in range(4) for b in range(4) if a != b]))
        first = draw(st.integers(-10, edges[-1] + 10))
        last = first + draw(st.one_of(st.integers(0, 1000), st.integers(0, 10**9)))
        rows.append((upper, lower, draw(st.integers(-1000, 100_000)), first, last))
    return rows, edges


# Clocks 0 and 1 are of hosts, 2 is a device of host 0 and 3 one of host 1.
RATES = Rates(np.array([0, 1, 0, 1]), np.array([30_000, 20_000, 10_000, 5_000]))
PARTING = {(0, 1): 50_000, (0, 2): 10_000, (0, 3): 55_000, (1, 2): 60_000, (1, 3): 5_000, (2, 3): 65_000}


def as_facts(rows):
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    return Facts(*(np.array(list(c), np.int64) for c in columns))


def test_clocks_of_one_file_part_only_by_the_mapping_of_device_times():
    for (one, two), rate in PARTING.items():
        assert RATES.between(np.array([one]), np.array([two])).tolist() == [rate]
        assert RATES.between(np.array([two]), np.array([one])).tolist() == [rate]


def ceil_part(rate, distance):
    return -(-rate * distance // 10**9)


def cone_at(rows, rate, t):
    """The lowest bound at a time: the offset may have parted since the farther of both moments."""
    return min(weight + ceil_part(rate, max(t - first, last - t, 0)) for _, _, weight, first, last in rows)


@MANY
@given(facts())
def test_envelope_holds_throughout_each_window_and_is_no_looser_than_the_cones_and_the_window_drift(case):
    rows, edges = case
    bounds = envelope(as_facts(rows), np.array(edges, np.int64), RATES)
    for w, (begin, end) in enumerate(pairwise(edges)):
        for upper in range(4):
            for lower in range(4):
                mine = [r for r in rows if r[:2] == (upper, lower)]
                value, record = int(bounds.weight[w, upper, lower]), int(bounds.record[w, upper, lower])
                if not mine:
                    assert (value, record) == (INF, -1)
                    continue
                rate = PARTING[min(upper, lower), max(upper, lower)]
                cones = [cone_at(mine, rate, t) for t in (begin, (begin + end) // 2, end)]
                assert value >= max(cones)
                loosest = min(
                    weight + ceil_part(rate, max(end - first, last - begin, 0)) for _, _, weight, first, last in mine
                )
                assert value <= loosest + len(edges)  # each window rounds up once
                assert value <= min(cones) + ceil_part(rate, end - begin) + len(edges)
                assert rows[record][:2] == (upper, lower)


def test_envelope_by_hand():
    # 50 ppm between clocks 0 and 1; three windows of a second; one observation of 0 to 1 in the middle one.
    rows = [(0, 1, 1000, 1_400_000_000, 1_500_000_000)]
    bounds = envelope(as_facts(rows), np.array([0, 10**9, 2 * 10**9, 3 * 10**9]), RATES)
    # Within: from 1.4 s to the end at 2 s, 0.6 s. Ahead: the window is a second long. Back: from 1.5 s to 1 s, then on.
    assert bounds.weight[:, 0, 1].tolist() == [1000 + 25_000 + 50_000, 1000 + 30_000, 1000 + 30_000 + 50_000]
    assert bounds.record[:, 0, 1].tolist() == [0, 0, 0]
    assert (bounds.weight[:, 1, 0] == INFINITE).all()


@dataclass(frozen=True)
class Parts:
    """What `coarsen` reads of a solution."""

    edges: np.ndarray
    closed: np.ndarray
    proven: np.ndarray
    caused: np.ndarray
    offset_ns: np.ndarray
    problem: object = None


@st.composite
def solutions(draw):
    n, windows = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    base = [[draw(st.one_of(st.none(), st.integers(0, 10**6))) for _ in range(n)] for _ in range(n)]

    def bound(w):
        return INF if w is None else w + draw(st.integers(-400, 400)) * draw(st.sampled_from([0, 1, 100]))

    weight = np.array([[[0 if i == j else bound(base[i][j]) for j in range(n)] for i in range(n)]
                       for _ in range(windows)], np.int64)  # fmt: skip
    closed = close(weight)
    proven = np.where(closed < FINITE, closed + draw(st.integers(0, 1000)), closed)
    offset = np.array([[draw(st.sampled_from([0, 0, 0, 5])) for _ in range(n)] for _ in range(windows)])
    edges = np.cumsum([0, *(draw(st.integers(1, 10)) for _ in range(windows))])
    return Parts(edges, closed, proven, proven, offset)


@MANY
@given(solutions())
def test_joining_windows_never_tightens_a_bound_nor_moves_an_offset(solution):
    pairs = [(i, j) for i in range(solution.closed.shape[1]) for j in range(solution.closed.shape[1])]
    joined = coarsen(solution, pairs, np.array([], np.int64))
    assert joined.edges[0] == solution.edges[0]
    assert joined.edges[-1] == solution.edges[-1]
    for w, (begin, end) in enumerate(pairwise(solution.edges)):
        [j] = [
            k for k in range(len(joined.edges) - 1) if joined.edges[k] <= begin and end <= joined.edges[k + 1]
        ]  # fmt: skip
        assert (joined.closed[j] >= solution.closed[w]).all()
        assert (joined.proven[j] >= solution.proven[w]).all()
        assert (joined.offset_ns[j] == solution.offset_ns[w]).all()
        known = solution.closed[w] < FINITE
        grown = joined.closed[j][known] - solution.closed[w][known]
        width = joined.closed[j] + joined.closed[j].T
        assert (grown <= np.maximum(500, width[known] // 20)).all()
        assert (joined.closed[j][~known] >= FINITE).all()

"""The compiled loops of the graph against plain versions of them, on random graphs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.graph.edges import EVIDENCE, TYPE, TYPES
from gapscope.graph.kernels import (
    BODY,
    HOST_GAP,
    LEAD,
    NONE,
    RESIDUAL,
    UNKNOWN,
    VIA_ACK,
    VIA_VIOLATION,
    Arrays,
    before_of,
    clock_of,
    edges_to,
    numbered,
    place,
    thread_order,
    walk,
)
from gapscope.graph.replays import replay

STANDSTILL = 100_000
NEVER = -(2**62)
ROOM = 4096
EDGE_TYPES = ["event", "sync", "flag", "ack", "send_recv", "collective", "host_message"]
EXAMPLES = settings(max_examples=100, deadline=None)

# Plain versions ---------------------------------------------------------------------------------------------------


class Plain:
    """The graph as lists, and what the compiled loops do, said plainly."""

    def __init__(self, g):
        self.start, self.end = g.start.tolist(), g.end.tolist()
        n, self.n_ops = len(self.start), int(g.n_ops[0])
        self.lane, self.clock = g.lane.tolist(), [clock_of(g, i) for i in range(n)]
        self.call, self.call_level, self.before = g.call.tolist(), g.call_level.tolist(), before(g)
        rows = list(zip(g.source.tolist(), g.ready.tolist(), g.kind.tolist(), g.level.tolist(), strict=True))
        self.edges = [rows[slice(*edges_to(g, node))] for node in range(2 * n)]

    def time(self, node):
        return self.end[node // 2] if node % 2 else self.start[node // 2]

    def what(self, node):
        return BODY if node % 2 else RESIDUAL if node // 2 < self.n_ops else HOST_GAP

    def ways(self, node, bound, at=None):
        """Rows of node, ready, type, evidence; and whether an edge contradicts the times."""
        i, time = node // 2, self.time(node)
        t = time if at is None else min(time, at)
        found = []
        if node % 2:
            found.append((2 * i, min(self.start[i], t), NONE, 0))
        elif i < self.n_ops:
            c = self.call[i]
            if c != NONE and self.start[c] - t <= bound[self.clock[i]][self.clock[c]]:
                is_blocking = any(edge[0] == 2 * i + 1 for edge in self.edges[2 * c + 1])
                launched = (2 * c, self.start[c]) if is_blocking else (2 * c + 1, self.end[c])
                found.append((launched[0], min(launched[1], t), TYPE["launch"], self.call_level[i]))
            if i and self.lane[i - 1] == self.lane[i] and self.start[i - 1] < t:
                found.append((2 * i - 1, min(self.end[i - 1], t), TYPE["stream"], EVIDENCE.index("structural")))
        elif self.before[i] != NONE:
            found.append(
                (self.before[i], min(self.time(self.before[i]), t), TYPE["thread"], EVIDENCE.index("structural"))
            )
        violated = False
        for source, ready, kind, level in self.edges[node]:
            if ready - time > bound[self.clock[i]][self.clock[source // 2]]:
                violated = True
            elif ready - t <= bound[self.clock[i]][self.clock[source // 2]]:
                found.append((source, min(ready, t), kind, level))
        return found, violated

    @staticmethod
    def ranked(ways, node):
        """Ways from the one that holds downward: on equal times the last for a start, the first for an end."""
        sign = 1 if node % 2 == 0 else -1
        return sorted(range(len(ways)), key=lambda k: (ways[k][1], sign * k), reverse=True)

    def walk(self, w, begin, finish, consumer, bound):
        tiles, at, node, passed = [], consumer, begin, 0
        if at > finish and node != NONE and self.time(node) < at:
            low = max(self.time(node), finish)
            tiles.append((w, low, at, LEAD, node // 2, TYPE["thread"], 1, node, NONE, 0, passed))
            at = low
        still = []  # nodes since the last tile
        while at > finish:
            ways, violated = self.ways(node, bound, at) if node != NONE else ([], False)
            if node in still and node != NONE:  # a circle: it is given up after so many nodes
                first = still.index(node)
                circle = still[first:]
                node, ways = circle[(STANDSTILL - first) % len(circle)], []
            else:
                passed |= VIA_VIOLATION if violated else 0
            if not ways:
                item = NONE if node == NONE else node // 2
                tiles.append((w, finish, at, UNKNOWN, item, NONE, EVIDENCE.index("unknown"), NONE, NONE, 0, passed))
                return tiles
            still.append(node)
            order = self.ranked(ways, node)
            source, ready, kind, level = ways[order[0]]
            low = min(max(ready, finish), at)
            second = (NONE, 0)
            if len(order) > 1:
                other = max((ways[k] for k in order[1:]), key=lambda way: way[1])
                if ready - other[1] <= bound[self.clock[source // 2]][self.clock[other[0] // 2]]:
                    second = (NONE + 1, other[1])  # which of equal ones is open
            if low < at:
                tiles.append((w, low, at, self.what(node), node // 2, kind, level, source, *second, passed))
                at, still = low, []
            if kind == TYPE["ack"]:
                passed |= VIA_ACK
            node = source
        return tiles

    def replay(self, begin, finish, consumer, bound, gone):
        """New start of the consumer, and the chain that holds it then."""
        value, opened = {}, set()

        def visit(node):
            opened.add(node)
            t = self.time(node)
            ways, _ = self.ways(node, bound)
            if t <= finish or not ways:
                value[node] = t
                return
            for other, *_ in reversed(ways):
                if other not in opened:
                    visit(other)
            known = [(way, value[way[0]]) for way in ways if way[0] in value]
            value[node] = t
            if known:
                held = max(way[1] for way, _ in known)
                value[node] = max(v + way[1] - self.time(way[0]) for way, v in known) + t - held - gone.get(node, 0)

        if begin == NONE:
            return consumer, []
        visit(begin)
        chain, node, seen, passed = [], begin, set(), 0
        low, lead = max(self.time(begin), finish), gone.get(NONE, 0)
        if consumer - low > lead:
            chain.append((low, consumer, LEAD, begin // 2, TYPE["thread"], consumer - low - lead, 0))
        while self.time(node) > finish and node not in seen:
            seen.add(node)
            ways, violated = self.ways(node, bound)
            passed |= VIA_VIOLATION if violated else 0
            ways = [way for way in ways if way[0] in value]
            if not ways:
                break
            moved = [value[way[0]] + way[1] - self.time(way[0]) for way in ways]
            best = max(range(len(ways)), key=lambda k: (moved[k], k if node % 2 == 0 else -k))
            low = max(*(way[1] for way in ways), finish)
            length = self.time(node) - low - gone.get(node, 0)
            if length > 0:
                chain.append((low, self.time(node), self.what(node), node // 2, ways[best][2], length, passed))
            passed |= VIA_ACK if ways[best][2] == TYPE["ack"] else 0
            node = ways[best][0]
        return value[begin] + consumer - self.time(begin) - lead, chain


def plain_thread_order(start, end, lane, first):
    """The node before each host item, for ranges that nest: the last sibling's end, else the parent's start."""
    n = len(start)
    before, parents = [NONE] * n, [NONE] * n
    for i in range(first, n):
        earlier = [j for j in range(first, i) if lane[j] == lane[i]]
        around = [j for j in earlier if end[j] > start[i]]
        parents[i] = around[-1] if around else NONE
        siblings = [j for j in earlier if parents[j] == parents[i] and end[j] <= start[i]]
        if siblings:
            before[i] = 2 * siblings[-1] + 1
        elif around:
            before[i] = 2 * around[-1]
    return before


def arrays(items, n_ops, call, call_level, edges, clock=None):
    """The graph as the loops take it.

    Args:
        items: Starts, ends and lanes.
        n_ops: How many of the items are operations.
        call: Item that launched each operation.
        call_level: How that is known.
        edges: Ascending rows of to, from, ready, type, evidence.
        clock: Clock of each item; None: of all the same.
    """
    start, end = (np.array(times, np.int64) for times in items[:2])
    lane = np.array(items[2], np.int32)
    n, of_item = len(start), np.zeros(len(start), np.int32) if clock is None else np.array(clock, np.int32)
    of_lane = np.zeros(int(lane.max(initial=-1)) + 1, np.int32)
    of_lane[lane] = of_item
    jumped = np.zeros(0, np.int32) if (of_lane[lane] == of_item).all() else of_item
    nodes, counts = np.unique(np.array([edge[0] for edge in edges], np.int64), return_counts=True)
    first = np.append(0, np.cumsum(counts)).astype(np.int32)
    source, ready = (np.array([edge[k] for edge in edges], np.int64) for k in (1, 2))
    kind, level = (np.array([edge[k] for edge in edges], np.int8) for k in (3, 4))
    return Arrays(
        start, end, lane, of_lane, jumped, np.array([n_ops], np.int64), np.array(call, np.int32),
        np.array(call_level, np.int8), *thread_order(start, end, lane, n_ops), numbered(nodes, 2 * n), first, source,
        ready, kind, level,
    )  # fmt: skip


def before(g):
    """The node before each item on its thread."""
    n_ops, n = int(g.n_ops[0]), len(g.start)
    return [NONE] * n_ops + [before_of(g, i) for i in range(n_ops, n)]


# Random graphs ----------------------------------------------------------------------------------------------------


@st.composite
def nested_ranges(draw, low, high, most=4):
    """Ranges of one thread, ordered, enclosing ones first; neighbors may touch, any may take no time."""
    found, at = [], low
    for _ in range(draw(st.integers(0, most))):
        if at > high:
            break
        s = draw(st.integers(at, high))
        e = draw(st.integers(s, high))
        found.append((s, e))
        if e > s and draw(st.booleans()):
            found += draw(nested_ranges(s, e, most=2))
        at = e
    return sorted(found, key=lambda r: (r[0], -r[1]))


LAST = 40


@st.composite
def graphs(draw, violated=True):
    """A graph, the uncertainty of its clocks, and where its walks begin and end."""
    n_clocks = draw(st.integers(1, 3))
    start, end, lane, clock = [], [], [], []
    for stream in range(draw(st.integers(1, 3))):
        at, c = 0, draw(st.integers(0, n_clocks - 1))
        for _ in range(draw(st.integers(0, 4))):
            s = draw(st.integers(max(at - 3, 0), LAST))  # may begin within the one before
            start.append(s)
            end.append(draw(st.integers(s, min(s + 12, LAST))))
            lane.append(stream)
            clock.append(c)
            at = end[-1]
    n_ops = len(start)
    for thread in range(draw(st.integers(1, 2))):
        c = draw(st.integers(0, n_clocks - 1))
        for s, e in draw(nested_ranges(0, LAST)):
            start.append(s)
            end.append(e)
            lane.append(10 + thread)
            clock.append(c)
    n = len(start)
    calls = [-1, *range(n_ops, n)]
    call = [draw(st.sampled_from(calls)) if i < n_ops else NONE for i in range(n)][:n_ops]
    bounds = np.zeros((2, n_clocks, n_clocks), np.int64)
    for w in range(2):
        for a in range(n_clocks):
            for b in range(a):
                bounds[w, a, b] = bounds[w, b, a] = draw(st.integers(0, 5))
    edges = {}
    times = [(start, end)[v % 2][v // 2] for v in range(2 * n)]
    for _ in range(draw(st.integers(0, 10)) if n > 1 else 0):
        to, source = draw(st.integers(0, 2 * n - 1)), draw(st.integers(0, 2 * n - 1))
        if to // 2 == source // 2 or (times[source] > times[to] and not violated):
            continue
        ready = max(times[source] + draw(st.sampled_from([0, 0, 0, 1, -2])), 0)
        edges[to, source] = (ready, TYPE[draw(st.sampled_from(EDGE_TYPES))], draw(st.integers(0, len(EVIDENCE) - 1)))
    rows = sorted(edges.items())
    levels = [draw(st.sampled_from([0, 2])) for _ in call]
    edges = [(to, source, ready, kind, level) for (to, source), (ready, kind, level) in rows]
    if n and draw(st.booleans()):  # the clock of a lane jumps
        clock[draw(st.integers(0, n - 1))] = draw(st.integers(0, n_clocks - 1))
    g = arrays((start, end, lane), n_ops, call, levels, edges, clock)
    walks = []
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(-1, 2 * n - 1))
        consumer = draw(st.integers(0, LAST))
        if begin >= 0:
            is_op_start = begin % 2 == 0 and begin // 2 < n_ops
            consumer = times[begin] + (0 if is_op_start else draw(st.integers(0, 6)))
        walks.append((begin, draw(st.integers(-5, consumer)), consumer, draw(st.integers(0, 1))))
    return g, bounds, walks


def columns(walks):
    return tuple(np.array(column, np.int64) for column in zip(*walks, strict=True))


def walked(g, bounds, walks):
    begin, finish, consumer, window = columns(walks)
    rows, count = walk(g, begin, finish, consumer, bounds, window, ROOM)
    assert count >= 0
    return [tuple(row) for row in rows[:count].tolist()]


def replayed(g, bounds, walks, removed=()):
    """Starts and chains; ``removed`` are (walk, node, length)."""
    begin, finish, consumer, window = columns(walks)
    removed = sorted(removed, key=lambda part: part[0])
    first = np.searchsorted([part[0] for part in removed], np.arange(len(walks) + 1)).astype(np.int64)
    node, length = (np.array([part[k] for part in removed], np.int64) for k in (1, 2))
    starts, rows, count = replay(g, begin, finish, consumer, bounds, window, first, node, length, ROOM)
    assert count >= 0
    return starts.tolist(), [tuple(row) for row in rows[:count].tolist()]


def parts_of(tiles):
    """What of the tiles can vanish: (walk, node, length)."""
    return [(t[0], NONE if t[3] == LEAD else 2 * t[4] + (t[3] == BODY), t[2] - t[1]) for t in tiles if t[3] != UNKNOWN]


def with_many_edges(n):
    """One operation that n others hold, each on a stream of its own; the k-th runs from 0 and ends at k + 1."""
    start = np.zeros(n + 1, np.int64)
    start[n] = n + 10
    end = np.append(np.arange(1, n + 1), n + 20)
    edges = [(2 * n, 2 * k + 1, k + 1, TYPE["event"], 0) for k in range(n)]
    g = arrays((start, end, range(n + 1)), n + 1, [NONE] * (n + 1), [0] * (n + 1), edges)
    return g, np.zeros((1, 1, 1), np.int64), [(2 * n, 0, n + 10, 0)]


# The walk ---------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(graphs())
def test_tiles_equal_those_of_the_plain_walk(case):
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]  # gaps of 0 are below
    if not walks:
        return
    plain = Plain(g)
    expected = [
        tile
        for w, (begin, finish, consumer, window) in enumerate(walks)
        for tile in plain.walk(w, begin, finish, consumer, bounds[window])
    ]
    tiles = walked(g, bounds, walks)
    without = [(*t[:8], t[8] != NONE, *t[9:]) for t in tiles]
    assert without == [(*t[:8], t[8] != NONE, *t[9:]) for t in expected]
    for t in tiles:
        if t[8] != NONE:  # the runner-up was ready then, and is another way than the one taken
            ways, _ = plain.ways(2 * t[4] + (t[3] == BODY), bounds[walks[t[0]][3]], t[2])
            assert (t[8], t[9]) in [(way[0], way[1]) for way in ways]


@pytest.mark.parametrize("n", [200, 3000])
def test_of_many_edges_into_one_node_the_latest_holds(n):
    g, bounds, walks = with_many_edges(n)
    tiles = walked(g, bounds, walks)
    expected = Plain(g).walk(0, *walks[0][:3], bounds[0])
    assert [(*t[:8], t[8] != NONE, *t[9:]) for t in tiles] == [(*t[:8], t[8] != NONE, *t[9:]) for t in expected]
    assert [t[1:5] for t in tiles] == [(n, n + 10, RESIDUAL, n), (0, n, BODY, n - 1)]


@pytest.mark.parametrize("n", [200, 3000])
def test_without_the_latest_of_many_edges_the_next_holds(n):
    """Half of the last one's time vanishes: the one before it ends at n - 1, and holds then."""
    g, bounds, walks = with_many_edges(n)
    starts, chains = replayed(g, bounds, walks, [(0, 2 * (n - 1) + 1, n // 2)])
    expected = Plain(g).replay(*walks[0][:3], bounds[0], {2 * (n - 1) + 1: n // 2})
    assert (starts[0], [c[1:] for c in chains]) == expected
    assert starts == [n + 9]
    assert chains[1][4] == n - 2


@EXAMPLES
@given(graphs())
def test_tiles_are_contiguous_disjoint_and_sum_to_the_gap(case):
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]
    tiles = walked(g, bounds, walks) if walks else []
    for w, (_, finish, consumer, _) in enumerate(walks):
        mine = [t for t in tiles if t[0] == w]
        assert mine[0][2] == consumer
        assert mine[-1][1] == finish
        assert all(t[1] < t[2] for t in mine)
        assert all(later[1] == earlier[2] for later, earlier in pairwise(mine))
        assert sum(t[2] - t[1] for t in mine) == consumer - finish
        assert all(a[10] & ~b[10] == 0 for a, b in pairwise(mine))  # what was passed stays passed


@EXAMPLES
@given(graphs())
def test_a_gap_of_zero_has_no_tiles(case):
    g, bounds, walks = case
    plain = Plain(g)
    walks = [(b, c, c, window) for b, _, c, window in walks if b == NONE or plain.time(b) == c]
    assert not walks or walked(g, bounds, walks) == []


def test_a_gap_of_zero_has_no_tiles_in_the_middle_of_host_time():
    g = graph(hosts=[(0, 10, 0)])
    assert walked(g, ONE, [(1, 15, 15, 0)]) == []


def test_a_replay_may_look_at_more_nodes_than_it_first_has_room_for():
    n = 9_000  # a stream of operations of 2 ns with 1 ns between them
    g = graph(ops=[(3 * k, 3 * k + 2, 0) for k in range(n)])
    begin, finish, consumer = 2 * (n - 1), 0, 3 * (n - 1)
    removed = [(w, 2 * k + 1, 2) for w in range(2) for k in range(w, n - 1, 2)]  # every second operation vanishes
    walks = [(begin, finish, consumer, 0)] * 2
    vanished = [len([1 for part in removed if part[0] == w]) for w in range(2)]
    bounds = np.zeros((1, 1, 1), np.int64)
    begins, finishes, consumers, windows = columns(walks)
    first = np.cumsum([0, *vanished])
    node, length = (np.array([part[k] for part in removed], np.int64) for k in (1, 2))
    starts, rows, count = replay(g, begins, finishes, consumers, bounds, windows, first, node, length, 4 * n)
    assert starts.tolist() == [consumer - 2 * k for k in vanished]
    for w in range(2):  # what is left: 1 ns before each operation, 2 ns of each that stayed
        chain = rows[:count][rows[:count, 0] == w]
        assert chain[:, 6].sum() == consumer - 2 * vanished[w]
        assert (chain[:, 3] == BODY).sum() == n - 1 - vanished[w]


def test_no_room_says_so():
    g = graph(ops=[(0, 1, 0), (2, 3, 0), (4, 5, 0)])
    begin, finish, consumer, window = columns([(4, 0, 4, 0)])
    bounds = np.zeros((1, 1, 1), np.int64)
    for capacity in range(4):
        assert walk(g, begin, finish, consumer, bounds, window, capacity)[1] == -1
    assert walk(g, begin, finish, consumer, bounds, window, 4)[1] == 4


# What few have ---


@EXAMPLES
@given(st.sets(st.integers(0, 199)), st.integers(200, 230))
def test_a_set_tells_what_is_in_it_and_how_many_are_below(numbers, n):
    ordered = sorted(numbers)
    found = numbered(np.array(ordered, np.int64), n)
    assert [place(found, k) for k in range(n)] == [ordered.index(k) if k in numbers else NONE for k in range(n)]


# Order on threads -------------------------------------------------------------------------------------------------


@EXAMPLES
@given(st.lists(nested_ranges(0, 12, most=5), max_size=3), st.integers(0, 2))
def test_thread_order_of_nested_ranges(threads, n_ops):
    rows = [(0, 9, 0)] * n_ops + [(s, e, 1 + t) for t, ranges in enumerate(threads) for s, e in ranges]
    start, end, lane = ([r[k] for r in rows] for k in range(3))
    g = arrays((start, end, lane), n_ops, [NONE] * n_ops, [0] * n_ops, [])
    assert before(g) == plain_thread_order(start, end, lane, n_ops)


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=10))
def test_thread_order_of_ranges_that_cross_is_sound(ranges):
    """Ranges that cross are no call stack; what is before each is still an earlier node."""
    rows = sorted(((s, s + d) for s, d in ranges), key=lambda r: (r[0], -r[1]))
    start, end = ([r[k] for r in rows] for k in (0, 1))
    for i, b in enumerate(before(arrays((start, end, [0] * len(rows)), 0, [], [], []))):
        assert (b == NONE) == (i == 0)
        if b != NONE:
            assert b // 2 < i
            assert (end if b % 2 else start)[b // 2] <= start[i]


# Replay -----------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(graphs())
def test_replay_of_everything_returns_every_start(case):
    g, bounds, walks = case
    starts, _ = replayed(g, bounds, walks)
    assert starts == [consumer for _, _, consumer, _ in walks]


@EXAMPLES
@given(graphs(), st.data())
def test_replay_equals_the_plain_replay(case, data):
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]
    if not walks:
        return
    every = parts_of(walked(g, bounds, walks))
    removed = [(w, node, data.draw(st.integers(0, ns))) for w, node, ns in every if data.draw(st.booleans())]
    starts, chains = replayed(g, bounds, walks, removed)
    plain = Plain(g)
    for w, (begin, finish, consumer, window) in enumerate(walks):
        gone = {}
        for _, node, ns in (part for part in removed if part[0] == w):
            gone[node] = gone.get(node, 0) + ns
        start, chain = plain.replay(begin, finish, consumer, bounds[window], gone)
        assert starts[w] == start
        assert [row[1:] for row in chains if row[0] == w] == chain


@EXAMPLES
@given(graphs(), st.data())
def test_what_vanishes_never_makes_the_consumer_later_nor_the_producer(case, data):
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]
    if not walks:
        return
    every = parts_of(walked(g, bounds, walks))
    some = [part for part in every if data.draw(st.booleans())]
    before, (fewer, _), (more, _) = (
        [w[2] for w in walks],
        replayed(g, bounds, walks, some),
        replayed(g, bounds, walks, every),
    )
    for w, (_, finish, consumer, _) in enumerate(walks):
        assert finish <= more[w] <= fewer[w] <= before[w] == consumer
        assert consumer - fewer[w] <= sum(ns for k, _, ns in some if k == w)


@EXAMPLES
@given(graphs(violated=False))
def test_a_gap_without_a_second_constraint_vanishes_whole(case):
    """Where each step has one way only, what is removed is gained."""
    g, bounds, walks = case
    walks = [w for w in walks if w[2] > w[1]]
    if not walks:
        return
    plain, tiles = Plain(g), walked(g, bounds, walks)
    starts, _ = replayed(g, bounds, walks, parts_of(tiles))
    for w, (begin, finish, _, window) in enumerate(walks):
        node, single = begin, begin != NONE
        while single and plain.time(node) > finish:
            ways, _ = plain.ways(node, bounds[window])
            # An overlap of one stream lets the later begin within the earlier: nothing is gained behind its start.
            single = len(ways) == 1 and ways[0][1] == plain.time(ways[0][0])
            node = ways[0][0] if single else node
        if single and plain.time(begin) == walks[w][2]:
            assert starts[w] == finish


# By hand ----------------------------------------------------------------------------------------------------------


def graph(ops=(), hosts=(), call=None, edges=(), clock=None):
    """A graph of rows (start, end, lane) and edges (to, from, ready, type)."""
    items = [[i[k] for i in [*ops, *hosts]] for k in range(3)]
    edges = sorted((to, source, ready, TYPE[kind], 0) for to, source, ready, kind in edges)
    return arrays(items, len(ops), [NONE] * len(ops) if call is None else call, [0] * len(ops), edges, clock)


ONE = np.zeros((1, 1, 1), np.int64)
SEND, RECEIVE, CONSUMER, CALL = 0, 1, 2, 4


def late_peer(elastic):
    """Rank 0 calls at 70 (idle from 10) and sends from 80; rank 1 receives from 20 to 90, its consumer starts at 95."""
    edges = [(2 * RECEIVE + 1, 2 * SEND, 80, "send_recv")] if elastic else []
    return graph(
        ops=[(80, 90, 0), (20, 90, 1), (95, 99, 1)],
        hosts=[(0, 10, 10), (70, 75, 10), (0, 10, 11)],
        call=[CALL, 5, 5],
        edges=edges,
    )


def test_a_late_peer_is_walked_to_and_shortening_it_moves_the_end_by_as_much():
    g, walks = late_peer(elastic=True), [(2 * CONSUMER, 15, 95, 0)]
    kinds = [(t[1], t[2], t[3], t[4], t[5]) for t in walked(g, ONE, walks)]
    assert kinds == [
        (90, 95, RESIDUAL, CONSUMER, TYPE["stream"]),
        (80, 90, BODY, RECEIVE, TYPE["send_recv"]),
        (75, 80, RESIDUAL, SEND, TYPE["launch"]),
        (70, 75, BODY, CALL, NONE),
        (15, 70, HOST_GAP, CALL, TYPE["thread"]),
    ]
    for d in (0, 1, 30, 55):
        assert replayed(g, ONE, walks, [(0, 2 * CALL, d)])[0] == [95 - d]


def test_a_rigid_wait_would_hide_it():
    g, walks = late_peer(elastic=False), [(2 * CONSUMER, 15, 95, 0)]
    assert replayed(g, ONE, walks, [(0, 2 * CALL, 30)])[0] == [95]


def test_a_wait_shrinks_no_further_than_its_own_start():
    """The receive starts at 70 only: of 40 that the sender is sooner, 10 are gained."""
    g = graph(
        ops=[(80, 90, 0), (70, 90, 1), (95, 99, 1)],
        hosts=[(0, 10, 10), (70, 75, 10), (0, 10, 11)],
        call=[CALL, 5, 5],
        edges=[(3, 0, 80, "send_recv")],
    )
    starts, chains = replayed(g, ONE, [(4, 15, 95, 0)], [(0, 2 * CALL, 40)])
    assert starts == [85]
    assert [(row[4], row[6]) for row in chains] == [(CONSUMER, 5), (RECEIVE, 10), (RECEIVE, 55)]


def test_an_edge_beyond_the_uncertainty_is_left_out_and_said_within_it_counts_as_just_then():
    ops, clock = [(0, 30, 0), (20, 40, 1)], [0, 1]
    g = graph(ops=ops, clock=clock, edges=[(2, 1, 30, "flag")])
    for bound, expected in (
        (10, [(0, 20, BODY, 0, 0)]),
        (9, [(0, 20, UNKNOWN, 1, VIA_VIOLATION)]),
    ):
        bounds = np.array([[[0, bound], [bound, 0]]], np.int64)
        tiles = walked(g, bounds, [(2, 0, 20, 0)])
        assert [(t[1], t[2], t[3], t[4], t[10]) for t in tiles] == expected


def test_overlapping_kernels_of_one_stream():
    """The later begins within the earlier: it is held by it, with no residual."""
    g = graph(ops=[(0, 30, 0), (20, 40, 0)])
    assert [(t[1], t[2], t[3], t[4]) for t in walked(g, ONE, [(2, 0, 20, 0)])] == [(0, 20, BODY, 0)]


def test_an_overlapping_kernel_is_not_held_by_what_came_after_it_began():
    """A receive from 0 to 100 whose peer sent at 80; the next kernel of its stream began at 50."""
    g = graph(ops=[(80, 99, 0), (0, 100, 1), (50, 120, 1)], edges=[(3, 0, 80, "send_recv")])
    assert [(t[1], t[2], t[3], t[4]) for t in walked(g, ONE, [(4, 0, 50, 0)])] == [(0, 50, BODY, 1)]


def test_a_replayed_chain_passes_nothing_twice():
    g = graph(ops=[(0, 2, 0), (1, 1, 0)], edges=[(1, 2, 1, "send_recv")])
    begin, finish, consumer, window = columns([(2, 0, 1, 0)])
    nothing = np.zeros(0, np.int64)
    _, _, count = replay(g, begin, finish, consumer, ONE, window, np.zeros(2, np.int64), nothing, nothing, ROOM)
    assert 0 <= count <= 4


def test_host_time_right_before_a_consumer_on_the_host_can_vanish():
    """The thread did nothing from 10 to 95, where the consumer began."""
    g, walks = graph(hosts=[(0, 10, 0)]), [(1, 5, 95, 0)]
    tiles = walked(g, ONE, walks)
    assert [(t[1], t[2], t[3]) for t in tiles] == [(10, 95, LEAD), (5, 10, BODY)]
    assert replayed(g, ONE, walks, parts_of(tiles[:1]))[0] == [10]


def test_a_blocking_copy_is_walked_to_the_begin_of_its_call():
    """The call from 10 to 60 returns after its copy (20 to 50); the clocks may be 40 off."""
    g = graph(
        ops=[(20, 50, 0)], hosts=[(0, 2, 10), (10, 60, 10)], call=[2], clock=[0, 1, 1], edges=[(5, 1, 50, "sync")]
    )
    bounds = np.array([[[0, 40], [40, 0]]], np.int64)
    kinds = [(t[1], t[2], t[3], t[4]) for t in walked(g, bounds, [(1, 0, 50, 0)])]
    assert kinds == [(20, 50, BODY, 0), (10, 20, RESIDUAL, 0), (2, 10, HOST_GAP, 2), (0, 2, BODY, 1)]
    assert replayed(g, bounds, [(1, 0, 50, 0)], [(0, 4, 8)])[0] == [42]


def test_a_circle_of_equal_times_ends_as_unknown():
    g = graph(ops=[(20, 30, 0), (20, 30, 1)], edges=[(0, 2, 20, "flag"), (2, 0, 20, "flag")])
    assert [(t[1], t[2], t[3]) for t in walked(g, ONE, [(0, 5, 20, 0)])] == [(5, 20, UNKNOWN)]
    assert replayed(g, ONE, [(0, 5, 20, 0)])[0] == [20]


def test_numbers_that_the_loops_have_by_heart():
    assert [TYPES.index(t) for t in ("launch", "stream", "thread", "ack")] == [0, 1, 2, 6]
    assert [EVIDENCE.index(e) for e in ("recorded", "structural", "unknown")] == [0, 1, 5]

"""The compiled replay of the whole graph against a plain version, on random graphs, and what holds for any replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.graph import forward as compiled
from gapscope.graph.allowance import NEVER, latest, reaching
from gapscope.graph.edges import TYPE, TYPES
from gapscope.graph.forward import FLOOR, STICKY, STRUCK, inner_waits
from gapscope.graph.kernels import LAUNCH, NONE
from gapscope.graph.narrow import lengths_of, narrow
from tests.unit.test_walk import CALL, CONSUMER, ONE, RECEIVE, SEND, Plain, graph, graphs, late_peer

OWN = len(TYPES)
BOTH = (STICKY, FLOOR)
EXAMPLES = settings(max_examples=50, deadline=None)


ALWAYS = np.array([-(2**61), 2**61])
"""One window of the clocks."""


def forward(g, bounds, edges=ALWAYS):
    """All nodes of a graph, from its arrays."""
    return compiled.whole(g, bounds, edges)


def residuals_of(f):
    return lengths_of(f.residual).tolist()


def ways_of(f, node):
    """Source, when it was satisfied (None: struck) and kind of each way to a node."""
    slack, residual = lengths_of(f.slack), lengths_of(f.residual)
    return [
        (int(f.source[j]), None if slack[j] == STRUCK else int(f.time[node] - residual[node] - slack[j]), f.kind[j])
        for j in range(f.first[node], f.first[node + 1])
    ]


# The plain version ------------------------------------------------------------------------------------------------


class PlainForward:
    """Ways to every node as lists, and what the compiled loops do, said plainly."""

    def __init__(self, g, bounds, edges):
        plain = Plain(g)
        times = [plain.time(node) for node in range(2 * len(plain.start))]
        window = [next((w for w in range(len(edges) - 2) if at < edges[w + 1]), len(edges) - 2) for at in times]
        self.n = 2 * len(plain.start)
        self.time = [plain.time(node) for node in range(self.n)]
        self.inner = [self._inner(plain, i) for i in range(self.n // 2)]
        self.ways = [self._ways(plain, node, bounds[window[node]]) for node in range(self.n)]
        self.order, self.state = [], ["unseen"] * self.n
        self.dropped = set()
        for node in range(self.n):
            self._visit(node)
        self.held = [self._held(node, self.time) for node in range(self.n)]
        self.residual = [
            self.time[v] - self._ready(v, h, self.time) if h is not None else 0 for v, h in enumerate(self.held)
        ]

    @staticmethod
    def _inner(plain, i):
        """The last item within a host item, at any depth, that waits for something at its end."""
        if i < plain.n_ops:
            return None
        found = None
        for j in range(i + 1, len(plain.start)):
            if plain.lane[j] != plain.lane[i] or plain.start[j] >= plain.end[i]:
                break
            others = [k for k in range(i + 1, j) if plain.end[k] > plain.start[j]]  # what encloses it within this one
            if not others and plain.end[j] <= plain.end[i] and plain.edges[2 * j + 1]:
                found = j
        return found

    def _ways(self, plain, node, bound):
        """Rows of node, lag, kind."""
        ways = []
        for source, ready, kind, _ in plain.ways(node, bound)[0]:
            c = source // 2
            if kind == TYPE["launch"] and source % 2 and ready < plain.end[c]:
                ways.append((2 * c, min(plain.start[c], plain.time(node)), kind))
            ways.append((source, ready, OWN if kind == NONE else kind))
        if node % 2 and self.inner[node // 2] is not None:
            j = self.inner[node // 2]
            ways.append((2 * j + 1, plain.end[j], OWN))
        return [(source, ready - self.time[source], kind) for source, ready, kind in ways]

    def _visit(self, node):
        if self.state[node] != "unseen":
            return
        self.state[node] = "open"
        for k, (source, _, _) in enumerate(self.ways[node]):
            if self.state[source] == "open":
                self.dropped.add((node, k))
            else:
                self._visit(source)
        self.state[node] = "done"
        self.order.append(node)

    def _ready(self, node, k, value):
        source, lag, _ = self.ways[node][k]
        return value[source] + lag

    def _held(self, node, value):
        kept = [k for k in range(len(self.ways[node])) if (node, k) not in self.dropped]
        sign = 1 if node % 2 == 0 else -1
        return max(kept, key=lambda k: (self._ready(node, k, value), sign * k), default=None)

    def floors(self):
        found = [0] * (OWN + 1)
        for kind in range(OWN):
            of_kind = sorted(
                self.residual[v] for v, h in enumerate(self.held) if h is not None and self.ways[v][h][2] == kind
            )
            if of_kind:
                found[kind] = of_kind[(len(of_kind) - 1) // 20]
        return found

    def replay(self, gone, residuals):
        value, floors = list(self.time), self.floors()
        for node in self.order:
            before = self.held[node]
            if before is None:
                continue
            now = self._held(node, value)
            rest = self.residual[node] - gone.get(node, 0)
            kinds = (self.ways[node][now][2], self.ways[node][before][2])
            if residuals == FLOOR and now != before and OWN not in kinds:
                rest = min(rest, floors[kinds[0]])
            value[node] = self._ready(node, now, value) + max(rest, 0)
        return value

    def latest(self, ends):
        allowed, way = [NEVER] * self.n, [None] * self.n
        for end in ends:
            allowed[end] = self.time[end]
        for node in reversed(self.order):
            if allowed[node] == NEVER or self.held[node] is None:
                continue
            for k, (source, lag, _) in enumerate(self.ways[node]):
                limit = allowed[node] - self.residual[node] - lag
                if (node, k) not in self.dropped and limit < allowed[source]:
                    allowed[source], way[source] = limit, (node, k)
        return allowed, way

    def absorber(self, way, node):
        while node is not None and way[node] is not None:
            later, k = way[node]
            if self.held[later] != k:
                return self.ways[later][self.held[later]][0]
            node = later
        return None


@st.composite
def cases(draw):
    """A graph, its clocks, and where the windows of them begin and end."""
    g, bounds, _ = draw(graphs())
    low, high = (int(f(t)) if len(t) else 0 for f, t in ((np.min, g.start), (np.max, g.end)))
    return g, bounds, np.array([low, draw(st.integers(low, max(high, low))), high + 1])


def drawn_gone(data, f):
    """Nodes, and how much of the time before each is gone."""
    some = {}
    for node, residual in enumerate(residuals_of(f)):
        if residual > 0 and data.draw(st.booleans()):
            some[node] = data.draw(st.integers(0, residual))
    return some


# Against it -------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(cases())
def test_ways_order_and_bindings_equal_those_of_the_plain_version(case):
    g, bounds, edges = case
    f, plain = forward(g, bounds, edges), PlainForward(g, bounds, edges)
    found = inner_waits(g.start, g.end, g.lane, int(g.n_ops[0]), g.held).tolist()
    assert found == [NONE if i is None else i for i in plain.inner]
    assert f.order.tolist() == plain.order
    assert f.dropped == len(plain.dropped)
    residuals = residuals_of(f)
    for node in range(plain.n):
        held = plain.held[node]
        assert ways_of(f, node) == [
            (source, None if held is None or (node, k) in plain.dropped else plain.time[source] + lag, kind)
            for k, (source, lag, kind) in enumerate(plain.ways[node])
        ]
        assert f.held_by[node] == (NONE if held is None else plain.ways[node][held][0])
        assert residuals[node] == plain.residual[node]
    assert f.floor.tolist() == plain.floors()


@EXAMPLES
@given(cases(), st.data())
def test_replay_equals_the_plain_replay(case, data):
    g, bounds, edges = case
    f, plain = forward(g, bounds, edges), PlainForward(g, bounds, edges)
    gone = drawn_gone(data, f)
    for residuals in BOTH:
        assert f.replay(gone, residuals).tolist() == plain.replay(gone, residuals)


@EXAMPLES
@given(cases(), st.data())
def test_latest_and_absorbers_equal_those_of_the_plain_version(case, data):
    g, bounds, edges = case
    f, plain = forward(g, bounds, edges), PlainForward(g, bounds, edges)
    nodes = st.integers(0, max(plain.n - 1, 0))
    ends = sorted(data.draw(st.sets(nodes, max_size=3))) if plain.n else []
    later, absorber = latest(f, np.array(ends, np.int64), np.zeros(len(ends), np.int64))
    expected, plain_way = plain.latest(ends)
    assert np.where(later == NEVER, NEVER, later + f.time).tolist() == expected
    assert reaching(f, np.array(ends, np.int64)).tolist() == [at != NEVER for at in expected]
    absorbed = [plain.absorber(plain_way, node) for node in range(plain.n)]
    assert absorber.tolist() == [NONE if a is None else a for a in absorbed]


# What holds for every replay --------------------------------------------------------------------------------------


@EXAMPLES
@given(cases())
def test_without_a_change_every_time_comes_back(case):
    f = forward(*case)
    assert f.diverging() is None
    for residuals in BOTH:
        assert f.replay({}, residuals).tolist() == f.time.tolist()


@EXAMPLES
@given(cases())
def test_what_holds_a_node_comes_before_it(case):
    f = forward(*case)
    place = np.empty(len(f.order), int)
    place[f.order] = np.arange(len(f.order))
    for node in range(len(f.time)):
        for source, ready, _ in ways_of(f, node):
            assert ready is None or place[source] < place[node]
    assert sorted(f.order.tolist()) == list(range(len(f.time)))


@EXAMPLES
@given(cases(), st.data())
def test_nothing_comes_later_and_with_sticky_residuals_never_for_more_that_is_gone(case, data):
    f = forward(*case)
    some = drawn_gone(data, f)
    more = {node: data.draw(st.integers(some.get(node, 0), int(r))) for node, r in enumerate(residuals_of(f)) if r > 0}
    low, lower = f.replay(some, STICKY), f.replay(more, STICKY)
    assert (lower <= low).all()
    assert (low <= f.time).all()
    for gone in (some, more):
        assert (f.replay(gone, FLOOR) <= f.replay(gone, STICKY)).all()


@EXAMPLES
@given(cases(), st.data())
def test_scaled_times_give_scaled_replays(case, data):
    g, bounds, edges = case
    by = data.draw(st.sampled_from([2, 7, 1000]))
    f = forward(g, bounds, edges)
    big = forward(g._replace(start=g.start * by, end=g.end * by, ready=g.ready * by), bounds * by, edges * by)
    gone = drawn_gone(data, f)
    for residuals in BOTH:
        scaled = big.replay({node: by * ns for node, ns in gone.items()}, residuals)
        assert scaled.tolist() == (by * f.replay(gone, residuals)).tolist()


@EXAMPLES
@given(cases(), st.data(), st.sampled_from([-1000, 1_700_000_000_000_000_000]))
def test_moved_times_give_moved_replays(case, data, by):
    """Times of a wall clock are close to 2^61; what stands for never must not meet them."""
    g, bounds, edges = case
    f = forward(g, bounds, edges)
    moved = forward(g._replace(start=g.start + by, end=g.end + by, ready=g.ready + by), bounds, edges + by)
    gone = drawn_gone(data, f)
    for residuals in BOTH:
        assert (moved.replay(gone, residuals) - by).tolist() == f.replay(gone, residuals).tolist()
    ends = np.arange(0, len(f.time), 3)
    spare = np.zeros(len(ends), np.int64)
    assert latest(moved, ends, spare)[0].tolist() == latest(f, ends, spare)[0].tolist()


@EXAMPLES
@given(cases(), st.data())
def test_nothing_starts_before_the_call_that_launched_it(case, data):
    g, bounds, edges = case
    f = forward(g, bounds, edges)
    gone = drawn_gone(data, f)
    for residuals in BOTH:
        again = f.replay(gone, residuals)
        for op, call in enumerate(g.call.tolist()):
            launched = [ready for source, ready, kind in ways_of(f, 2 * op) if source // 2 == call and kind == LAUNCH]
            is_kept = any(ready is not None for ready in launched)
            if is_kept and g.start[call] <= g.start[op]:
                assert again[2 * op] >= again[2 * call]


@EXAMPLES
@given(cases(), st.data())
def test_within_its_slack_a_node_moves_no_end_and_beyond_it_one(case, data):
    """Slack, checked by a replay in which one node comes later."""
    f = forward(*case)
    if not len(f.time):
        return
    ends = np.array(sorted(data.draw(st.sets(st.integers(0, len(f.time) - 1), min_size=1, max_size=3))))
    node = data.draw(st.integers(0, len(f.time) - 1))
    later, _ = latest(f, ends, np.zeros(len(ends), np.int64))
    if f.held_by[node] == NONE or later[node] == NEVER:
        return

    def overdue(by):
        return (f.replay({node: -by})[ends] > f.time[ends]).any()

    assert not overdue(int(later[node]))
    assert overdue(int(later[node]) + 1)


# The gate ---------------------------------------------------------------------------------------------------------


@EXAMPLES
@given(cases(), st.data(), st.sampled_from(["residual", "slack"]), st.sampled_from([-1, -50]))
def test_what_is_out_of_order_is_found_at_its_node(case, data, field, wrong):
    """What passed before a node, or what the last of its ways was satisfied before, is negative."""
    f = forward(*case)
    held = [v for v in range(len(f.time)) if f.held_by[v] != NONE]
    if not held:
        return
    node = data.draw(st.sampled_from(held))
    lengths = lengths_of(getattr(f, field))
    at = node if field == "residual" else f.first[node] + [t for _, t, _ in ways_of(f, node)].index(last_of(f, node))
    lengths[at] = wrong
    assert replace(f, **{field: narrow(lengths)}).diverging() == node


@EXAMPLES
@given(cases(), st.data())
def test_a_way_that_is_missing_is_found_at_its_node(case, data):
    """The way that was last is satisfied sooner than it was, and no other is as late."""
    f = forward(*case)
    ready = {v: [t for _, t, _ in ways_of(f, v)] for v in range(len(f.time)) if f.held_by[v] != NONE}
    alone = [v for v, times in ready.items() if times.count(last_of(f, v)) == 1]
    if not alone:
        return
    node = data.draw(st.sampled_from(alone))
    slack = lengths_of(f.slack)
    slack[f.first[node] + ready[node].index(last_of(f, node))] = 1
    assert replace(f, slack=narrow(slack)).diverging() == node


def last_of(f, node):
    return int(f.time[node]) - residuals_of(f)[node]


# By hand ----------------------------------------------------------------------------------------------------------


def starts(f, gone, residuals=STICKY):
    return f.replay(gone, residuals)[0::2].tolist()


def test_a_late_peer_that_comes_sooner_moves_the_consumer_as_much():
    f = forward(late_peer(elastic=True), ONE)
    for sooner in (0, 1, 30, 55):
        for residuals in BOTH:
            again = f.replay({2 * CALL: sooner}, residuals)
            assert again[2 * SEND] == 80 - sooner
            assert again[2 * RECEIVE + 1] == 90 - sooner
            assert again[2 * CONSUMER] == 95 - sooner


def test_a_receive_of_fixed_length_would_hide_it():
    """The same without the edge: what a replay with rigid waits does."""
    f = forward(late_peer(elastic=False), ONE)
    assert f.replay({2 * CALL: 30})[2 * CONSUMER] == 95


def test_a_wait_grows_when_it_begins_sooner():
    """The receive begins 20 sooner, and ends when it did: its peer is as late as before."""
    g = graph(
        ops=[(80, 90, 0), (40, 90, 1), (95, 99, 1)],
        hosts=[(70, 75, 10), (0, 5, 11), (30, 35, 11)],
        call=[3, 5, 5],
        edges=[(3, 0, 80, "send_recv")],
    )
    again = forward(g, ONE).replay({2 * 5: 20})
    assert again[2:6].tolist() == [20, 90, 95, 99]


def test_a_wait_shrinks_no_further_than_its_own_start():
    """The receive begins at 70: of 40 that the sender is sooner, 10 are gained."""
    g = graph(
        ops=[(80, 90, 0), (70, 90, 1), (95, 99, 1)],
        hosts=[(0, 10, 10), (70, 75, 10), (0, 10, 11)],
        call=[4, 5, 5],
        edges=[(3, 0, 80, "send_recv")],
    )
    assert forward(g, ONE).replay({2 * 4: 40})[2:6].tolist() == [70, 80, 85, 89]


def test_a_sync_call_waits_for_less_or_more():
    """A kernel from 20 to 80; the call waits from 30 to 84 and returns 4 after the kernel."""
    g = graph(ops=[(20, 80, 0)], hosts=[(0, 10, 10), (30, 84, 10), (90, 91, 10)], call=[1], edges=[(5, 1, 80, "sync")])
    f = forward(g, ONE)
    assert f.replay({1: 45})[4:7].tolist() == [30, 39, 45]  # the kernel ends at 35, 5 after the wait began
    assert f.replay({1: 60})[4:7].tolist() == [30, 34, 40]  # never before it began
    assert f.replay({4: 20})[4:7].tolist() == [10, 84, 90]  # the wait begins sooner: it grows


def test_a_call_that_encloses_a_wait_is_elastic_as_well():
    """A range from 30 to 90 with the wait of above inside: it ends 6 after that."""
    g = graph(ops=[(20, 80, 0)], hosts=[(0, 10, 10), (30, 90, 10), (32, 84, 10)], call=[1], edges=[(7, 1, 80, "sync")])
    assert forward(g, ONE).replay({1: 30})[4:8].tolist() == [30, 60, 32, 54]


def test_a_full_slot_limits_what_is_gained():
    """The second send comes 60 sooner, but the slot is released at 50."""
    g = graph(
        ops=[(10, 20, 0), (100, 110, 0), (30, 50, 1)],
        hosts=[(0, 5, 10), (90, 95, 10)],
        call=[3, 4, NONE],
        edges=[(4, 1, 20, "flag"), (2, 5, 50, "ack")],
    )
    f = forward(g, ONE)
    assert starts(f, {2 * 4: 60})[1] == 55  # released at 50, and 5 as it took after its launch
    without = forward(g._replace(held=np.zeros_like(g.held)), ONE)  # no edge, no slot
    assert starts(without, {2 * 4: 60})[1] == 40


def test_a_residual_is_sticky_or_the_least_of_its_kind():
    """Launched at 95, begun at 100; when the launch comes sooner the operation before it holds, till 90."""
    g = graph(
        ops=[(0, 10, 0), (11, 20, 0), (21, 90, 0), (100, 110, 0)], hosts=[(0, 1, 10), (90, 95, 10)], call=[4, 4, 4, 5]
    )
    f = forward(g, ONE)
    assert f.replay({2 * 5: 30}, STICKY)[6] == 95
    assert f.replay({2 * 5: 30}, FLOOR)[6] == 91  # 1 after the operation before it, as others


def test_with_floors_more_that_is_gone_may_end_later():
    """A bound, and no order: where what held at first holds again, all of its residual is back."""
    g = graph(
        ops=[(0, 10, 0), (11, 20, 0), (21, 90, 0), (100, 110, 0)], hosts=[(0, 1, 10), (90, 95, 10)], call=[4, 4, 4, 5]
    )
    f = forward(g, ONE)
    assert f.replay({10: 10}, FLOOR)[6] == 91
    assert f.replay({10: 10, 5: 10}, FLOOR)[6] == 90  # the launch at 85 holds again, and 5 pass
    assert f.replay({10: 10, 5: 6}, FLOOR)[6] == 90
    assert f.replay({10: 6, 5: 0}, FLOOR)[6] == 91
    assert f.replay({10: 5, 5: 1}, FLOOR)[6] == 95  # 1 more is gone, and it is 4 later than with 6 and none


def test_no_operation_precedes_its_launch():
    """It began at 12, while the call was still on (10 to 40); without the call's time it begins with the call."""
    g = graph(ops=[(12, 50, 0)], hosts=[(0, 2, 10), (10, 40, 10)], call=[2])
    f = forward(g, ONE)
    assert f.replay({5: 20})[[0, 4, 5]].tolist() == [10, 10, 20]
    assert f.replay({5: 30})[[0, 4, 5]].tolist() == [10, 10, 10]
    assert f.replay({4: 8})[[0, 4, 5]].tolist() == [4, 2, 32]


def test_a_blocking_copy_moves_with_its_call_and_holds_its_return():
    """A call from 10 to 60 that copies from 20 to 50 and returns after that: no circle, nothing stays behind."""
    g = graph(ops=[(20, 50, 0)], hosts=[(0, 2, 10), (10, 60, 10), (70, 71, 10)], call=[2], edges=[(5, 1, 50, "sync")])
    f = forward(g, ONE)
    assert f.dropped == 0
    assert f.replay({4: 8})[[0, 1, 4, 5, 6]].tolist() == [12, 42, 2, 52, 62]  # all of it 8 sooner
    assert f.replay({0: 10})[[0, 1, 4, 5, 6]].tolist() == [10, 40, 10, 50, 60]  # begins at once
    assert f.replay({1: 30})[[0, 1, 4, 5, 6]].tolist() == [20, 20, 10, 30, 40]  # copies in no time


def test_a_circle_of_equal_times_is_cut_once_and_changes_nothing():
    g = graph(ops=[(20, 30, 0), (20, 30, 1)], edges=[(0, 2, 20, "flag"), (2, 0, 20, "flag")])
    f = forward(g, ONE)
    assert f.dropped == 1
    assert f.diverging() is None


@pytest.mark.parametrize(("bound", "expected"), [(10, [0, 10, 20]), (9, [0, 10, 40])])
def test_an_edge_that_contradicts_the_times_holds_within_the_uncertainty_only(bound, expected):
    """Ready at 30, begun at 20, on another clock: within 10 it is as if it had been satisfied right then."""
    g = graph(ops=[(0, 30, 0), (20, 40, 1)], clock=[0, 1], edges=[(2, 1, 30, "flag")])
    f = forward(g, np.array([[[0, bound], [bound, 0]]], np.int64))
    again = f.replay({1: 20})
    assert [again[0], again[1], again[3]] == expected
    assert again[3] - again[2] == 20


def test_slack_and_what_takes_its_place():
    """Two ways to the end: the consumer's at 40 and another at 70, which holds it."""
    g = graph(ops=[(10, 40, 0), (10, 70, 1), (75, 80, 2)], edges=[(4, 1, 40, "event"), (4, 3, 70, "event")])
    f = forward(g, ONE)
    later, absorber = latest(f, np.array([5]), np.array([0]))
    assert later.tolist() == [30, 30, 0, 0, 0, 0]
    assert absorber[[0, 2, 5]].tolist() == [3, NONE, NONE]
    later, _ = latest(f, np.array([3]), np.array([0]))
    assert later[[0, 1, 4, 5]].tolist() == [NEVER] * 4


def test_savings_do_not_add_up():
    """Two operations end at 70, and the last waits for both: neither alone gains. In a row behind a third way, less."""
    g = graph(ops=[(10, 70, 0), (10, 70, 1), (75, 80, 2)], edges=[(4, 1, 70, "event"), (4, 3, 70, "event")])
    f = forward(g, ONE)
    assert [int(80 - f.replay(gone)[5]) for gone in ({1: 20}, {3: 20}, {1: 20, 3: 20})] == [0, 0, 20]
    g = graph(
        ops=[(10, 40, 0), (40, 70, 0), (10, 45, 1), (75, 80, 2)], edges=[(6, 3, 70, "event"), (6, 5, 45, "event")]
    )
    f = forward(g, ONE)
    assert [int(80 - f.replay(gone)[7]) for gone in ({1: 20}, {3: 20}, {1: 20, 3: 20})] == [20, 20, 25]

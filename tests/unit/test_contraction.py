"""The graph made small against the whole: every replay, every allowance and every floor are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.graph import forward as compiled
from gapscope.graph.allowance import NEVER, latest, reaching
from gapscope.graph.edges import TYPE
from gapscope.graph.floors import TOP, floors, quantiles
from gapscope.graph.forward import Forward, whole
from gapscope.graph.kernels import NONE
from gapscope.graph.queues import CALLED_NS, TURN_NS
from gapscope.graph.ways import OWN_START, window_of
from tests.unit.test_forward import ALWAYS, BOTH, cases, drawn_gone, residuals_of, ways_of
from tests.unit.test_walk import ONE, arrays

EXAMPLES = settings(max_examples=300, deadline=None)


def contracted(g, bounds, edges, asked):
    return compiled.contracted(g, bounds, edges, asked, floors(g, bounds, edges))


def gone_of_asked(data, f, asked):
    """Nodes that were asked for, and how much of the time before each is gone."""
    return {node: ns for node, ns in drawn_gone(data, f).items() if node in asked}


def drawn_asked(data, f):
    every = st.sets(st.integers(0, max(len(f.time) - 1, 0)))
    return np.array(sorted(data.draw(every)) if len(f.time) else [], np.int64)


def same_replays(f, small, gone):
    """Check that every node that is left has the time it has in the whole graph."""
    here = dict(zip(small.places(np.array(list(gone), np.int64)).tolist(), gone.values(), strict=True))
    for residuals in BOTH:
        assert small.replay(here, residuals).tolist() == f.replay(gone, residuals)[small.node].tolist()


def same_allowances(data, f, small, asked):
    """Check that every node that was asked for may be as late as in the whole graph, for the same reason."""
    some = data.draw(st.sets(st.sampled_from(asked.tolist()))) if len(asked) else set()
    ends = np.array(sorted(some), np.int64)
    spare = np.array([data.draw(st.integers(0, 20)) for _ in ends], np.int64)
    later, absorber = latest(f, ends, spare)
    again, absorber_again = latest(small, small.places(ends), spare)
    assert again[small.places(asked)].tolist() == later[asked].tolist()
    assert reaching(small, small.places(ends)).tolist() == (again != NEVER).tolist()
    # Of several that allow no more, another may be named: one is where the whole names one.
    named = absorber[asked]
    named_again = absorber_again[small.places(asked)]
    assert set(named_again.tolist()) <= {NONE, *f.held_by.tolist()}
    strict = _one_way_each(f, later)
    if strict:
        assert named_again.tolist() == named.tolist()


@EXAMPLES
@given(cases(), st.data())
def test_replays_equal_those_of_the_whole(case, data):
    f, asked = whole(*case), drawn_asked(data, whole(*case))
    small = contracted(*case, asked)
    assert len(small.time) <= len(f.time)
    assert small.dropped == f.dropped
    assert small.floor.tolist() == f.floor.tolist()
    assert (small.node[small.places(asked)] == asked).all()
    assert small.time.tolist() == f.time[small.node].tolist()
    assert small.diverging() is None
    same_replays(f, small, gone_of_asked(data, f, set(asked.tolist())))


@EXAMPLES
@given(cases(), st.data())
def test_allowances_equal_those_of_the_whole(case, data):
    f, asked = whole(*case), drawn_asked(data, whole(*case))
    small = contracted(*case, asked)
    same_allowances(data, f, small, asked)


def _one_way_each(f, later):
    """Tell whether no node has two ways on that allow equally much."""
    seen = {}
    for node in range(len(f.time)):
        if later[node] == NEVER:
            continue
        counting = [(source, ready) for source, ready, _ in ways_of(f, node) if ready is not None]
        last = max((ready for _, ready in counting), default=0)
        for source, ready in counting:
            seen.setdefault(source, []).append(int(later[node]) + last - ready)
    return all(limits.count(min(limits)) == 1 for limits in seen.values())


@EXAMPLES
@given(st.lists(st.integers(-5, 60), min_size=2, max_size=5, unique=True), st.integers(-10, 70))
def test_windows_are_found_from_anywhere(edges, at):
    edges = np.array(sorted(edges))
    expected = int(np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2))
    for guess in range(len(edges) - 1):
        assert window_of(edges, at, guess) == expected


# Streams and threads of some length ---------------------------------------------------------------------------------


def stretch(launches, lengths, waits, events=()):
    """One thread that launches operations into two streams, and waits for some of them; every time is its own.

    Args:
        launches: Host time before each call, and its stream.
        lengths: How long each operation takes, and what passes after the later of launch and the one before.
        waits: Calls after which the thread waits for the operation that they launched.
        events: Pairs of operations, stream by stream: the first waits for the second, if that was over by then.
    """
    now, calls, ops, over = 0, [], {0: [], 1: []}, [0, 0]
    for k, ((pause, stream), (length, rest)) in enumerate(zip(launches, lengths, strict=False)):
        calls.append((now + pause, now + pause + 3, None))
        began = max(now + pause + 3, over[stream]) + rest
        over[stream] = began + length
        ops[stream].append((began, began + length, len(calls) - 1))
        now = now + pause + 3
        if k in waits:
            calls.append((now + 1, max(now + 1, over[stream]) + 2, (stream, len(ops[stream]) - 1)))
            now = calls[-1][1]
    every = ops[0] + ops[1]
    n = len(every)
    events = sorted((to, of) for to, of in events if to < n and of < n and every[of][1] <= every[to][0])
    edges = [(2 * to, 2 * of + 1, every[of][1], TYPE["event"], 0) for to, of in events]
    items = [*([t[k] for t in every + calls] for k in (0, 1)), [0] * len(ops[0]) + [1] * len(ops[1]) + [2] * len(calls)]
    for i, (_, _, waited) in enumerate(calls):
        if waited is not None:
            op = waited[1] + (len(ops[0]) if waited[0] else 0)
            edges.append((2 * (n + i) + 1, 2 * op + 1, every[op][1], TYPE["sync"], 0))
    return arrays(items, n, [n + t[2] for t in every], [0] * n, edges)


SOME = st.integers(0, 12)
STRETCHES = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.lists(st.tuples(SOME, st.integers(0, 1)), min_size=n, max_size=n),
        st.lists(st.tuples(SOME, st.one_of(st.integers(0, 3), SOME)), min_size=n, max_size=n),
        st.sets(st.integers(0, n - 1), max_size=3),
        st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3),
    )
)


@EXAMPLES
@given(STRETCHES, st.data())
def test_stretches_of_a_stream_are_replayed_as_in_the_whole(drawn, data):
    g = stretch(*drawn)
    f = whole(g, ONE, ALWAYS)
    asked = np.union1d(drawn_asked(data, f), [1])  # what comes next on its stream no longer moves as its launch does
    small = contracted(g, ONE, ALWAYS, asked)
    assert small.floor.tolist() == f.floor.tolist()
    same_replays(f, small, gone_of_asked(data, f, set(asked.tolist())))
    same_allowances(data, f, small, asked)


def test_what_a_full_queue_holds_is_one_node():
    """Calls return every 3, operations take 10: each waits for the one before, and no launch is ever last."""
    g = stretch([(0, 0)] * 8, [(10, 0)] * 8, set())
    small = contracted(g, ONE, ALWAYS, np.array([2 * 7 + 1]))
    assert small.node.tolist() == [2 * 8, 15]


def test_operations_behind_one_launch_root_are_one_node():
    """Each waits for its launch and for the one before it: the last stands for all, as nothing asks for the others."""
    g = stretch([(20, 0)] * 8, [(10, 0)] * 8, set())
    small = contracted(g, ONE, ALWAYS, np.array([1, 15]))
    assert small.node.tolist() == [16, 1, 14, 15]
    assert small.queues[:, [TURN_NS, CALLED_NS]].tolist() == [[7 * 13, 0]]  # each ends 13 before the next is launched
    # An operation that is asked for ends a queue: time may go within it.
    assert contracted(g, ONE, ALWAYS, np.array([1, 7, 15])).node.tolist() == [16, 1, 6, 7, 14, 15]


@pytest.mark.parametrize("waited", [1, 2, 5])
def test_what_another_stream_waits_for_ends_a_queue(waited):
    """The first, a later or the last operation of what is one queue otherwise; others follow it."""
    g = stretch([(20, 0)] * 6 + [(20, 1)], [(10, 0), *[(12, 3)] * 6], set(), [(6, waited)])
    f, small = whole(g, ONE, ALWAYS), contracted(g, ONE, ALWAYS, np.array([1, 11, 13]))
    assert set(small.node.tolist()) >= {1, 2 * waited, 11, 12, 13}
    for ns in range(-80, 11, 5):
        same_replays(f, small, {1: ns})


def test_a_queue_ends_where_it_would_have_a_second_threshold():
    """The third was launched soon enough to hold once the second has come closer to the first, and no longer then."""
    g = stretch([(5, 0), (6, 0), (11, 0), (2, 0)], [(8, 0), (11, 10), (6, 1), (3, 1)], set())
    f, small = whole(g, ONE, ALWAYS), contracted(g, ONE, ALWAYS, np.array([1, 7]))
    assert small.node.tolist() == [8, 1, 2, 6, 7]
    for ns in range(-20, 9):
        same_replays(f, small, {1: ns})


@pytest.mark.parametrize("asked", [2 * 3 + 1, 2 * 3])
@pytest.mark.parametrize("gone", [1, 8, 10])
def test_a_launch_that_comes_last_once_time_is_gone_stays(asked, gone):
    """Operations take 10 or pass 10 before they begin, of which some is gone; the next was launched 3 after this."""
    lengths = [(10, 0)] * 3 + [(10, 0) if asked % 2 else (0, 10)] + [(1, 0)] * 4
    g = stretch([(3, 0)] * 8, lengths, set())
    f, ends = whole(g, ONE, ALWAYS), np.arange(1, 16, 2)
    small = contracted(g, ONE, ALWAYS, np.append(ends, asked))
    same_replays(f, small, {asked: min(gone, residuals_of(f)[asked])})
    same_replays(f, contracted(g, ONE, ALWAYS, np.array([asked, 15])), {asked: min(gone, residuals_of(f)[asked])})
    queue = stretch([(0, 0)] * 3, [(9, 0), (9, 0), (1, 0)], set())
    f, small = whole(queue, ONE, ALWAYS), contracted(queue, ONE, ALWAYS, np.array([1, 3, 5]))
    for node in (1, 3):
        same_replays(f, small, {node: 9})
    same_replays(f, small, {1: 9, 3: 9})


# Floors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 700, TOP, 10 * TOP])
@EXAMPLES
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_floors_are_those_of_all_residuals(scale, values):
    """Counted below `TOP`, kept above: the twentieth is the same, on either side."""
    values = np.array(values) * scale
    counts = np.zeros((OWN_START, TOP), np.int32)
    np.add.at(counts[3], values[values < TOP], 1)
    long = values[values >= TOP]
    expected = int(np.quantile(values, 0.05, method="lower"))
    found = quantiles(counts, np.full(len(long), 3, np.int8), long)
    assert found.tolist() == [expected if k == 3 else 0 for k in range(OWN_START + 1)]


def test_a_node_that_was_not_asked_for_is_refused():
    f = contracted(stretch([(0, 0)] * 2, [(10, 0)] * 2, set()), ONE, ALWAYS, np.array([3]))
    assert isinstance(f, Forward)
    with pytest.raises(KeyError):
        f.places(np.array([2]))

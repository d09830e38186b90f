"""Compiled look-ups beside what they stand for, on random tables."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from gapscope.causes.membership import Membership, with_membership
from gapscope.causes.naming import _CUTS, _cut
from gapscope.causes.overlaps import Others, overlap, overlap_of_few
from gapscope.causes.sharing import FEWEST_CHANGES, _changes
from gapscope.causes.tiles import _phase
from gapscope.causes.units import _done_before
from gapscope.causes.work import by_kind, time_of_steps
from gapscope.clocks.observations import BINS, KEPT_PER_BIN, thin
from gapscope.correlation import Rows
from gapscope.graph.kernels import NONE, numbered, turn

SEEDS = range(20)


def ids(rng, n, most, *, ordered):
    values = rng.integers(0, most, n)
    return np.sort(values) if ordered else values


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ordered", [True, False])
def test_spans_are_those_of_a_binary_search(seed, ordered):
    """Ids that repeat (replayed graphs), that are missing, and gaps wider than what is looked at one by one."""
    rng = np.random.default_rng(seed)
    there, wanted = (ids(rng, n, int(rng.integers(1, 300)), ordered=ordered) for n in (200, 150))
    frames = [pl.DataFrame({"source": 0, "process": 1, "correlation": v}) for v in (there, wanted)]
    rows = Rows(frames[0])
    low, high = rows.spans(frames[1])
    keys = np.sort(there)
    assert (there[rows.order] == keys).all()
    np.testing.assert_array_equal(low, np.searchsorted(keys, wanted, side="left"))
    np.testing.assert_array_equal(high, np.searchsorted(keys, wanted, side="right"))


@pytest.mark.parametrize("seed", SEEDS)
def test_overlap_is_what_others_spend_in_each_window(seed):
    rng = np.random.default_rng(seed)
    base = 1_700_000_000_000_000_000
    start, begin = base + rng.integers(0, 5_000, 80), base + rng.integers(0, 5_000, 60)
    end, until = start + rng.integers(0, 900, 80), begin + rng.integers(0, 900, 60)
    group, of = rng.integers(0, 3, 80), rng.integers(0, 3, 60)
    each = np.minimum(end[:, None], until[None, :]) - np.maximum(start[:, None], begin[None, :])
    wanted = (np.maximum(each, 0) * (group[:, None] == of[None, :])).sum(axis=1)
    others = pl.DataFrame({"group": of, "start_ns": begin, "end_ns": until})
    np.testing.assert_array_equal(overlap(group, start, end, Others.of(others)), wanted)
    for k in range(3):
        few = overlap_of_few(
            start[group == k], end[group == k], begin, until, np.where(of == k, 5, -1).astype(np.int32)
        )
        np.testing.assert_array_equal(few, wanted[group == k])


@pytest.mark.parametrize("seed", SEEDS)
def test_time_of_a_step_counts_kernels_side_by_side_once(seed):
    rng = np.random.default_rng(seed)
    step, start = rng.integers(-1, 4, 50).astype(np.int32), rng.integers(0, 1_000, 50)
    start[step == 2] = np.sort(start[step == 2])  # of one stream
    end = start + rng.integers(1, 60, 50)
    order, first = by_kind(step, 5)
    length = time_of_steps(order, first, start, end)
    for k in range(5):
        mine = np.flatnonzero(step == k)
        moments = {t for i in mine for t in range(start[i], end[i])}
        assert (first[k + 1] - first[k], length[k]) == (len(mine), len(moments))


@pytest.mark.parametrize("seed", SEEDS)
def test_owners_of_a_gpu_take_turns_in_order_of_starts(seed):
    """Three processes, one with two streams of which the second is out of order; long operations refute its turns."""
    rng = np.random.default_rng(seed)
    start = rng.permutation(1_000)[:400] * 30_000
    start[:200] = np.sort(start[:200].reshape(2, 100), axis=1).ravel()
    start[300:] = np.sort(start[300:])
    start[200:210] = start[:10]
    end = start + rng.choice([20, 9_000], 400)
    if seed % 2:
        end[rng.integers(0, 100, 20)] += 65_000
    is_work, owner = rng.random(400) < 0.9, np.repeat([0, 1, 0, 2], 100)
    streams = pl.DataFrame({"owner": [0, 1, 0, 2], "first": [0, 100, 200, 300], "until": [100, 200, 300, 400]})
    found = _changes(SimpleNamespace(start=start, end=end), streams, pl.Series(is_work))
    rows = sorted(np.flatnonzero(is_work), key=lambda op: (start[op], op // 100))
    changes, over = {}, end[rows[0]]
    for last, op in pairwise(rows):
        over = max(over, end[last])
        if owner[op] != owner[last]:
            changes.setdefault((owner[op], owner[last]), []).append((op, last, start[op] - over))
    good = {k for k, v in changes.items() if len(v) >= FEWEST_CHANGES and min(v, key=lambda c: c[2])[2] >= 20_000}
    wanted = {(op, last) for k, v in changes.items() if {k, k[::-1]} <= good for op, last, _ in v}
    assert wanted or seed % 2
    assert set(found.rows()) == wanted
    assert found.height == len(wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_came_last_before_a_time_is_the_latest_start_or_end(seed):
    """Items that enclose each other, overlap, and are equal."""
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 200, 60))
    end = start + rng.integers(0, 40, 60)
    at = rng.integers(-5, 260, 50)
    graph = SimpleNamespace(items=SimpleNamespace(start=start, end=end))
    for first, until in ((0, 60), (20, 45)):
        for t, node in zip(at, _done_before(graph, first, until, at), strict=True):
            began = [i for i in range(first, until) if start[i] <= t]
            ended = [i for i in began if end[i] <= t]
            last = max(ended, key=lambda i: (end[i], i), default=None)
            if not began:
                assert node == -1
            elif last is None or end[last] < start[began[-1]]:
                assert node == 2 * began[-1]
            else:
                assert node == 2 * last + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_are_cut_at_each_moment_inside_once(seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 50, 40)
    steps = pl.DataFrame({"walk": rng.integers(0, 5, 40), "start_ns": start, "end_ns": start + rng.integers(1, 30, 40)})
    facts = pl.DataFrame({c: rng.integers(0, 60, 5) for c in _CUTS}).with_columns(submit_ns=pl.lit(None, pl.Int64))
    cut = _cut(facts, steps)
    wanted = []
    for walk, begin, until in steps.rows():
        inside = {m for m in facts.row(walk) if m is not None and begin < m < until}
        wanted += [(walk, *span) for span in pairwise(sorted({begin, until} | inside))]
    assert cut.rows() == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_thinning_keeps_the_shortest_delays_of_each_stretch(seed):
    """Few different times and delays: many are equal, and of those the first ones stay."""
    rng = np.random.default_rng(seed)
    begin = np.sort(rng.integers(0, BINS * 3, 20_000))
    begin[[0, -1]] = 0, BINS * 3 - 1  # stretches of three nanoseconds
    rows = pl.DataFrame(
        {
            "earlier": rng.integers(0, 2, 20_000).astype(np.int32), "later": np.full(20_000, 2, np.int32),
            "earlier_ns": begin, "later_ns": begin + rng.integers(0, 5, 20_000), "number": np.arange(20_000),
        }
    )  # fmt: skip
    delay = pl.col("later_ns") - pl.col("earlier_ns")
    wanted = (
        rows.with_columns(_bin=pl.col("earlier_ns") // 3)
        .sort(delay, "earlier_ns", maintain_order=True)
        .group_by("earlier", "later", "_bin", maintain_order=True)
        .head(KEPT_PER_BIN)
    )
    assert thin(rows).equals(wanted.select(rows.columns))


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_each_walk_are_turned_around(seed):
    rng = np.random.default_rng(seed)
    rows = np.stack([np.sort(rng.integers(0, 9, 30)), np.arange(30)], axis=1)
    turned = np.asfortranarray(rows)
    turn(turned)
    assert turned.tolist() == [row for w in range(9) for row in rows[rows[:, 0] == w][::-1].tolist()]
    turn(turned[:0])


@pytest.mark.parametrize("seed", SEEDS)
def test_membership_is_that_of_the_first_brackets(seed):
    """The first bracket of a handoff tells what its operation is to it; of others the first that moves is named."""
    rng = np.random.default_rng(seed)
    brackets = {int(item): [] for item in np.sort(rng.choice(40, 12, replace=False))}
    for of_item in brackets.values():
        of_item += [(int(rng.integers(0, 4)), bool(rng.integers(0, 2))) for _ in range(rng.integers(1, 4))]
    every = [bracket for of_item in brackets.values() for bracket in of_item]
    membership = Membership(
        numbered(np.array([*brackets], np.int64), 40), np.cumsum([0, *map(len, brackets.values())], dtype=np.int32),
        np.array([handoff for handoff, _ in every], np.int32), np.array([moves for _, moves in every]),
    )  # fmt: skip
    own = [NONE, *rng.integers(0, 4, 4).tolist()]
    walk, item = np.sort(rng.integers(0, 5, 50)), pl.Series([None, *rng.integers(0, 40, 49).tolist()], dtype=pl.Int32)
    steps = pl.DataFrame({"walk": walk, "item": item, "is_slot": pl.Series([False] * 50)})
    told = with_membership(None, membership, pl.DataFrame({"handoff": own}, schema={"handoff": pl.Int32}), steps)
    moves, other = [], []
    for w, number in zip(walk.tolist(), item.to_list(), strict=True):
        of_item = brackets.get(number, [])
        moves.append(next((m for handoff, m in of_item if handoff == own[w]), False))
        first = next((handoff for handoff, m in of_item if m), NONE)
        other.append(NONE if moves[-1] or first == own[w] else first)
    assert (told["moves"].to_list(), told["other"].to_list()) == (moves, other)
    later = [any(m for v, m in zip(walk[s:], moves[s:], strict=True) if v == walk[s]) for s in range(50)]
    assert told["passes_own"].to_list() == later


def test_phases_begin_with_their_events_in_whichever_order():
    """An event before one that comes earlier in a gap begins no phase of its own; without one there are no phases."""
    facts = pl.DataFrame({"submit_ns": [10, 10, 10], "movement_start_ns": [20, 5, None], "available_ns": [30, 30, 30]})
    steps = pl.DataFrame({"walk": [0] * 4 + [1] * 3 + [2], "start_ns": [9, 10, 20, 30, 9, 10, 30, 10]})
    assert _phase(facts, steps).to_list() == [0, 1, 2, 3, 0, 2, 3, None]

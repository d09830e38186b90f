"""Compiled look-ups beside what they stand for, on random tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gapscope.causes.overlaps import Others, overlap, overlap_of_few
from gapscope.causes.work import by_kind, time_of_steps
from gapscope.clocks.observations import BINS, KEPT_PER_BIN, thin
from gapscope.correlation import Rows

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

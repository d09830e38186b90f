"""How narrow bounds are: the simulation of algorithms.md 1.2, which assumed twice the drift that is assumed here."""

from __future__ import annotations

import random
import statistics

import polars as pl
import pytest

from gapscope.testing import Recording
from tests.unit.clock_runs import BEGIN, MS, US, Clock, S, aligned, assert_truth_inside

HOSTS, RANKS, SECONDS = 4, 8, 20


def collectives(count, seed):
    """A file of each rank, two on a host, and their clocks: collectives of 15 µs and more, entered within 100 µs."""
    rng = random.Random(seed)
    clocks = [Clock()] + [Clock(rng.randint(-5 * MS, 5 * MS), rng.randint(-20_000, 20_000)) for _ in range(HOSTS - 1)]
    recordings = [Recording(f"rank{r}", pid=100 + r, tool="torch", host=f"h{r * HOSTS // RANKS}") for r in range(RANKS)]
    spacing = SECONDS * S // count
    for k in range(count):
        at = BEGIN + k * spacing + rng.randint(0, spacing // 4)
        arrivals = [at + rng.randint(0, 100 * US) for _ in range(RANKS)]
        for recording, arrival in zip(recordings, arrivals, strict=True):
            end = max(arrivals) + max(15 * US, int(rng.expovariate(1 / (30 * US))))
            recording.mark(f"submit group=all seq={k} device=cpu", arrival, arrival + 1)
            recording.mark(f"receive group=all seq={k} device=cpu", arrival + 2, end)
    host_of = [clocks[r * HOSTS // RANKS] for r in range(RANKS)]
    for clock, recording in zip(host_of, recordings, strict=True):
        clock.record(recording)
    return host_of, recordings


@pytest.mark.parametrize(("count", "quoted_us"), [(100, 88), (400, 49), (4000, 33)])
def test_widths_are_those_of_the_simulation(count, quoted_us):
    clocks, recordings = collectives(count, seed=7)
    alignment = aligned(recordings)
    assert_truth_inside(alignment, clocks, slop_ns=2)
    pairs = [(a, b) for a in range(RANKS) for b in range(a) if clocks[a] is not clocks[b]]
    table = alignment.against(pairs)
    assert table["quality"].unique().to_list() == ["bounded"]
    width = table.select("window_start_ns", "window_end_ns", width=pl.col("hi_ns") - pl.col("lo_ns"))
    # Median over time and pairs: windows are joined, so each counts for as long as it lasts.
    sampled = [w for start, end, w in width.iter_rows() for _ in range(start // (20 * MS), end // (20 * MS))]
    assert statistics.median(sampled) <= quoted_us * 1.15 * US

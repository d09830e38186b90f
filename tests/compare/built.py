"""Restarts that nobody recorded: a real analysis' tables, perturbed.

A restart here is the run with another delay before each consumer: the last tile, the gap, the consumer's start and the
steps grow by the same time, so that tiles still sum to gaps. It says nothing about how real restarts differ.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

DAY_NS = 86_400_000_000_000
TIMES = {
    "handoffs": [
        "producer_finish_ns", "submit_ns", "receive_post_ns", "movement_start_ns", "available_ns", "consumer_start_ns",
    ],
    "tiles": ["start_ns", "end_ns"],
    "units": ["start_ns", "end_ns"],
}  # fmt: skip


def later(run, by_ns, name=None):
    """Return a run whose every time is later by the same."""
    tables = {
        table: getattr(run, table).with_columns(pl.col(c) + by_ns for c in columns if c in getattr(run, table).columns)
        for table, columns in TIMES.items()
    }
    return replace(run, name=name or run.name, **tables)


def delayed(run, delays_ns, name=None):
    """Return a run in which each consumer starts later by a time of its own, and steps and requests end by their mean.

    Args:
        run: The run.
        delays_ns: One per row of its handoffs, none below zero.
        name: Name of the new run.
    """
    delays = pl.Series("delay_ns", np.asarray(delays_ns), dtype=pl.Int64)
    of = run.handoffs.select("handoff_id").with_columns(delays)
    handoffs = run.handoffs.with_columns(
        consumer_start_ns=pl.col("consumer_start_ns") + delays, gap_ns=pl.col("gap_ns") + delays
    )
    tiles = run.tiles.join(of, on="handoff_id", how="left", maintain_order="left").with_row_index("_row")
    ends = tiles.group_by("handoff_id").agg(_row=pl.col("_row").sort_by("end_ns", "_row").last(), _is_last=pl.lit(True))
    tiles = tiles.join(ends, on=["handoff_id", "_row"], how="left", maintain_order="left")
    more = pl.when(pl.col("_is_last")).then("delay_ns").otherwise(0)
    tiles = tiles.with_columns(end_ns=pl.col("end_ns") + more, duration_ns=pl.col("duration_ns") + more)
    tiles = tiles.drop("delay_ns", "_row", "_is_last")
    mean = int(np.mean(np.asarray(delays_ns))) if len(delays_ns) else 0
    units = run.units.with_columns(end_ns=pl.col("end_ns") + mean)
    return replace(run, name=name or run.name, handoffs=handoffs, tiles=tiles, units=units)


def restarts(run, number, *, seed=0, spread_ns=20_000, noise_ns=5_000):
    """Return so many restarts, a day apart: each with a delay of its own, and around it one per handoff."""
    random = np.random.default_rng(seed)
    found = []
    for k in range(number):
        level = abs(random.normal(0, spread_ns)) + spread_ns
        delays = np.abs(level + random.normal(0, noise_ns, run.handoffs.height)).astype(np.int64)
        found.append(later(delayed(run, delays), k * DAY_NS + seed * 1_000, f"{run.name}/{k + 1}"))
    return found


def over_sizes(run, sizes, number, slope, *, seed=0, base_ns=200_000, spread=0.03):
    """Return restarts whose handoffs take turns in sizes, and whose gap grows with the size to the power of a slope.

    Args:
        run: The run; each of its handoffs becomes several, so that each size has as many as there were.
        sizes: Sizes in bytes.
        number: Restarts.
        slope: Exponent.
        seed: Of the random numbers.
        base_ns: Gap at the middle of the sizes (geometric).
        spread: Of restarts and of handoffs, as a share.
    """
    random = np.random.default_rng(seed)
    middle = np.exp(np.mean(np.log(sizes)))
    found = []
    for k in range(number):
        frames = []
        for nth, size in enumerate(sizes):
            n = run.handoffs.height
            gaps = base_ns * (size / middle) ** slope * np.exp(random.normal(0, spread, n) + random.normal(0, spread))
            frames.append(run.handoffs.with_columns(
                seq=pl.col("seq") + 1_000 * nth, size_bytes=pl.lit(size, pl.Int64),
                handoff_id=pl.format("{}-{}", "handoff_id", pl.lit(nth)),
                gap_ns=pl.Series(gaps.astype(np.int64)),
            ).with_columns(consumer_start_ns=pl.col("producer_finish_ns") + pl.col("gap_ns")))  # fmt: skip
        handoffs = pl.concat(frames).with_columns(available_ns=pl.col("consumer_start_ns"))
        made = replace(run, handoffs=handoffs, tiles=run.tiles.clear(), units=run.units.clear())
        found.append(later(made, k * DAY_NS + int(slope * 1e6), f"{run.name}/{k + 1}"))
    return found

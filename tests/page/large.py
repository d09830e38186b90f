"""Analyses with many handoffs: a real one again and again, with other lengths each time."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

EVENTS = ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start")


def enlarged(analysis, handoffs, seed=1):
    """Return an analysis of so many handoffs; tiles still sum to their gaps, and no two gaps are alike by copying.

    The trace stays as it is: what was recorded around the first handoffs is there, around the others nothing.
    """
    rng = np.random.default_rng(seed)
    times = -(-handoffs // analysis.handoffs.height)
    period = int(analysis.handoffs["consumer_start_ns"].max() - analysis.handoffs["producer_finish_ns"].min()) + 10**6
    copies = pl.DataFrame({"copy": np.arange(times)})
    tiles = analysis.tiles.join(copies, how="cross").sort("copy", "handoff_id", "start_ns")
    tiles = _renamed(tiles)
    length = tiles["duration_ns"].to_numpy() * rng.lognormal(0, 0.25, tiles.height)
    tiles = tiles.with_columns(duration_ns=pl.Series(np.maximum(length.astype(np.int64), 1)))
    ends = pl.col("duration_ns").cum_sum().over("handoff_id") + pl.col("start_ns").min().over("handoff_id")
    tiles = tiles.with_columns(end_ns=ends + pl.col("copy") * period)
    tiles = tiles.with_columns(start_ns=pl.col("end_ns") - pl.col("duration_ns"), detail=_jittered(tiles, rng))
    gaps = tiles.group_by("handoff_id").agg(_gap=pl.col("duration_ns").sum(), _end=pl.col("end_ns").max())
    rows = _renamed(analysis.handoffs.join(copies, how="cross")).head(handoffs)
    moved = [(pl.col(f"{e}_ns") + pl.col("copy") * period).alias(f"{e}_ns") for e in EVENTS]
    rows = rows.with_columns(moved).join(gaps, on="handoff_id", how="left", maintain_order="left")
    rows = rows.with_columns(
        gap_ns=pl.coalesce("_gap", "gap_ns"),
        consumer_start_ns=pl.coalesce("_end", "consumer_start_ns"),
        seq=pl.col("seq") + 1000 * pl.col("copy"),
        step=pl.int_range(pl.len()),
    )
    tiles = tiles.join(rows.select("handoff_id"), on="handoff_id", how="semi")
    return dataclasses.replace(
        analysis,
        handoffs=rows.select(analysis.handoffs.columns),
        tiles=tiles.select(analysis.tiles.columns),
    )


def _renamed(frame):
    """Copies of a handoff have ids of their own; the first keeps its own."""
    again = pl.when(pl.col("copy") > 0).then(pl.format("{}.{}", "handoff_id", "copy")).otherwise("handoff_id")
    return frame.with_columns(handoff_id=again)


def _jittered(tiles, rng):
    """Rates differ from transfer to transfer, which makes texts that do not repeat."""
    rate = pl.Series(rng.integers(1000, 99999, tiles.height))
    rated = pl.col("detail").str.contains("GB/s").fill_null(value=False)
    return pl.when(rated).then(pl.format("24576 bytes at 9.{} GB/s", rate)).otherwise("detail")

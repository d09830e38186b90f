"""Phases add up to the gap; percentiles are those of numpy over the handoffs that count."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import gapscope
from gapscope.phases import PHASES, with_phases
from gapscope.testing import Recording, trace


def handoff(**times):
    row = {"producer_finish": 100, "submit": 130, "receive_post": 90, "movement_start": 150, "available": 180}
    row |= {"consumer_start": 200} | times
    frame = pl.DataFrame({f"{k}_ns": [v] for k, v in row.items()}, schema={f"{k}_ns": pl.Int64 for k in row})
    return with_phases(frame.with_columns(gap_ns=pl.col("consumer_start_ns") - pl.col("producer_finish_ns")))


@pytest.mark.parametrize(
    ("times", "phases", "unposted"),
    [
        ({}, (30, 20, 30, 20), 0),
        ({"submit": 60}, (0, 50, 30, 20), 0),  # asked for while the producer still ran
        ({"submit": 60, "movement_start": 80, "available": 90}, (0, 0, 0, 100), 0),  # all was there before
        ({"receive_post": 170}, (30, 20, 30, 20), 20),
        ({"receive_post": 190}, (30, 20, 30, 20), 30),
        ({"receive_post": None}, (30, 20, 30, 20), None),
        ({"available": 260}, (30, 20, 50, 0), 0),  # a violation: nothing goes beyond the gap
        ({"movement_start": None}, (30, None, None, 20), None),
        ({"consumer_start": 40}, (None, None, None, None), None),
    ],
)
def test_phases(times, phases, unposted):
    row = handoff(**times).row(0, named=True)
    assert tuple(row[f"{p}_ns"] for p in PHASES) == phases
    assert row["movement_unposted_ns"] == unposted
    if None not in phases:
        assert sum(phases) == row["gap_ns"]


def test_percentiles_are_over_steady_handoffs_in_order_and_as_numpy_has_them():
    waits = [5000, 10, 20, 40, 80, 160]  # the first is start-up
    s, d = Recording("a", pid=10), Recording("b", pid=11)
    for i, wait in enumerate(waits):
        t = i * 10_000
        s.mark(f"produce src=0 dst=1 seq={i} step={i}", t, t + 10)
        s.kernel(t + 5, t + 20, t + 30)
        s.mark(f"submit src=0 dst=1 seq={i} step={i} bytes=64", t + 11, t + 15)
        s.kernel(t + 12, t + 30, t + 35)
        d.mark(f"receive src=0 dst=1 seq={i} step={i}", t, t + 10)
        d.kernel(t + 5, t + 32, t + 36)
        d.mark(f"consume src=0 dst=1 seq={i} step={i}", t + 11, t + 20)
        d.kernel(t + 12, t + 36 + wait, t + 6000)
    edge = gapscope.analyze(trace(s, d)).summary["edges"][0]
    gaps = [6 + w for w in waits[1:]]
    assert edge["gap"] == {"n": 5} | {f"p{q}_ns": round(float(np.percentile(gaps, q))) for q in (50, 90, 99)} | {
        "max_ns": 166
    }
    assert edge["phases"]["consumer_wait"]["p50_ns"] == 40
    assert (edge["handoffs"], edge["start_up"], edge["submitted_early"]) == (6, 1, 5)

"""Queues with known answers: servers that keep up, and servers that do not."""

import heapq

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.loadgen.in_flight import SLICES, _area, _slope, growth, most_in_flight
from tests.loadgen.files import latencies, ms

SECOND = 1_000_000_000


def queue(n, load, servers, rng, *, sent=True):
    """Return requests at random to servers that need a second each in the mean."""
    starts = np.cumsum(rng.exponential(SECOND / servers / load, n)).astype(np.int64)
    free, ends = [0] * servers, []
    for start, takes in zip(starts.tolist(), rng.exponential(SECOND, n).astype(np.int64).tolist(), strict=True):
        end = max(start, heapq.heappop(free)) + takes
        heapq.heappush(free, end)
        ends.append(end)
    name = "sent_ns" if sent else "scheduled_ns"
    return latencies(**{name: starts.tolist(), "end_ns": ends}).requests


def verdicts(load, runs=60, n=1000, servers=8):
    rng = np.random.default_rng(7)
    return [growth(queue(n, load, servers, rng)).verdict for _ in range(runs)]


def test_a_server_that_keeps_up_is_seldom_said_to_fall_behind():
    assert verdicts(0.5).count("grows") <= 3


def test_a_server_that_falls_behind_is_found():
    assert verdicts(1.5).count("grows") >= 57


def test_noise_alone_does_not_grow_although_neighbors_resemble_each_other():
    said = verdicts(0.8, runs=100)
    assert said.count("grows") <= 8


def test_the_slope_is_what_is_sent_and_not_answered():
    sent = np.arange(2000) * 10  # 100 a second, of which 50 are answered: 50 more each second
    g = growth(latencies(sent_ns=ms(*sent.tolist()), end_ns=ms(*(5 + 2 * sent).tolist())).requests)
    assert g.verdict == "grows"
    assert g.slope_hz == pytest.approx(50, rel=0.02)
    assert g.grown == pytest.approx(50 * g.window_ns / 1e9, rel=0.02)
    assert g.p_value < 1e-6


def test_a_constant_load_is_steady():
    sent = np.arange(500) * 10
    g = growth(latencies(sent_ns=ms(*sent.tolist()), end_ns=ms(*(sent + 40).tolist())).requests)
    assert (g.verdict, round(g.mean, 6), g.left_out) == ("steady", 4.0, 0)


def test_filling_the_pipeline_is_no_growth():
    sent = np.arange(500) * 10
    g = growth(latencies(sent_ns=ms(*sent.tolist()), end_ns=ms(*(sent + 1500).tolist())).requests)
    assert (g.verdict, g.grown) == ("steady", pytest.approx(0, abs=1e-6))


def test_means_that_hang_together_prove_less():
    rng = np.random.default_rng(3)
    likely = 0
    for _ in range(1000):
        series = rng.normal(size=SLICES)
        for k in range(1, SLICES):
            series[k] += 0.7 * series[k - 1]
        likely += _slope(series + 100)[1] < 0.01
    assert likely <= 80  # taken as independent it would be more than 120


def test_it_counts_from_the_schedule_where_there_is_one():
    sent = np.arange(1000) * 20
    columns = {"sent_ns": ms(*sent.tolist()), "end_ns": ms(*(sent + 15).tolist())}
    assert growth(latencies(**columns).requests).verdict == "steady"
    late = latencies(scheduled_ns=ms(*(sent // 2).tolist()), **columns)  # a limit that lets one through at a time
    assert growth(late.requests).verdict == "grows"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"e2e_ns": ms(*[5] * 500)}, "does not say"),
        ({"sent_ns": ms(*range(50)), "end_ns": ms(*range(1, 51))}, "50 requests are too few"),
        ({"sent_ns": ms(*[0] * 500), "end_ns": ms(*range(1, 501))}, "take too long"),
    ],
)
def test_what_cannot_be_told_says_why(columns, reason):
    g = growth(latencies(**columns).requests)
    assert (g.verdict, g.slope_hz) == ("unknown", None)
    assert reason in g.reason


def test_requests_without_an_end_are_left_out_and_counted():
    sent = np.arange(500) * 10
    ends = ms(*(sent + 40).tolist())
    ends[7] = None
    assert growth(latencies(sent_ns=ms(*sent.tolist()), end_ns=ends).requests).left_out == 1


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30)


@settings(deadline=None)
@given(SPANS)
def test_most_in_flight_is_what_counting_gives(spans):
    table = latencies(sent_ns=[a for a, _ in spans], end_ns=[a + d for a, d in spans]).requests
    counted = max(sum(a <= t < a + d for a, d in spans) for t in range(71))
    assert most_in_flight(table) == counted or not any(d for _, d in spans)
    assert most_in_flight(table.with_columns(end_ns=pl.lit(None, pl.Int64))) is None


@settings(deadline=None)
@given(SPANS, st.integers(0, 80))
def test_the_area_is_what_summing_gives(spans, at):
    times = np.array([a for a, _ in spans])
    assert _area(times, np.array([at]))[0] == sum(max(0, at - a) for a in times.tolist())

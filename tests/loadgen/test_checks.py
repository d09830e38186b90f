import math

import numpy as np
import polars as pl
import pytest

from gapscope.loadgen import LoadRun, check_load, read_latencies, with_latency
from tests.loadgen.files import SGLANG_FILE, VLLM_FILE, latencies, ms

RUN = LoadRun("tool", asked_rate_hz=100.0, duration_ns=10_000_000_000)


def steady(n=1000, lag=0, **run):
    """Return requests every 10 ms of which each takes 40 ms, ``lag`` ms after its time."""
    scheduled = np.arange(n) * 10
    facts = {"asked_rate_hz": 100.0, "asked_requests": n, "scheduled": "by the file"} | run
    return latencies(
        run=LoadRun("tool", **facts),
        scheduled_ns=ms(*scheduled.tolist()),
        sent_ns=ms(*(scheduled + lag).tolist()),
        end_ns=ms(*(scheduled + lag + 40).tolist()),
        e2e_ns=ms(*[40] * n),
    )


def without(load, *columns):
    table = load.requests.with_columns(pl.lit(None, pl.Int64).alias(name) for name in columns)
    return type(load)(load.path, table, load.run)


def found(load):
    checks = check_load(load)
    return checks, {f.code: f for f in checks.findings}


def test_open_loop_load_that_is_met_is_allowed():
    checks, codes = found(steady())
    assert (checks.comparison, checks.unpaired, checks.refused_for) == ("allowed", False, ())
    assert set(codes) == {"load_latency_origin"}
    assert "count from when a request was to be sent (by the file)" in codes["load_latency_origin"].message
    assert checks.achieved_rate_hz == pytest.approx(100.0)
    assert (checks.lag_p50_ns, checks.lag_p99_ns, checks.most_in_flight) == (0, 0, 4)


def test_a_limit_without_a_rate_is_closed_loop_and_refused():
    checks, codes = found(steady(asked_rate_hz=math.inf, concurrency_limit=4))
    assert checks.comparison == "refused"
    assert "at most 4 requests at once" in codes["load_closed_loop"].message
    assert len(checks.refused_for) == 1
    assert codes["load_closed_loop"].level == "warning"


def test_all_at_once_is_weak():
    checks, codes = found(steady(asked_rate_hz=math.inf))
    assert (checks.comparison, "load_burst" in codes) == ("weakened", True)


@pytest.mark.parametrize(
    ("limit", "lost", "grade"),
    [
        (4, ["scheduled_ns"], "refused"),  # reached, and what waited for it is not in the file
        (5, ["scheduled_ns"], "allowed"),  # not reached
        (4, [], "allowed"),  # reached, and the wait is in the latencies
        (4, ["scheduled_ns", "sent_ns", "end_ns"], "weakened"),  # who knows
    ],
)
def test_a_limit_beside_a_rate(limit, lost, grade):
    assert found(without(steady(concurrency_limit=limit), *lost))[0].comparison == grade


def test_a_rate_that_was_missed_is_refused_with_both_numbers():
    checks, codes = found(steady(asked_rate_hz=120.0))
    assert checks.comparison == "refused"
    assert "100.00 per second, 120.00 were asked for" in codes["load_rate_missed"].message
    assert "load_rate_missed" not in found(steady(asked_rate_hz=104.0))[1]
    assert "load_rate_missed" not in found(steady(n=100, asked_rate_hz=120.0))[1]  # chance does that to 100 arrivals


def test_sending_late_is_weak_and_part_of_the_latency():
    load = steady(lag=3)
    checks, codes = found(load)
    assert (checks.comparison, checks.lag_p50_ns, checks.lag_p99_ns) == ("weakened", 3_000_000, 3_000_000)
    assert "3.00 ms in the median, 3.00 ms at p99" in codes["load_sent_late"].message
    assert with_latency(load)["latency_ns"].unique().to_list() == [43_000_000]
    assert with_latency(without(load, "scheduled_ns"))["latency_ns"].unique().to_list() == [40_000_000]


def test_a_queue_that_grows_is_refused():
    sent = np.arange(1000) * 10
    load = latencies(run=RUN, sent_ns=ms(*sent.tolist()), end_ns=ms(*(40 + 2 * sent).tolist()))
    checks, codes = found(load)
    assert (checks.comparison, checks.growth.verdict) == ("refused", "grows")
    assert f"grew by {checks.growth.grown:.1f} requests" in codes["load_queue_grows"].message


def test_what_the_file_does_not_say_is_weak_and_said():
    checks, codes = found(read_latencies(SGLANG_FILE))
    assert (checks.comparison, checks.latency_from, checks.achieved_rate_hz) == ("weakened", "sent", None)
    assert "does not say when" in codes["load_queue_unknown"].message
    assert checks.answered_rate_hz == pytest.approx(24 / 0.5012725410051644)


@pytest.mark.parametrize(("failed", "unpaired", "level"), [(10, False, "info"), (11, True, "warning")])
def test_more_than_one_percent_failed_is_unpaired(failed, unpaired, level):
    load = steady()
    error = pl.when(pl.col("index") < failed).then(pl.lit("timeout"))
    load = type(load)(load.path, load.requests.with_columns(error=error), load.run)
    checks, codes = found(load)
    assert (checks.failed, checks.lost, checks.unpaired) == (failed, 0, unpaired)
    assert (codes["load_requests_failed"].count, codes["load_requests_failed"].level) == (failed, level)


def test_requests_that_are_not_in_the_file_are_lost():
    checks, codes = found(steady(asked_requests=1020))
    assert (checks.lost, checks.unpaired, codes["load_requests_failed"].count) == (20, True, 20)
    assert check_load(steady(asked_requests=None)).lost is None


def test_no_failed_request_is_left_out():
    load = latencies(e2e_ns=ms(10, None, 30, None), error=[None, "timeout", None, None])
    plain = with_latency(load)
    assert plain["latency_ns"].to_list() == ms(10, 30, 30, None)
    assert plain["censored"].to_list() == [False, True, False, False]
    due = with_latency(load, deadline_ns=20_000_000)
    assert due["latency_ns"].to_list() == ms(10, 20, 20, None)
    assert due["censored"].to_list() == [False, True, True, False]
    nothing = with_latency(latencies(e2e_ns=[None], error=["timeout"]))
    assert nothing.select("latency_ns", "censored").row(0) == (None, True)


def test_few_requests_name_the_tails_they_do_not_reach():
    assert (
        "24 requests are too few for p90 (29), p95 (59), p99 (299)"
        in found(read_latencies(VLLM_FILE))[1]["load_few_requests"].message
    )
    assert "load_few_requests" not in found(steady(n=299))[1]
    assert "load_few_requests" in found(steady(n=298))[1]


def test_the_real_file_with_a_limit():
    checks, codes = found(read_latencies(VLLM_FILE))
    assert (checks.comparison, checks.unpaired, checks.latency_from) == ("weakened", True, "scheduled")
    assert (checks.requests, checks.failed, checks.lost, checks.most_in_flight) == (24, 2, 0, 4)
    assert set(codes) >= {"load_limited", "load_sent_late", "load_requests_failed", "load_queue_unknown"}

"""Latencies of a load generator as metrics: joined by id, censored, refused where the load forbids it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gapscope.compare import Arm, compare, read_plan, run_study
from gapscope.compare.latencies import client_side, with_latencies
from gapscope.compare.measured import in_flight
from gapscope.compare.series import Metric, series_of
from gapscope.loadgen import LATENCIES, Latencies, LoadRun
from gapscope.schema import dtypes

MS = 1_000_000
N = 400


def records(*, e2e_ms=40.0, seed=0, n=N, ids=True, failed=0, wait_ms=0.0, **facts):
    """Return a run of open-loop load: built, not recorded."""
    random = np.random.default_rng(seed)
    scheduled = np.cumsum(random.exponential(10 * MS, n)).astype(np.int64)
    sent = scheduled + int(wait_ms * MS)
    e2e = (e2e_ms * MS * np.exp(random.normal(0, 0.1, n))).astype(np.int64)
    is_failed = np.arange(n) < failed
    frame = pl.DataFrame({
        "index": np.arange(n), "request_id": [f"r{i}" if ids else None for i in range(n)],
        "scheduled_ns": scheduled, "sent_ns": sent, "first_token_ns": sent + e2e // 4, "end_ns": sent + e2e,
        "ttft_ns": e2e // 4, "e2e_ns": e2e, "tpot_ns": e2e // 100, "input_tokens": [8] * n, "output_tokens": [64] * n,
        "error": [None] * n,
    }, schema=dtypes(LATENCIES), strict=False)  # fmt: skip
    gone = ["first_token_ns", "end_ns", "ttft_ns", "e2e_ns", "tpot_ns"]
    frame = frame.with_columns(pl.Series("_failed", is_failed))
    frame = frame.with_columns(
        *(pl.when(~pl.col("_failed")).then(name).alias(name) for name in gone),
        error=pl.when("_failed").then(pl.lit("timeout")),
    ).drop("_failed")
    facts = {"asked_rate_hz": 100.0, "scheduled": "the schedule", **facts}
    return Latencies("bench.json", frame, LoadRun("vllm", **facts))


def with_side(run, name, **how):
    side = client_side(records(**how), name)
    return replace(run, name=name, latencies=side.latencies, notes=side.notes, refused=side.refused)


def arm(run, name, number=4, **how):
    from tests.compare.built import restarts

    e2e = how.pop("e2e_ms", 40.0)
    factors = 1 + np.random.default_rng(len(name)).normal(0, 0.005, number)
    runs = [
        with_side(r, f"{name}/{k}", e2e_ms=e2e * factors[k], seed=9, **how)
        for k, r in enumerate(restarts(run, number, seed=len(name)))
    ]
    return Arm(name, runs)


def by_metric(found):
    return {row["metric"]: row for row in found.metrics.to_dicts()}


def test_they_are_metrics_joined_by_request(none):
    found = compare(arm(none, "base"), arm(none, "slower", e2e_ms=44.0))
    rows = by_metric(found)
    assert found.primary == "latency e2e"
    for kind in ("e2e", "ttft", "tpot"):
        row = rows[f"latency {kind}"]
        assert row["paired"]
        assert row["n"] == N
        assert row["verdict"] == "slower"
        assert row["ratio"] == pytest.approx(1.1, rel=0.02)
    assert rows["latency e2e"]["clock_ns"] == 0


def test_they_count_from_when_the_request_was_to_be_sent(none):
    on_time, late = (series_of(with_side(none, "x", wait_ms=wait)) for wait in (0, 5))
    for kind in ("e2e", "ttft"):
        one, two = (series[Metric("latency", part=kind)]["value_ns"] for series in (on_time, late))
        assert (two - one).unique().to_list() == [5 * MS]


def test_one_restart_claims_nothing(none):
    rows = by_metric(compare(arm(none, "base", 1), arm(none, "slower", 1, e2e_ms=44.0)))
    assert rows["latency e2e"]["verdict"] == "no claim (n=1 restart)"


def test_blocks_are_no_shorter_than_what_is_in_flight(none):
    series = series_of(with_side(none, "x"))[Metric("latency", part="e2e")]
    begins, ends = series["at_ns"].to_numpy(), (series["at_ns"] + series["value_ns"]).to_numpy()
    counted = [int(((begins <= t) & (ends > t)).sum()) for t in begins]
    assert in_flight(series) == int(np.quantile(counted, 0.95, method="higher"))
    assert in_flight(series) > 3


def test_closed_loop_load_is_refused(none):
    how = {"asked_rate_hz": float("inf"), "concurrency_limit": 8}
    found = compare(arm(none, "base"), arm(none, "slower", e2e_ms=44.0, **how))
    rows = by_metric(found)
    for kind in ("e2e", "ttft", "tpot"):
        assert rows[f"latency {kind}"]["verdict"] == "no claim"
        assert "closed-loop" in rows[f"latency {kind}"]["reason"]
    assert rows["step"]["verdict"] != "no claim"
    assert "load_closed_loop" in [f.code for f in found.findings]


def test_failed_requests_stay_and_beyond_one_percent_nothing_is_paired(none):
    few = with_side(none, "few", failed=2)
    series = series_of(few)[Metric("latency", part="e2e")]
    assert series["value_ns"].null_count() == 0
    assert series["value_ns"][0] == series["value_ns"].max()
    rows = by_metric(compare(Arm("A", [with_side(none, "whole")]), Arm("B", [few])))
    assert rows["latency e2e"]["paired"]
    many = with_side(none, "many", failed=20)
    found = compare(Arm("A", [with_side(none, "whole")]), Arm("B", [many]))
    assert not by_metric(found)["latency e2e"]["paired"]
    assert {"unpaired", "load_requests_failed"} <= {f.code for f in found.findings}


def test_without_ids_the_place_is_the_key_and_it_is_said(none):
    one, two = (with_side(none, name, ids=False, seed=seed) for name, seed in (("a", 1), ("b", 1)))
    found = compare(Arm("A", [one]), Arm("B", [two]))
    assert by_metric(found)["latency e2e"]["paired"]
    assert "load_paired_by_place" in [f.code for f in found.findings]


def test_runs_without_latencies_are_said(none):
    found = compare(Arm("A", [with_side(none, "a")]), Arm("B", [replace(none, name="b")]))
    assert "latency e2e" not in by_metric(found)
    (finding,) = [f for f in found.findings if f.code == "not_in_all_runs"]
    assert "latency e2e" in finding.message


def benchmark(path, e2e_s):
    """Write a result file as ``vllm bench serve --save-result --save-detailed`` does, as far as readers need it."""
    n = 60
    path.write_text(json.dumps({
        "date": "20261130-100000", "endpoint_type": "vllm", "backend": "vllm", "label": None, "model_id": "m",
        "tokenizer_id": "m", "num_prompts": n, "request_rate": 10.0, "burstiness": 1.0, "max_concurrency": None,
        "duration": n / 10, "completed": n, "failed": 0, "total_input_tokens": n, "total_output_tokens": 2 * n,
        "input_lens": [1] * n, "output_lens": [2] * n, "ttfts": [e2e_s / 2] * n, "itls": [[e2e_s / 2]] * n,
        "start_times": [1000.0 + k / 10 for k in range(n)], "generated_texts": ["x"] * n, "errors": [""] * n,
    }))  # fmt: skip


def test_a_study_reads_them_from_files(none, tmp_path):
    for name, e2e_s in (("a", 0.040), ("b", 0.044)):
        (tmp_path / name).mkdir()
        benchmark(tmp_path / f"{name}.json", e2e_s)
    (tmp_path / "study.toml").write_text(
        '[[arm]]\nname = "a"\nruns = [{ path = "a", latencies = "a.json" }]\n'
        '[[arm]]\nname = "b"\nruns = [{ path = "b", latencies = "b.json" }]\n'
    )
    found = run_study(
        read_plan(tmp_path / "study.toml"),
        lambda plan: with_latencies(replace(none, name=plan.name), plan.latencies),
    )
    row = by_metric(found.comparisons[0])["latency e2e"]
    assert row["difference_ns"] == pytest.approx(4 * MS)
    assert row["verdict"].startswith("no claim")

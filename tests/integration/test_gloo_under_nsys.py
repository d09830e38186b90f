"""A real job recorded here and now, by a real nsys and by torch.profiler: two gloo ranks on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from gapscope.phases import PHASES, with_phases

pytestmark = pytest.mark.xdist_group("nsys")  # with the tests marked nsys: one worker records each job once

JOB = Path(__file__).with_name("gloo_pipeline.py")
STEPS, MICROBATCHES, SLEEP_MS = 3, 2, 20
BYTES = 16384

# Event: the rank it happens on, and which end of which bracket it is on the CPU; per rank in the order of the program.
EVENTS = {
    "producer_finish_ns": (0, "produce", "end_ns"),
    "submit_ns": (0, "submit", "start_ns"),
    "movement_start_ns": (0, "submit", "start_ns"),
    "receive_post_ns": (1, "receive", "start_ns"),
    "available_ns": (1, "receive", "end_ns"),
    "consumer_start_ns": (1, "consume", "start_ns"),
}

# The tools turn their own counters into wall-clock time; how well is not the subject here.
CLOCK_TOLERANCE_NS = 50_000_000


class Run(NamedTuple):
    handoffs: pl.DataFrame
    summary: dict
    truth: dict  # (rank, mark, seq): the job's own times


def run_program(command, **options):
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, **options)


def run_job(folder, prefix=(), options=(), extra_path=()):
    python_path = os.pathsep.join([*extra_path, os.environ.get("PYTHONPATH", "")])
    command = [*prefix, sys.executable, str(JOB), "--out", str(folder / "job"), "--steps", str(STEPS)]
    command += ["--sleep-ms", str(SLEEP_MS), *options]
    environment = {**os.environ, "PYTHONPATH": python_path}
    done = run_program(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def analyze_run(folder, recordings, nsys_options=()):
    """Analyze by the command line, as a user would, and read what it wrote."""
    command = [sys.executable, "-m", "gapscope", "analyze", *map(str, recordings), "--out", str(folder / "results")]
    done = run_program([*command, *nsys_options])
    assert (done.returncode, done.stderr) == (0, "")
    truth = {rank: json.loads((folder / "job" / f"truth{rank}.json").read_text()) for rank in (0, 1)}
    return Run(
        handoffs=pl.read_parquet(folder / "results" / "handoffs.parquet"),
        summary=json.loads((folder / "results" / "summary.json").read_text()),
        truth={(rank, m["mark"], m["seq"]): m for rank, marks in truth.items() for m in marks if "seq" in m},
    )


def nvtx_for(nsys):
    """Return what to put on the job's path so that this nsys records its NVTX ranges.

    A nsys of 2023 records nothing from the package nvtx since 0.2.12 (it says the domain is disabled).
    """
    if folder := os.environ.get("GAPSCOPE_TEST_NVTX"):
        return [folder]
    version = subprocess.run([nsys, "--version"], check=True, capture_output=True, text=True).stdout
    year = int(re.search(r"version (\d{4})\.", version)[1])
    installed = tuple(map(int, metadata.version("nvtx").split(".")[:3]))
    if year < 2025 and installed >= (0, 2, 12):
        pytest.skip(
            f"this nsys of {year} records nothing from nvtx {metadata.version('nvtx')}: "
            "pip install --target DIR nvtx==0.2.11 and set GAPSCOPE_TEST_NVTX=DIR"
        )
    return []


@pytest.fixture(scope="module")
def recorded_by_nsys(tmp_path_factory, nsys):
    folder = tmp_path_factory.mktemp("nsys")
    options = ["-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(folder / "out")]
    run_job(folder, prefix=[nsys, "profile", *options], extra_path=nvtx_for(nsys))
    return analyze_run(folder, [folder / "out.nsys-rep"], ["--nsys", nsys])


@pytest.fixture(scope="module")
def recorded_by_torch(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("torch")
    run_job(folder, options=["--profile"])
    return analyze_run(folder, [folder / "job" / "rank0.json", folder / "job" / "rank1.json"])


BY_NSYS = pytest.param("recorded_by_nsys", marks=pytest.mark.nsys, id="nsys")
BY_TORCH = pytest.param("recorded_by_torch", id="torch")


@pytest.fixture(params=[BY_NSYS, BY_TORCH])
def run(request):
    return request.getfixturevalue(request.param)


def test_all_handoffs_are_found_with_their_keys(run):
    expected = [
        (0, 1, 0, (step - 1) * MICROBATCHES + mb + 1, step, mb)
        for step in range(1, STEPS + 1)
        for mb in range(MICROBATCHES)
    ]
    key = ["src_rank", "dst_rank", "channel", "seq", "step", "microbatch"]
    assert run.handoffs.select(key).sort("seq").rows() == expected
    assert run.summary["handoffs"]["total"] == len(expected)
    facts = ["size_bytes", "transport", "origin", "kind", "messages"]
    assert run.handoffs.select(facts).unique().rows() == [(BYTES, "gloo", "marks", "p2p", 1)]


def test_all_are_complete_and_their_times_are_the_hosts(run):
    assert run.handoffs["status"].to_list() == ["complete"] * run.handoffs.height
    sources = run.handoffs.select(pl.col("^.*_source$").cast(pl.String).unique())
    assert sources.rows() == [("emitted",) * 6]


def test_only_the_first_step_is_start_up(run):
    assert run.handoffs["steady"].to_list() == (run.handoffs["step"] > 1).to_list()


@pytest.mark.parametrize("event", EVENTS)
def test_times_lie_where_the_job_saw_them(run, event):
    rank, mark, end = EVENTS[event]
    for row in run.handoffs.to_dicts():
        before, after = run.truth[rank, mark, row["seq"]][end]
        assert before - CLOCK_TOLERANCE_NS <= row[event] <= after + CLOCK_TOLERANCE_NS


@pytest.mark.parametrize("rank", [0, 1])
def test_times_of_a_rank_come_in_the_order_of_the_job(run, rank):
    events = [event for event, (of_rank, _, _) in EVENTS.items() if of_rank == rank]
    times = [row[event] for row in run.handoffs.sort("seq").to_dicts() for event in events]
    assert times == sorted(times)


def test_the_sleep_before_the_send_lies_in_the_submission_phase(run):
    phases = with_phases(run.handoffs)
    assert phases["submission_ns"].min() >= SLEEP_MS * 1_000_000 * 99 // 100
    total = phases.select(pl.sum_horizontal(f"{phase}_ns" for phase in PHASES)).to_series()
    assert total.to_list() == run.handoffs["gap_ns"].to_list()


@pytest.mark.nsys
def test_one_report_is_one_clock(recorded_by_nsys):
    handoffs = recorded_by_nsys.handoffs
    assert set(handoffs["order"]) == {"ok"}
    assert set(handoffs["uncertainty_ns"]) == {0}
    assert (handoffs["available_ns"] > handoffs["submit_ns"]).all()
    assert {r["tool"] for r in recorded_by_nsys.summary["recordings"]} == {"nsys"}


@pytest.mark.nsys
def test_both_tools_give_the_same_columns_and_keys(recorded_by_nsys, recorded_by_torch):
    one, other = recorded_by_nsys.handoffs, recorded_by_torch.handoffs
    assert one.schema == other.schema
    assert one["handoff_id"].to_list() == other["handoff_id"].to_list()

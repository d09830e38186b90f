"""Real pipelines with no mark in their code: the adapter sets them, and three recorders give one table.

Each job is recorded once by all of them: by torch.profiler and the mark log, and by nsys as well where there is one. It
runs all schedules one after the other, in one process group, since starting the ranks costs more than all their steps.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import gapscope
from tests.integration.pipeline_job import MICROBATCH_ROWS as ROWS
from tests.integration.pipeline_job import SCHEDULES, WIDTH, stages_of
from tests.integration.test_gloo_under_nsys import nvtx_for

pytestmark = pytest.mark.xdist_group("nsys")  # as the tests marked nsys: one worker has all, and records each job once

JOB = Path(__file__).with_name("pipeline_job.py")
FLOAT_BYTES = 4
STEPS = 2
RUN = {2: list(SCHEDULES), 4: ["gpipe", "1f1b", "interleaved", "interleaved_zero_bubble", "zbv"]}
KEY = ["src_rank", "dst_rank", "channel", "seq"]
SAID = ["step", "microbatch", "direction", "src_stage", "dst_stage", "size_bytes", "messages", "kind", "transport"]
FOUND = ["handoff_id", "group", "origin", "status"]
SOURCES = [f"{event}_source" for event in ("producer_finish", "submit", "receive_post", "available", "consumer_start")]
RECORDERS = ["torch", "log", pytest.param("nsys", marks=pytest.mark.nsys)]
CASES = [(schedule, ranks) for ranks, schedules in RUN.items() for schedule in schedules]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder of the job of so many ranks, recorded by everything that there is."""

    @functools.cache
    def recorded_once(ranks):
        # All workers of one test run share the recordings: the group above does not hold with every pytest.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
        base = tmp_path_factory.mktemp("job") if run is None else tmp_path_factory.getbasetemp().parent / f"job-{run}"
        base.mkdir(exist_ok=True)
        folder = base / f"ranks-{ranks}"
        with (base / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                record(ranks, base / "unfinished")
                (base / "unfinished").rename(folder)
        return folder

    def record(ranks, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        nsys = os.environ.get("GAPSCOPE_NSYS") or shutil.which("nsys")
        command = [sys.executable, "-m", "gapscope_instrumentation", "--attach", "torch_pipelining"]
        command += [JOB, "--out", folder]
        command += ["--schedules", *RUN[ranks], "--ranks", ranks, "--steps", STEPS, "--profile"]
        environment = {**os.environ, "GAPSCOPE_DIR": str(folder / "marks"), "GAPSCOPE_NVTX": "text"}
        if nsys is not None:
            command = [nsys, "profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", folder / "out", *command]
            environment["PYTHONPATH"] = os.pathsep.join([*nvtx_for(nsys), os.environ.get("PYTHONPATH", "")])
        command = list(map(str, command))
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "gapscope:" not in done.stderr  # no adapter and no mark that failed

    return recorded_once


@pytest.fixture(scope="module")
def found(recorded):
    """Return what gapscope finds in what one recorder, or several, wrote of the job."""

    @functools.cache
    def find(ranks, *recorders):
        folder = recorded(ranks)
        torch = [folder / f"rank{rank}.json" for rank in range(ranks)]
        written = {"torch": torch, "log": [folder / "marks"], "nsys": [folder / "out.nsys-rep"]}
        return gapscope.analyze([path for recorder in recorders for path in written[recorder]])

    return find


def expected(folder, ranks):
    """Return the handoffs that the schedules have to make, from where their stages are and how keys are defined."""
    truth = [json.loads((folder / f"truth{rank}.json").read_text()) for rank in range(ranks)]
    rows, first_seq = [], 0
    for number, of_ranks in enumerate(zip(*truth, strict=True)):
        schedule, microbatches = of_ranks[0]["schedule"], of_ranks[0]["microbatches"]
        placed = SCHEDULES[schedule][1]
        rank_of = {stage: rank for rank in range(ranks) for stage in stages_of(rank, ranks, placed)}
        assert rank_of == {stage: rank for rank, own in enumerate(of_ranks) for stage in own["stages"]}
        for step in range(STEPS):
            for channel, direction, way in ((0, "fwd", 1), (1, "bwd", -1))[: 2 if of_ranks[0]["backward"] else 1]:
                for src in [stage for stage in rank_of if stage + way in rank_of]:
                    dst = src + way
                    how = ("local", "local") if rank_of[src] == rank_of[dst] else ("p2p", "gloo")
                    for mb in range(microbatches):
                        key = (rank_of[src], rank_of[dst], channel, first_seq + mb * len(rank_of) + src)
                        what = (number * STEPS + step, mb, direction, src, dst, ROWS * WIDTH * FLOAT_BYTES, 1)
                        rows.append((schedule, *key, *what, *how))
            first_seq += microbatches * len(rank_of)
    return pl.DataFrame(rows, schema=["schedule", *KEY, *SAID], orient="row").sort(KEY)


@pytest.fixture
def case(request, recorded, found):
    """Return the handoffs of one schedule, as a recorder found them and as they have to be."""
    schedule, ranks = request.param

    def look(*recorders):
        wanted = expected(recorded(ranks), ranks).filter(schedule=schedule).drop("schedule")
        handoffs = found(ranks, *recorders).handoffs.sort(KEY)
        return handoffs.filter(pl.col("step").is_in(wanted["step"].unique().to_list())), wanted

    return look


OF_EACH = pytest.mark.parametrize("case", CASES, indirect=True, ids=lambda case: f"{case[0]}-{case[1]}")
BY_EACH = pytest.mark.parametrize("recorder", RECORDERS)


@OF_EACH
@BY_EACH
def test_every_handoff_has_its_key_its_bytes_and_both_sides(case, recorder):
    handoffs, wanted = case(recorder)
    assert_frame_equal(handoffs.select(KEY + SAID), wanted, check_dtypes=False)
    assert set(handoffs["origin"]) == {"marks"}
    assert set(handoffs["status"].cast(pl.String)) == {"complete"}
    for source in SOURCES:
        between = source.removesuffix("_source") in ("submit", "receive_post", "available")
        for row in handoffs.select("kind", pl.col(source).cast(pl.String)).unique().rows():
            assert row in {("p2p", "emitted"), ("local", "not_applicable" if between else "emitted")}


@pytest.mark.parametrize("ranks", RUN)
@pytest.mark.parametrize("recorder", RECORDERS)
def test_every_receive_is_marked_where_it_is_posted_and_where_it_is_waited_for(found, ranks, recorder):
    analysis = found(ranks, recorder)
    moved = analysis.handoffs.filter(pl.col("kind") == "p2p").rename({"src_rank": "src", "dst_rank": "dst"})
    receives = analysis.trace.marks.filter(pl.col("mark") == "receive").join(moved, on=["src", "dst", "channel", "seq"])
    assert set(receives.group_by("handoff_id").len()["len"]) == {2}
    assert receives["handoff_id"].n_unique() == moved.height


@OF_EACH
@BY_EACH
def test_events_of_a_rank_come_in_the_order_of_its_program(case, recorder):
    handoffs, _ = case(recorder)
    moved, local = handoffs.filter(pl.col("kind") == "p2p"), handoffs.filter(pl.col("kind") == "local")
    assert (moved["producer_finish_ns"] <= moved["submit_ns"]).all()
    assert (moved["receive_post_ns"] <= moved["available_ns"]).all()
    assert (moved["available_ns"] <= moved["consumer_start_ns"]).all()
    assert (local["producer_finish_ns"] <= local["consumer_start_ns"]).all()
    assert "violation" not in set(handoffs["order"].cast(pl.String))


@pytest.mark.parametrize("ranks", RUN)
@BY_EACH
def test_nothing_else_is_found(recorded, found, ranks, recorder):
    assert found(ranks, recorder).handoffs.height == expected(recorded(ranks), ranks).height


@pytest.mark.nsys
@OF_EACH
def test_three_recorders_of_one_run_give_one_table(case):
    torch, log, nsys = (case(recorder)[0].select(KEY + SAID + FOUND + SOURCES) for recorder in ("torch", "log", "nsys"))
    assert_frame_equal(torch, log)
    assert_frame_equal(torch, nsys)


@OF_EACH
def test_two_recorders_together_give_each_handoff_once(case):
    both, one = case("torch", "log")[0], case("torch")[0]
    assert_frame_equal(both.select(KEY + SAID + FOUND), one.select(KEY + SAID + FOUND))


@pytest.mark.parametrize("ranks", RUN)
@BY_EACH
def test_steps_are_units(found, ranks, recorder):
    units = found(ranks, recorder).units
    assert set(units.select(pl.col("unit").cast(pl.String), pl.col("id").cast(pl.String)).rows()) == {
        ("step", str(step)) for step in range(STEPS * len(RUN[ranks]))
    }

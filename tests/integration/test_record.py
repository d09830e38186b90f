"""A real job of two ranks under `gapscope record`: by torch.profiler, by nsys, and beside a profiler of its own."""

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

import gapscope
from gapscope.preflight.capture_commands import torch_snippet
from gapscope.preflight.job_python import nvtx_is_heard
from gapscope.readers.nsys_export import find_nsys

JOB = Path(__file__).with_name("marked_job.py")
STEPS, MICROBATCHES, BYTES = 3, 2, 16384


class Recorded(NamedTuple):
    folder: Path
    code: int
    out: str
    err: str

    @property
    def handoffs(self):
        return pl.read_parquet(self.folder / "results" / "handoffs.parquet").sort("seq")

    @property
    def recordings(self):
        summary = json.loads((self.folder / "results" / "summary.json").read_text())
        return {(r["rank"], r["tool"]) for r in summary["recordings"]}


def record(folder, *options, job=(), path=()):
    python_path = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "gapscope", "record", "--out", str(folder / "run"), *options, "--"]
    command += [sys.executable, str(JOB), "--rendezvous", str(folder / "rendezvous"), "--steps", str(STEPS), *job]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": python_path},
    )
    return Recorded(folder / "run", done.returncode, done.stdout, done.stderr)


def check_complete(recorded):
    assert recorded.code == 0, recorded.err
    key = ["src_rank", "dst_rank", "channel", "seq", "step", "microbatch", "size_bytes", "status"]
    assert recorded.handoffs.select(key).rows() == [
        (0, 1, 0, seq, seq // MICROBATCHES + 1, seq % MICROBATCHES, BYTES, "complete")
        for seq in range(STEPS * MICROBATCHES)
    ]
    assert "the job is done" in recorded.out
    assert f"{STEPS * MICROBATCHES} handoffs (all complete)" in recorded.out


def test_torch_records_each_rank_without_an_edit_of_the_job(tmp_path):
    pytest.importorskip("torch")
    recorded = record(tmp_path, "--tool", "torch")
    check_complete(recorded)
    assert sorted(p.name for p in (recorded.folder / "torch").iterdir()) == ["rank0.json", "rank1.json"]
    assert {(0, "torch"), (1, "torch")} <= recorded.recordings


def annotations(path):
    return [e["name"] for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "user_annotation"]


def test_a_profiler_of_the_job_is_left_alone_and_steps_are_kept_to(tmp_path):
    pytest.importorskip("torch")
    recorded = record(tmp_path, "--tool", "torch", "--steps", "2:2", job=["--own-profiler"])
    assert recorded.code == 0, recorded.err
    assert "gapscope: torch.profiler is not started: the job's own is on." in recorded.err.splitlines()
    (made,) = (recorded.folder / "torch").iterdir()
    assert made.name == "rank0.json"
    steps = {re.search(r"step=(\d+)", name)[1] for name in annotations(made) if name.startswith("gapscope::")}
    assert steps == {"2"}
    assert recorded.handoffs["status"].to_list() == ["complete"] * MICROBATCHES


IN_ONE_PROCESS = """
import threading
import torch
import gapscope_instrumentation as gs

handoff = gs.Handoff(src=0, dst=1, seq=5, device="cpu")

def work():
    with gs.produce(handoff):
        torch.ones(8) @ torch.ones(8)

{how}
{snippet}
"""
ON_THE_MAIN_THREAD = "work()"
ON_ANOTHER_THREAD = "thread = threading.Thread(target=work); thread.start(); thread.join()"


@pytest.mark.parametrize("how", [ON_THE_MAIN_THREAD, ON_ANOTHER_THREAD])
def test_the_window_takes_the_first_mark_and_ends_where_the_job_profiles(tmp_path, how):
    """The job profiles as `gapscope preflight` recommends."""
    pytest.importorskip("torch")
    ours = tmp_path / "ours"
    snippet = torch_snippet(cuda=False, sync_events=True).replace("...", "gs.submit(handoff).start().end()", 1)
    variables = {"GAPSCOPE": "1", "GAPSCOPE_LOG": "off", "GAPSCOPE_TORCH_PROFILE": str(ours), "RANK": "3"}
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS.format(how=how, snippet=snippet)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    assert annotations(tmp_path / "rank3.json") == ["gapscope::submit src=0 dst=1 seq=5 device=cpu"]
    assert annotations(ours / "rank3.json") == ["gapscope::produce src=0 dst=1 seq=5 device=cpu"]
    said = [line for line in done.stderr.splitlines() if line.startswith("gapscope: ")]
    assert said[0] == "gapscope: the job starts a torch.profiler of its own; ours ends here."


FORKED = """
import multiprocessing
import gapscope_instrumentation as gs

def work(rank):
    with gs.produce(gs.Handoff(src=rank, dst=9, seq=1, device="cpu")):
        pass

workers = [multiprocessing.get_context("fork").Process(target=work, args=(rank,)) for rank in (1, 2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


def test_forked_workers_write_their_logs_before_they_end(tmp_path):
    variables = {"GAPSCOPE": "1", "GAPSCOPE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120, env={**os.environ, **variables})
    trace = gapscope.load(tmp_path)
    assert sorted(trace.marks["src"].to_list()) == [1, 2]


@pytest.mark.nsys
def test_nsys_records_both_ranks_in_one_report(tmp_path, nsys):
    pytest.importorskip("torch")
    extra = [folder] if (folder := os.environ.get("GAPSCOPE_TEST_NVTX")) else []
    if not extra and nvtx_is_heard(metadata.version("nvtx"), find_nsys(nsys).version) is False:
        pytest.skip(
            "this nsys hears nothing of the installed nvtx: set GAPSCOPE_TEST_NVTX to a folder with nvtx 0.2.11"
        )
    recorded = record(tmp_path, "--tool", "nsys", "--nsys", nsys, path=extra)
    check_complete(recorded)
    assert {rank for rank, tool in recorded.recordings if tool == "nsys"} == {0, 1}
    assert (recorded.folder / "trace.nsys-rep").is_file()

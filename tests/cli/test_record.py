"""`gapscope record` as a user meets it, with small jobs and the mark log alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import polars as pl
import pytest

JOB = """
import sys, time
import gapscope_instrumentation as gs

for seq in range(3):
    with gs.step(seq):
        handoff = gs.Handoff(src=0, dst=0, seq=seq, step=seq, device="cpu", transport="local")
        with gs.produce(handoff):
            pass
        with gs.consume(handoff):
            pass
try:
    print("the job says this", flush=True)
    if "wait" in sys.argv:
        time.sleep(300)
except KeyboardInterrupt:
    sys.exit(7)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return [sys.executable, str(path)]


@pytest.fixture
def run(tmp_path):
    """The folder that is recorded into."""
    return tmp_path / "run"


def handoffs(folder):
    return pl.read_parquet(folder / "results" / "handoffs.parquet")


def marks_alone(run, *options):
    return ("record", "--out", run, "--tool", "marks", *options)


def test_the_job_is_recorded_and_analyzed(cli, job, run):
    done = cli(*marks_alone(run), "--", *job, "0")
    assert done.code == 0
    assert done.out.startswith("3 handoffs")
    assert handoffs(run)["status"].to_list() == ["complete"] * 3
    assert len(list((run / "marks").glob("*.gslog"))) == 1
    assert all(line.startswith("gapscope: ") for line in done.err.splitlines())
    assert f"gapscope analyze {run}/marks" in done.err


def test_output_of_the_job_passes_through(job, run):
    done = subprocess.run(
        [sys.executable, "-m", "gapscope", *map(str, marks_alone(run)), "--", *job, "0"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith("the job says this\n3 handoffs")


def test_the_code_of_the_job_is_passed_on_and_what_it_left_is_analyzed(cli, job, run):
    done = cli(*marks_alone(run), "--", *job, "5")
    assert done.code == 5
    assert "the job ended with exit code 5; what it left is analyzed." in done.err
    assert handoffs(run).height == 3


def test_options_of_the_job_need_no_dashes_before(cli, job, run):
    assert cli(*marks_alone(run), *job, "0", "--lr", "3").code == 0


def test_steps_limit_the_analysis(cli, job, run):
    assert cli(*marks_alone(run, "--steps", "1:2"), "--", *job, "0").code == 0
    assert sorted(handoffs(run)["step"].to_list()) == [1, 2]


@pytest.mark.parametrize(
    ("options", "command", "said"),
    [
        (["--steps", "5:2"], None, "--steps 5:2: the first is behind the last."),
        (
            ["--attach", "torch_pipelinin"],
            None,
            "torch_pipelinin: there is no such adapter; known are torch",
        ),
        ([], ["no-such-program"], "no-such-program: is not found."),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_removed_or_run(cli, job, run, options, command, said):
    assert cli(*marks_alone(run), "--", *job, "0").code == 0
    kept = sorted(path for path in run.rglob("*") if path.is_file())
    done = cli(*marks_alone(run, "--overwrite", *options), "--", *(command or [*job, "0"]))
    assert done.code == 2
    assert said in done.err
    assert sorted(path for path in run.rglob("*") if path.is_file()) == kept


def test_an_earlier_recording_is_kept_unless_told(cli, job, run):
    assert cli(*marks_alone(run), "--", *job, "0").code == 0
    (before,) = (run / "marks").glob("*.gslog")
    refused = cli(*marks_alone(run), "--", *job, "0")
    assert refused.code == 2
    assert "holds recordings of an earlier run" in refused.err
    assert before.exists()
    assert cli(*marks_alone(run, "--overwrite"), "--", *job, "0").code == 0
    assert handoffs(run).height == 3
    assert not before.exists()


def test_a_job_without_marks_says_what_to_do(cli, run):
    done = cli(*marks_alone(run), "--", sys.executable, "-c", "pass")
    assert done.code == 3
    assert "the job left no recording: no mark was set. Mark its handoffs" in done.err


def test_a_job_that_fails_without_marks_keeps_its_code(cli, run):
    done = cli(*marks_alone(run), "--", sys.executable, "-c", "raise SystemExit(9)")
    assert done.code == 9
    assert "no mark was set" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "No job was named"),
        (("--tool", "marks", "--steps", "x", "--", "true"), "--steps x: give a step or a range"),
        (("--tool", "marks", "--steps", ":", "--", "true"), "--steps :: give a step or a range"),
        (("--tool", "marks", "--", "no-such-program"), "no-such-program: is not found"),
        (("--tool", "nsys", "--nsys", "/no/nsys", "--", "true"), "--tool nsys: there is no nsys"),
        (("--tool", "marks", "--python", "/no/python", "--", "true"), "/no/python: cannot be run"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(cli, run, arguments, message):
    done = cli("record", "--out", run, *arguments)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_to_the_job_and_what_it_left_is_analyzed(job, run, number):
    command = [sys.executable, "-m", "gapscope", *map(str, marks_alone(run)), "--", *job, "0", "wait"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=dict(os.environ)
    ) as process:
        assert process.stdout.readline() == "the job says this\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == (7 if number == signal.SIGINT else 128 + signal.SIGTERM)
    assert f"the job ended with exit code {process.returncode}; what it left is analyzed." in err
    if number == signal.SIGINT:  # a job that SIGTERM ends has no time to write its last half second
        assert out.startswith("3 handoffs")

"""What `gapscope record` runs: commands, environments, the folder, and the sitecustomize in the job."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gapscope_instrumentation.profiling import parse_steps

from gapscope.errors import UsageError
from gapscope.preflight.answers import SETTINGS
from gapscope.preflight.capture_commands import nsys_command, nsys_options
from gapscope.preflight.job_python import JobPython
from gapscope.preflight.nsys_ability import NsysAbility
from gapscope.readers.nsys_export import Nsys
from gapscope.recording import RecordingFolder, Tool, instrumented, job_environment, plan, run_job
from gapscope.recording.environment import SITE

JOB = ["torchrun", "--nproc-per-node", "2", "train.py", "--lr", "3"]
EVERY_OPTION = frozenset(s.known_as for s in SETTINGS if s.known_as) | {"resolve-symbols"}
NEW = NsysAbility(Nsys("/opt/nsys", (2025, 3, 2), "2025.3.2"), EVERY_OPTION, "/opt/QdstrmImporter")
OLD = replace(NEW, nsys=Nsys("/opt/old/nsys", (2023, 4, 4), "2023.4.4"))
PYTHON = JobPython("/usr/bin/python3", "3.11.7", nvtx="0.2.17", torch="2.11.0", has_instrumentation=True)
NO_TORCH = replace(PYTHON, torch=None)


def planned(wanted, ability, python, **more):
    return plan(JOB, RecordingFolder(Path("/data/run")), wanted, ability, "none here", python, {"HOME": "/h"}, **more)


def test_the_nsys_command_records_all_that_this_nsys_knows():
    assert nsys_command(NEW, "/data/trace", JOB) == [
        "/opt/nsys", "profile", "-t", "cuda,nvtx", "-s", "none", "-b", "none", "--cpuctxsw=none",
        "--cuda-graph-trace=node", "--cuda-event-trace=true", "--resolve-symbols=false",
        "-o", "/data/trace", *JOB,
    ]  # fmt: skip


def test_options_that_nsys_does_not_know_are_left_out():
    assert nsys_options(frozenset()) == ["-t", "cuda,nvtx", "-s", "none"]
    assert "--cuda-event-trace=true" not in nsys_options(EVERY_OPTION - {"cuda-event-trace"})


def test_the_environment_switches_marks_on_and_keeps_what_was_there():
    before = {
        "PYTHONPATH": os.pathsep.join(["/a", "/b"]),
        "HOME": "/h",
        "GAPSCOPE_ATTACH": "vllm",
        "GAPSCOPE_NVTX": "text",
    }
    assert job_environment(before, Path("/data/marks")) == {
        "PYTHONPATH": os.pathsep.join([str(SITE), "/a", "/b"]),
        "HOME": "/h",
        "GAPSCOPE_NVTX": "text",
        "GAPSCOPE": "1",
        "GAPSCOPE_DIR": "/data/marks",
    }


def test_the_environment_asks_for_torch_steps_and_adapters():
    made = job_environment({}, Path("/m"), torch=Path("/t"), attach=["c10d", "vllm"], steps="2:5")
    assert (
        made.items()
        >= {
            "GAPSCOPE_TORCH_PROFILE": "/t",
            "GAPSCOPE_TORCH_PROFILE_STEPS": "2:5",
            "GAPSCOPE_ATTACH": "c10d,vllm",
        }.items()
    )


def test_steps_are_for_torch_alone():
    assert "GAPSCOPE_TORCH_PROFILE_STEPS" not in job_environment({}, Path("/m"), steps="2:5")


def test_instrumenting_twice_changes_nothing():
    once = instrumented({"PYTHONPATH": "/a"})
    assert instrumented(once) == once


@pytest.mark.parametrize(
    ("wanted", "ability", "python", "chosen"),
    [
        (Tool.auto, NEW, PYTHON, Tool.nsys),
        (Tool.auto, NEW, None, Tool.nsys),  # the job's Python is not seen: nobody knows better
        (Tool.auto, None, PYTHON, Tool.torch),
        (Tool.auto, OLD, PYTHON, Tool.torch),  # nsys 2023.4 hears nothing of nvtx 0.2.17
        (Tool.auto, OLD, replace(PYTHON, nvtx="0.2.11"), Tool.nsys),
        (Tool.auto, NEW, replace(PYTHON, nvtx=None), Tool.torch),
        (Tool.auto, OLD, NO_TORCH, Tool.nsys),  # GPU work, and the marks from their log
        (Tool.auto, None, NO_TORCH, Tool.marks),
        (Tool.nsys, OLD, PYTHON, Tool.nsys),
        (Tool.torch, NEW, PYTHON, Tool.torch),
        (Tool.marks, NEW, PYTHON, Tool.marks),
    ],
)
def test_the_tool_is_the_one_that_records_marks(wanted, ability, python, chosen):
    made = planned(wanted, ability, python)
    assert made.tool is chosen
    assert made.command == (nsys_command(ability, "/data/run/trace", JOB) if chosen is Tool.nsys else JOB)
    assert ("GAPSCOPE_TORCH_PROFILE" in made.environment) == (chosen is Tool.torch)
    assert made.environment["GAPSCOPE_DIR"] == "/data/run/marks"


def test_another_choice_than_nsys_says_why():
    (note,) = planned(Tool.auto, OLD, PYTHON).notes
    assert "nsys 2023.4.4 records no marks of nvtx 0.2.17" in note
    assert "judged by the versions" in note
    assert "pip install nvtx==0.2.11" in note


def test_nsys_that_is_not_there_is_a_usage_error():
    with pytest.raises(UsageError, match=r"--tool nsys: there is no nsys \(none here\)"):
        planned(Tool.nsys, None, PYTHON)


def test_nsys_says_that_it_records_all_steps():
    assert planned(Tool.nsys, NEW, PYTHON, steps="3:4").notes == [
        "nsys records the whole job; the analysis takes steps 3:4 of it."
    ]


def test_a_percent_sign_in_the_folder_is_no_pattern_of_nsys():
    made = plan(JOB, RecordingFolder(Path("/d/100%p")), Tool.nsys, NEW, "", PYTHON, {})
    assert made.command[made.command.index("-o") + 1] == "/d/100%%p/trace"


@pytest.fixture
def left(tmp_path):
    """A folder with what an earlier run recorded, and files of the user's."""
    recorded = [
        "trace.nsys-rep",
        "torch/rank0.json",
        "torch/rank1-77.json",
        "torch/.pid5-5.json",
        "marks/rank0-5.gslog",
    ]
    derived = ["results/handoffs.parquet", "results/summary.json"]
    own = ["notes.txt", "trace.sqlite", "torch/mine.json", "results/mine.parquet"]
    for name in (*recorded, *derived, *own):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path, recorded, derived, own


def test_an_earlier_recording_is_refused_and_stays(left):
    folder, recorded, derived, own = left
    with pytest.raises(
        UsageError, match=r"holds recordings of an earlier run \(trace.nsys-rep, .* and 2 more\).*--overwrite"
    ):
        RecordingFolder(folder).clear(overwrite=False)
    assert all((folder / name).is_file() for name in (*recorded, *derived, *own))


def test_overwrite_removes_what_record_writes_and_nothing_else(left):
    folder, _, _, own = left
    RecordingFolder(folder).clear(overwrite=True)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == sorted(own)


def test_recordings_leave_unfinished_and_foreign_files_out(left):
    folder, *_ = left
    names = [str(p.relative_to(folder)) for p in RecordingFolder(folder).recordings()]
    assert names == ["trace.nsys-rep", "torch/rank0.json", "torch/rank1-77.json", "marks/rank0-5.gslog"]


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be used \(Not a directory\).*--out"):
        RecordingFolder(tmp_path / "file" / "run").clear(overwrite=False)


@pytest.mark.parametrize(("code", "shown"), [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", 137)])
def test_exit_codes_are_those_of_a_shell(code, shown):
    assert run_job(["sh", "-c", code], os.environ) == shown


def test_a_job_that_is_not_there_is_a_usage_error():
    with pytest.raises(UsageError, match=r"no-such-program: is not found\. Give the job's command after --"):
        run_job(["no-such-program"], os.environ)


@pytest.mark.parametrize("text", ["a", "1:2:3", "1-2"])
def test_steps_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="is no step and no range"):
        parse_steps(text)


def run_python(code, *path, **variables):
    environment = job_environment({**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}, Path("marks"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def test_each_python_of_the_job_has_marks_on():
    code = "import sys; print(sys.modules['gapscope_instrumentation'].status()['marks'])"
    assert run_python(code) == (0, "on\n", "")


def test_the_folder_of_the_sitecustomize_is_not_left_on_the_path():
    assert run_python(f"import sys; print({str(SITE)!r} in sys.path)") == (0, "False\n", "")


def test_a_sitecustomize_of_the_environment_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("FOUND = 'theirs'\n")
    code = "import sys, sitecustomize; print(sitecustomize.FOUND, 'gapscope_instrumentation' in sys.modules)"
    assert run_python(code, tmp_path) == (0, "theirs True\n", "")


def test_an_instrumentation_that_fails_is_one_line_and_the_job_goes_on(tmp_path):
    package = tmp_path / "gapscope_instrumentation"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken here')\n")
    code, out, err = run_python("print('done')", tmp_path)
    assert (code, out) == (0, "done\n")
    assert err == f"gapscope: no marks in {sys.executable} (RuntimeError: broken here)\n"

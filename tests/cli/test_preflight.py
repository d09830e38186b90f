"""`gapscope preflight` as a user meets it, with an nsys and a Python that answer as told."""

from __future__ import annotations

import json
import re

import pytest

from gapscope.preflight import SETTINGS

ANSWER = {
    "executable": "/job/python3", "python": "3.11.7", "nvtx": "0.2.17", "torch": "2.11.0", "instrumentation": True,
    "torch_details": {
        "cuda_build": "13.0", "kineto": True,
        "activities": ["CPU", "CUDA"], "cuda_available": True, "sync_events": True,
    },
}  # fmt: skip
COMMAND = "nsys profile -t nvtx -s none --cpuctxsw=none -o out python train.py"


@pytest.fixture
def look(cli, tmp_path, monkeypatch):
    """Run the command in an environment of programs that answer as told."""
    for name in (
        "NVTX_DISABLE",
        "NCCL_NVTX_DISABLE",
        "CUDA_LAUNCH_BLOCKING",
        "GAPSCOPE",
        "GAPSCOPE_NVTX",
        "GAPSCOPE_LOG",
    ):
        monkeypatch.delenv(name, raising=False)
    options = "".join(f"\\t--{name}=\\n" for name in {s.known_as for s in SETTINGS if s.known_as})

    def run(*arguments, nsys="2025.3.2", python=ANSWER):
        (tmp_path / "answer.json").write_text(json.dumps(python))
        texts = {
            "python3": f"cat {tmp_path}/answer.json",
            "nsys": f'[ "$1" = --version ] && echo "NVIDIA Nsight Systems version {nsys}" || printf "{options}"',
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        named = ("--nsys", tmp_path / "nsys", "--python", tmp_path / "python3", "--out", tmp_path)
        return cli("preflight", *named, "--no-probe", *arguments)

    return run


def test_the_table_tells_what_there_is_and_how_to_record(look):
    done = look()
    assert done.code == 0
    assert re.search(r"^nsys +ok +2025\.3\.2 ", done.out, re.MULTILINE)
    assert re.search(
        r"^nvtx +ok +0\.2\.17 with nsys 2025\.3\.2: works \(judged by the versions, not tried\)", done.out, re.MULTILINE
    )
    assert "nsys and torch.profiler cannot both record CUDA" in done.out
    one_line = done.out.replace(" \\\n ", "")
    assert "profile -t cuda,nvtx -s none -b none --cpuctxsw=none" in " ".join(one_line.split())
    assert "enable_cuda_sync_events=True" in done.out
    assert done.out.rstrip().endswith("Handoffs can be recorded here with nsys or torch.profiler.")
    assert done.err == ""


def test_json_says_the_same(look):
    done = look("--format", "json")
    told = json.loads(done.out)
    assert (done.code, told["can_record"]) == (0, True)
    assert told["routes"] == {"nsys": True, "torch": True, "marks": True}
    assert {check["state"] for check in told["checks"]} <= {"ok", "limited", "no", "unknown"}
    assert set(told["commands"]) == {"record", "nsys", "torch"}


@pytest.mark.parametrize("words", [("--command", COMMAND), ("--", *COMMAND.split()), COMMAND.split()])
def test_a_command_is_checked(look, words):
    done = look(*words)
    assert done.code == 0
    assert f"The command: {COMMAND}" in done.out
    assert "-t cuda (-t nvtx)" in done.out
    assert "costs producer_finish, movement_start, available, consumer_start: No GPU operation is recorded" in done.out


def test_a_checked_command_in_json_has_its_losses_and_a_better_one(look):
    told = json.loads(look("--format", "json", "--command", COMMAND).out)["command"]
    (trace,) = [m for m in told["missing"] if m["key"] == "trace_cuda"]
    assert (trace["surely"], trace["found"]) == (True, "-t nvtx")
    assert trace["lost"] == ["producer_finish", "movement_start", "available", "consumer_start"]
    assert told["better"].startswith("GAPSCOPE=1 nsys profile -t cuda,nvtx -s none")


def test_a_command_that_records_nothing_exits_with_1(look):
    done = look("--command", "nsys profile -t osrt python train.py")
    assert done.code == 1
    assert "It records no handoff at all" in done.out


def test_an_environment_that_records_nothing_exits_with_1(look):
    done = look(python=ANSWER | {"python": "3.8.1"})
    assert done.code == 1
    assert "No handoff can be recorded here" in done.out


def test_versions_that_hear_nothing_name_the_remedy(look):
    done = look(nsys="2023.4.4")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "0.2.17 with nsys 2023.4.4: nothing would be recorded" in text
    assert "/job/python3 -m pip install nvtx==0.2.11" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--command", COMMAND, "--", "nsys"), "Give the command to check once"),
        (("--command", ""), "--command: the command is empty"),
        (("--command", "nsys stats x"), "nsys stats: is no capture"),
        (("--command", "nsys profile 'x"), "Check its quotes"),
    ],
)
def test_what_cannot_be_checked_is_a_usage_error(look, words, message):
    done = look(*words)
    assert done.code == 2
    assert message in done.err

"""What `gapscope preflight` finds: against programs that answer like nsys and Python, and once with a real nsys."""

from __future__ import annotations

import json
import os
import sys

import pytest

from gapscope.cause_names import CAUSES
from gapscope.errors import UsageError
from gapscope.preflight import SETTINGS, preflight
from gapscope.preflight.answers import ALL_TIMES, SETTING
from gapscope.preflight.capture_commands import folded, torch_snippet
from gapscope.preflight.command_check import check_command
from gapscope.preflight.job_python import JobPython, ask_python, nvtx_is_heard, python_of
from gapscope.preflight.machine import clock_is_kept, room_in
from gapscope.preflight.nsys_ability import find_ability
from gapscope.preflight.nsys_command_check import missing_in, parse_nsys, split_command, switched_off
from gapscope.preflight.torch_script_check import profiler_calls
from gapscope.recording import instrumented

OLD_HELP = """
usage: nsys profile [<args>] [application] [<application args>]

\t-b, --backtrace=
\t   Select the backtrace method; see --sample.
\t-c, --capture-range=
\t--capture-range-end=
\t--cpuctxsw=
\t--cuda-graph-trace=<granularity>[:<launch origin>]
\t(Experimental) --ib-switch-congestion-device=<IB switch GUID>
\t--resolve-symbols=
\t--trace-fork-before-exec=
"""
NEW_HELP = OLD_HELP + "\t--cuda-event-trace=\n"
ALL = frozenset(s.known_as for s in SETTINGS if s.known_as)
BEST = (
    "nsys profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node --cuda-event-trace=true "
    "--trace-fork-before-exec=true -o out python train.py"
)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def nsys_like(folder, version="2025.3.2.367-1", help_text=NEW_HELP, profile="exit 1"):
    """A program that answers --version and profile --help as nsys does; anything else it does as told."""
    (folder / "help.txt").write_text(help_text)
    return program(
        folder / "nsys",
        f'case "$*" in\n--version) echo "NVIDIA Nsight Systems version {version}" ;;\n'
        f'"profile --help") cat {folder}/help.txt ;;\n*) {profile} ;;\nesac\n',
    )


def python_like(folder, **answer):
    """A program that answers as `gapscope.preflight.asked` does."""
    details = {"cuda_build": None, "kineto": True, "activities": ["CPU"], "cuda_available": False, "sync_events": True}
    known = {
        "executable": str(folder / "python3"), "python": "3.11.7", "nvtx": "0.2.17", "torch": "2.11.0",
        "instrumentation": True,
        "torch_details": details,
    } | answer  # fmt: skip
    (folder / "answer.json").write_text(json.dumps(known))
    return program(folder / "python3", f"cat {folder}/answer.json\n")


def looked(tmp_path, nsys=None, python=None, variables=None, **options):
    nothing = {"PATH": os.environ["PATH"]}
    return preflight(
        nsys=nsys or str(tmp_path / "none" / "nsys"),
        python=python or python_like(tmp_path),
        out=tmp_path,
        environment=nothing | (variables or {}),
        **{"try_nsys": False} | options,
    )


def states(result):
    return {check.what: check.state for check in result.checks}


def keys(missing, surely=None):
    return [m.setting.key for m in missing if surely is None or m.surely == surely]


def lacking(text, known=ALL):
    return missing_in(parse_nsys(split_command(text)), known)


def test_settings_name_answers_that_there_are():
    names = {answer for s in SETTINGS for answer in s.lost if "_" in answer and " " not in answer}
    assert names <= {*CAUSES, *ALL_TIMES}
    assert len(SETTING) == len(SETTINGS)
    assert all(s.lost and s.because.endswith(".") for s in SETTINGS)


def test_nsys_is_asked_what_it_knows(tmp_path):
    ability, why_not = find_ability(nsys_like(tmp_path, "2023.4.4.54-234433681190v0", OLD_HELP))
    assert why_not == ""
    assert (ability.nsys.text, ability.nsys.version) == ("2023.4.4.54-234433681190v0", (2023, 4, 4, 54))
    assert "ib-switch-congestion-device" in ability.options
    assert "sample" not in ability.options  # spoken of, not listed
    assert keys_of(ability.missing()) == ["event_trace"]


def keys_of(settings):
    return [s.key for s in settings]


def test_the_importer_is_found_beside_nsys(tmp_path):
    importer = tmp_path / "host" / "linux-desktop-glibc_2_11_3-x64" / "QdstrmImporter"
    (tmp_path / "host" / "target-linux-x64").mkdir(parents=True)
    program(importer, "")
    ability, _ = find_ability(nsys_like(tmp_path / "host" / "target-linux-x64"))
    assert ability.importer == str(importer)


def test_an_nsys_that_was_named_and_fails_is_named(tmp_path):
    ability, why_not = find_ability(program(tmp_path / "nsys", "exit 1\n"))
    assert ability is None
    assert why_not == f"the nsys {tmp_path / 'nsys'} (as given) cannot be run"


@pytest.mark.parametrize(
    ("nvtx", "nsys", "heard"),
    [
        ("0.2.11", (2023, 4, 4), True),
        ("0.2.12", (2023, 4, 4), False),
        ("0.2.17", (2023, 4, 4), False),
        ("0.2.17", (2024, 6, 1), None),
        ("0.2.16", (2025, 3, 2), True),
        (None, (2025, 3, 2), False),
        ("0.2.16", (), None),
    ],
)
def test_nvtx_is_judged_by_the_versions(nvtx, nsys, heard):
    assert nvtx_is_heard(nvtx, nsys) is heard


def test_python_tells_what_it_has():
    found = ask_python(sys.executable, deep=False)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.torch_details is None
    assert found.runs_marks


@pytest.mark.parametrize(("text", "why"), [("exit 0\n", "exit status 0"), ("echo no >&2; exit 3\n", "no")])
def test_a_python_that_is_none_is_a_usage_error(tmp_path, text, why):
    with pytest.raises(
        UsageError, match=rf"python3: is no Python that works \({why}\)\. Name the job's Python with --python"
    ):
        ask_python(program(tmp_path / "python3", text), deep=False)


def test_the_python_of_a_command_is_seen(tmp_path, monkeypatch):
    program(tmp_path / "torchrun", "")
    (tmp_path / "torchrun").write_text(f"#!{tmp_path}/env/bin/python3.11\n")
    program(tmp_path / "env" / "bin" / "python3.11", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert python_of(["torchrun", "--nproc-per-node", "2", "train.py"]) == f"{tmp_path}/env/bin/python3.11"
    assert python_of(["env", "A=1", "/opt/bin/python3", "x.py"]) == "/opt/bin/python3"
    assert python_of(["/opt/job"]) is None


def test_without_nsys_torch_records(tmp_path):
    result = looked(tmp_path)
    assert result.routes == {"nsys": False, "torch": True, "marks": True}
    assert states(result)["nsys"] == "no"
    assert sorted(result.commands) == ["record", "torch"]
    assert result.verdict == "Handoffs can be recorded here with torch.profiler."


def test_what_is_judged_is_said_to_be(tmp_path):
    result = looked(tmp_path, nsys_like(tmp_path))
    assert result.routes["nsys"] is True
    (check,) = [c for c in result.checks if c.what == "nvtx"]
    assert check.found == "0.2.17 with nsys 2025.3.2.367-1: works (judged by the versions, not tried)"
    assert "-o" in result.commands["nsys"]


def test_versions_that_record_nothing_name_the_remedy(tmp_path):
    result = looked(tmp_path, nsys_like(tmp_path, "2023.4.4.54-1", OLD_HELP))
    assert result.routes == {"nsys": False, "torch": True, "marks": True}
    (check,) = [c for c in result.checks if c.what == "nvtx"]
    assert (check.state, "nothing would be recorded" in check.found) == ("no", True)
    assert check.next_step.startswith(f"{tmp_path / 'python3'} -m pip install nvtx==0.2.11")
    assert "event_trace" in keys(result.missing)
    assert result.verdict.endswith("the mark log has them beside it.")


def test_a_trial_that_fails_says_how(tmp_path):
    nsys = nsys_like(tmp_path, profile="echo the target died; exit 9")
    result = looked(tmp_path, nsys, try_nsys=True)
    (check,) = [c for c in result.checks if c.what == "nvtx"]
    assert check.state == "no"
    assert "nsys wrote no report (exit status 9: the target died); the job itself did not finish" in check.found
    assert result.routes["nsys"] is False


def test_a_capture_that_no_importer_reads_is_told_apart(tmp_path):
    nsys = nsys_like(tmp_path, profile="touch probe.qdstrm")
    result = looked(tmp_path, nsys, try_nsys=True)
    assert "wrote a .qdstrm, but has no importer (QdstrmImporter)" in str(result.checks)


def test_nothing_to_record_with_is_said_plainly(tmp_path):
    result = looked(tmp_path, python=python_like(tmp_path, python="3.8.10"))
    assert not result.can_record
    assert result.verdict.startswith("No handoff can be recorded here")


def test_the_mark_log_alone_has_no_times_of_a_gpu(tmp_path):
    result = looked(tmp_path, python=python_like(tmp_path, torch=None, torch_details=None))
    assert result.routes == {"nsys": False, "torch": False, "marks": True}
    assert result.verdict == "Only the mark log works here: it has the host's times of the marks, and none of a GPU."


def test_a_torch_that_cannot_be_imported_says_why(tmp_path):
    result = looked(tmp_path, python=python_like(tmp_path, torch_details={"error": "OSError: libcudart"}))
    assert states(result)["torch"] == "no"
    assert "OSError: libcudart" in str(result.checks)
    assert result.routes["torch"] is False


def test_a_cuda_torch_beside_nsys_is_warned_of_both_at_once(tmp_path):
    details = {
        "cuda_build": "13.0", "kineto": True, "activities": ["CPU", "CUDA"], "cuda_available": True, "nccl": "2.28.9",
        "sync_events": False,
    }  # fmt: skip
    result = looked(tmp_path, nsys_like(tmp_path), python_like(tmp_path, torch_details=details))
    assert states(result)["both at once"] == "limited"
    assert states(result)["sync events"] == "limited"
    assert keys(result.missing) == ["sync_events"]
    assert "2.11.0, CUDA 13.0, NCCL 2.28.9" in str(result.checks)
    assert "ProfilerActivity.CUDA" in result.commands["torch"]
    assert "_ExperimentalConfig" not in result.commands["torch"]


@pytest.mark.parametrize(
    ("name", "value", "off"),
    [
        ("NVTX_DISABLE", "1", True),
        ("NVTX_DISABLE", "0", True),  # the package asks if there is a text
        ("NVTX_DISABLE", "", False),
        ("NCCL_NVTX_DISABLE", "1", True),
        ("NCCL_NVTX_DISABLE", "0", False),
        ("GAPSCOPE", "0", True),
        ("GAPSCOPE", "1", False),
        ("GAPSCOPE_NVTX", "off", True),
        ("GAPSCOPE_NVTX", "text", False),
        ("GAPSCOPE_LOG", "off", True),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
    ],
)
def test_variables_that_switch_something_off_are_named(name, value, off):
    assert keys(switched_off({name: value})) == ([name] if off else [])


def test_a_variable_that_is_off_takes_its_way_out(tmp_path):
    result = looked(tmp_path, nsys_like(tmp_path), variables={"NVTX_DISABLE": "1"})
    assert result.routes["nsys"] is False
    assert states(result)["NVTX_DISABLE"] == "limited"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (BEST, []),
        (BEST.replace("-t cuda,nvtx", "-t nvtx"), ["trace_cuda"]),
        (BEST.replace("-t cuda,nvtx", "--trace=cuda"), ["trace_nvtx"]),
        (BEST.replace("-t cuda,nvtx", "-tcuda,nvtx,osrt"), ["no_osrt"]),
        (BEST.replace("-t cuda,nvtx ", ""), ["no_osrt"]),  # what nsys takes by itself
        (BEST.replace("trace=node", "trace=graph"), ["graph_nodes"]),
        (BEST.replace("event-trace=true", "event-trace=false"), ["event_trace"]),
        (BEST.replace("-s none ", ""), ["sample_none", "backtrace_none"]),
        (BEST.replace("--cpuctxsw=none ", ""), ["cpuctxsw_none"]),
        (BEST.replace("-o out", "-c cudaProfilerApi -o out"), ["capture_range_end"]),
        (BEST.replace("-o out", "-c cudaProfilerApi --capture-range-end=stop -o out"), []),
        (BEST.replace("-o out", "-c cudaProfilerApi --capture-range-end=repeat:3 -o out"), []),
        (BEST.replace("-o out", "--nvtx-domain-include=NCCL -o out"), ["nvtx_domains"]),
        (BEST.replace("-o out", "--nvtx-domain-exclude=default -o out"), []),
        ("torchrun --no-python " + BEST, ["output_per_rank"]),
        ("torchrun --no-python " + BEST.replace("-o out", "-o out-%q{RANK}"), []),
        ("env A=1 " + BEST, []),
    ],
)
def test_a_command_tells_what_it_surely_lacks(text, missing):
    assert keys(lacking(text), surely=True) == missing


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--trace-fork-before-exec=true ", "fork"),
        ("--cuda-graph-trace=node ", "graph_nodes"),
        ("--cuda-event-trace=true ", "event_trace"),
    ],
)
def test_what_depends_on_the_job_is_said_to(option, key):
    assert [(m.setting.key, m.surely) for m in lacking(BEST.replace(option, ""))] == [(key, False)]


def test_an_option_that_this_nsys_does_not_know_is_not_recommended():
    text = BEST.replace("--cuda-event-trace=true ", "")
    assert lacking(text, ALL - {"cuda-event-trace"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "nsys profile python train.py",
        "NVTX_DISABLE=1 nsys profile -t osrt -c cudaProfilerApi -w true -f true python train.py --lr 3",
        "torchrun --no-python nsys profile -t cuda,nvtx,mpi --nvtx-domain-include=NCCL -o x -- python train.py -s 3",
    ],
)
def test_the_better_command_lacks_nothing(tmp_path, text):
    nsys = nsys_like(tmp_path)
    better = check_command(split_command(text), nsys).better
    again = check_command(split_command(better), nsys)
    assert keys(again.missing, surely=True) == []
    before, after = parse_nsys(split_command(text)), parse_nsys(split_command(better))
    assert after.job == before.job
    assert {
        o: v for o, v in before.options.items() if o in {"show-output", "force-overwrite"}
    }.items() <= after.options.items()
    assert "mpi" not in before.options.get("trace", "") or "mpi" in after.traced


def test_a_command_that_records_nothing_is_told(tmp_path):
    checked = check_command(split_command("nsys profile -t osrt python x.py"), nsys_like(tmp_path))
    assert checked.records_nothing
    assert checked.verdict == "It records no handoff at all: neither marks (nvtx) nor GPU work (cuda)."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nsys stats x.sqlite", "nsys stats: is no capture"),
        ("nsys", "nsys alone: is no capture"),
        ("ls -l", "ls -l: neither nsys nor a Python script is in it"),
    ],
)
def test_what_is_no_capture_is_a_usage_error(text, message):
    with pytest.raises(UsageError, match=message):
        check_command(split_command(text))


def test_a_quote_left_open_is_a_usage_error():
    with pytest.raises(UsageError, match="Check its quotes"):
        split_command("nsys profile 'x")


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("profile()", ["sync_events"]),
        ("profile(activities=[ProfilerActivity.CPU])", ["activity_cuda", "sync_events"]),
        ("profile([ProfilerActivity.CUDA], experimental_config=C)", ["activity_cpu"]),
        ("torch.profiler.profile(experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True))", []),
        ("profile(experimental_config=_ExperimentalConfig(verbose=True))", ["sync_events"]),
        ("profile(experimental_config=C, with_stack=True, record_shapes=True)", ["no_stack", "no_shapes"]),
        ("profile(**settings)", []),
    ],
)
def test_calls_of_torch_profiler_tell_what_they_lack(tmp_path, call, missing):
    script = tmp_path / "train.py"
    script.write_text(
        f"import torch\nfrom torch.profiler import ProfilerActivity, profile\n\nwith {call} as p:\n    pass\n"
    )
    (found,) = profiler_calls(script)
    assert (found.line, keys(found.missing)) == (4, missing)
    checked = check_command(["python", str(script)])
    assert (checked.tool, keys(checked.missing)) == ("torch", missing)
    assert checked.records_nothing == ("activity_cpu" in missing)


def test_other_functions_of_that_name_are_none(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from cProfile import profile\nprofile()\nline.profile()\n")
    assert profiler_calls(script) == []
    assert check_command(["python", str(script)]).better == f"gapscope record -- python {script}"


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("sync_events", [False, True])
def test_the_snippet_lacks_nothing_that_there_is(tmp_path, cuda, sync_events):
    script = tmp_path / "snippet.py"
    script.write_text(torch_snippet(cuda=cuda, sync_events=sync_events))
    (found,) = profiler_calls(script)
    lost = set(keys(found.missing))
    assert lost == ({"activity_cuda"} if not cuda else set()) | (
        {"sync_events"} if not (cuda and sync_events) else set()
    )


def test_a_folded_command_is_the_same_command():
    line = "A='x y' nsys profile -o 'it'\"'\"'s' --cuda-graph-trace=node python train.py --name 'a  b'"
    lines = folded(line, 20)
    assert max(len(part) for part in lines.split("\n")) <= len("  --cuda-graph-trace=node \\")
    assert split_command(lines.replace("\\\n", "")) == split_command(line)


def test_room_is_looked_for_where_the_folder_will_be(tmp_path):
    free, why_not = room_in(tmp_path / "not" / "yet")
    assert (free > 0, why_not) == (True, "")
    (tmp_path / "file").write_text("")
    assert room_in(tmp_path / "file") == (None, f"{tmp_path / 'file'} is no folder")


def test_the_clock_is_asked_and_not_set():
    kept, text = clock_is_kept()
    assert kept in (True, False, None)
    assert text


def test_python_knows_too_old_for_marks():
    assert not JobPython("p", "3.9.1", None, None, has_instrumentation=False).runs_marks


def real(nsys, monkeypatch, tmp_path, path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]))
    return preflight(nsys=nsys, python=sys.executable, out=tmp_path, environment=instrumented(os.environ))


@pytest.mark.nsys
def test_a_trial_with_an_nvtx_that_this_nsys_hears(nsys, monkeypatch, tmp_path):
    folder = os.environ.get("GAPSCOPE_TEST_NVTX")
    if not folder:
        pytest.skip("pip install --target DIR nvtx==0.2.11 and set GAPSCOPE_TEST_NVTX=DIR")
    result = real(nsys, monkeypatch, tmp_path, [folder])
    assert result.routes["nsys"] is True
    (check,) = [c for c in result.checks if c.what == "nvtx"]
    assert check.state == "ok"
    assert check.found.startswith("0.2.11 with nsys ")
    assert check.found.endswith("tried, 2 of 2 marks arrived")


@pytest.mark.nsys
def test_a_trial_with_the_installed_nvtx_agrees_with_the_judgement(nsys, monkeypatch, tmp_path):
    result = real(nsys, monkeypatch, tmp_path, [])
    ability, _ = find_ability(nsys)
    judged = nvtx_is_heard(ask_python(sys.executable, deep=False).nvtx, ability.nsys.version)
    (check,) = [c for c in result.checks if c.what == "nvtx"]
    assert judged is None or result.routes["nsys"] is judged
    if judged is False:
        assert check.found.endswith("tried, 0 of 2 marks arrived: nothing would be recorded")
        assert "pip install nvtx==0.2.11" in check.next_step

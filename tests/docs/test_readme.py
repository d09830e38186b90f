"""The README does what it says: its commands run, its example output is what comes out, its test command is CI's.

``pytest tests/docs --update-docs`` writes the outputs anew.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
import typer

from gapscope.analysis import OUTPUTS
from gapscope.cli import app, main

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "README.md"
DATA = REPOSITORY / "tests" / "data"
CI = REPOSITORY / ".ci" / "run"

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
SHOWN_OUTPUT = re.compile(r"<!-- output of: (?P<command>.+?) -->\n```\w*\n(?P<output>.*?)```", re.DOTALL)

# Files that stand in for those of the README's reader. Readers go by content, so the names do not matter.
STAND_INS = {
    "rank0.json.gz": DATA / "two-gpus" / "nccl_none_torch_rank0.json.gz",
    "rank1.json.gz": DATA / "two-gpus" / "nccl_none_torch_rank1.json.gz",
}


def commands():
    """Return the lines of all sh and bash blocks."""
    blocks = [match for match in BLOCK.finditer(README.read_text()) if match["language"] in ("sh", "bash")]
    return [line.strip() for block in blocks for line in block["body"].splitlines() if line.strip()]


def python_blocks():
    return [
        textwrap.dedent(match["body"]) for match in BLOCK.finditer(README.read_text()) if match["language"] == "python"
    ]


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """A current folder with the recordings that the README speaks of, as files and as a folder."""
    for name, recording in STAND_INS.items():
        shutil.copy(recording, tmp_path / name)
    for name in re.findall(r'analyze\("([\w-]+)/"\)', README.read_text()):
        (tmp_path / name).mkdir()
        for file_name, recording in STAND_INS.items():
            shutil.copy(recording, tmp_path / name / file_name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gapscope_command(monkeypatch, capsys):
    """Run a ``gapscope`` command line in this process; return what it printed."""

    def run(command):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        assert exit_info.value.code == 0, err
        assert err == ""
        return out

    return run


def without_trailing_spaces(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


# Commands -------------------------------------------------------------------------------------------------------


def test_every_command_is_of_a_kind_that_is_checked():
    unknown = [c for c in commands() if not c.startswith(("gapscope ", "python3 -m venv .venv && "))]
    assert unknown == []


def test_gapscope_commands_run(run_folder, gapscope_command):
    own = [command for command in commands() if command.startswith("gapscope ")]
    assert own
    for command in own:
        gapscope_command(command)
        if folder := re.search(r"--out (\S+)", command):
            written = sorted(path.name for path in (run_folder / folder[1]).iterdir())
            assert written == sorted(OUTPUTS)


def test_two_commands_do_everything():
    setups = [command for command in commands() if not command.startswith("gapscope ")]
    assert [command.split(" && ")[1:] for command in setups] == [
        [".venv/bin/pip install .", ".venv/bin/gapscope analyze --demo"],
        [".venv/bin/pip install -e '.[dev]'", ".venv/bin/pytest"],
    ]


def test_ci_runs_the_test_command_of_the_readme():
    pattern = re.search(r"grep -E '(\^.*?)' README\.md", CI.read_text())[1]
    found = re.findall(f"{pattern}.*", README.read_text(), re.MULTILINE)
    assert found == ["python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"]


def test_python_blocks_run(run_folder):
    assert python_blocks()
    for block in python_blocks():
        exec(compile(block, "README.md", "exec"), {})


# Outputs --------------------------------------------------------------------------------------------------------


def test_shown_outputs_are_what_the_commands_print(run_folder, gapscope_command, request):
    text = README.read_text()
    shown = list(SHOWN_OUTPUT.finditer(text))
    assert shown
    for match in reversed(shown):
        printed = without_trailing_spaces(gapscope_command(match["command"]))
        if request.config.getoption("--update-docs"):
            text = text[: match.start("output")] + "\n".join([*printed, ""]) + text[match.end("output") :]
        else:
            assert without_trailing_spaces(match["output"]) == printed
    if request.config.getoption("--update-docs"):
        README.write_text(text)


# Help -----------------------------------------------------------------------------------------------------------


COMMANDS = typer.main.get_command(app).commands
PARAMETERS = [(name, parameter) for name, command in COMMANDS.items() for parameter in command.params]


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS, ids=[f"{name} {p.opts[0]}" for name, p in PARAMETERS])
def test_every_option_has_help(command, parameter):
    assert COMMANDS[command].help
    assert parameter.help
    assert parameter.help.endswith(".")


def test_options_that_the_readme_names_exist():
    known = {option for _, parameter in PARAMETERS for option in parameter.opts}
    named = set(re.findall(r"`(--?[a-z][a-z-]*)(?= [^`]*`|`|\|)", README.read_text()))
    of_nsys = {"--cuda-graph-trace"}
    assert named - of_nsys <= known
    assert {"--steps", "--ranks", "--format", "-v", "--no-cache"} <= named

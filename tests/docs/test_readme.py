"""The README does what it says: its commands run, its example output is what comes out, its test command is CI's.

``pytest tests/docs --update-docs`` writes the outputs anew.
"""

from __future__ import annotations

import re

import pytest
import typer

from gapscope.analysis import OUTPUTS
from gapscope.cli import app
from tests.docs import blocks
from tests.docs.blocks import REPOSITORY, SHOWN_OUTPUT, put_stand_ins, without_trailing_spaces

README = REPOSITORY / "README.md"
CI = REPOSITORY / ".ci" / "run"


def commands():
    return blocks.commands(README.read_text())


def python_blocks():
    return blocks.python_blocks(README.read_text())


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """A current folder with the recordings that the README speaks of, as files and as a folder."""
    put_stand_ins(tmp_path, README.read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


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

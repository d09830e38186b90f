"""The pages do what they say: their blocks run, their outputs are what comes out, every cause and variable has a place.

``pytest tests/docs --update-docs`` writes the outputs of Python blocks anew.
"""

from __future__ import annotations

import re
import shlex

import pytest

from gapscope.analysis import OUTPUTS
from gapscope.cause_names import CAUSES
from gapscope.preflight.nsys_command_check import disabling, missing_in, parse_nsys
from tests.docs import blocks
from tests.docs.blocks import PRINTED, REPOSITORY, SETUP, put_stand_ins, without_trailing_spaces
from tools import pictures

DOCS = REPOSITORY / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))}
WITH_CODE = [name for name, page in PAGES.items() if re.search(r"```(?!text)\w", page.read_text())]

SECTIONS = ["Definition", "Evidence", "Picture", "What to try", "How it can be wrong"]
WITHOUT_PICTURE = ["metadata_wait", "peer_wait", "unaligned"]
LANGUAGES = {"sh", "python", "text"}


# Blocks -----------------------------------------------------------------------------------------------------------


def test_blocks_are_run_or_marked_as_text():
    found = {(name, block.language) for name, page in PAGES.items() for block in blocks.blocks(page.read_text())}
    assert [pair for pair in sorted(found) if pair[1] not in LANGUAGES] == []


def test_commands_are_of_a_kind_that_is_checked():
    readme = blocks.commands((REPOSITORY / "README.md").read_text())
    for name, page in PAGES.items():
        for command in blocks.commands(page.read_text()):
            assert command.startswith("gapscope ") or (command.startswith(SETUP) and command in readme), (name, command)


@pytest.mark.parametrize("name", WITH_CODE)
def test_blocks_of_a_page_run_one_after_the_other(name, tmp_path, monkeypatch, gapscope_command, capsys, request):
    text = PAGES[name].read_text()
    put_stand_ins(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    names, printed, ran = {}, [], 0
    for block in blocks.blocks(text):
        if block.language == "sh":
            for command in block.commands:
                if not command.startswith(SETUP):
                    gapscope_command(command)
                    ran += 1
                if folder := re.search(r"--out (\S+)", command):
                    assert sorted(path.name for path in (tmp_path / folder[1]).iterdir()) == sorted(OUTPUTS)
        elif block.language == "python":
            exec(compile(block.body, name, "exec"), names)
            out = capsys.readouterr().out
            ran += 1
            shown = PRINTED.match(text, re.compile(r"\s*").match(text, block.end).end())
            assert bool(shown) == bool(out), block.body
            if shown:
                printed.append((shown, out))
    assert ran
    if request.config.getoption("--update-docs"):
        for shown, out in reversed(printed):
            text = text[: shown.start("output")] + out + text[shown.end("output") :]
        PAGES[name].write_text(text)
    else:
        for shown, out in printed:
            assert without_trailing_spaces(shown["output"]) == without_trailing_spaces(out)


def test_every_shown_output_follows_a_block_that_prints_it():
    for name, page in PAGES.items():
        text = page.read_text()
        ends = [block.end for block in blocks.blocks(text) if block.language == "python"]
        for shown in PRINTED.finditer(text):
            assert any(text[end : shown.start()].strip() == "" for end in ends if end <= shown.start()), name


def capture_commands():
    """Commands with nsys in blocks that are not run."""
    texts = [block for block in blocks.blocks(PAGES["recipes.md"].read_text()) if block.language == "text"]
    return [command for block in texts for command in block.commands if " nsys profile " in f" {command}"]


@pytest.mark.parametrize("command", capture_commands())
def test_capture_commands_that_need_gpus_lose_no_answer(command):
    """They cannot run here; the check that users run on their own commands finds nothing missing in them."""
    words = shlex.split(command)
    parsed = parse_nsys(words)
    assert [m.setting.key for m in [*missing_in(parsed, frozenset()), *disabling(words)] if m.surely] == []
    assert parsed.job


# Causes -----------------------------------------------------------------------------------------------------------


def test_every_cause_has_a_page():
    found = {name.removeprefix("causes/").removesuffix(".md") for name in PAGES if name.startswith("causes/")}
    assert found == {*CAUSES, "interference", "index"}


@pytest.mark.parametrize("cause", [*CAUSES, "interference"])
def test_the_page_of_a_cause_has_all_its_parts(cause):
    text = PAGES[f"causes/{cause}.md"].read_text()
    assert text.startswith(f"# {cause}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(len(part.split()) >= 25 for part in parts)
    picture = parts[SECTIONS.index("Picture")]
    if cause in WITHOUT_PICTURE:
        assert "![" not in picture
    else:
        assert f"(../pictures/{cause}.svg)" in picture


@pytest.mark.parametrize("cause", CAUSES)
def test_a_definition_has_the_words_of_the_program(cause):
    definition = re.split(r"^## .+$", PAGES[f"causes/{cause}.md"].read_text(), flags=re.MULTILINE)[1]
    sentence = CAUSES[cause].split(": there is no gap")[0]
    assert sentence.lower() in " ".join(definition.split()).lower()


def test_causes_without_a_picture_are_those_that_no_recording_shows():
    assert set(CAUSES) - set(pictures.CHOICES) == set(WITHOUT_PICTURE)


@pytest.mark.parametrize("cause", WITHOUT_PICTURE)
def test_a_cause_without_a_picture_names_tests_that_build_it(cause):
    text = PAGES[f"causes/{cause}.md"].read_text()
    files = [REPOSITORY / name for name in re.findall(r"`(tests/[\w/]+\.py)`", text)]
    source = "\n".join(path.read_text() for path in files)
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert [name for name in named if f"def {name}(" not in source] == []


def test_every_page_stands_in_the_menu_once():
    menu = re.findall(r": ([\w/-]+\.md)$|- ([\w/-]+\.md)$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted("".join(pair) for pair in menu) == sorted(PAGES)


# Facts ------------------------------------------------------------------------------------------------------------


def test_every_variable_of_the_environment_is_described():
    sources = [*(REPOSITORY / "gapscope").rglob("*.py"), *(REPOSITORY / "instrumentation").rglob("*.py")]
    used = {name for path in sources for name in re.findall(r"\bGAPSCOPE(?:_[A-Z]+)*\b", path.read_text())}
    table = re.findall(r"^\| `(GAPSCOPE(?:_[A-Z]+)*)", PAGES["recipes.md"].read_text(), re.MULTILINE)
    assert set(table) == used


def test_files_that_the_pages_name_exist():
    named = {
        (name, path)
        for name, page in PAGES.items()
        for path in re.findall(r"`((?:gapscope|tests|examples|benchmarks|tools)/[\w./*-]+)`", page.read_text())
    }
    assert named
    assert [pair for pair in sorted(named) if not list(REPOSITORY.glob(pair[1]))] == []


def test_pages_name_no_place_of_this_machine():
    for page in PAGES.values():
        assert not re.search(r"/work/|/tmp/|/root/|/home/", page.read_text())


def test_ci_builds_the_pages_with_warnings_as_errors():
    (command,) = re.findall(r"mkdocs build .*", (REPOSITORY / ".ci" / "run").read_text())
    assert "--strict" in command
    assert "--quiet" not in command  # mkdocs counts no warning that it does not print

"""Every notebook runs from top to bottom in a real kernel, and what is saved in it is what comes out.

A failure here mostly means that a number changed: look at it, then ``python -m tools.notebooks`` saves it anew. Images
are not compared, for fonts differ from machine to machine; that there is one for each figure is.
"""

from __future__ import annotations

import base64
import re
import shlex
from functools import cache

import pytest
import typer

from gapscope.cli import app
from tools.notebooks import (
    HTML_MIME,
    IMAGE_MIME,
    METADATA,
    NOTEBOOKS,
    PLOTLY_MIME,
    add_images,
    code_cells,
    figures,
    paths,
    read,
    run,
    without_images,
)

NAMES = ("cookbook", "first_capture", "one_gap", "transports")
MOST_BYTES = 700_000
PNG = b"\x89PNG\r\n\x1a\n"
STALE = "not what comes out now: look at the change, then `python -m tools.notebooks`"

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`]*`")
LIST_NUMBER = re.compile(r"^\d+\. ", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")


@cache
def saved(name):
    return read(NOTEBOOKS / f"{name}.ipynb")


@cache
def fresh(name):
    return run(saved(name))


def in_kernels(test):
    """Give a test each notebook; those of one notebook share one run."""
    each = [pytest.param(name, marks=pytest.mark.xdist_group(f"notebook {name}")) for name in NAMES]
    return pytest.mark.parametrize("name", each)(test)


def in_files(test):
    return pytest.mark.parametrize("name", NAMES)(test)


def prose(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def texts(notebook):
    """Return all that a reader of the outputs reads, and the code."""
    found = []
    for cell in code_cells(notebook):
        found.append(cell.source)
        for output in cell.outputs:
            found += [output.get("text", ""), *map(str, output.get("data", {}).values())]
    return "\n".join(found)


def test_all_notebooks_are_tested():
    assert tuple(path.stem for path in paths()) == NAMES


# What comes out now ---------------------------------------------------------------------------------------------


@in_kernels
def test_it_runs_and_says_nothing_on_stderr(name):
    outputs = [output for cell in code_cells(fresh(name)) for output in cell.outputs]
    assert outputs
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []


@in_kernels
def test_saved_texts_and_figures_are_what_comes_out(name):
    now, before = without_images(fresh(name)), without_images(saved(name))
    assert len(now) == len(before)
    for cell, out, was in zip(code_cells(fresh(name)), now, before, strict=True):
        assert out == was, f"{name}.ipynb, cell {cell.id}: {STALE}"


# What is saved --------------------------------------------------------------------------------------------------


@in_files
def test_every_figure_has_data_and_an_image_and_no_html(name):
    found = list(figures(saved(name)))
    assert found
    for data in found:
        assert HTML_MIME not in data
        assert base64.b64decode(data[IMAGE_MIME]).startswith(PNG)
        assert data[PLOTLY_MIME]["data"]


@in_files
def test_every_cell_was_run_in_order(name):
    counts = [cell.execution_count for cell in code_cells(saved(name))]
    assert counts == list(range(1, len(counts) + 1))


@in_files
def test_it_is_small_and_tells_nothing_of_the_machine(name):
    path = NOTEBOOKS / f"{name}.ipynb"
    assert path.stat().st_size < MOST_BYTES
    assert saved(name).metadata == METADATA
    assert all(not cell.metadata for cell in saved(name).cells)
    assert re.findall(r"(?<![\w.~])/(?:work|home|root|tmp|usr|Users|opt)/\S*", texts(saved(name))) == []
    assert not re.search(r"\x1b\[", texts(saved(name))), "colors of a terminal"


@in_files
def test_numbers_in_prose_stand_in_a_cell(name):
    known = set(NUMBER.findall(texts(saved(name))))
    for source in prose(saved(name)):
        said = LIST_NUMBER.sub("", CODE_SPAN.sub("", FENCE.sub("", source)))
        assert set(NUMBER.findall(said)) <= known, source


@in_files
def test_titles_do_not_judge(name):
    titles = [data[PLOTLY_MIME]["layout"]["title"]["text"] for data in figures(saved(name))]
    assert all(titles)
    assert [t for t in titles if re.search(r"\b(fast|slow|better|worse|best|worst|wins?)", t, re.IGNORECASE)] == []


@in_files
def test_links_to_other_notebooks_lead_somewhere(name):
    named = set(re.findall(r"`(\w+\.ipynb)`", "\n".join(prose(saved(name)))))
    assert [target for target in named if not (NOTEBOOKS / target).is_file()] == []


def test_commands_are_ones_that_gapscope_takes():
    commands = [
        line
        for name in NAMES
        for block in FENCE.findall("\n\n".join(prose(saved(name))))
        for line in block.splitlines()
        if line.startswith("gapscope ")
    ]
    assert commands
    group = typer.main.get_command(app)
    for line in commands:
        _, name, *arguments = shlex.split(line)
        group.commands[name].make_context(name, arguments)


# The tool -------------------------------------------------------------------------------------------------------


def test_only_figures_that_changed_are_drawn(monkeypatch):
    monkeypatch.setattr("tools.notebooks.draw", lambda _: "new")
    notebook = read(NOTEBOOKS / "one_gap.ipynb")
    data = list(figures(notebook))
    data[0][PLOTLY_MIME]["layout"]["height"] += 1
    assert add_images(notebook, saved("one_gap")) == 1
    kept = [d[IMAGE_MIME] for d in figures(saved("one_gap"))]
    assert [d[IMAGE_MIME] for d in data] == ["new", *kept[1:]]

"""Generated parts of the pages are what the code makes today, and nothing of the code is left out of them.

``pytest tests/docs --update-docs`` writes them anew (as does ``python -m tools.write_docs``). What stands beneath the
pictures is made from the recordings, so these tests recompute its numbers.
"""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

import pytest
import typer

from gapscope import schema
from gapscope.analysis import OUTPUTS, TABLES
from gapscope.cli import app
from tests.docs.blocks import REPOSITORY
from tools import docs_files, pictures, write_docs

PAGES = {page.relative_to(write_docs.DOCS).as_posix(): page for page in write_docs.pages()}
GENERATED = [name for name, page in PAGES.items() if write_docs.names(page.read_text())]

pytestmark = pytest.mark.xdist_group("generated docs")  # recordings are analyzed once


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_part_is_what_the_code_makes(name, request):
    text = PAGES[name].read_text()
    made = write_docs.filled(text)
    if request.config.getoption("--update-docs"):
        PAGES[name].write_text(made)
    else:
        assert text == made


def test_every_part_stands_in_one_page():
    found = sorted(part for page in PAGES.values() for part in write_docs.names(page.read_text()))
    assert found == sorted(write_docs.PARTS)


def test_a_part_that_nothing_makes_is_an_error():
    with pytest.raises(KeyError, match="nonsense"):
        write_docs.filled("<!-- generated: nonsense -->\n<!-- end of nonsense -->")


def test_a_stale_part_is_made_anew_and_the_text_around_it_stays():
    text = "before\n<!-- generated: evidence -->\nstale\n<!-- end of evidence -->\nafter\n"
    assert "stale" not in write_docs.filled(text)
    assert write_docs.filled(text).startswith("before\n<!-- generated: evidence -->\n\n`recorded` > ")
    assert write_docs.filled(text).endswith("<!-- end of evidence -->\nafter\n")


# The command line -------------------------------------------------------------------------------------------------


def sections():
    """The page of the command line by command."""
    parts = re.split(r"^## `gapscope (\w+)`$", PAGES["reference/cli.md"].read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_has_a_section_with_all_its_options():
    found, commands = sections(), typer.main.get_command(app).commands
    assert list(found) == list(commands)
    for name, command in commands.items():
        for parameter in command.params:
            is_argument = parameter.param_type_name == "argument"
            names = [parameter.metavar] if is_argument else [*parameter.opts, *parameter.secondary_opts]
            (row,) = [line for line in found[name].splitlines() if line.startswith(f"| `{names[0]}`")]
            assert all(f"`{option}`" in row for option in names)


# Tables and files -------------------------------------------------------------------------------------------------


def test_every_column_of_every_table_is_described():
    parts = re.split(r"^### (\w+)$", PAGES["reference/tables.md"].read_text(), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    inner = {**schema.READER_TABLES, "sources": schema.SOURCES, "marks": schema.MARKS}
    tables = {name: getattr(schema, name.upper()) for name in TABLES} | inner
    assert list(found) == list(tables)
    for name, table in tables.items():
        assert re.findall(r"^\| `(\w+)` \|", found[name], re.MULTILINE) == list(table)


def test_every_output_is_described():
    page = PAGES["reference/files.md"].read_text()
    assert re.findall(r"^\| `([\w.]+\.(?:parquet|json|html))` \|", page, re.MULTILINE) == list(OUTPUTS)


def test_every_key_of_the_summary_is_described():
    assert set(docs_files.summary_keys()) == set(docs_files.SUMMARY)


# Pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [*pictures.CHOICES, "interference"])
def test_a_picture_is_small_and_loads_nothing(cause):
    svg = (pictures.PICTURES / f"{cause}.svg").read_text()
    assert len(svg) < 120_000
    assert set(re.findall(r"https?://[^\"' ]+", svg)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(?:script|image|foreignObject)\b|@import|url\((?!['\"]?#)", svg)


@pytest.mark.parametrize("cause", pictures.CHOICES)
def test_a_picture_shows_the_handoff_that_its_text_speaks_of(cause):
    svg = ET.parse(pictures.PICTURES / f"{cause}.svg")
    table, tiles = pictures.handoff(pictures.CHOICES[cause])
    shown = "\n".join("".join(element.itertext()) for element in svg.iter("{http://www.w3.org/2000/svg}text"))
    title = html.unescape(pictures.figure(cause).layout.title.text)
    assert title in shown
    assert table["handoff_id"].item() in title
    # Every cause of the gap is in the legend, and it has the cause that it stands for.
    assert cause in set(tiles["cause"])
    assert all(found in shown for found in set(tiles["cause"]))


def test_no_picture_is_left_over():
    expected = {f"{cause}.svg" for cause in [*pictures.CHOICES, "interference"]}
    assert {path.name for path in pictures.PICTURES.iterdir()} == expected


def test_pictures_are_of_recordings_that_are_shipped():
    files = {name for choice in pictures.CHOICES.values() for name in choice.run}
    missing = [name for name in sorted(files) if not (REPOSITORY / "tests" / "data" / name).exists()]
    assert missing == []

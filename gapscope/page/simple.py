"""Pages of tables and figures that are read from top to bottom: verdicts first, then sections, findings, and how.

What they show is put together in `gapscope.page.compared` and `gapscope.page.replayed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from gapscope.errors import UsageError
from gapscope.page.figures import PageFigure
from gapscope.page.payload import pack
from gapscope.page.tables import Block, PageTable
from gapscope.plots.html import POLICY, plotly_js
from gapscope.schema import SCHEMA_VERSION
from gapscope.writing import replacing

_CODE = ("decode.js", "elements.js", "theme.js", "figures.js", "simple.js")


class Verdict(NamedTuple):
    """What may be said of one thing, and why.

    Attributes:
        about: What it is of.
        words: What may be said.
        reason: Why.
    """

    about: str
    words: str
    reason: str


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        id: Its address within the page.
        title: What it shows.
        figures: By name; names are unique in the page.
        blocks: Captions and tables, or paragraphs (whose caption is not shown).
    """

    id: str
    title: str
    figures: Mapping[str, PageFigure]
    blocks: Sequence[tuple[str, Block]]


@dataclass(frozen=True)
class SimplePage:
    """What a page shows.

    Attributes:
        title: What it is of, in a line.
        facts: What was compared or replayed.
        verdicts: What may be said.
        sections: Tables and figures.
        findings: Rows of `gapscope.findings.Finding`.
        how: How the numbers were had.
        data: All numbers, for programs; JSON.
    """

    title: str
    facts: Sequence[str]
    verdicts: Sequence[Verdict]
    sections: Sequence[Section]
    findings: Sequence[Mapping[str, Any]]
    how: Sequence[str]
    data: Mapping[str, Any] = field(default_factory=dict)


def write_page(page: SimplePage, path: str | PathLike[str], version: str) -> None:
    """Write a page as one file that needs no network.

    Args:
        page: What it shows.
        path: The file; replaced if it exists.
        version: Version of gapscope, for the foot of the page.

    Raises:
        UsageError: The file cannot be written.
    """
    text = render_page(page, version)
    try:
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{Path(path)}: the report cannot be written: {error.strerror or error}.") from error


def render_page(page: SimplePage, version: str) -> str:
    """Return a page as text.

    Args:
        page: What it shows.
        version: Version of gapscope, for the foot of the page.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests["table_block"] = lambda block: isinstance(block, PageTable)
    figures = {name: figure.spec for section in page.sections for name, figure in section.figures.items()}
    return environment.from_string(_own("simple.html")).render(
        page=page,
        policy=POLICY,
        css=Markup(_own("page.css")),
        plotly=Markup(plotly_js()) if figures else "",
        code=Markup("\n".join(_own(f"js/{name}") for name in _CODE)),
        data={"figures": pack(figures), "numbers": pack(page.data)},
        version=version,
        schema_version=SCHEMA_VERSION,
    )


def _own(name: str) -> str:
    return files("gapscope.page").joinpath(name).read_text(encoding="utf-8")

"""The page: its text, its data and its code, in one file."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from gapscope.cause_names import CAUSES
from gapscope.errors import UsageError
from gapscope.figures import Results
from gapscope.page import content, headline
from gapscope.page.edges import Edges
from gapscope.page.figures import figures_of
from gapscope.page.held import causes_table
from gapscope.page.payload import frame_columns, pack
from gapscope.page.tables import Block, PageTable, blocks
from gapscope.plots.html import POLICY, plotly_js
from gapscope.plots.style import cause_look
from gapscope.reports.arrivals import render_groups
from gapscope.reports.beside import render_interference
from gapscope.reports.exposed import render_exposure
from gapscope.reports.fixes import render_fixes
from gapscope.reports.fragments import render_fragments
from gapscope.reports.own_cost import render_marks_cost
from gapscope.reports.text import render_clocks, render_edges, render_phases, render_recordings
from gapscope.reports.waits import render_waiting
from gapscope.schema import SCHEMA_VERSION
from gapscope.writing import replacing

_CODE = (
    "state.js", "decode.js", "words.js", "elements.js", "theme.js", "figures.js", "table.js", "view.js", "timeline.js",
    "picked.js", "main.js",
)  # fmt: skip
"""Files of ``js/``, in the order in which they stand in the page."""


_NAVIGATION = (
    ("overview", "overview"), ("gaps", "gaps"), ("causes", "causes"), ("exposure", "steps"), ("phases", "phases"),
    ("handoffs", "handoffs"), ("picked", "timeline"), ("clocks", "clocks"), ("findings", "findings"),
)  # fmt: skip
_OF_HANDOFFS = ("causes", "exposure", "phases", "handoffs", "picked")
_CONTEXT = (
    ("groups", "Collectives", "Who arrived last, and how long the others waited"),
    ("messages", "Handoffs of many messages", "What bound them"),
    ("waiting", "Waiting in communication kernels", "Which rank waited for which"),
    ("interference", "Beside other work", "Operations alone and overlapped; context, not a cause"),
    ("marks", "What the marks cost", "Own cost"),
)
"""Sections that stand only where there is something to say: id, name, and what the table shows."""


def write_report(analysis: Results, path: str | PathLike[str], version: str) -> None:
    """Write all of an analysis as one page that needs no network.

    Args:
        analysis: What is reported.
        path: The file; replaced if it exists.
        version: Version of gapscope, for the foot of the page.

    Raises:
        UsageError: The file cannot be written.
    """
    page = render_report(analysis, version)
    try:
        with replacing(path) as beside:
            beside.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{Path(path)}: the report cannot be written: {error.strerror or error}.") from error


def render_report(analysis: Results, version: str, context_budget: int = content.CONTEXT_BUDGET) -> str:
    """Return the page as text.

    Args:
        analysis: What is reported.
        version: Version of gapscope, for the foot of the page.
        context_budget: Characters for what was recorded around handoffs.
    """
    summary, edges = analysis.summary, Edges(analysis.summary)
    zero_ns = content.zero_of(analysis.handoffs)
    context, shown = content.context(analysis, zero_ns, context_budget)
    figures = figures_of(analysis, edges)
    data = {
        "core": pack(content.core(analysis, edges, zero_ns, shown)),
        "tiles": pack(content.tiles_of(analysis.handoffs, analysis.tiles)),
        "context": context,
        "figures": pack({name: figure.spec for name, figure in figures.items()}),
        "tables": pack(
            {
                "summary": summary,
                "findings": [asdict(f) for f in analysis.findings],
                "units": frame_columns(analysis.units.drop("steps")),
                "exposure": frame_columns(analysis.exposure),
            }
        ),
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.tests["table_block"] = lambda block: isinstance(block, PageTable)
    environment.filters["base_name"] = lambda path: PurePath(path).name
    environment.globals["look_of"] = cause_look
    template = environment.from_string(_own("template.html"))
    return template.render(
        policy=POLICY,
        css=Markup(_own("page.css")),
        plotly=Markup(plotly_js()),
        code=Markup("\n".join(_own(f"js/{name}") for name in _CODE)),
        data=data,
        figures=figures,
        edges=list(zip(edges.names, edges.handoffs, strict=True)),
        title=headline.title(summary),
        facts=headline.facts(summary),
        unknown=headline.unknown(summary),
        sections=_sections(analysis, edges),
        navigation=[item for item in _NAVIGATION if edges.names or item[0] not in _OF_HANDOFFS],
        context=_CONTEXT,
        meanings=_meanings(summary),
        findings=analysis.findings,
        files=list(dict.fromkeys(r["path"] for r in summary["recordings"])),
        total=summary["handoffs"]["total"],
        shown_count=int(shown.sum()),
        version=version,
        schema_version=SCHEMA_VERSION,
    )


def _own(name: str) -> str:
    return files("gapscope.page").joinpath(name).read_text(encoding="utf-8")


def _sections(analysis: Results, edges: Edges) -> dict[str, list[Block]]:
    """Return the tables and paragraphs of each section."""
    summary = analysis.summary
    shown: dict[str, list[Block]] = {"recordings": blocks(render_recordings(summary))}
    shown["clocks"] = blocks(render_clocks(summary["clocks"], verbose=True))
    if not summary["edges"]:
        return shown
    numbers: list[int | None] = list(range(len(summary["edges"])))
    shown["gaps"] = [_with_edges(block, numbers) for block in blocks(render_edges(summary))]
    shown["causes"] = [causes_table(summary["causes"], analysis.handoffs, edges)]
    shown["exposure"] = blocks(*render_exposure(summary["causes"])) if summary["causes"]["edges"] else []
    shown["fixes"] = blocks(*render_fixes(summary["fixes"]))
    shown["phases"] = [_phases(summary, edges)]
    shown["groups"] = blocks(render_groups(summary["groups"])) if summary["groups"] else []
    shown["waiting"] = blocks(*render_waiting(summary["waiting"]))
    shown["messages"] = blocks(*render_fragments(summary["messages"])) if summary["messages"] else []
    shown["interference"] = blocks(*render_interference(summary["interference"], verbose=True))
    shown["marks"] = blocks(*render_marks_cost(summary["marks_cost"]))
    return shown


def _meanings(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the causes that occur mean, those with the most time first."""
    found = dict.fromkeys(row["cause"] for edge in summary["causes"]["edges"] for row in edge["causes"])
    return [(cause, CAUSES[cause]) for cause in found]


def _with_edges(block: Block, numbers: list[int | None]) -> Block:
    return block._replace(edges=numbers) if isinstance(block, PageTable) else block


def _phases(summary: dict[str, Any], edges: Edges) -> PageTable:
    """Return the phases of all edges as one table."""
    table = PageTable([], [], [])
    for number, edge in enumerate(summary["edges"]):
        for block in blocks(render_phases(edge)) if edge["gap"]["n"] else []:
            assert isinstance(block, PageTable)
            heads = [block.columns[0]._replace(name="edge"), block.columns[0]._replace(name="phase")]
            table = table._replace(columns=[*heads, *block.columns[1:]])
            table.rows.extend([edges.names[number], *row] for row in block.rows)
            table.edges.extend([number] * len(block.rows))
    return table

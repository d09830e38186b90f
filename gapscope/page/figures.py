"""The figures of a page that are made here; the timeline of a handoff is drawn by the page itself."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import NamedTuple

import polars as pl

from gapscope.clocks.pair import pair_view
from gapscope.figures import Results
from gapscope.page.edges import Edges, is_counted
from gapscope.plots.alignment import alignment_figure
from gapscope.plots.gaps import gaps_spec, history_spec
from gapscope.plots.held import causes_spec, phases_spec, units_spec
from gapscope.plots.style import Spec
from gapscope.views.gaps import gaps_of
from gapscope.wording import edge_name

MOST_PAIRS = 8
"""Pairs of clocks that are drawn; ``gapscope align --plot`` draws any."""

MOST_HISTORIES = 64
"""Edges whose gaps are drawn over time, those with most handoffs."""

_TOP_PX, _HEIGHT_PX = 14, 520


class PageFigure(NamedTuple):
    """A figure and what it shows, in words.

    Attributes:
        section: Where it stands.
        title: What it shows; it stands in the page, not in the figure.
        subtitle: What it is over.
        spec: The figure as Plotly takes it.
        edge: Number of the edge that it is about; None: of all.
        picks: Whether its points are handoffs that can be picked.
    """

    section: str
    title: str
    subtitle: str
    spec: Spec
    edge: int | None = None
    picks: bool = False

    @property
    def height(self) -> int:
        """Pixels that it takes."""
        return int(self.spec["layout"]["height"])


def figures_of(analysis: Results, edges: Edges) -> dict[str, PageFigure]:
    """Return the figures by name, in the order of the page."""
    summary = analysis.summary
    found: dict[str, PageFigure] = {}
    if summary["edges"]:
        found |= _gaps(analysis, edges)
        if any(edge["gap_ns"] for edge in summary["causes"]["edges"]):
            found["causes"] = page_figure("causes", causes_spec(summary["causes"]["edges"]))
        if any(edge["gap"]["n"] for edge in summary["edges"]):
            found["phases"] = page_figure("phases", phases_spec(summary["edges"]))
    if summary["causes"]["units"]["n"] and analysis.exposure.height:
        found["units"] = page_figure("exposure", units_spec(analysis.units, analysis.exposure))
    return found | _clocks(analysis)


def _gaps(analysis: Results, edges: Edges) -> dict[str, PageFigure]:
    """Return the figure of all gaps, and one over time for each edge that has any."""
    gaps, shown = gaps_of(analysis.handoffs, is_counted()), analysis.summary["edges"]
    if not gaps.height:
        return {}
    found = {"gaps": page_figure("gaps", gaps_spec(gaps, shown), picks=True)}
    known = set(gaps["edge"].unique())
    with_gaps = [i for i, edge in enumerate(shown) if edge_name(edge) in known]
    for i in sorted(sorted(with_gaps, key=lambda i: (-edges.handoffs[i], i))[:MOST_HISTORIES]):
        found[f"history-{i}"] = page_figure("gaps", history_spec(gaps, shown[i]), edge=i, picks=True)
    return found


def page_figure(section: str, spec: Spec, edge: int | None = None, *, picks: bool = False) -> PageFigure:
    """Return a figure without its titles, which the page sets as text, and without the room they took."""
    layout = dict(spec["layout"])
    title = layout.pop("title")
    margin = layout["margin"]
    saved = margin["t"] - _TOP_PX
    layout |= {"margin": {**margin, "t": _TOP_PX}, "height": layout.get("height", _HEIGHT_PX) - saved}
    title, subtitle = (_plain(part.get("text") or "") for part in (title, title.get("subtitle") or {}))
    return PageFigure(section, title, subtitle, {**spec, "layout": layout}, edge, picks)


def _clocks(analysis: Results) -> dict[str, PageFigure]:
    """Return one figure per host clock beside the reference, if there are any."""
    timebase = analysis.timebase
    if timebase is None:
        return {}
    domains = timebase.domains
    hosts = domains.table.filter(pl.col("device").is_null() & pl.col("source").is_not_null())["domain"].to_list()
    if not hosts:
        return {}
    base = domains.reference if domains.reference in hosts else hosts[0]
    others = [clock for clock in hosts if clock != base][:MOST_PAIRS]
    figures = [alignment_figure(pair_view(timebase, clock, base)) for clock in others]
    return {f"clock-{i}": page_figure("clocks", json.loads(figure.to_json())) for i, figure in enumerate(figures)}


def _plain(text: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", text))

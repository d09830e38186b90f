"""The report's figures by name, of an analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from gapscope.clocks import Alignment
from gapscope.clocks.pair import default_pair, pair_view
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.plots import alignment_figure, causes_figure, gaps_figure, history_figure, phases_figure, units_figure
from gapscope.summary import COUNTED
from gapscope.trace import Trace
from gapscope.views.gaps import gaps_of
from gapscope.wording import edge_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Results(Protocol):
    """What figures and pages are made of: `gapscope.Analysis`, which lies above them."""

    @property
    def trace(self) -> Trace:
        """The recordings."""

    @property
    def handoffs(self) -> pl.DataFrame:
        """Table ``handoffs``."""

    @property
    def tiles(self) -> pl.DataFrame:
        """Table ``tiles``."""

    @property
    def findings(self) -> list[Finding]:
        """All findings."""

    @property
    def units(self) -> pl.DataFrame:
        """Table ``units``."""

    @property
    def exposure(self) -> pl.DataFrame:
        """Table ``exposure``."""

    @property
    def timebase(self) -> Alignment | None:
        """The clocks."""

    @property
    def summary(self) -> dict[str, Any]:
        """Content of ``summary.json``."""


def figure_of(analysis: Results, name: str, edge: str | None) -> Figure:
    """Return one figure of an analysis (see `gapscope.Analysis.figure`).

    Raises:
        UsageError: There is no such figure or edge, or nothing to draw in it.
    """
    if name not in FIGURES:
        raise UsageError(f"There is no figure {name!r}: {', '.join(FIGURES)}.")
    if edge is not None and name != "history":
        raise UsageError(f"Figure {name!r} shows all edges; 'history' shows one.")
    return FIGURES[name](analysis, edge)


def _with_gaps(analysis: Results) -> Sequence[Mapping[str, Any]]:
    edges = analysis.summary["edges"]
    if not edges or not analysis.handoffs["gap_ns"].count():
        raise UsageError("No handoff has a gap: there is nothing to draw. `findings` say what is missing.")
    return edges  # type: ignore[no-any-return]


def _gaps(analysis: Results, _: str | None) -> Figure:
    return gaps_figure(gaps_of(analysis.handoffs, COUNTED), _with_gaps(analysis))


def _history(analysis: Results, wanted: str | None) -> Figure:
    edges = _with_gaps(analysis)
    by_name = {edge_name(edge): edge for edge in edges}
    if wanted is None:
        wanted = max(by_name, key=lambda name: by_name[name]["counted"])
    if wanted not in by_name:
        raise UsageError(f"There is no edge {wanted!r}: {', '.join(by_name)}.")
    return history_figure(gaps_of(analysis.handoffs, COUNTED), by_name[wanted])


def _causes(analysis: Results, _: str | None) -> Figure:
    edges = analysis.summary["causes"]["edges"]
    if not edges:
        raise UsageError("No gap is explained: there are no causes to draw. `findings` say what is missing.")
    return causes_figure(edges)


def _phases(analysis: Results, _: str | None) -> Figure:
    return phases_figure(_with_gaps(analysis))


def _units(analysis: Results, _: str | None) -> Figure:
    if not analysis.exposure.height:
        raise UsageError("No step or request is marked and recorded from begin to end: there is nothing to draw.")
    return units_figure(analysis.units, analysis.exposure)


def _clocks(analysis: Results, _: str | None) -> Figure:
    timebase = analysis.timebase
    pair = None if timebase is None else default_pair(timebase)
    if timebase is None or pair is None:
        raise UsageError("There is only one host clock: no offset to draw.")
    return alignment_figure(pair_view(timebase, *pair))


FIGURES: Mapping[str, Callable[[Results, str | None], Figure]] = {
    "gaps": _gaps,
    "history": _history,
    "causes": _causes,
    "phases": _phases,
    "units": _units,
    "clocks": _clocks,
}
"""Name to figure."""

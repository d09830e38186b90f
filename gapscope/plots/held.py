"""What held the gaps: causes per edge, and what each step or request waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.findings import plural
from gapscope.phases import PHASES
from gapscope.plots.style import OUTSIDE_LOOKS, TEXT, Spec, axis, cause_look, fill, ink, layout
from gapscope.wording import duration, edge_name, percent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_EDGES = 24
MOST_UNITS = 400
"""More bars than this are narrower than a pixel."""

_ROW_PX, _FRAME_PX = 34, 170
_PHASE_WORDS = {phase: phase.replace("_", " ") for phase in PHASES}
_PHASE_COLORS = dict(zip(PHASES, ("#D55E00", "#E69F00", "#009E73", "#CC79A7"), strict=True))


def causes_figure(edges: Sequence[Mapping[str, Any]]) -> Figure:
    """Return what held the gaps of each edge, as shares of all its gap time.

    A bar is one edge; its parts are causes, summed over ranks in the picture and told apart on hovering.

    Args:
        edges: ``edges`` of ``causes`` of ``summary.json``.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(causes_spec(edges))


def causes_spec(edges: Sequence[Mapping[str, Any]]) -> Spec:
    """Return `causes_figure` as Plotly takes it: ``data`` and ``layout``."""
    shown = [edge for edge in edges if edge["gap_ns"]][:MOST_EDGES]
    names = [edge_name(edge) for edge in shown]
    parts = pl.DataFrame(
        [
            (
                i,
                cause["cause"],
                cause["rank"],
                cause["handoff_ns"],
                cause["handoff_ns"] / edge["gap_ns"],
                edge["handoffs"],
            )
            for i, edge in enumerate(shown)
            for cause in edge["causes"]
        ],
        schema={
            "y": pl.Int64,
            "cause": pl.String,
            "rank": pl.Int64,
            "ns": pl.Int64,
            "share": pl.Float64,
            "n": pl.Int64,
        },
        orient="row",
    )
    hidden = len([e for e in edges if e["gap_ns"]]) - len(shown)
    said = f"share of the gap time of {plural(sum(e['handoffs'] for e in shown), 'explained and counted handoff')}"
    said += f"; {hidden} more edges are not drawn" if hidden else ""
    order = parts.group_by("cause").agg(pl.col("ns").sum()).sort("ns", "cause", descending=[True, False])["cause"]
    return {
        "data": [_cause_bar(cause, parts.filter(pl.col("cause") == cause), names) for cause in order],
        "layout": layout(
            "What held the gaps, per edge",
            said,
            height=_FRAME_PX + _ROW_PX * max(len(names), 1),
            margin={"l": 10, "r": 20, "t": 76, "b": 88},
            barmode="stack",
            bargap=0.25,
            uniformtext={"minsize": 9, "mode": "hide"},
            xaxis=axis("share of gap time", tickformat=".0%", range=[0, 1]),
            yaxis=axis(
                tickvals=list(range(len(names))),
                ticktext=[escape(name, quote=False) for name in names],
                range=[max(len(names), 1) - 0.5, -0.5],
                fixedrange=True,
                zeroline=False,
            ),
        ),
    }


def _cause_bar(cause: str, parts: pl.DataFrame, names: Sequence[str]) -> Spec:
    rows = parts.rows(named=True)
    where = ["" if row["rank"] is None else f" @ rank {row['rank']}" for row in rows]
    hovers = [
        f"<b>{cause}{place}</b> of {escape(names[row['y']], quote=False)}<br>{percent(row['share'])} of gap time, "
        f"{duration(round(row['ns'] / row['n']))} per handoff"
        for row, place in zip(rows, where, strict=True)
    ]
    look = cause_look(cause)
    return {
        "type": "bar",
        "orientation": "h",
        "name": cause,
        "x": parts["share"].to_list(),
        "y": parts["y"].to_list(),
        "text": [f"{cause}{place} {percent(row['share'])}" for row, place in zip(rows, where, strict=True)],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": ink(look), "size": 11},
        "hovertext": hovers,
        "hoverinfo": "text",
        "marker": fill(look),
    }


def units_figure(units: pl.DataFrame, exposure: pl.DataFrame) -> Figure:
    """Return what each step (or request, where some are marked) waited for, along one path from its end to its start.

    A bar is one unit in order of time; its parts sum to its length exactly. Gaps are colored by cause, what the path
    passes outside of gaps is muted.

    Args:
        units: Table ``units``.
        exposure: Table ``exposure``.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(units_spec(units, exposure))


def units_spec(units: pl.DataFrame, exposure: pl.DataFrame) -> Spec:
    """Return `units_figure` as Plotly takes it: ``data`` and ``layout``."""
    unit = "request" if (exposure["unit"] == "request").any() else "step"
    mine = units.filter((pl.col("unit") == unit) & pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
    mine = mine.sort("start_ns", "id")
    shown = mine.tail(MOST_UNITS).with_row_index("x")
    parts = exposure.filter(pl.col("unit") == unit).with_columns(is_gap=pl.col("part") == "gap")
    parts = parts.with_columns(what=pl.when("is_gap").then("cause").otherwise("part"))
    parts = parts.join(shown.select("id", "job", "x", "steady"), on=["id", "job"], nulls_equal=True)
    order = parts.group_by("is_gap", "what").agg(pl.col("exposure_ns").sum())
    order = order.sort("is_gap", "exposure_ns", "what", descending=[True, True, False])
    names = [f"{name}{'' if steady else ' (start-up)'}" for name, steady in shown.select("id", "steady").iter_rows()]
    said = f"{plural(shown.height, unit)}, one path each from its end back to its start"
    said += f"; the first {mine.height - shown.height:,} are not drawn" if shown.height < mine.height else ""
    said += "; no request is marked" if unit == "step" else ""
    every = max(shown.height // 20, 1)
    return {
        "data": [
            _unit_bar(what, is_gap, parts.filter((pl.col("what") == what) & (pl.col("is_gap") == is_gap)), names)
            for is_gap, what, _ in order.iter_rows()
        ],
        "layout": layout(
            f"What each {unit} waited for",
            said,
            height=420,
            margin={"l": 10, "r": 20, "t": 76, "b": 100},
            barmode="stack",
            bargap=0.15,
            xaxis=axis(unit, tickvals=list(range(0, shown.height, every)), ticktext=names[::every], zeroline=False),
            yaxis=axis(f"time of the {unit} (µs)", tickformat=","),
        ),
    }


def _unit_bar(what: str, is_gap: bool, parts: pl.DataFrame, names: Sequence[str]) -> Spec:
    name = what if is_gap else f"outside gaps: {what}"
    rows = parts.group_by("x", "rank").agg(pl.col("exposure_ns").sum()).sort("x", "rank", nulls_last=True)
    hovers = [
        f"<b>{name}{'' if rank is None else f' @ rank {rank}'}</b><br>{duration(ns)} of {escape(names[x], quote=False)}"
        for x, rank, ns in rows.iter_rows()
    ]
    return {
        "type": "bar",
        "name": name,
        "x": rows["x"].to_list(),
        "y": (rows["exposure_ns"] / 1_000).to_list(),
        "hovertext": hovers,
        "hoverinfo": "text",
        "marker": fill(cause_look(what) if is_gap else OUTSIDE_LOOKS.get(what, cause_look(what))),
    }


def phases_figure(edges: Sequence[Mapping[str, Any]]) -> Figure:
    """Return the phases of each edge: the median as a dot, and a line on to p90 and p99.

    Horizontal: duration in µs. Phases are a view of the gap, not its cause. What the clocks cannot resolve is hollow,
    at their bound.

    Args:
        edges: ``edges`` of ``summary.json``.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(phases_spec(edges))


def phases_spec(edges: Sequence[Mapping[str, Any]]) -> Spec:
    """Return `phases_figure` as Plotly takes it: ``data`` and ``layout``."""
    shown = [edge for edge in edges if edge["gap"]["n"]][:MOST_EDGES]
    names = [edge_name(edge) for edge in shown]
    return {
        "data": [trace for i, phase in enumerate(PHASES) for trace in _phase(phase, i, shown)],
        "layout": layout(
            "Phases per edge",
            "dot: p50; line: to p90; thin line: to p99; hollow: below what the clocks resolve, drawn at that bound",
            height=_FRAME_PX + 62 * max(len(names), 1),
            margin={"l": 10, "r": 20, "t": 76, "b": 88},
            xaxis=axis("duration (µs)", rangemode="tozero"),
            yaxis=axis(
                tickvals=list(range(len(names))),
                ticktext=[escape(name, quote=False) for name in names],
                range=[max(len(names), 1) - 0.5, -0.5],
                fixedrange=True,
                zeroline=False,
            ),
        ),
    }


def _phase(phase: str, place: int, edges: Sequence[Mapping[str, Any]]) -> list[Spec]:
    """Return one trace of dots and two of lines."""
    color = _PHASE_COLORS[phase]
    x, y, symbols, hovers = [], [], [], []
    ends: dict[str, list[list[float | None]]] = {"p90": [[], []], "p99": [[], []]}
    for row, edge in enumerate(edges):
        spread, bound = edge["phases"][phase], edge[f"{phase}_uncertainty_ns"] or 0
        if not spread["n"]:
            continue
        level = row + (place - (len(PHASES) - 1) / 2) * 0.19
        p50 = max(spread["p50_ns"], bound)
        x.append(p50 / 1_000)
        y.append(level)
        symbols.append("circle" if spread["p50_ns"] >= bound else "circle-open")
        told = ", ".join(f"{q} {duration(spread[f'{q}_ns'], bound)}" for q in ("p50", "p90", "p99", "max"))
        name = escape(edge_name(edge), quote=False)
        hovers.append(f"<b>{_PHASE_WORDS[phase]}</b> of {name}<br>{told}<br>{plural(spread['n'], 'handoff')}")
        for quantile, (xs, ys) in ends.items():
            xs += [p50 / 1_000, max(spread[f"{quantile}_ns"], bound) / 1_000, None]
            ys += [level, level, None]
    shared = {"type": "scatter", "legendgroup": phase, "name": _PHASE_WORDS[phase]}
    widths = {"p90": 5, "p99": 1.5}
    lines = [
        {**shared, "mode": "lines", "x": xs, "y": ys, "line": {"color": color, "width": widths[q]}, "opacity": 0.6,
         "hoverinfo": "skip", "showlegend": False}
        for q, (xs, ys) in ends.items()
    ]  # fmt: skip
    marker = {"color": color, "size": 10, "symbol": symbols, "line": {"width": 1.5, "color": TEXT}}
    dots = {**shared, "mode": "markers", "x": x, "y": y, "marker": marker, "hovertext": hovers, "hoverinfo": "text"}
    return [*lines, dots]

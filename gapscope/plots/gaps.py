"""Gaps as dots: how they are spread over each edge, and how one edge's go on over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.findings import plural
from gapscope.plots.style import STRONG, TEXT, Spec, axis, cause_look, layout
from gapscope.wording import duration, edge_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_EDGES = 24
MOST_PLAIN_DOTS = 4_000
"""More dots are drawn by WebGL."""

_QUANTILES = ("p50", "p90", "p99")
_GOLDEN = 0.618033988749895
_SPREAD = 0.62
_ROW_PX, _FRAME_PX = 58, 170
_ALIKE = 4
_NO_CAUSE = "not explained"
_X_UNITS = ((20_000_000, "µs", 1_000), (20_000_000_000, "ms", 1_000_000))


def gaps_figure(gaps: pl.DataFrame, edges: Sequence[Mapping[str, Any]]) -> Figure:
    """Return how the gaps of each edge are spread: every handoff a dot, quantiles as bars across.

    Horizontal: gap in µs, on a scale of powers of ten. Dots of one edge are spread over its row so that each is seen;
    their height in it means nothing. Handoffs that percentiles leave out are hollow.

    Args:
        gaps: `gapscope.views.gaps.gaps_of`.
        edges: ``edges`` of ``summary.json``.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(gaps_spec(gaps, edges))


def gaps_spec(gaps: pl.DataFrame, edges: Sequence[Mapping[str, Any]]) -> Spec:
    """Return `gaps_figure` as Plotly takes it: ``data`` and ``layout``."""
    with_gaps = [edge for edge in edges if _has(gaps, edge)]
    shown = with_gaps[:MOST_EDGES]
    names = [edge_name(edge) for edge in shown]
    row = {name: i for i, name in enumerate(names)}
    dots = gaps.filter(pl.col("edge").is_in(names) & (pl.col("gap_ns") > 0))
    nth = pl.int_range(pl.len()).over("edge")
    height = (nth * _GOLDEN) % 1 - 0.5
    dots = dots.with_columns(y=pl.col("edge").replace_strict(row, return_dtype=pl.Float64) + height * _SPREAD)
    not_positive = gaps.filter(pl.col("edge").is_in(names) & (pl.col("gap_ns") <= 0)).height
    hidden, without = len(with_gaps) - len(shown), len(edges) - len(with_gaps)
    said = f"{plural(dots.height, 'handoff')}, one dot each; bars: p50, p90 and p99 of the counted (filled) ones"
    said += f"; {not_positive:,} not above zero are not drawn" if not_positive else ""
    said += f"; {hidden} more edges are not drawn" if hidden else ""
    said += f"; of {plural(without, 'edge')} no gap is known" if without else ""
    return {
        "data": [*_dots(dots, "gap_ns", "y", "x"), *_quantile_bars(shown)],
        "layout": layout(
            "Gaps per edge",
            said,
            height=_FRAME_PX + _ROW_PX * max(len(names), 1),
            margin={"l": 10, "r": 20, "t": 76, "b": 88},
            xaxis=axis("gap (µs)", type="log", **_decades(dots["gap_ns"])),
            yaxis=axis(
                tickvals=list(range(len(names))),
                ticktext=[escape(name, quote=False) for name in names],
                range=[max(len(names), 1) - 0.5, -0.5],
                zeroline=False,
                fixedrange=True,
            ),
        ),
    }


def history_figure(gaps: pl.DataFrame, edge: Mapping[str, Any]) -> Figure:
    """Return how the gaps of one edge go on over time, and their histogram at the side.

    Horizontal: when the consumer started, since the first handoff; vertical: gap. The histogram is over the counted
    handoffs alone. Level lines are their p50, p90 and p99; the gray band at zero is what the clocks cannot resolve.

    Args:
        gaps: `gapscope.views.gaps.gaps_of`.
        edge: Its entry in ``edges`` of ``summary.json``.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(history_spec(gaps, edge))


def history_spec(gaps: pl.DataFrame, edge: Mapping[str, Any]) -> Spec:
    """Return `history_figure` as Plotly takes it: ``data`` and ``layout``."""
    name = edge_name(edge)
    dots = gaps.filter(pl.col("edge") == name)
    first = dots["at_ns"].min() if dots.height else 0
    length = int((dots["at_ns"] - first).max() or 0) if dots.height else 0  # type: ignore[arg-type]
    unit, scale = next(((unit, scale) for limit, unit, scale in _X_UNITS if length < limit), ("s", 10**9))
    dots = dots.with_columns(x=(pl.col("at_ns") - first) / scale)
    n = edge["gap"]["n"]
    bound = edge["gap_uncertainty_ns"]
    error = "clocks without a bound" if bound is None else f"clocks within {duration(bound)}" if bound else "one clock"
    said = f"{plural(dots.height, 'handoff')}, {n:,} counted (filled); {error}"
    return {
        "data": [*_dots(dots, "x", "gap_ns", "y"), *_histogram(dots)],
        "layout": layout(
            f"Gaps of {name} over time",
            said,
            height=420,
            margin={"l": 10, "r": 20, "t": 76, "b": 88},
            xaxis=axis(f"time since the first handoff ({unit})", domain=[0, 0.8], zeroline=False),
            yaxis=axis("gap (µs)", rangemode="tozero", tickformat=","),
            xaxis2=axis("handoffs", domain=[0.83, 1], anchor="y"),
            shapes=[*_floor(bound), *_level_lines(edge)],
            annotations=_level_names(edge),
        ),
    }


def _decades(gap_ns: pl.Series) -> Spec:
    """Return ticks at 1, 2 and 5 times powers of ten, in µs: Plotly's own leave out most or write 2 for 200.

    Gaps that are all alike get ticks in equal steps: none of those might lie among them.
    """
    ends = [int(ns) for ns in gap_ns.sort().gather([0, -1])] if gap_ns.len() else [1_000, 1_000]
    if ends[1] < _ALIKE * ends[0]:
        span = max(ends[1] - ends[0], ends[0] // 20, 10)
        power = 10 ** math.floor(math.log10(span))
        step = next(step for step in (power, power / 2, power / 5) if span >= 3 * step)
        places = range(math.floor(ends[0] / step), math.ceil(ends[1] / step) + 1)
        values = [place * step / 1_000 for place in places]
        return {"tickvals": values, "ticktext": [f"{value:,.10g}" for value in values]}
    first, last = (math.floor(math.log10(ns / 1_000)) for ns in ends)
    values = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    return {"tickvals": values, "ticktext": [f"{value:,.10g}" for value in values]}


def _has(gaps: pl.DataFrame, edge: Mapping[str, Any]) -> bool:
    return bool((gaps["edge"] == edge_name(edge)).any())


def _dots(dots: pl.DataFrame, x: str, y: str, gap_axis: str) -> list[Spec]:
    """Return one trace per dominant cause, handoffs with most of it first; those not counted are hollow."""
    kind = "scattergl" if dots.height > MOST_PLAIN_DOTS else "scatter"
    causes = dots.with_columns(pl.col("cause").fill_null(_NO_CAUSE))
    found = []
    for cause in causes["cause"].value_counts(sort=True)["cause"]:
        # counted ones first: the legend looks like the first
        mine = causes.filter(pl.col("cause") == cause).sort("is_counted", descending=True, maintain_order=True)
        look = cause_look(cause)
        places = {"x": mine[x].to_list(), "y": mine[y].to_list()}
        places[gap_axis] = (mine["gap_ns"] / 1_000).to_list()
        counted = mine["is_counted"].to_list()
        found.append(
            {
                "type": kind,
                "mode": "markers",
                "name": cause,
                **places,
                "customdata": mine["handoff_id"].to_list(),
                "hovertext": _hovers(mine),
                "hoverinfo": "text",
                "marker": {
                    "color": look.color,
                    "size": 7,
                    "symbol": ["circle" if is_counted else "circle-open" for is_counted in counted],
                    "line": {"width": 1, "color": TEXT if look.color == "#F0E442" else look.color},
                },
            }
        )
    return found


def _hovers(dots: pl.DataFrame) -> list[str]:
    texts = []
    for dot in dots.iter_rows(named=True):
        step = "" if dot["step"] is None else f", step {dot['step']}"
        gap = duration(dot["gap_ns"], dot["error_ns"] or 0)
        left_out = "" if dot["is_counted"] else "<br>not counted"
        name = escape(dot["handoff_id"], quote=False)
        texts.append(f"<b>{name}</b>{step}<br>gap {gap}, mostly {dot['cause']}{left_out}")
    return texts


def _quantile_bars(edges: Sequence[Mapping[str, Any]]) -> list[Spec]:
    """Return p50, p90 and p99 as bars across an edge's row."""
    found = []
    for i, quantile in enumerate(_QUANTILES):
        x: list[float | None] = []
        y: list[float | None] = []
        texts: list[str] = []
        for row, edge in enumerate(edges):
            value = edge["gap"].get(f"{quantile}_ns")
            if value is None or value <= 0:
                continue
            text = f"{quantile} {duration(value, edge['gap_uncertainty_ns'] or 0)}"
            x += [value / 1_000, value / 1_000, None]
            y += [row - 0.42, row + 0.42, None]
            texts += [text, text, ""]
        width = 3.0 - i * 0.8
        line = {"color": TEXT, "width": width}
        found.append(
            {"type": "scatter", "mode": "lines", "name": quantile, "x": x, "y": y, "line": line,
             "hovertext": texts, "hoverinfo": "text", "showlegend": False}
        )  # fmt: skip
    return found


def _histogram(dots: pl.DataFrame) -> list[Spec]:
    """Return the counted gaps in equal bins; as many as humps need to show."""
    counted = dots.filter("is_counted")["gap_ns"]
    if not counted.len():
        return []
    low, high = int(counted.min()), int(counted.max())  # type: ignore[arg-type]
    bins = min(60, max(10, math.ceil(2 * math.sqrt(counted.len()))))
    width = max(math.ceil((high - low + 1) / bins), 1)
    counts = ((counted - low) // width).value_counts().sort("gap_ns")
    starts = low + counts["gap_ns"] * width
    ends = starts + width
    hovers = [
        f"{plural(n, 'handoff')}<br>{duration(start)} to {duration(end)}"
        for n, start, end in zip(counts["count"], starts, ends, strict=True)
    ]
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": "histogram",
            "xaxis": "x2",
            "y": ((starts + ends) / 2_000).to_list(),
            "x": counts["count"].to_list(),
            "width": [width / 1_000] * counts.height,
            "hovertext": hovers,
            "hoverinfo": "text",
            "marker": {"color": "rgba(0,114,178,0.45)", "line": {"width": 0}},
            "showlegend": False,
        }
    ]


def _floor(bound_ns: int | None) -> list[Spec]:
    if not bound_ns:
        return []
    band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 0.8, "y0": 0, "y1": bound_ns / 1_000, "layer": "below"}
    return [{**band, "line": {"width": 0}, "fillcolor": "rgba(128,128,128,0.15)"}]


def _levels(edge: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(q, edge["gap"][f"{q}_ns"] / 1_000) for q in _QUANTILES if f"{q}_ns" in edge["gap"]]


def _level_lines(edge: Mapping[str, Any]) -> list[Spec]:
    line = {"color": STRONG, "width": 1, "dash": "dot"}
    return [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 0.8, "y0": y, "y1": y, "line": line} for _, y in _levels(edge)
    ]


def _level_names(edge: Mapping[str, Any]) -> list[Spec]:
    """Return the names of the level lines; of those too close together, one name."""
    found: list[Spec] = []
    levels = _levels(edge)
    close = (edge["gap"].get("max_ns") or 0) / 1_000 * 0.05
    groups: list[list[tuple[str, float]]] = []
    for level in levels:
        if groups and level[1] - groups[-1][-1][1] < close:
            groups[-1].append(level)
        else:
            groups.append([level])
    for group in groups:
        text = ", ".join(name for name, _ in group)
        place = {"xref": "paper", "x": 0.8, "xanchor": "right", "y": group[-1][1], "yanchor": "bottom"}
        found.append({**place, "text": text, "showarrow": False, "font": {"color": STRONG, "size": 11}})
    return found

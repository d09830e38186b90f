"""What the constraints say about the offset of one clock against another, over time."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.clocks.pair import PairView, nearest
from gapscope.findings import plural

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Trace = dict[str, Any]
"""A trace as Plotly takes it."""

MOST_MARKERS = 4_000
"""More are a blot, and a page that does not move."""

_TEXT, _GRID, _EDGE = "#767676", "rgba(128,128,128,0.25)", "rgba(90,90,90,0.9)"
_OFFSET, _BAND, _FILL = "#0072B2", "rgba(86,180,233,0.9)", "rgba(86,180,233,0.22)"
_OTHER = ("#999999", "")
_LOOKS = {
    "message": ("#E69F00", ""),
    "transfer": ("#D55E00", ""),
    "host_message": ("#F0E442", ""),
    "collective": ("#009E73", ""),
    "rooted": ("#009E73", "-open"),
    "send_recv": ("#CC79A7", ""),
    "nested": ("#CC79A7", "-open"),
}
"""Color (Okabe and Ito: told apart by the color-blind too) and variant of the symbol, by kind."""

_ENDS = (("hi_ns", "upper"), ("lo_ns", "lower"))
_SYMBOLS = {"upper": "triangle-down", "lower": "triangle-up"}
_X_UNITS = ((2_000, "ns", 1), (2_000_000, "µs", 1_000), (2_000_000_000, "ms", 1_000_000))
_FAR_NS = 1_000_000_000
_LEAST_NS = 1_000
_MOST_TIMES = 3


class _Paper:
    """Where times and offsets are drawn.

    Attributes:
        zero_ns: Time at the left end.
        base_ns: Offset that the vertical axis counts from: 0 unless offsets are a second and more, when digits below a
            microsecond would be lost.
        base: The same in words.
        hover: Place of a point, as a template.
    """

    def __init__(self, view: PairView) -> None:
        starts, ends = view.windows["window_start_ns"], view.windows["window_end_ns"]
        self.zero_ns = int(starts[0])
        length = int(ends[-1]) - self.zero_ns
        self.unit, self.scale = next(((unit, scale) for limit, unit, scale in _X_UNITS if length < limit), ("s", 10**9))
        values = pl.concat([view.windows["offset_ns"], view.observations["bound_ns"]]).drop_nulls()
        first = int(values[0]) if len(values) else 0
        self.base_ns = first if abs(first) >= _FAR_NS else 0
        self.base = _minus(f" from {self.base_ns:+,} ns") if self.base_ns else ""
        self.hover = f"%{{y:+,.3f}} µs{self.base}, at %{{x:,.6~f}} {self.unit}"

    def x(self, at_ns: pl.Series) -> list[float | None]:
        return ((at_ns - self.zero_ns) / self.scale).to_list()

    def y(self, offset_ns: pl.Series) -> list[float | None]:
        return ((offset_ns - self.base_ns) / 1_000).to_list()

    def microseconds(self, offset_ns: int) -> str:
        return _minus(f"{(offset_ns - self.base_ns) / 1_000:+,.1f}")


def alignment_figure(view: PairView) -> Figure:
    """Return a figure of what the constraints say about one pair of clocks over time.

    Horizontal: time since the start of the first window. Vertical: offset, in microseconds. The axes are cut to where
    the constraints and the interval are, the data are not: a double-click shows all that is in the figure.

    Args:
        view: `gapscope.clocks.pair.pair_view`.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    paper = _Paper(view)
    drawn = nearest(view, MOST_MARKERS)
    figure = Figure(
        [
            *_band(view, paper),
            *_proven(view, paper),
            *_hulls(view, paper),
            *_markers(view, paper, drawn),
            *_offset(view, paper),
        ]
    )
    times, offsets = _shown_times(view), _shown_offsets(view)
    notes = _notes(view, paper, drawn)
    axis = {
        "gridcolor": _GRID,
        "linecolor": _GRID,
        "zerolinecolor": _GRID,
        "zerolinewidth": 2,
        "separatethousands": True,
    }
    figure.update_layout(
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _TEXT, "size": 13},
        title={
            "text": _title(view, paper),
            "subtitle": {"text": _subtitle(view, paper), "font": {"color": _TEXT, "size": 13}},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 34},
            "font": {"color": _TEXT, "size": 17},
        },
        margin={"l": 80, "r": 30, "t": 100, "b": 70 + 20 * len(notes)},
        legend={"x": 1.01, "y": 1, "yanchor": "top", "bgcolor": "rgba(0,0,0,0)"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _TEXT, "activecolor": _OFFSET},
        hovermode="closest",
        xaxis={
            **axis,
            "title": {"text": f"time since the first window ({paper.unit})"},
            "range": [(t - paper.zero_ns) / paper.scale for t in times],
        },
        yaxis={
            **axis,
            "title": {"text": f"offset (µs{paper.base})"},
            "range": None if offsets is None else [(v - paper.base_ns) / 1_000 for v in offsets],
        },
    )
    for line, text in enumerate(notes):
        figure.add_annotation(
            text=text,
            showarrow=False,
            xref="paper",
            yref="paper",
            x=0,
            y=0,
            xanchor="left",
            yanchor="top",
            yshift=-(52 + 20 * line),
            font={"color": _TEXT, "size": 12},
        )
    return figure


def _title(view: PairView, paper: _Paper) -> str:
    what = f"Offset of {escape(view.one)} against {escape(view.two)}"
    low, high = (None if v is None else paper.microseconds(v) for v in view.proven_ns)
    if not view.placed:
        said = "not aligned"
    elif low is not None and high is not None:
        said = f"proven between {low} and {high} µs{paper.base} over the whole recording"
    elif low is not None or high is not None:
        said = f"proven to be at {f'least {low}' if high is None else f'most {high}'} µs{paper.base}"
    else:
        low, high = (None if v is None else paper.microseconds(v) for v in view.interval_ns)
        open_ended = low is None or high is None
        said = "nothing proven" if open_ended else f"assumed between {low} and {high} µs{paper.base}"
    return f"{what}: {said}, {plural(view.observations.height, 'constraint')}"


def _subtitle(view: PairView, paper: _Paper) -> str:
    kinds = view.counts.group_by("kind", maintain_order=True).agg(pl.col("n").sum())
    parts = [", ".join(f"{n:,} {_words(kind)}" for kind, n in kinds.iter_rows()) or "nothing ties both files directly"]
    narrowest = view.windows.drop_nulls(["lo_ns", "hi_ns"]).sort(pl.col("hi_ns") - pl.col("lo_ns"), "window_start_ns")
    if narrowest.height:
        low, high = (paper.microseconds(narrowest[c][0]) for c in ("lo_ns", "hi_ns"))
        when = (narrowest["window_start_ns"][0] - paper.zero_ns) / paper.scale
        parts.append(f"narrowest interval {low} to {high} µs, at {when:,.4g} {paper.unit}")
    return "; ".join(parts)


def _notes(view: PairView, paper: _Paper, drawn: pl.DataFrame) -> list[str]:
    notes = []
    times, offsets = _shown_times(view), _shown_offsets(view)
    if offsets is not None:
        outside = view.observations.select((~pl.col("bound_ns").is_between(*offsets)).sum()).item()
        if outside:
            n, verb = plural(outside, "constraint"), "lies" if outside == 1 else "lie"
            notes.append(f"{n} {verb} above or below what is shown: double-click to see all.")
    end_ns = int(view.windows["window_end_ns"][-1])
    if times[0] > paper.zero_ns or times[1] < end_ns:
        notes.append(
            f"Shown is where the constraints are; the recordings reach from 0 to "
            f"{(end_ns - paper.zero_ns) / paper.scale:,.4g} {paper.unit}."
        )
    if drawn.height < view.observations.height:
        notes.append(
            f"{drawn.height:,} of {view.observations.height:,} constraints are drawn: of each stretch of time those "
            "nearest to the interval."
        )
    if view.observations.select((pl.col("beyond_ns") < 0).any()).item():
        notes.append(
            "Constraints may lie inside the interval: it leaves room for drift in each window and for device clocks."
        )
    if view.stepped:
        notes.append("One of both clocks stepped: its offset is no straight line, and no hulls are drawn.")
    return notes


def _shown_times(view: PairView) -> tuple[int, int]:
    """Return the stretch of time that is shown: where constraints are, and some more."""
    start, end = int(view.windows["window_start_ns"][0]), int(view.windows["window_end_ns"][-1])
    if view.observations.is_empty():
        return start, end
    first, last = int(view.observations["at_ns"][0]), int(view.observations["at_ns"][-1])
    room = max((last - first) // 4, (end - start) // 50)
    edge = room // 8  # a marker on the frame would be cut
    return min(max(start, first - room), first - edge), max(min(end, last + room), last + edge)


def _shown_offsets(view: PairView) -> tuple[int, int] | None:
    """Return the offsets that are shown; None: all.

    The interval, the tightest bound of each side unless the interval would become a line, and half as much around.
    """
    start, end = _shown_times(view)
    windows = view.windows.filter((pl.col("window_end_ns") > start) & (pl.col("window_start_ns") < end))
    known = pl.concat([windows[c].drop_nulls().rename("") for c in ("lo_ns", "hi_ns", "offset_ns")])
    if known.is_empty():
        return None
    low, high = int(known.to_numpy().min()), int(known.to_numpy().max())
    sides = view.observations["side"]
    upper, lower = (view.observations.filter(sides == s)["bound_ns"].to_numpy() for s in ("upper", "lower"))
    most = _MOST_TIMES * max(high - low, _LEAST_NS)
    reach_up = int(upper.min()) if len(upper) else high
    reach_down = int(lower.max()) if len(lower) else low
    if reach_up - high <= most or windows["hi_ns"].null_count():
        high = max(high, reach_up)
    if low - reach_down <= most or windows["lo_ns"].null_count():
        low = min(low, reach_down)
    room = max(_LEAST_NS, (high - low) // 2)
    return low - room, high + room


def _band(view: PairView, paper: _Paper) -> list[Trace]:
    """Return the interval: filled where it has both ends, and its ends as lines."""
    x: list[float | None] = []
    y: list[float | None] = []
    closed = view.windows["lo_ns"].is_not_null() & view.windows["hi_ns"].is_not_null()
    runs = view.windows.with_columns(_closed=closed, _run=closed.rle_id())
    for run in runs.filter("_closed").partition_by("_run", maintain_order=True):
        (times, high), (_, low) = _steps(run, "hi_ns", paper), _steps(run, "lo_ns", paper)
        gap = [None] if x else []
        x += [*gap, *times, *reversed(times), times[0]]
        y += [*gap, *high, *reversed(low), high[0]]
    group = {"legendgroup": "interval"}
    area = {"x": x, "y": y, "name": "interval of the offset", "fill": "toself", "fillcolor": _FILL, "hoverinfo": "skip"}
    found: list[Trace] = [{**area, "mode": "lines", "line": {"width": 0}, **group}] if x else []
    for column, end in _ENDS:
        if view.windows[column].null_count() < view.windows.height:
            line = {"color": _BAND, "width": 1}
            found.append({**_step_line(view, column, paper, f"{end} end of the interval", line), **group})
            found[-1]["showlegend"] = len(found) == 1
    return found


def _proven(view: PairView, paper: _Paper) -> list[Trace]:
    """Return the ends of what is proven, where they are not those of the interval."""
    found: list[Trace] = []
    for other, end in _ENDS:
        column = f"proven_{other}"
        proven = view.windows[column]
        if proven.null_count() == view.windows.height or proven.equals(view.windows[other]):
            continue
        line = {"color": _BAND, "width": 1.5, "dash": "dash"}
        found.append(_step_line(view, column, paper, f"{end} end of what is proven", line))
        found[-1].update(name="proven without assumptions", legendgroup="proven", showlegend=len(found) == 1)
    return found


def _hulls(view: PairView, paper: _Paper) -> list[Trace]:
    found: list[Trace] = []
    for side in ("upper", "lower"):
        corners = view.hull.filter(pl.col("side") == side)
        if corners.height:
            x, y, line = paper.x(corners["at_ns"]), paper.y(corners["bound_ns"]), {"color": _TEXT, "width": 1.25}
            name = f"hull of the {side} bounds"
            found.append({"x": x, "y": y, "mode": "lines", "hoverinfo": "skip", "line": line, "name": name})
    return found


def _markers(view: PairView, paper: _Paper, drawn: pl.DataFrame) -> list[Trace]:
    """Return the observations, one trace per kind and side."""
    found: list[Trace] = []
    for kind, side, n in view.counts.iter_rows():
        mine = drawn.filter((pl.col("kind") == kind) & (pl.col("side") == side))
        color, variant = _LOOKS.get(kind, _OTHER)
        edge = {"width": 2, "color": color} if variant else {"width": 0.75, "color": _EDGE}
        texts = ("instance", "earlier_what", "earlier_clock", "later_what", "later_clock")
        found.append(
            {
                "x": paper.x(mine["at_ns"]),
                "y": paper.y(mine["bound_ns"]),
                "mode": "markers",
                "name": f"{_words(kind)}: {side} bound ({n:,})",
                "marker": {"symbol": _SYMBOLS[side] + variant, "color": color, "size": 9, "line": edge},
                "customdata": [list(row) for row in mine.select(_escaped(c) for c in texts).iter_rows()],
                "hovertemplate": (
                    f"<b>{_words(kind)}</b> %{{customdata[0]}}<br>%{{customdata[1]}} (%{{customdata[2]}})<br>not after "
                    f"%{{customdata[3]}} (%{{customdata[4]}})<br>offset {'≤' if side == 'upper' else '≥'} "
                    f"{paper.hover}<extra></extra>"
                ),
            }
        )
    return found


def _offset(view: PairView, paper: _Paper) -> list[Trace]:
    if view.windows["offset_ns"].null_count() == view.windows.height:
        return []
    quality = view.windows["quality"].str.replace_all("_", " ").to_list()
    line = _step_line(view, "offset_ns", paper, "chosen offset", {"color": _OFFSET, "width": 2.5})
    line["customdata"] = [q for q in quality for _ in range(2)]
    line["hovertemplate"] = f"chosen offset<br>{paper.hover}<br>%{{customdata}}<extra></extra>"
    return [line]


def _step_line(view: PairView, column: str, paper: _Paper, name: str, line: dict[str, object]) -> Trace:
    x, y = _steps(view.windows, column, paper)
    template = f"{name}<br>{paper.hover}<extra></extra>"
    return {"x": x, "y": y, "mode": "lines", "line": line, "name": name, "hovertemplate": template}


def _steps(windows: pl.DataFrame, column: str, paper: _Paper) -> tuple[list[float | None], list[float | None]]:
    """Return a line that is level throughout each window."""
    starts, ends = paper.x(windows["window_start_ns"]), paper.x(windows["window_end_ns"])
    times = [t for both in zip(starts, ends, strict=True) for t in both]
    return times, [v for v in paper.y(windows[column]) for _ in range(2)]


def _minus(number: str) -> str:
    return number.replace("-", "\N{MINUS SIGN}")


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _escaped(column: str) -> pl.Expr:
    """Plotly reads texts as a little HTML."""
    safe = pl.col(column)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        safe = safe.str.replace_all(character, entity, literal=True)
    return safe

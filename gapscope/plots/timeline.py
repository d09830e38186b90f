"""One handoff over time: what held its gap, and what the threads and streams of its ranks did meanwhile.

The page draws the same from its own copy of the numbers (``gapscope/page``); a test holds the two against each other.
"""

from __future__ import annotations

from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

import polars as pl

from gapscope.plots.style import GRID, KIND_LOOKS, TEXT, Spec, axis, cause_look, fill, ink, layout
from gapscope.views import Timeline
from gapscope.wording import EVENT_WORDS, duration, in_words, without_arguments

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_ARROWS = 120
"""More arrows hide what they point at."""

_ROW_PX, _FRAME_PX = 28, 204
_STRIP, _TOP = -1.0, -1.55
"""Middle of the strip that shows the whole chain, and the upper end of the axis; rows begin at -0.5."""

_LEVEL, _MOST_LEVELS = 0.75, 6
"""Height of one level of nested marks and ranges, in rows; of more levels all get thinner."""

_STRIP_WIDTH, _TILE_WIDTH, _BAR_WIDTH = 0.9, 0.86, 0.42
_PART_WORDS = {"ranges": " marks", "calls": " calls", "ops": ""}
_LONGEST_MICROSECONDS = 20_000_000
_NESTED = ("mark", "range", "overhead")
_LEVELS = 3
_LABEL_SHARE = 0.0085
"""Width of one letter of an event's label, as a share of the figure's width."""


def timeline_figure(timeline: Timeline) -> Figure:
    """Return the figure of one handoff.

    Horizontal: time after `producer_finish`, in µs (ms where the window is longer than 20 ms). The strip on top is the
    gap, cut into what held it; below it every thread and stream of the handoff's ranks, with the same tiles where they
    lie, recorded operations, calls and marks over them, and arrows where the chain goes from one to another. Dashed
    lines are the events; the gray band around one is how far the clocks may be off between it and `producer_finish`.

    Args:
        timeline: See `gapscope.views.timeline_of`.
    """
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    return Figure(timeline_spec(timeline))


def timeline_spec(timeline: Timeline) -> Spec:
    """Return the figure of one handoff as Plotly takes it: ``data`` and ``layout`` (see `timeline_figure`)."""
    paper = _Paper(timeline)
    return {
        "data": [*_tiles(timeline, paper), *_bars(timeline, paper), *_events(timeline, paper)],
        "layout": layout(
            _title(timeline),
            _subtitle(timeline),
            height=_FRAME_PX + round(_ROW_PX * (paper.bottom - _TOP)),
            margin={"l": 10, "r": 16, "t": 124, "b": 74},
            bargap=0,
            uniformtext={"minsize": 9, "mode": "hide"},
            xaxis=axis(
                f"time after {paper.zero} ({paper.unit})",
                range=[paper.x(timeline.start_ns), paper.x(timeline.end_ns)],
                tickformat=",",
                zeroline=False,
            ),
            yaxis=axis(
                range=[paper.bottom, _TOP],
                tickvals=[_STRIP, *paper.middles],
                ticktext=["held by", *_row_names(timeline)],
                showgrid=False,
                zeroline=False,
                fixedrange=True,
            ),
            shapes=[*_lanes(timeline, paper), *_bands(timeline, paper), *_lines(timeline, paper)],
            annotations=[*_arrows(timeline, paper), *_labels(timeline, paper)],
        ),
    }


class _Paper:
    """Where times are drawn."""

    def __init__(self, timeline: Timeline) -> None:
        self.zero_ns = timeline.zero_ns
        self.zero = "producer finish" if timeline.handoff["producer_finish_ns"] is not None else "the first event"
        long = timeline.end_ns - timeline.start_ns > _LONGEST_MICROSECONDS
        self.unit, self.scale = ("ms", 1_000_000) if long else ("µs", 1_000)
        self.span = max(timeline.end_ns - timeline.start_ns, 1)
        self.heights = _heights(timeline)
        edges = list(accumulate(self.heights, initial=-0.5))
        self.edges, self.bottom = edges[:-1], edges[-1]
        self.middles = [edge + height / 2 for edge, height in zip(self.edges, self.heights, strict=True)]

    def x(self, at_ns: int) -> float:
        return (at_ns - self.zero_ns) / self.scale

    def xs(self, at_ns: pl.Series) -> list[float]:
        return ((at_ns - self.zero_ns) / self.scale).to_list()

    def lengths(self, length_ns: pl.Series) -> list[float]:
        return (length_ns / self.scale).to_list()


def _heights(timeline: Timeline) -> list[float]:
    """Return the height of each row: 1, more where marks and ranges are nested."""
    depths = (
        timeline.bars.filter(pl.col("kind").cast(pl.String).is_in(_NESTED)).group_by("row").agg(pl.col("depth").max())
    )
    levels = {row: depth + 1 for row, depth in depths.iter_rows()}
    return [max(1.0, _LEVEL * min(levels.get(row, 1), _MOST_LEVELS)) for row in timeline.rows["row"]]


def _title(timeline: Timeline) -> str:
    handoff = timeline.handoff
    if handoff["gap_ns"] is None:
        return f"Handoff {handoff['handoff_id']}: no gap is known"
    error = handoff["gap_uncertainty_ns"]
    bound = "clocks without a bound" if error is None else f"± {duration(error)}" if error else "one clock"
    return f"Handoff {handoff['handoff_id']}: gap {duration(handoff['gap_ns'], error or 0)} ({bound})"


def _subtitle(timeline: Timeline) -> str:
    handoff = timeline.handoff
    said = [f"{handoff['transport']}", str(handoff["status"]).replace("_", " ")]
    if handoff["order"] != "ok":
        said.append(f"order: {str(handoff['order']).replace('_', ' ')}")
    if handoff["step"] is not None:
        said.insert(0, f"step {handoff['step']}")
    if not handoff["steady"]:
        said.append("start-up")
    for event in timeline.events.iter_rows(named=True):
        if not timeline.start_ns <= event["at_ns"] <= timeline.end_ns:
            side = "before" if event["at_ns"] < timeline.zero_ns else "after"
            word = EVENT_WORDS[event["event"]]
            said.append(f"{word} {duration(abs(event['at_ns'] - timeline.zero_ns))} {side} the zero")
    left_out = int(timeline.rows["left_out"].sum())
    if left_out:
        said.append(f"{left_out:,} short bars are not drawn")
    return ", ".join(said)


def _row_names(timeline: Timeline) -> list[str]:
    return [
        escape(f"rank {row['rank']} {row['lane']}{_PART_WORDS[row['part']]}", quote=False)
        for row in timeline.rows.iter_rows(named=True)
    ]


def _tiles(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return one trace per cause: its stretches in the strip, its tiles where they lie."""
    tiles = timeline.tiles
    stretch = pl.struct("cause", "rank", "lane").rle_id()
    strip = tiles.group_by(stretch.alias("stretch"), maintain_order=True).agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("cause", "rank", "lane").first(), tiles=pl.len()
    )
    found = []
    for cause in tiles["cause"].unique(maintain_order=True):
        runs, lying = (frame.filter(pl.col("cause") == cause) for frame in (strip, tiles))
        lying = lying.filter(pl.col("row").is_not_null())
        both = pl.concat([runs.select("start_ns", "end_ns"), lying.select("start_ns", "end_ns")])
        length = both["end_ns"] - both["start_ns"]
        texts = [f"{cause} {duration(ns)}" for ns in length.head(runs.height)]
        found.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": cause,
                "base": paper.xs(both["start_ns"]),
                "x": paper.lengths(length),
                "y": [_STRIP] * runs.height + [paper.middles[row] for row in lying["row"]],
                "width": [_STRIP_WIDTH] * runs.height + [_TILE_WIDTH] * lying.height,
                "text": [*texts, *[""] * lying.height],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "insidetextfont": {"color": ink(cause_look(cause)), "size": 11},
                "hovertext": [*_run_hovers(runs), *_tile_hovers(lying)],
                "hoverinfo": "text",
                "marker": fill(cause_look(cause)),
            }
        )
    return found


def _where(rank: int | None, lane: str | None) -> str:
    return " ".join(part for part in ("" if rank is None else f"rank {rank}", lane or "") if part) or "place not known"


def _run_hovers(runs: pl.DataFrame) -> list[str]:
    return [
        f"<b>{run['cause']}</b> {duration(run['end_ns'] - run['start_ns'])}<br>"
        f"{escape(_where(run['rank'], run['lane']), quote=False)}<br>{run['tiles']} tiles"
        for run in runs.iter_rows(named=True)
    ]


def _tile_hovers(tiles: pl.DataFrame) -> list[str]:
    texts = []
    for tile in tiles.iter_rows(named=True):
        lines = [
            f"<b>{tile['cause']}</b> {duration(tile['duration_ns'])}",
            escape(_where(tile["rank"], tile["lane"]), quote=False),
            escape(in_words(tile["op"], tile["detail"]), quote=False),
            f"known by: {tile['evidence']}",
        ]
        if tile["runner_up"]:
            lines.append(f"or: {escape(without_arguments(tile['runner_up']), quote=False)}")
        texts.append("<br>".join(line for line in lines if line))
    return texts


def _bars(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return one trace per kind of what was recorded; marks and ranges lie one within the other."""
    found = []
    places = pl.DataFrame({"row": timeline.rows["row"], "height": paper.heights, "middle": paper.middles})
    bars = timeline.bars.join(places, on="row", how="left", maintain_order="left")
    nested = pl.col("kind").cast(pl.String).is_in(_NESTED)
    room = pl.col("height") - 1 + _TILE_WIDTH
    level = room / (pl.when(nested).then("depth").max().over("row") + 1)
    bars = bars.with_columns(
        y=pl.when(nested).then(pl.col("middle") - room / 2 + level * (pl.col("depth") + 0.5)).otherwise("middle"),
        width=pl.when(nested).then(level).otherwise(_BAR_WIDTH),
    )
    for kind, look in KIND_LOOKS.items():
        mine = bars.filter(pl.col("kind") == kind)
        if not mine.height:
            continue
        length = mine["end_ns"] - mine["start_ns"]
        # Cut at the window, or a text that stands where the bar begins would be out of sight.
        first, last = (mine[end].clip(timeline.start_ns, timeline.end_ns) for end in ("start_ns", "end_ns"))
        names = [escape(without_arguments(name), quote=False) for name in mine["name"]]
        hovers = [
            f"<b>{name}</b><br>{kind}, {duration(ns)}<br>from {paper.x(start_ns):,.1f} {paper.unit}"
            for name, ns, start_ns in zip(names, length, mine["start_ns"], strict=True)
        ]
        found.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind,
                "base": paper.xs(first),
                "x": paper.lengths(last - first),
                "y": mine["y"].to_list(),
                "width": mine["width"].to_list(),
                "text": [name.split(" ")[0] for name in names] if kind in {"mark", "range"} else [],
                "textposition": "inside",
                "insidetextanchor": "start",
                "insidetextfont": {"color": TEXT, "size": 11},
                "hovertext": hovers,
                "hoverinfo": "text",
                "marker": fill(look),
                "showlegend": kind != "range",
            }
        )
    return found


def _error_words(error_ns: int | None) -> str:
    if error_ns is None:
        return "clocks without a bound"
    return f"± {duration(error_ns)}" if error_ns else "same clock"


def _events(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return points on the strip's upper edge that say what the lines are."""
    events = timeline.events
    if not events.height:
        return []
    hovers = [
        f"<b>{EVENT_WORDS[e['event']]}</b> ({e['source']}), rank {e['rank']}<br>"
        f"{duration(e['at_ns'] - timeline.zero_ns)} after {paper.zero}, {_error_words(e['error_ns'])}"
        f"<br>{e['at_ns']} ns"
        for e in events.iter_rows(named=True)
    ]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "event",
            "x": paper.xs(events["at_ns"]),
            "y": [_TOP] * events.height,
            "marker": {"symbol": "diamond", "size": 8, "color": TEXT},
            "hovertext": hovers,
            "hoverinfo": "text",
            "cliponaxis": False,
            "showlegend": False,
        }
    ]


def _lanes(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return lines between the rows of different ranks."""
    ranks = timeline.rows["rank"].to_list()
    cuts = [paper.edges[i] for i in range(len(ranks)) if i == 0 or ranks[i] != ranks[i - 1]]
    line = {"color": GRID, "width": 1}
    return [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": cut, "y1": cut, "line": line} for cut in cuts]


def _bands(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return how far the clocks may be off, around each event within the window."""
    found = []
    for event in _inside(timeline).iter_rows(named=True):
        if event["error_ns"]:
            x0, x1 = (paper.x(event["at_ns"] + sign * event["error_ns"]) for sign in (-1, 1))
            band = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": x0, "x1": x1, "layer": "below"}
            found.append({**band, "line": {"width": 0}, "fillcolor": "rgba(128,128,128,0.13)"})
    return found


def _lines(timeline: Timeline, paper: _Paper) -> list[Spec]:
    line = {"color": TEXT, "width": 1.2, "dash": "dash"}
    return [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}
        for x in paper.xs(_inside(timeline)["at_ns"])
    ]


def _inside(timeline: Timeline) -> pl.DataFrame:
    return timeline.events.filter(pl.col("at_ns").is_between(timeline.start_ns, timeline.end_ns))


def _labels(timeline: Timeline, paper: _Paper) -> list[Spec]:
    """Return the names of the events above the strip, on lines of their own where they would overlap."""
    free = [-1.0] * _LEVELS
    found = []
    for event in _inside(timeline).iter_rows(named=True):
        text = EVENT_WORDS[event["event"]]
        at = (event["at_ns"] - timeline.start_ns) / paper.span
        half = len(text) * _LABEL_SHARE / 2
        anchor = "left" if at < half else "right" if at > 1 - half else "center"
        left = {"left": at, "right": at - 2 * half, "center": at - half}[anchor]
        level = next((i for i in range(_LEVELS) if left > free[i]), _LEVELS - 1)
        free[level] = left + 2 * half
        place = {"x": paper.x(event["at_ns"]), "yref": "paper", "y": 1, "yshift": 4 + 14 * level, "xanchor": anchor}
        font = {"color": TEXT, "size": 11}
        found.append({**place, "yanchor": "bottom", "text": text, "showarrow": False, "font": font})
    return found


def _arrows(timeline: Timeline, paper: _Paper) -> list[Spec]:
    head = {"showarrow": True, "arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.5, "arrowcolor": TEXT, "text": ""}
    return [
        {
            **head, "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "x": paper.x(at_ns), "ax": paper.x(at_ns),
            "y": paper.middles[to_row], "ay": paper.middles[from_row],
        }
        for at_ns, from_row, to_row in timeline.arrows.head(MOST_ARROWS).iter_rows()
    ]  # fmt: skip

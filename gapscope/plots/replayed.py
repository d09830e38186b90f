"""What fixes would bring: by how much less steps or requests would take, as bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gapscope.findings import plural
from gapscope.plots.style import STRONG, TEXT, Spec, axis, cause_look, fill, layout
from gapscope.views.looks import Look
from gapscope.wording import duration

_ROW_PX, _FRAME_PX = 34, 170
_MARGIN = {"l": 10, "r": 20, "t": 76, "b": 88}
_ALL = Look("#9A9A9A", "x")
_MOST_UNITS = 2_000


def fixes_spec(fixes: Sequence[Mapping[str, Any]]) -> Spec:
    """Return by how much less each step or request would take with one cause gone: from the low to the high bound.

    Args:
        fixes: Rows of table ``fixes`` that set causes to zero and have bounds.
    """
    names, data = [], []
    for i, fix in enumerate(fixes):
        name = "all of them at once" if fix["cause"] is None else fix["cause"]
        name += "" if fix["rank"] is None else f" @ rank {fix['rank']}"
        names.append(escape(name, quote=False))
        low, high, floor = fix["sooner_low_p50_ns"], fix["sooner_high_p50_ns"], fix["uncertainty_ns"] or 0
        look = _ALL if fix["cause"] is None else cause_look(fix["cause"])
        hover = f"<b>{names[-1]}</b><br>{duration(low, floor)} … {duration(high, floor)} less"
        shared = {"type": "bar", "orientation": "h", "name": names[-1], "y": [i], "showlegend": False,
                  "hovertext": [hover], "hoverinfo": "text"}  # fmt: skip
        data.append({**shared, "x": [low / 1_000], "marker": fill(look)})
        data.append({**shared, "base": [low / 1_000], "x": [(high - low) / 1_000], "marker": fill(look, opacity=0.4)})
    unit = fixes[0]["unit"] if fixes else "step"
    units = fixes[0]["units"] if fixes else 0
    return {
        "data": data,
        "layout": layout(
            f"If one cause were gone: how much less each {unit} would take",
            f"medians over {plural(units, unit)}; full: low bound, faint: up to the high bound; bars do not add up",
            height=_FRAME_PX + _ROW_PX * max(len(names), 1), margin=_MARGIN, bargap=0.3,
            xaxis=axis("less (µs)", rangemode="tozero"),
            yaxis=axis(tickvals=list(range(len(names))), ticktext=names, range=[max(len(names), 1) - 0.5, -0.5],
                       fixedrange=True, zeroline=False),
        ),
    }  # fmt: skip


def effects_spec(units: Sequence[Mapping[str, Any]], unit: str) -> Spec:
    """Return how long each unit took, and between which bounds it would have.

    Args:
        units: Rows of `gapscope.whatif.Effects.units` of one kind, past start-up.
        unit: ``step`` or ``request``.
    """
    shown = list(units)[-_MOST_UNITS:]
    x = list(range(len(shown)))
    names = [str(row["id"]) for row in shown]
    least = [(row["before_ns"] - row["sooner_high_ns"]) / 1_000 for row in shown]
    most = [(row["before_ns"] - row["sooner_low_ns"]) / 1_000 for row in shown]
    hovers = [
        f"<b>{escape(name, quote=False)}</b><br>took {duration(row['before_ns'])}<br>would take "
        f"{duration(row['before_ns'] - row['sooner_high_ns'])} … {duration(row['before_ns'] - row['sooner_low_ns'])}"
        for name, row in zip(names, shown, strict=True)
    ]
    shared = {"type": "scatter", "x": x}
    every = max(len(shown) // 20, 1)
    said = f"{plural(len(shown), unit)} past start-up, in order of their ends"
    said += f"; the first {len(units) - len(shown):,} are not drawn" if len(units) > len(shown) else ""
    return {
        "data": [
            {**shared, "mode": "lines", "name": "would take at most", "y": most, "hoverinfo": "skip",
             "line": {"color": "#009E73", "width": 1}},
            {**shared, "mode": "lines", "name": "would take at least", "y": least, "hoverinfo": "skip",
             "line": {"color": "#009E73", "width": 1, "dash": "dot"}, "fill": "tonexty",
             "fillcolor": "rgba(0,158,115,0.25)"},
            {**shared, "mode": "markers", "name": "as recorded", "y": [row["before_ns"] / 1_000 for row in shown],
             "marker": {"color": STRONG, "size": 7, "line": {"width": 0.5, "color": TEXT}}, "hovertext": hovers,
             "hoverinfo": "text"},
        ],
        "layout": layout(
            f"Each {unit}, as recorded and replayed", said, height=420, margin=_MARGIN,
            xaxis=axis(unit, tickvals=x[::every], zeroline=False,
                       ticktext=[escape(name, quote=False) for name in names[::every]]),
            yaxis=axis(f"time of the {unit} (µs)", rangemode="tozero"),
        ),
    }  # fmt: skip

"""One metric of two arms over a parameter: the ratio on a logarithmic axis, over the parameter on another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gapscope.plots.style import TEXT, Spec, axis, layout

_LOOKS = (("#0072B2", "circle", "solid"), ("#D55E00", "square", "dash"), ("#009E73", "diamond", "dot"),
          ("#CC79A7", "cross", "dashdot"))  # fmt: skip
_WIDE = 5
_CLAIMED = ("faster", "slower", "equivalent")


def sweep_spec(found: Mapping[str, Any]) -> Spec:
    """Return the ratio of each arm to the base at each value, with intervals, and where they change places.

    Thick bars are intervals across restarts, thin ones those within the only pair, which support no claim. Filled: a
    verdict was drawn. The level line is at 1. What the clocks cannot resolve has no ratio and is not drawn.

    Args:
        found: What `gapscope.compare.sweep_told` returns.
    """
    drawn = [row for row in found["rows"] if row["ratio"] is not None and not _is_below(row)]
    hidden = [_hidden_ends(row) for row in found["rows"] if _is_hidden(row)]
    values = sorted({row["value"] for row in found["rows"]})
    positive = bool(values) and values[0] > 0
    data: list[Spec] = []
    for nth, crossing in enumerate(found["crossings"]):
        mine = [row for row in drawn if row["arm"] == crossing["arm"]]
        unknown = [row for row in found["rows"] if row["arm"] == crossing["arm"] and _is_hidden(row)]
        data += [_clocks(unknown, nth == 0), *_arm(crossing, mine, *_LOOKS[nth % len(_LOOKS)])]
    left_out = len(found["rows"]) - len(drawn) - len(hidden)
    said = f"below 1: less than {found['crossings'][0]['base']}" if found["crossings"] else ""
    said += "; thick: across restarts, thin: within the only pair; filled: a verdict was drawn; band: a crossover"
    said += "; gray: as far as the clocks cannot tell" if hidden else ""
    said += f"; {left_out} without a ratio" if left_out else ""
    words = {row["value"]: row["value_words"] for row in found["rows"]}
    ticks = {"tickvals": values, "ticktext": [words[value] for value in values]}
    x = axis(escape(found["parameter"], quote=False), zeroline=False, **ticks, **({"type": "log"} if positive else {}))
    return {
        "data": data,
        "layout": layout(
            f"{found['metric']} over {found['parameter']}: ratio to the base", said, height=480,
            margin={"l": 10, "r": 20, "t": 76, "b": 100}, xaxis=x,
            yaxis=axis("ratio", type="log", **_ratio_ticks([*drawn, *hidden])),
            shapes=[_one(), *(_band(c, _LOOKS[i % len(_LOOKS)][0]) for i, c in enumerate(found["crossings"])
                              if c["low"] is not None)],
        ),
    }  # fmt: skip


def _is_below(row: Mapping[str, Any]) -> bool:
    return row["difference_ns"] is None or abs(row["difference_ns"]) < (row["clock_ns"] or 0)


def _is_hidden(row: Mapping[str, Any]) -> bool:
    """Tell whether there is a ratio, and the clocks do not resolve it."""
    return row["ratio"] is not None and _is_below(row)


def _hidden_ends(row: Mapping[str, Any]) -> dict[str, float]:
    """Return between which ratios the clocks cannot tell."""
    most = 1 + row["clock_ns"] / row["a_p50_ns"]
    return {"ratio_low": 1 / most, "ratio_high": most}


def _clocks(rows: Sequence[Mapping[str, Any]], is_first: bool) -> Spec:
    ends = [_hidden_ends(row) for row in rows]
    return {"type": "scatter", "mode": "lines", "name": "what the clocks cannot resolve", "hoverinfo": "skip",
            "legendgroup": "clocks", "showlegend": is_first and bool(rows), "line": {"color": "#9A9A9A", "width": 9},
            "opacity": 0.6, "x": [x for row in rows for x in (row["value"], row["value"], None)],
            "y": [y for end in ends for y in (end["ratio_low"], end["ratio_high"], None)]}  # fmt: skip


def _arm(
    crossing: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], color: str, symbol: str, dash: str
) -> list[Spec]:
    """Return the lines and points of one arm."""
    name = escape(f"{crossing['arm']} / {crossing['base']}", quote=False)
    x, y = [row["value"] for row in rows], [row["ratio"] for row in rows]
    shared = {"type": "scatter", "legendgroup": crossing["arm"], "showlegend": False, "hoverinfo": "skip"}
    bars = []
    for low, high, width in (("ratio_low", "ratio_high", 5), ("within_ratio_low", "within_ratio_high", 1.5)):
        known = [row for row in rows if row[low] is not None]
        bars.append({**shared, "mode": "lines", "opacity": 0.6, "line": {"color": color, "width": width},
                     "x": [end for row in known for end in (row["value"], row["value"], None)],
                     "y": [end for row in known for end in (row[low], row[high], None)]})  # fmt: skip
    symbols = [symbol if row["verdict"] in _CLAIMED else f"{symbol}-open" for row in rows]
    hovers = [
        f"<b>{name}</b> at {row['value_words']}<br>x {row['ratio']:.3g}{_interval(row)}<br>"
        f"{escape(row['verdict'], quote=False)}"
        for row in rows
    ]
    marker = {"color": color, "size": 10, "symbol": symbols, "line": {"width": 1.5, "color": color}}
    points = {**shared, "mode": "lines+markers", "name": name, "showlegend": True, "x": x, "y": y, "hovertext": hovers,
              "hoverinfo": "text", "line": {"color": color, "width": 1, "dash": dash}, "marker": marker}  # fmt: skip
    return [*bars, points]


def _interval(row: Mapping[str, Any]) -> str:
    if row["ratio_low"] is not None:
        return f" [{row['ratio_low']:.3g} … {row['ratio_high']:.3g}]"
    if row["within_ratio_low"] is not None:
        return f" [{row['within_ratio_low']:.3g} … {row['within_ratio_high']:.3g}] in this pair"
    return ""


def _one() -> Spec:
    line = {"color": TEXT, "width": 1.5}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}


def _band(crossing: Mapping[str, Any], color: str) -> Spec:
    """Return the interval of a crossover; shapes on a logarithmic axis take the values themselves."""
    return {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": crossing["low"], "x1": crossing["high"],
            "fillcolor": color, "opacity": 0.12, "line": {"width": 0}, "layer": "below"}  # fmt: skip


def _ratio_ticks(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Return ticks at 1, 2 and 5 times powers of ten, more if they are near, and a range that holds all and 1."""
    keys = ("ratio", "ratio_low", "ratio_high", "within_ratio_low", "within_ratio_high")
    known = [1.0, *(row[key] for row in rows for key in keys if row.get(key) is not None and row[key] > 0)]
    low, high = min(known) / 1.1, max(known) * 1.1
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    digits = (1, 2, 5) if high / low > _WIDE else (1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return {"tickvals": ticks, "ticktext": [f"{tick:.10g}" for tick in ticks],
            "range": [math.log10(low), math.log10(high)]}  # fmt: skip

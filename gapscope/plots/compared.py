"""Two arms compared: differences with their intervals, the paired values, distributions, what a change is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import polars as pl

from gapscope.findings import plural
from gapscope.plots.style import STRONG, TEXT, Spec, axis, cause_look, fill, layout
from gapscope.views.looks import Look
from gapscope.wording import duration, signed

_ROW_PX, _FRAME_PX = 34, 170
_SHOWN = ("request", "latency", "step", "gap", "phase")
_A, _B = STRONG, "#D55E00"
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "triangle-down", "pentagon", "hexagon")
_MOST_POINTS = 2_000
_MARGIN = {"l": 10, "r": 20, "t": 76, "b": 88}
_LEAST_SHARE = 0.005
_REST = Look("#C8C8C8", "-")


def differences_spec(found: Mapping[str, Any]) -> Spec:
    """Return the difference of each metric, B minus A: across restarts (thick) and within each pair (thin).

    Args:
        found: What `gapscope.compare.comparison_told` returns.
    """
    shown = [m for m in found["metrics"] if m["family"] in _SHOWN and m["difference_ns"] is not None]
    rows = {m["metric"]: i for i, m in enumerate(shown)}
    below = {m["metric"] for m in shown if abs(m["difference_ns"]) < (m["clock_ns"] or 0)}
    pairs = [p for p in found["pairs"] if p["metric"] in rows and p["difference_ns"] is not None]
    a, b = found["a"]["name"], found["b"]["name"]
    said = f"{b} minus {a}; thick: across restarts; thin: within each pair, which supports no claim"
    said += "; gray bar: what the clocks cannot resolve, drawn in place of a number" if below else ""
    clocks = [m for m in shown if m["metric"] in below]
    across = [m for m in shown if m["low_ns"] is not None and m["metric"] not in below]
    within = [p for p in pairs if p["low_ns"] is not None and p["metric"] not in below]
    points = [m for m in shown if m["metric"] not in below]
    dots = [p for p in pairs if p["metric"] not in below and len(pairs) > len(shown)]
    return {
        "data": [
            _lines("clocks", [(rows[m["metric"]], -m["clock_ns"], m["clock_ns"]) for m in clocks], "#9A9A9A", 9),
            _lines("within a pair", [(rows[p["metric"]] + 0.22, p["low_ns"], p["high_ns"]) for p in within], TEXT, 1.5),
            _lines("across restarts", [(rows[m["metric"]], m["low_ns"], m["high_ns"]) for m in across], STRONG, 6),
            _points("pairs", [(rows[p["metric"]] + 0.22, p["difference_ns"], _pair_hover(p)) for p in dots], TEXT, 6,
                    "line-ns-open"),
            _points("difference", [(rows[m["metric"]], m["difference_ns"], _hover(m)) for m in points], _B, 11,
                    "diamond"),
        ],
        "layout": layout(
            "Differences", said, height=_FRAME_PX + _ROW_PX * max(len(shown), 1), margin=_MARGIN,
            xaxis=axis("difference (µs), less is faster", zeroline=True, zerolinecolor=TEXT, zerolinewidth=1.5),
            yaxis=_rows([m["metric"] for m in shown]),
        ),
    }  # fmt: skip


def _hover(metric: Mapping[str, Any]) -> str:
    interval = ""
    if metric["low_ns"] is not None:
        interval = f" [{signed(round(metric['low_ns']))} … {signed(round(metric['high_ns']))}]"
    name, verdict = escape(metric["metric"], quote=False), escape(metric["verdict"], quote=False)
    return f"<b>{name}</b><br>{signed(round(metric['difference_ns']))}{interval}<br>{verdict}"


def _pair_hover(pair: Mapping[str, Any]) -> str:
    names = f"{escape(pair['run_b'], quote=False)} against {escape(pair['run_a'], quote=False)}"
    return f"<b>{escape(pair['metric'], quote=False)}</b><br>{names}<br>{signed(round(pair['difference_ns']))}"


def _lines(name: str, lines: Sequence[tuple[float, float, float]], color: str, width: float) -> Spec:
    x = [end for _, low, high in lines for end in (low / 1_000, high / 1_000, None)]
    y = [end for row, _, _ in lines for end in (row, row, None)]
    line = {"color": color, "width": width}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line, "hoverinfo": "skip",
            "opacity": 0.75, "showlegend": bool(lines)}  # fmt: skip


def _points(name: str, points: Sequence[tuple[float, float, str]], color: str, size: float, symbol: str) -> Spec:
    marker = {"color": color, "size": size, "symbol": symbol, "line": {"width": 1, "color": TEXT}}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [ns / 1_000 for _, ns, _ in points],
            "y": [row for row, _, _ in points], "marker": marker, "hovertext": [hover for *_, hover in points],
            "hoverinfo": "text", "showlegend": bool(points)}  # fmt: skip


def _rows(names: Sequence[str]) -> Spec:
    return axis(
        tickvals=list(range(len(names))), ticktext=[escape(name, quote=False) for name in names],
        range=[max(len(names), 1) - 0.5, -0.5], fixedrange=True, zeroline=False,
    )  # fmt: skip


def paired_spec(metric: str, values: pl.DataFrame, names: tuple[str, str]) -> Spec:
    """Return one metric value by value: A to the right, B upward; on the line both are equal.

    Args:
        metric: Its name.
        values: Rows of `gapscope.compare.comparing.PAIRED`; those that have a value in both arms are drawn.
        names: Names of the arms.
    """
    both = values.filter(metric=metric).drop_nulls(["a_ns", "b_ns"])
    data, every = [], max(1, -(-both.height // _MOST_POINTS))
    for (pair,), mine in both.group_by("pair", maintain_order=True):
        shown = mine.gather_every(every)
        nth = int(str(pair)) - 1
        hovers = [
            f"<b>{escape(key, quote=False)}</b><br>{duration(a)} → {duration(b)}"
            for key, a, b in shown.select("key", "a_ns", "b_ns").iter_rows()
        ]
        marker = {"size": 7, "symbol": _SYMBOLS[nth % len(_SYMBOLS)], "color": _A if nth % 2 == 0 else "#56B4E9",
                  "opacity": 0.7, "line": {"width": 0.5, "color": TEXT}}  # fmt: skip
        data.append({"type": "scatter", "mode": "markers", "name": f"pair {pair}",
                     "x": (shown["a_ns"] / 1_000).to_list(), "y": (shown["b_ns"] / 1_000).to_list(),
                     "hovertext": hovers, "hoverinfo": "text", "marker": marker})  # fmt: skip
    ends = [] if not both.height else [
        min(both["a_ns"].min(), both["b_ns"].min()) / 1_000, max(both["a_ns"].max(), both["b_ns"].max()) / 1_000  # type: ignore[type-var, operator]
    ]  # fmt: skip
    equal = {"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends, "hoverinfo": "skip",
             "line": {"color": TEXT, "width": 1, "dash": "dot"}}  # fmt: skip
    said = f"{plural(both.height, 'pair')} of values with one key, a dot each"
    said += f"; 1 of {every} drawn" if every > 1 else ""
    a, b = (escape(name, quote=False) for name in names)
    return {
        "data": [equal, *data],
        "layout": layout(
            f"{metric}: value by value", said, height=460, margin=_MARGIN,
            xaxis=axis(f"{a} (µs)", zeroline=False), yaxis=axis(f"{b} (µs)", zeroline=False),
        ),
    }  # fmt: skip


def distributions_spec(metric: str, values: pl.DataFrame, names: tuple[str, str]) -> Spec:
    """Return how the values of both arms are spread: for each time the share that is no longer; a line per run.

    Args:
        metric: Its name.
        values: Rows of `gapscope.compare.comparing.PAIRED`.
        names: Names of the arms.
    """
    mine = values.filter(metric=metric)
    data, least = [], 1
    for arm, name, color, dash in (("a", names[0], _A, "solid"), ("b", names[1], _B, "dash")):
        runs = mine.drop_nulls(f"{arm}_ns").unique(["key", f"run_{arm}"], maintain_order=True)
        for nth, ((run,), rows) in enumerate(runs.group_by(f"run_{arm}", maintain_order=True)):
            times = rows[f"{arm}_ns"].sort()
            every = max(1, -(-times.len() // _MOST_POINTS))
            least = max(least, every)
            share = pl.Series(range(1, times.len() + 1)) / times.len()
            data.append({
                "type": "scatter", "mode": "lines", "name": escape(name, quote=False), "legendgroup": arm,
                "showlegend": nth == 0, "x": (times.gather_every(every) / 1_000).to_list(),
                "y": share.gather_every(every).to_list(),
                "line": {"color": color, "dash": dash, "width": 2, "shape": "hv"},
                "hovertemplate": f"{_plain(str(run))}<br>%{{y:.0%}} within %{{x:,.1f}} µs<extra></extra>",
            })  # fmt: skip
    said = "share of the values that are no longer; a line per run"
    said += f"; every {least}th value drawn" if least > 1 else ""
    return {
        "data": data,
        "layout": layout(
            f"{metric}: distributions", said, height=420, margin=_MARGIN, xaxis=axis("time (µs)", zeroline=False),
            yaxis=axis("share", tickformat=".0%", range=[0, 1.02], zeroline=False),
        ),
    }  # fmt: skip


def _plain(text: str) -> str:
    """Return a text that is neither HTML nor a template."""
    return escape(text, quote=False).replace("%{", "% {")


def closure_spec(rows: Sequence[Mapping[str, Any]], names: tuple[str, str], note: str = "") -> Spec:
    """Return what the change of one edge's mean gap is made of: from the one mean to the other, cause by cause.

    Args:
        rows: Rows of `gapscope.compare.closing.CLOSURE` of one edge, the gap first.
        names: Names of the arms.
        note: What the clocks leave of it, in words.
    """
    gap, causes = rows[0], rows[1:]
    least = max(abs(gap["difference_ns"]), abs(gap["a_mean_ns"]), abs(gap["b_mean_ns"])) * _LEAST_SHARE
    parts = [
        (c["cause"] + ("" if c["rank"] is None else f" @ rank {c['rank']}"), c["difference_ns"], cause_look(c["cause"]))
        for c in causes
        if abs(c["difference_ns"]) >= least
    ]
    small = [c["difference_ns"] for c in causes if abs(c["difference_ns"]) < least]
    parts += [(f"{len(small)} more", sum(small), _REST)] if small else []
    bars = [(f"mean gap, {names[0]}", 0.0, gap["a_mean_ns"], duration(round(gap["a_mean_ns"])), Look(_A))]
    level = gap["a_mean_ns"]
    for name, change, look in parts:
        bars.append((name, level, change, signed(round(change)), look))
        level += change
    bars.append((f"mean gap, {names[1]}", 0.0, gap["b_mean_ns"], duration(round(gap["b_mean_ns"])), Look(_B, "/")))
    labels = [escape(name, quote=False) for name, *_ in bars]
    markers = [fill(look) for *_, look in bars]
    data = [
        {"type": "bar", "orientation": "h", "name": label, "y": [i], "x": [length / 1_000], "base": [base / 1_000],
         "text": [text], "textposition": "outside", "cliponaxis": False, "marker": marker, "showlegend": False,
         "hovertext": [f"<b>{label}</b><br>{text}"], "hoverinfo": "text"}
        for i, ((_, base, length, text, _), label, marker) in enumerate(zip(bars, labels, markers, strict=True))
    ]  # fmt: skip
    said = f"{gap['edge']}: means over explained handoffs; the changes of the causes add up to that of the gap"
    said += f". {note}" if note else ""
    return {
        "data": data,
        "layout": layout(
            "What the change of the mean gap is made of", said, height=_FRAME_PX + _ROW_PX * len(bars),
            margin={**_MARGIN, "r": 80}, bargap=0.3, xaxis=axis("gap (µs)", zeroline=False), yaxis=_rows_of(labels),
        ),
    }  # fmt: skip


def _rows_of(labels: Sequence[str]) -> Spec:
    """Return an axis of rows whose names are escaped already."""
    return axis(tickvals=list(range(len(labels))), ticktext=list(labels), range=[len(labels) - 0.5, -0.5],
                fixedrange=True, zeroline=False)  # fmt: skip

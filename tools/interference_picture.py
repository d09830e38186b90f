"""The picture of interference: one kind of operation alone and beside a transfer, from table ``interference``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.wording import duration, without_arguments

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SIDES = (("alone", "#0072B2", "alone"), ("overlapped", "#D55E00", "beside a transfer"))


def _slower(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the kernels that ran slower, by rank."""
    return table.filter((pl.col("verdict") == "slower") & (pl.col("what") == "kernel")).sort("rank").to_dicts()


def _names(row: dict[str, Any]) -> dict[str, str]:
    return {side: f"rank {row['rank']}, {words} (n {row[f'{side}_n']})" for side, _, words in _SIDES}


def interference_figure(table: pl.DataFrame) -> Figure:
    """Return a figure with a line from the tenth to the ninetieth percentile per group, and a point at the median."""
    from plotly.graph_objects import Figure  # noqa: PLC0415 - takes half a second

    rows = _slower(table)
    data = []
    for side, color, words in _SIDES:
        labels = [_names(row)[side] for row in rows]
        low, middle, high = ([row[f"{side}_{q}_ns"] / 1000 for row in rows] for q in ("p10", "p50", "p90"))
        spread = {
            "type": "data", "symmetric": False, "thickness": 4, "width": 8, "color": color,
            "array": [h - m for h, m in zip(high, middle, strict=True)],
            "arrayminus": [m - v for v, m in zip(low, middle, strict=True)],
        }  # fmt: skip
        marker = {"size": 13, "color": color, "symbol": "circle" if side == "alone" else "diamond"}
        data.append(
            {"type": "scatter", "mode": "markers", "name": words, "x": middle, "y": labels, "error_x": spread,
             "marker": marker}
        )  # fmt: skip
    kernels = ", ".join(sorted({without_arguments(row["name"]) for row in rows}))
    order = [_names(row)[side] for row in rows for side, _, _ in _SIDES]
    return Figure(
        {
            "data": data,
            "layout": {
                "template": "plotly_white",
                "title": {
                    "text": f"{kernels}: median length, and 10th to 90th percentile",
                    "x": 0.01,
                    "font": {"size": 15},
                },
                "height": 330,
                "xaxis": {"title": {"text": "length (µs)"}, "rangemode": "tozero"},
                "yaxis": {"categoryorder": "array", "categoryarray": order[::-1], "automargin": True},
                "legend": {"orientation": "h", "y": -0.25},
                "margin": {"l": 10, "r": 20, "t": 60, "b": 70},
            },
        }
    )


def interference_numbers(table: pl.DataFrame, run: Sequence[str]) -> str:
    """Return the same as text and a table."""
    rows = _slower(table)
    files = ", ".join(f"`tests/data/{name}`" for name in run)
    lines = [
        "![Lengths of a matrix product alone and beside a transfer](../pictures/interference.svg)",
        "",
        f"Recording: {files}, rows of table `interference` with the verdict `slower`.",
        "",
        "| kernel | rank | | n | p10 | median | p90 | shift (95 %) |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        for side, _, words in _SIDES:
            shift = f"{duration(row['shift_ns'])} ({duration(row['shift_lo_ns'])} to {duration(row['shift_hi_ns'])})"
            spread = " | ".join(duration(row[f"{side}_{q}_ns"]) for q in ("p10", "p50", "p90"))
            name = without_arguments(row["name"]).replace("<", "&lt;").replace("|", "\\|")
            shown = shift if side == "overlapped" else ""
            lines.append(f"| `{name}` | {row['rank']} | {words} | {row[f'{side}_n']} | {spread} | {shown} |")
    return "\n".join(lines)

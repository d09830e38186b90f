"""Handoffs of many messages as text: what bound them, and the numbers that say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gapscope.reports.tables import plain_table
from gapscope.wording import duration, edge_name, percent, size

_WORDS = {
    "bandwidth-bound": "bytes moved nearly all the time",
    "submission-bound": "most of the time the next message was not launched yet",
    "queue-bound": "most of the time the next message sat behind other work of its stream",
    "latency-bound": "most of the time the next message was launched, its stream free, and it had not started",
    "mixed": "nothing holds half of the time",
}


def render_fragments(edges: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return one line of numbers and one of words per edge with handoffs of many messages.

    Args:
        edges: ``messages`` of ``summary.json``.
    """
    table = plain_table(
        "many messages",
        "transport",
        ">handoffs",
        ">messages",
        ">each",
        ">moving",
        ">between",
        ">rate moving",
        ">rate overall",
        "",
    )
    words = []
    for edge in edges:
        n, total, span = edge["handoffs"], edge["size_bytes"], edge["span_ns"]
        each = None if total is None else round(total / edge["messages"])
        name = edge_name({**edge, "group": None})
        table.add_row(
            name,
            edge["transport"],
            f"{n:,}",
            f"{edge['messages'] / n:,.0f}",
            size(each),
            percent(edge["moving_ns"] / span),
            duration(round((span - edge["moving_ns"]) / n)),
            _rate(total, edge["moving_ns"]),
            _rate(total, span),
            Text(edge["verdict"], style="bold"),
        )
        words.append(Text(f"{name}, {edge['verdict']}: {_between(edge)}.", style="dim"))
    return [table, *words]


def _between(edge: Mapping[str, Any]) -> str:
    """Return what the holes are made of, in words."""
    hole = edge["span_ns"] - edge["moving_ns"]
    words = _WORDS[edge["verdict"]]
    if not hole:
        return words
    names = {"unlaunched": "not launched", "queued": "queued", "latency": "latency", "unknown": "launch not recorded"}
    parts = {name: edge[f"{part}_ns"] / hole for part, name in names.items()}
    words += "; of the time between messages: "
    words += ", ".join(f"{name} {percent(share)}" for name, share in parts.items() if share)
    if edge["unlaunched_ns"] and edge["launch_uncertainty_ns"]:
        words += f" (a launch is good to {duration(edge['launch_uncertainty_ns'])} against the GPU)"
    if edge["launch_span_ns"]:
        words += f"; launch calls spread over {percent(edge['launch_span_ns'] / edge['span_ns'])} of the time"
    if edge["hole_cause"]:
        words += f"; on the chain: {edge['hole_cause']}"
    return words


def _rate(size_bytes: int | None, ns: int) -> str:
    """Return a rate in GB/s (bytes per nanosecond)."""
    return "-" if size_bytes is None or not ns else f"{size_bytes / ns:.3g} GB/s"

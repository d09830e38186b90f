"""How figures look, on paper that is light or dark: backgrounds are clear, and texts of a gray that both carry."""

from __future__ import annotations

from html import escape
from typing import Any

from gapscope.views.looks import CAUSE_LOOKS, KIND_LOOKS, OUTSIDE_LOOKS, Look, cause_look, ink

Spec = dict[str, Any]
"""A part of a figure as Plotly takes it."""

TEXT, GRID, STRONG = "#767676", "rgba(128,128,128,0.25)", "#0072B2"
CLEAR = "rgba(0,0,0,0)"

__all__ = [
    "CAUSE_LOOKS", "CLEAR", "GRID", "KIND_LOOKS", "OUTSIDE_LOOKS", "STRONG", "TEXT", "Look", "Spec", "axis",
    "cause_look", "fill", "ink", "layout",
]  # fmt: skip


def fill(look: Look, opacity: float = 1.0) -> Spec:
    """Return the marker of bars of one look."""
    pattern = {"shape": look.pattern, "fgcolor": "#303030", "bgcolor": look.color, "size": 6, "solidity": 0.3}
    marker: Spec = {"color": look.color, "line": {"width": 0.5, "color": "rgba(60,60,60,0.55)"}, "opacity": opacity}
    return {**marker, "pattern": pattern} if look.pattern else marker


def axis(title: str = "", **more: object) -> Spec:
    """Return an axis with the grid of all figures."""
    lines = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID, "separatethousands": True}
    return {**lines, "title": {"text": title, "font": {"size": 13}, "standoff": 8}, "automargin": True, **more}


def layout(title: str, subtitle: str = "", **more: object) -> Spec:
    """Return what the layouts of all figures share.

    Args:
        title: What is shown; text, not HTML.
        subtitle: What it is over.
        more: Further parts of the layout.
    """
    font = {"color": TEXT, "size": 13}
    return {
        "template": "plotly_white",
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": font,
        "title": {
            "text": escape(title, quote=False),
            "subtitle": {"text": escape(subtitle, quote=False), "font": font},
            "x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top",
            "pad": {"t": 26}, "font": {"color": TEXT, "size": 16},
        },
        "legend": {"bgcolor": CLEAR, "orientation": "h", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom"},
        "modebar": {"bgcolor": CLEAR, "color": TEXT, "activecolor": STRONG},
        "hovermode": "closest",
        "barmode": "overlay",
        **more,
    }  # fmt: skip

"""A figure as a page of its own: one file that needs no network."""

from __future__ import annotations

import re
from html import escape, unescape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.errors import UsageError
from gapscope.writing import replacing

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
html, body {{ height: 100%; margin: 0; background: #ffffff; }}
body > div {{ height: 100%; min-height: 480px; }}
.js-plotly-plot svg .infolayer text, .js-plotly-plot svg .xtick text, .js-plotly-plot svg .ytick text {{
  fill: #222222 !important;
}}
@media (prefers-color-scheme: dark) {{
  html, body {{ background: #16181c; }}
  .js-plotly-plot svg .infolayer text, .js-plotly-plot svg .xtick text, .js-plotly-plot svg .ytick text {{
    fill: #e4e4e4 !important;
  }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; connect-src data: blob:"
)
"""What keeps the page from the network even if a figure asked for it."""

_BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]]
"""None that leads to a service."""


def plotly_js() -> str:
    """Return the code of plotly.js, as a page embeds it."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - takes half a second

    return str(get_plotlyjs())


def write_figure(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure as a page that needs no network and follows the reader's light or dark colors.

    Args:
        figure: The figure; its title becomes the page's.
        path: The file; replaced if it exists.

    Raises:
        UsageError: The file cannot be written.
    """
    text = unescape(re.sub(r"<[^>]*>", " ", figure.layout.title.text or "gapscope"))
    config = {"displaylogo": False, "responsive": True, "plotlyServerURL": "", "modeBarButtons": _BUTTONS}
    body = figure.to_html(config=config, include_plotlyjs=True, full_html=False, div_id="figure")
    page = _PAGE.format(title=escape(text), body=body, policy=POLICY)
    try:
        with replacing(path) as beside:
            beside.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{Path(path)}: the plot cannot be written: {error.strerror or error}.") from error

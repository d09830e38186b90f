"""One handoff: its row, its tiles, and the ways to look at it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, Group
from rich.text import Text

from gapscope.errors import UsageError
from gapscope.reports.tables import Literal
from gapscope.trace import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from gapscope.clocks import Alignment
    from gapscope.views import Timeline

PLOTLY_MIME = "application/vnd.plotly.v1+json"
"""What notebooks that draw Plotly figures themselves ask for."""

_WIDTH = 118
_SHORT = re.compile(r"(?P<src>\d+)[->](?P<dst>\d+)(?:/(?P<channel>\d+))?[:/](?P<seq>-?\d+)")


@dataclass(frozen=True, eq=False)  # frames have no one truth to compare by
class Handoff:
    """One handoff of an analysis, shown as a chain of tiles, or over time.

    In a notebook it shows itself: as a figure where Plotly figures are drawn, else as text. ``print`` gives the text.

    Attributes:
        row: Its row of table ``handoffs``.
        tiles: Its rows of table ``tiles``, in order of time.
    """

    row: Mapping[str, Any]
    tiles: pl.DataFrame
    _table: pl.DataFrame = field(repr=False)
    _trace: Trace = field(repr=False)
    _clocks: Alignment | None = field(repr=False)

    @property
    def id(self) -> str:
        """Its ``handoff_id``."""
        return str(self.row["handoff_id"])

    @cached_property
    def timeline(self) -> Timeline:
        """What its lanes did around the gap (`gapscope.views.Timeline`)."""
        from gapscope.views import timeline_of  # noqa: PLC0415 - only pictures and chains need it

        return timeline_of(self._trace, self._clocks, self._table, self.tiles)

    def figure(self) -> Figure:
        """Return the picture of its gap: the tiles, the lanes of its ranks and the five events over time (Plotly)."""
        from gapscope.plots import timeline_figure  # noqa: PLC0415 - only pictures need it

        return timeline_figure(self.timeline)

    def text(self, *, every: bool = False, width: int = _WIDTH) -> str:
        """Return its chain as text, as ``gapscope explain`` prints it.

        Args:
            every: One line per tile, not per stretch of one cause on one thread or stream.
            width: Width of the lines.
        """
        # Notebook kernels ask for colors by FORCE_COLOR; a text has none wherever it is made.
        console = Console(
            file=io.StringIO(), width=width, highlight=False, emoji=False, force_jupyter=False, force_terminal=False,
            color_system=None,
        )  # fmt: skip
        with console.capture() as capture:
            console.print(Literal(self.rendered(every=every)))
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def rendered(self, *, every: bool = False) -> Group:
        """Return it over time, and its chain, for a rich console.

        Args:
            every: See `text`.
        """
        from gapscope.reports.chain import render_chain  # noqa: PLC0415 - only texts need it
        from gapscope.reports.lanes import render_timeline  # noqa: PLC0415

        tiles = self.tiles.sort("start_ns", descending=True).to_dicts()
        drawn = [render_timeline(self.timeline), Text("")] if self.tiles.height else []
        return Group(*drawn, render_chain(self.row, tiles, every=every))

    def __rich__(self) -> Literal:
        return Literal(self.rendered())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        gap, cause = self.row["gap_ns"], self.row["dominant_cause"]
        return f"Handoff({self.id!r}, gap_ns={gap}, dominant_cause={cause!r}, {self.tiles.height} tiles)"

    def _repr_html_(self) -> str:
        console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_jupyter=False, emoji=False)
        console.print(Literal(self.rendered()))
        return console.export_html(inline_styles=True, code_format="<pre style='line-height:1.25'>{code}</pre>")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return all forms; the notebook takes the richest that it can show."""
        figure = self.figure().to_plotly_json()
        return {"text/plain": str(self), "text/html": self._repr_html_(), PLOTLY_MIME: figure}


def choose(handoffs: pl.DataFrame, key: str | None) -> pl.DataFrame:
    """Return the one row that a key names.

    Args:
        handoffs: Table ``handoffs``.
        key: A ``handoff_id``, or ranks and seq as ``0-1:57``; None: the explained handoff with the longest gap past
            start-up.

    Raises:
        UsageError: None or several fit; the message lists some.
    """
    if not handoffs.height:
        raise UsageError("No handoffs were found. `gapscope analyze` says what is missing.")
    if key is None:
        explained = handoffs.filter(pl.col("dominant_cause").is_not_null())
        pool = explained.filter("steady") if explained.filter("steady").height else explained
        if not pool.height:
            raise UsageError("No handoff has a gap that can be explained. `gapscope analyze` says why.")
        return pool.sort("gap_ns", "handoff_id", descending=[True, False]).head(1)
    found = handoffs.filter(pl.col("handoff_id") == key)
    short = _SHORT.fullmatch(key.strip())
    if not found.height and short:
        found = handoffs.filter(
            (pl.col("src_rank") == int(short["src"]))
            & (pl.col("dst_rank") == int(short["dst"]))
            & (pl.col("seq") == int(short["seq"]))
            & ((pl.col("channel") == int(short["channel"])) if short["channel"] else pl.lit(value=True))
        )
    if found.height == 1:
        return found
    if found.height:
        listed = ", ".join(found["handoff_id"].head(8))
        raise UsageError(f"Handoff {key}: several fit. Name one by its id: {listed}.")
    some = ", ".join(handoffs["handoff_id"].head(8))
    more = f", ... ({handoffs.height:,} in all)" if handoffs.height > 8 else ""
    raise UsageError(f"Handoff {key}: there is none. There are {some}{more}.")

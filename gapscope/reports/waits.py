"""How long ranks waited for each other in communication kernels, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gapscope.reports.tables import plain_table
from gapscope.wording import duration, percent

_LEAST_SHARE = 0.005
_MOST_ROWS = 8


def render_waiting(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return who waited for whom, the longest first.

    Args:
        rows: ``waiting`` of ``summary.json``.
    """
    shown = [r for r in rows if r["recorded_ns"] and r["waited_ns"] >= r["recorded_ns"] * _LEAST_SHARE][:_MOST_ROWS]
    if not shown:
        return []
    table = plain_table("in communication kernels", ">waited", ">of its time", ">kernels", ">± each")
    for row in shown:
        bound = row["uncertainty_ns"]
        table.add_row(
            f"rank {row['rank']} for rank {row['for_rank']}",
            duration(row["waited_ns"]),
            percent(row["waited_ns"] / row["recorded_ns"]),
            f"{row['kernels']:,}",
            "no bound" if bound is None else duration(bound),
        )
    note = "Until the other rank's kernel had started, past start-up; no part of any one gap."
    return [table, Text(note, style="dim")]

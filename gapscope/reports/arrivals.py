"""Collectives in the text report: who was last, how long the others waited, and the transfer apart from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gapscope.reports.tables import plain_table
from gapscope.wording import duration

_MOST_GROUPS = 8
_MOST_RANKS = 3
_PARTS = ("wait", "transfer")


def render_groups(groups: Sequence[dict[str, Any]]) -> Table:
    """Return how long ranks waited for the last to arrive.

    Args:
        groups: ``groups`` of ``summary.json``.
    """
    quantiles = (">others waited p50", ">p90", ">transfer p50", ">p90")
    table = plain_table("collectives", ">n", "last to arrive", *quantiles, "split")
    for group in groups[:_MOST_GROUPS]:
        last = ", ".join(f"rank {r['rank']} in {r['times']:,}" for r in group["last"][:_MOST_RANKS])
        more = len(group["last"]) - _MOST_RANKS
        bound = group["uncertainty_ns"] or 0
        table.add_row(
            f"group {group['group']}" + (f" of {group['job']}" if group["job"] else ""),
            f"{group['collectives']:,}",
            last + (f", {more} more" if more > 0 else ""),
            *(
                duration(group[part].get(f"{q}_ns"), bound if group[part]["by"] == "arrival" else 0)
                for part in _PARTS
                for q in ("p50", "p90")
            ),
            Text(_split(group), style="dim"),
        )
    return table


def _split(group: dict[str, Any]) -> str:
    """Return by which of the two forms waiting and transfer were told apart."""
    by_arrival = [part for part in _PARTS if group[part]["by"] == "arrival"]
    if not by_arrival:
        return "by length"
    words = f"{' and '.join(by_arrival)} by arrival, ± {duration(group['uncertainty_ns'])}"
    return words + ("" if len(by_arrival) == len(_PARTS) else "; rest by length")

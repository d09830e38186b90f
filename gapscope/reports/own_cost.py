"""What the marks themselves cost, in a line or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from gapscope.wording import duration

_FEW = 2


def render_marks_cost(costs: Sequence[dict[str, Any]]) -> list[Text]:
    """Return a line per rank, or one on the costliest of many; none where no log says what marks cost.

    Args:
        costs: ``marks_cost`` of ``summary.json``.
    """
    if not costs:
        return []
    if len(costs) <= _FEW:
        return [Text(_line(cost), style="dim") for cost in costs]
    worst = max(costs, key=lambda cost: (cost["handoff_ns"] or 0, cost["bracket_ns"]))
    return [Text(f"{_line(worst)} Of {len(costs)} ranks it is the costliest.", style="dim")]


def _line(cost: dict[str, Any]) -> str:
    rank = f"{cost['job']}:{cost['rank']}" if cost["job"] else f"{cost['rank']}"
    line = f"Marks cost {duration(cost['bracket_ns'])} a bracket on rank {rank} (median of {cost['brackets']:,} timed)"
    if cost["handoff_ns"] is None:
        return line + "."
    return f"{line}, about {duration(cost['handoff_ns'])} of each handoff's host time; at most that lies in its gap."

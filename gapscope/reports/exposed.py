"""What of the requests' or steps' time each cause holds, as text: three totals side by side, named apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gapscope.cause_names import OUTSIDE
from gapscope.findings import plural
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, percent

_LEAST_SHARE = 0.005


def render_exposure(causes: Mapping[str, Any]) -> list[RenderableType]:
    """Return the causes of all edges, those with the most exposure first.

    Args:
        causes: ``causes`` of ``summary.json``.
    """
    units = causes["units"]
    if units["unit"] is None:
        text = "No step or request is marked (gapscope::step, gapscope::request): what share of latency a cause is, "
        return [Text(text + "nobody can tell. Handoff time and wall time are no share.", style="dim")]
    if not units["n"]:
        text = f"None of the {plural(units['total'], units['unit'])} is past start-up and seen from begin to end: "
        return [Text(text + "what share of latency a cause is cannot be told.", style="dim")]
    unit = units["unit"]
    table = plain_table(f"{unit}s wait for", f">of {unit} time", f">mean per {unit}", ">handoff time", ">wall time", "")
    for row in causes["total"]:
        if _is_shown(row, causes):
            held = (row["exposure_ns"], units)
            sums = (duration(row["handoff_ns"]), duration(row["wall_ns"]))
            table.add_row(_place(row["cause"], row["rank"]), *_of_units(*held), *sums, "")
    for row in causes["outside"]:
        if row["exposure_ns"] >= units["time_ns"] * _LEAST_SHARE:
            words = Text(OUTSIDE[row["part"]], style="dim")
            table.add_row(f"outside gaps: {_place(row['part'], row['rank'])}", *_of_units(row["exposure_ns"], units),
                          "", "", words)  # fmt: skip
    start_up = f", {units['start_up']:,} of start-up left out" if units["start_up"] else ""
    note = (
        f"Over {plural(units['n'], unit)} ({duration(units['time_ns'])} together{start_up}), one path each from "
        "its end back to its start. Handoff time (summed over handoffs) and wall time (each moment once) are no share."
    )
    if duration(units["wall_ns"]) != duration(units["time_ns"]):
        note += (
            f" The {unit}s overlap: from first to last they take {duration(units['wall_ns'])}, and a moment may count "
            f"in two of them, so that a sum over {unit}s may be more than wall time."
        )
    if unit == "step":
        note += " No request is marked, so this is per step."
    return [table, Text(note, style="dim")]


def _is_shown(row: Mapping[str, Any], causes: Mapping[str, Any]) -> bool:
    gaps = sum(edge["gap_ns"] for edge in causes["edges"])
    exposed = row["exposure_ns"] / causes["units"]["time_ns"]
    return bool(max(exposed, row["handoff_ns"] / gaps if gaps else 0.0) >= _LEAST_SHARE)


def _place(what: str, rank: int | None) -> str:
    return what + ("" if rank is None else f" @ rank {rank}")


def _of_units(ns: int, units: Mapping[str, Any]) -> tuple[str, str]:
    return percent(ns / units["time_ns"]), duration(round(ns / units["n"]))

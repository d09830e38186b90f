"""What held the gaps, as text: causes per edge, what they mean, and the longest gaps as chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gapscope.cause_names import CAUSES
from gapscope.reports.tables import LiteralTable, plain_table
from gapscope.wording import duration, edge_name, in_words, percent

_LEAST_SHARE = 0.005


def render_causes(causes: Mapping[str, Any], most: int) -> list[RenderableType]:
    """Return one table per edge of what held its handoffs, and what the causes mean.

    Args:
        causes: ``causes`` of ``summary.json``.
        most: How many edges are shown.
    """
    parts: list[RenderableType] = []
    shown: dict[str, None] = {}
    for edge in causes["edges"][:most]:
        rows = [row for row in edge["causes"] if _share(row, edge, causes["units"]) >= _LEAST_SHARE]
        parts += [Text(""), _edge(edge, rows, causes["units"])]
        if edge["consumer_bound"]:
            n = f"{edge['consumer_bound']:,} of {edge['handoffs']:,}"
            words = "the data waited for the consumer; no change at the source could have started it sooner."
            parts.append(Text(f"Consumer bound in {n}: {words}", style="dim"))
        shown |= dict.fromkeys(row["cause"] for row in rows)
    if shown:
        meaning = LiteralTable.grid(padding=(0, 2, 0, 0))
        for cause in shown:
            meaning.add_row(Text(cause, style="dim"), Text(CAUSES[cause], style="dim"))
        parts += [Text(""), meaning, render_evidence(causes)]
    return parts


def render_evidence(causes: Mapping[str, Any]) -> Text:
    """Return how far the causes can be trusted, as shares of all gap time that was explained."""
    total = sum(edge["gap_ns"] for edge in causes["edges"])
    levels = ", ".join(f"{name} {percent(share)}" for name, share in causes["evidence"].items())
    unexplained = sum(row["handoff_ns"] for row in causes["total"] if row["cause"] == "unexplained")
    words = f"Of gap time, by how it is known: {levels}. Unexplained: {percent(unexplained / total)}."
    uncertain = sum(edge["uncertain_ns"] for edge in causes["edges"])
    if uncertain:
        words += f" Behind a choice between two causes that the clocks cannot tell apart: {percent(uncertain / total)}."
    return Text(words, style="dim")


def _share(row: Mapping[str, Any], edge: Mapping[str, Any], units: Mapping[str, Any]) -> float:
    """Return the larger of a cause's share of the gaps and of the units' time."""
    of_gaps = row["handoff_ns"] / edge["gap_ns"] if edge["gap_ns"] else 0.0
    return max(of_gaps, row["exposure_ns"] / units["time_ns"] if units["n"] else 0.0)


def _edge(edge: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], units: Mapping[str, Any]) -> Table:
    """Return what held the handoffs of one edge: of the time of the units, if there are any, and of the gaps."""
    of_units = [f">of {units['unit']} time"] if units["n"] else []
    name = f"held by {edge_name(edge)}"
    table = plain_table(name, *of_units, ">share of gap", ">per handoff", ">longest in", ">without it there")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(
            row["cause"] + ("" if row["rank"] is None else f" @ rank {row['rank']}"),
            *([percent(row["exposure_ns"] / units["time_ns"])] if units["n"] else []),
            percent(row["handoff_ns"] / edge["gap_ns"] if edge["gap_ns"] else 0.0),
            duration(round(row["handoff_ns"] / edge["handoffs"])),
            f"{row['dominant']:,} of {edge['handoffs']:,}" if row["dominant"] else "",
            f"{duration(row['removable_p50_ns'])} sooner" if row["dominant"] else "",
        )
    return table


def render_worst(worst: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return the longest gaps as chains, from the consumer back; links that are hardly any of the gap are left out.

    Args:
        worst: ``worst`` of ``causes`` of ``summary.json``.
    """
    lines: list[RenderableType] = [Text("longest gaps, from the consumer back", style="bold")]
    for handoff in worst:
        line = Text(f"{handoff['handoff_id']}  {duration(handoff['gap_ns'])}: ")
        least = handoff["gap_ns"] * _LEAST_SHARE
        kept = [link for link in _joined(handoff["chain"]) if link["duration_ns"] >= least]
        line.append(" ← ".join(_link(link) for link in _joined(kept)))
        if handoff["removable_ns"] is not None and handoff["next_cause"]:
            held = f". Without {handoff['dominant_cause']} {duration(handoff['removable_ns'])} sooner"
            line.append(f"{held}, then {handoff['next_cause']} holds.", style="dim")
        lines.append(line)
    return lines


def _joined(links: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the links with neighbors of one cause and rank as one, with what the longest of them is of."""
    joined = []
    for (cause, rank), run in groupby(links, key=lambda link: (link["cause"], link["rank"])):
        members = list(run)
        longest = max(members, key=lambda link: link["duration_ns"])
        names = {link["op"] for link in members}
        more = sum(link.get("more", 0) for link in members) + len(members) - 1
        total = sum(link["duration_ns"] for link in members)
        joined.append(
            {**longest, "cause": cause, "rank": rank, "duration_ns": total, "more": more, "one_name": len(names) == 1}
        )
    return joined


def _link(link: Mapping[str, Any]) -> str:
    """Return one link of a chain in words."""
    where = "" if link["rank"] is None else f" @ rank {link['rank']}"
    if not link["op"]:
        return f"{link['cause']}{where} {duration(link['duration_ns'])}"
    what = in_words(link["op"], None if link["more"] else link["detail"])
    if link["more"]:
        what = f"{link['more'] + 1} x {what}" if link["one_name"] else f"{what} and {link['more']} more"
    return f"{link['cause']}{where} {duration(link['duration_ns'])} ({what})"

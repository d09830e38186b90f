"""What held the handoffs of each edge, as a table with all causes, and what would hold them next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.page.edges import Edges, is_counted
from gapscope.page.tables import Column, PageTable
from gapscope.wording import duration, percent


def causes_table(causes: Mapping[str, Any], handoffs: pl.DataFrame, edges: Edges) -> PageTable:
    """Return one row per edge, cause and rank: its share of the gaps, per handoff, what it would bring to remove it.

    Args:
        causes: ``causes`` of ``summary.json``.
        handoffs: Table ``handoffs``.
        edges: The edges of the page.
    """
    units = causes["units"]
    columns = [
        Column("edge"),
        Column("held by"),
        Column("rank", is_number=True),
        Column("share of gap", is_number=True),
        Column("per handoff", is_number=True),
        Column("in handoffs", is_number=True),
        Column("longest in", is_number=True),
        Column("without it there", is_number=True),
        Column("then holds"),
    ]
    columns += [Column(f"of {units['unit']} time", is_number=True)] if units["n"] else []
    table = PageTable(columns, [], [], [])
    for edge in causes["edges"]:
        number = edges.number(edge)
        if number is None:
            continue
        after = _next_causes(handoffs.filter(is_counted() & (edges.numbers(handoffs) == number)))
        for row in edge["causes"]:
            cells = [edges.names[number], *_cells(row, edge, after)]
            cells += [percent(row["exposure_ns"] / units["time_ns"])] if units["n"] else []
            table.rows.append(cells)
            table.edges.append(number)
            table.colors.append(row["cause"])
    return table


def _cells(row: Mapping[str, Any], edge: Mapping[str, Any], after: Mapping[str, str]) -> list[str]:
    longest = row["dominant"]
    # nothing can be said about what would bring down what is not explained
    known = longest and row["cause"] != "unexplained" and row["removable_p50_ns"] is not None
    return [
        row["cause"],
        "" if row["rank"] is None else str(row["rank"]),
        percent(row["handoff_ns"] / edge["gap_ns"] if edge["gap_ns"] else 0.0),
        duration(round(row["handoff_ns"] / edge["handoffs"])),
        f"{row['handoffs']:,}",
        f"{longest:,} of {edge['handoffs']:,}" if longest else "",
        f"{duration(row['removable_p50_ns'])} sooner" if known else "",
        after.get(row["cause"], "") if known else "",
    ]


def _next_causes(handoffs: pl.DataFrame) -> dict[str, str]:
    """Return what holds most of the handoffs of each dominant cause without it, and how many."""
    counts = handoffs.drop_nulls(["dominant_cause", "next_cause"]).group_by("dominant_cause", "next_cause").len()
    counts = counts.sort("dominant_cause", "len", "next_cause", descending=[False, True, False])
    total = handoffs.group_by("dominant_cause").len()
    of = dict(zip(total["dominant_cause"], total["len"], strict=True))
    first = counts.unique("dominant_cause", keep="first", maintain_order=True)
    return {cause: f"{then} in {n:,} of {of[cause]:,}" for cause, then, n in first.iter_rows()}

"""The text report: what a tired engineer reads in ten seconds."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gapscope.findings import Finding, plural
from gapscope.phases import UNPOSTED
from gapscope.reports.units import duration, size

_MOST_PHASE_TABLES = 8
_QUANTILES = ("p50", "p90", "p99", "max")
_PHASE_WORDS = {
    "submission": "produced, not yet submitted",
    "start_wait": "submitted, not yet moving",
    "movement": "moving, not yet available",
    "movement_unposted": "  of it: receive not yet posted",
    "consumer_wait": "available, consumer not started",
}
_MARKER = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("·", "dim")}


def render_text(summary: dict[str, Any], findings: Sequence[Finding], verbose: bool = False) -> RenderableType:
    """Return the report for a rich console.

    Args:
        summary: Content of ``summary.json``.
        findings: All findings, ordered.
        verbose: Show findings of level ``info`` with their files, too.
    """
    parts: list[RenderableType] = [_headline(summary), Text(""), _recordings(summary), _clocks(summary)]
    if summary["edges"]:
        parts += [Text(""), _edges(summary)]
        for edge in [e for e in summary["edges"] if e["gap"]["n"]][:_MOST_PHASE_TABLES]:
            parts += [Text(""), _phases(edge)]
        parts += [_left_out(summary)]
    if findings:
        parts += [Text(""), _findings(findings, verbose)]
    return Group(*parts)


def render_html(summary: dict[str, Any], findings: Sequence[Finding]) -> str:
    """Return the text report as preformatted HTML, for notebooks."""
    console = Console(record=True, width=118, file=io.StringIO(), force_jupyter=False)
    console.print(render_text(summary, findings))
    return console.export_html(inline_styles=True, code_format="<pre style='line-height:1.25'>{code}</pre>")


def _headline(summary: dict[str, Any]) -> Text:
    n = summary["handoffs"]
    if not n["total"]:
        return Text("No handoffs found", style="bold")
    text = Text(plural(n["total"], "handoff"), style="bold")
    others = [f"{v:,} {k.replace('_', ' ')}" for k, v in n["status"].items() if k != "complete"]
    states = ", ".join([f"{n['status'].get('complete', 0):,} complete", *others])
    text.append(f" ({states if others else 'all complete'})", style="not bold")
    counted = f"; percentiles are over the {n['counted']:,} that are complete, in order and past start-up"
    if not n["counted"]:
        counted = "; none of them can be counted"
    return text.append(counted, style="not bold")


def _recordings(summary: dict[str, Any]) -> Table:
    table = _table("rank", "recorded by", "file", ">window", ">GPU ops", ">marks")
    for r in summary["recordings"]:
        tool = f"{r['tool']} {r['version'] or ''}".strip()
        name = (
            PurePath(r["path"]).name
            + (" (cut)" if r["truncated"] else "")
            + ("" if r["used"] else " (clock evidence only)")
        )
        rank = f"? (pid {r['pid']})" if r["rank"] is None else str(r["rank"])
        rank = rank if r["job"] is None else f"{r['job']}:{rank}"
        table.add_row(rank, tool, name, duration(r["window_ns"]), f"{r['ops']:,}", f"{r['marks']:,}")
    return table


def _clocks(summary: dict[str, Any]) -> Text:
    used = [r for r in summary["recordings"] if r["used"]]
    qualities = {r["quality"] for r in used}
    origins = sorted({r["clock_origin"] for r in used if r["clock_origin"]})
    origin = f" ({'; '.join(origins)})" if origins else ""
    if not used:
        return Text("")
    if len({r["path"] for r in used}) == 1:
        text = f"Clock: one recording, one clock{origin}."
    elif "unaligned" in qualities:
        text = "Clock: not all files have absolute time; what spans an unaligned file has no duration."
    else:
        text = f"Clock: each file's own wall clock{origin}; no bound of the error between files is known yet."
    return Text(text, style="dim")


def _edge_name(edge: dict[str, Any]) -> str:
    src = "?" if edge["src_rank"] is None else _end(edge["src_rank"])
    name = f"{src} → {_end(edge['dst_rank'])}"
    if edge["group"] is not None:
        name = f"{edge['group']}: {name}"
    if edge["channel"]:
        name += f" ch {edge['channel']}"
    return name + (f" {edge['direction']}" if edge["direction"] else "")


def _end(rank: int) -> str:
    return f"host:{-1 - rank}" if rank < 0 else str(rank)


def _edges(summary: dict[str, Any]) -> Table:
    table = _table("handoffs", "transport", ">size p50", ">n", *(f">gap {q}" for q in _QUANTILES))
    for edge in summary["edges"]:
        gap = edge["gap"]
        floor = edge["uncertainty_ns"] or 0
        table.add_row(
            _edge_name(edge),
            ", ".join(edge["transports"]),
            size(edge["size_bytes_p50"]),
            f"{gap['n']:,}",
            *(duration(gap.get(f"{q}_ns"), floor) for q in _QUANTILES),
        )
    return table


def _phases(edge: dict[str, Any]) -> Table:
    table = _table(f"phases {_edge_name(edge)}", "", *(f">{q}" for q in _QUANTILES))
    floor = edge["uncertainty_ns"] or 0
    for phase, words in _PHASE_WORDS.items():
        spread = edge["phases"][phase]
        if phase == UNPOSTED and not spread.get("max_ns"):
            continue
        table.add_row(
            "" if phase == UNPOSTED else phase.replace("_", " "),
            Text(words, style="dim"),
            *(duration(spread.get(f"{q}_ns"), floor) for q in _QUANTILES),
        )
    return table


def _left_out(summary: dict[str, Any]) -> Text:
    n = summary["handoffs"]
    parts = [f"{n['start_up']:,} start-up ({summary['start_up_rule']})"] if n["start_up"] else []
    parts += [f"{v:,} {k.replace('_', ' ')}" for k, v in n["status"].items() if k != "complete"]
    for order, words in (("violation", "with events out of order"), ("cannot_tell", "whose order cannot be told")):
        if n["order"].get(order):
            parts.append(f"{n['order'][order]:,} {words}")
    early = [
        f"{e['submitted_early']:,} of {e['counted']:,} {_edge_name(e)}"
        for e in summary["edges"]
        if e["submitted_early"]
    ]
    lines = [f"Not counted (a handoff can be in several): {'; '.join(parts)}."] if parts else []
    if early:
        lines.append(f"Submitted before the producer had finished, so no submission phase: {', '.join(early)}.")
    lines.append("Phases cut the gap at the events; they are a view of it, not its cause.")
    return Text("\n" + "\n".join(lines), style="dim")


def _findings(findings: Sequence[Finding], verbose: bool) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    hidden = 0
    for f in findings:
        if f.level == "info" and not verbose:
            hidden += 1
            continue
        sign, style = _MARKER[f.level]
        where = f"{PurePath(f.path).name}: " if f.path else f"rank {f.rank}: " if f.rank is not None else ""
        message = f.message if f.message.endswith((".", ":", "!", "?")) else f.message + "."
        line = Text(where, style="bold").append(message, style="not bold")
        if f.hint:
            line.append(f" {f.hint}", style="not bold dim")
        table.add_row(Text(sign, style=style), line)
    if hidden:
        table.add_row("", Text(f"{plural(hidden, 'note')} more with -v", style="dim"))
    return table


def _table(*columns: str) -> Table:
    """Return an empty table; a ``>`` before a column's name sets it to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table

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
from gapscope.reports.arrivals import render_groups
from gapscope.reports.beside import render_interference
from gapscope.reports.exposed import render_exposure
from gapscope.reports.fixes import render_fixes
from gapscope.reports.fragments import render_fragments
from gapscope.reports.held import render_causes, render_worst
from gapscope.reports.own_cost import render_marks_cost
from gapscope.reports.tables import Literal, LiteralTable, plain_table
from gapscope.reports.waits import render_waiting
from gapscope.wording import duration, edge_name, signed, size

_MOST_PHASE_TABLES = 8
_MOST_CLOCKS = 16
_FEW_WORST = 3
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
    parts: list[RenderableType] = [render_headline(summary), Text(""), render_recordings(summary)]
    parts += [render_clocks(summary["clocks"], verbose)]
    if summary["edges"]:
        parts += [Text(""), render_edges(summary)]
        for edge in [e for e in summary["edges"] if e["gap"]["n"]][:_MOST_PHASE_TABLES]:
            parts += [Text(""), render_phases(edge)]
        if summary["groups"]:
            parts += [Text(""), render_groups(summary["groups"])]
        waits = render_waiting(summary["waiting"])
        parts += [Text(""), *waits] if waits else []
        parts += [render_left_out(summary), *render_marks_cost(summary["marks_cost"])]
        parts += render_causes(summary["causes"], _MOST_PHASE_TABLES)
        if summary["causes"]["edges"]:
            parts += [Text(""), *render_exposure(summary["causes"])]
        fixes = render_fixes(summary["fixes"])
        parts += [Text(""), *fixes] if fixes else []
        if summary["messages"]:
            parts += [Text(""), *render_fragments(summary["messages"])]
        beside = render_interference(summary["interference"], verbose)
        parts += [Text(""), *beside] if beside else []
        if summary["causes"]["worst"]:
            parts += [Text(""), *render_worst(summary["causes"]["worst"][: None if verbose else _FEW_WORST])]
    if findings:
        parts += [Text(""), _findings(findings, verbose)]
    return Group(*parts)


def render_alignment(clocks: dict[str, Any], findings: Sequence[Finding], verbose: bool = False) -> RenderableType:
    """Return where the clocks stand and what was found, for a rich console.

    Args:
        clocks: ``clocks`` of ``summary.json``.
        findings: All findings, ordered.
        verbose: Show all clocks, and findings of level ``info``.
    """
    parts: list[RenderableType] = [render_clocks(clocks, verbose)]
    if findings:
        parts += [Text(""), _findings(findings, verbose)]
    return Group(*parts)


def render_html(summary: dict[str, Any], findings: Sequence[Finding]) -> str:
    """Return the text report as preformatted HTML, for notebooks."""
    console = Console(record=True, width=118, file=io.StringIO(), force_jupyter=False, emoji=False)
    console.print(Literal(render_text(summary, findings)))
    return console.export_html(inline_styles=True, code_format="<pre style='line-height:1.25'>{code}</pre>")


def render_headline(summary: dict[str, Any]) -> Text:
    """Return how many handoffs there are and what became of them.

    Args:
        summary: Content of ``summary.json``.
    """
    n = summary["handoffs"]
    if not n["total"]:
        return Text("No handoffs found", style="bold")
    text = Text(plural(n["total"], "handoff"), style="bold")
    others = [f"{v:,} {k.replace('_', ' ')}" for k, v in n["status"].items() if k != "complete"]
    states = ", ".join([f"{n['status'].get('complete', 0):,} complete", *others])
    text.append(f" ({states if others else 'all complete'})", style="not bold")
    without = {"metadata": "recorded peers or groups", "order": "their order"}
    by = [f"{n['origin'][o]:,} by {words}" for o, words in without.items() if o in n["origin"]]
    if by:
        text.append(f", found without marks: {', '.join(by)}", style="not bold")
    counted = f"; percentiles are over the {n['counted']:,} that are complete, in order and past start-up"
    if not n["counted"]:
        counted = "; none of them can be counted"
    return text.append(counted, style="not bold")


def render_recordings(summary: dict[str, Any]) -> Table:
    """Return what was recorded, one line per process.

    Args:
        summary: Content of ``summary.json``.
    """
    table = plain_table("rank", "recorded by", "file", ">window", ">GPU ops", ">marks")
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


def render_clocks(clocks: dict[str, Any], verbose: bool = False) -> RenderableType:
    """Return where the clocks stand, for a rich console.

    Args:
        clocks: ``clocks`` of ``summary.json``.
        verbose: Show device clocks and all files.
    """
    hosts, devices = clocks["hosts"], clocks["devices"]
    if not hosts:
        return Text("")
    parts: list[RenderableType] = []
    if len(hosts) == 1 and hosts[0]["quality"] == "same_clock":
        parts.append(Text("Clock: one recording, one host clock.", style="dim"))
    else:
        shown = hosts if verbose else hosts[:_MOST_CLOCKS]
        table = plain_table("clock", ">offset", ">within (of it)", ">drift", "quality", "from")
        for entry in shown:
            table.add_row(*_clock_row(entry, hosts))
        parts.append(table)
        if len(shown) < len(hosts):
            parts.append(Text(f"{len(hosts) - len(shown)} more clocks with -v", style="dim"))
    if devices and verbose:
        table = plain_table("device clock, against its host", ">offset", ">within (of it)", ">drift", "quality", "from")
        for entry in devices:
            table.add_row(*_clock_row(entry, devices))
        parts += [Text(""), table]
    elif devices:
        parts.append(Text(render_devices(devices), style="dim"))
    return Group(*parts)


def _clock_row(entry: dict[str, Any], others: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the cells of one clock; its file is named where the rank does not tell it from the others."""
    name = "" if entry["rank"] is None else f"rank {entry['rank']}"
    if entry["domain"] != "host":
        name = f"{name} {entry['domain']}".strip()
    if entry["rank"] is None or sum((o["rank"], o["domain"]) == (entry["rank"], entry["domain"]) for o in others) > 1:
        name = f"{name} {PurePath(entry['path']).name}".strip()
    if entry["quality"] == "same_clock":
        return name, "reference", "", "", "", ""
    if entry["offset_min_ns"] is None:
        known = f"{signed(entry['lo_ns'], 'no bound')} … {signed(entry['hi_ns'], 'no bound')}"
        between = f"it lies in {known}" if entry["quality"] != "unaligned" else ""
        return name, "cannot be placed", between, "", entry["quality"].replace("_", " "), entry["method"]
    low, high = entry["offset_min_ns"], entry["offset_max_ns"]
    offset = signed(low) if low == high else f"{signed(low)} … {signed(high)}"
    least = None if entry["lo_ns"] is None else entry["lo_ns"] - low
    most = None if entry["hi_ns"] is None else entry["hi_ns"] - high
    between = f"{signed(least, 'no bound')} … {signed(most, 'no bound')}"
    drift = "" if entry["drift_ppm"] is None else f"{entry['drift_ppm']:+.1f} ppm"
    origin = entry["method"] + (f"; assumed: {entry['assumed']}" if entry["assumed"] else "")
    return name, offset, between, drift, entry["quality"].replace("_", " "), origin


def render_devices(devices: list[dict[str, Any]]) -> str:
    """Return one line about how well device times fit those of their hosts."""
    bounds = [max(e["hi_ns"] - e["offset_min_ns"], e["offset_max_ns"] - e["lo_ns"]) for e in devices if _is_bounded(e)]
    text = f"Device times: within {duration(max(bounds))} of their host's" if bounds else "Device times:"
    unbounded = len(devices) - len(bounds)
    if unbounded:
        text += f"{',' if bounds else ''} {plural(unbounded, 'device clock')} without a bound"
    assumed = {e["assumed"] for e in devices if e["assumed"]}
    return text + (f" (assumed: {', '.join(sorted(assumed))})." if assumed else ".")


def _is_bounded(entry: dict[str, Any]) -> bool:
    return None not in (entry["lo_ns"], entry["hi_ns"], entry["offset_min_ns"])


def render_edges(summary: dict[str, Any]) -> Table:
    """Return one line per edge: transport, size, and how its gaps are spread.

    Args:
        summary: Content of ``summary.json``.
    """
    table = plain_table("handoffs", "transport", ">size p50", ">n", *(f">gap {q}" for q in _QUANTILES), ">±")
    for edge in summary["edges"]:
        gap = edge["gap"]
        floor = edge["gap_uncertainty_ns"] or 0
        table.add_row(
            edge_name(edge),
            ", ".join(edge["transports"]),
            size(edge["size_bytes_p50"]),
            f"{gap['n']:,}",
            *(duration(gap.get(f"{q}_ns"), floor) for q in _QUANTILES),
            _error(edge["gap_uncertainty_ns"], edge["counted"]),
        )
    return table


def _error(bound_ns: int | None, counted: int) -> str:
    """Return by how much the clocks may be off."""
    return ("no bound" if counted else "-") if bound_ns is None else duration(bound_ns)


def render_phases(edge: dict[str, Any]) -> Table:
    """Return the phases of one edge.

    Args:
        edge: One of ``edges`` of ``summary.json``.
    """
    table = plain_table(f"phases {edge_name(edge)}", "", *(f">{q}" for q in _QUANTILES), ">±")
    for phase, words in _PHASE_WORDS.items():
        spread = edge["phases"][phase]
        floor = edge[f"{'movement' if phase == UNPOSTED else phase}_uncertainty_ns"] or 0
        if phase == UNPOSTED and not spread.get("max_ns"):
            continue
        table.add_row(
            "" if phase == UNPOSTED else phase.replace("_", " "),
            Text(words, style="dim"),
            *(duration(spread.get(f"{q}_ns"), floor) for q in _QUANTILES),
            _error(edge[f"{'movement' if phase == UNPOSTED else phase}_uncertainty_ns"], edge["counted"]),
        )
    return table


def render_left_out(summary: dict[str, Any]) -> Text:
    """Return what percentiles leave out, and what weakens them.

    Args:
        summary: Content of ``summary.json``.
    """
    n = summary["handoffs"]
    parts = [f"{n['start_up']:,} start-up ({summary['start_up_rule']})"] if n["start_up"] else []
    parts += [f"{v:,} {k.replace('_', ' ')}" for k, v in n["status"].items() if k != "complete"]
    for order, words in (("violation", "with events out of order"), ("cannot_tell", "whose order cannot be told")):
        if n["order"].get(order):
            parts.append(f"{n['order'][order]:,} {words}")
    early = [
        f"{e['submitted_early']:,} of {e['counted']:,} {edge_name(e)}" for e in summary["edges"] if e["submitted_early"]
    ]
    lines = [f"Not counted (a handoff can be in several): {'; '.join(parts)}."] if parts else []
    if early:
        lines.append(f"Submitted before the producer had finished, so no submission phase: {', '.join(early)}.")
    open_ended = [edge_name(e) for e in summary["edges"] if e["unbounded"]]
    if open_ended:
        lines.append(
            f"The clocks of the two files have no proven bound: {', '.join(open_ended)}. What spans both ranks there "
            "(gap, movement) rests on the files' own absolute times."
        )
    lines.append("Phases cut the gap at the events; they are a view of it, not its cause.")
    return Text("\n" + "\n".join(lines), style="dim")


def _findings(findings: Sequence[Finding], verbose: bool) -> Table:
    table = LiteralTable.grid(padding=(0, 1))
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

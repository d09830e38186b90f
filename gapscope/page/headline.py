"""The head of a page: what was recorded, how far to trust it, and what the page cannot know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from gapscope.findings import plural
from gapscope.reports.held import render_evidence
from gapscope.reports.text import render_devices, render_headline, render_left_out
from gapscope.wording import duration, edge_name, percent

_FEW = 6


def title(summary: Mapping[str, Any]) -> str:
    """Return what the page is of, in a line."""
    ranks = _ranks(summary)
    n = summary["handoffs"]["total"]
    if not n:
        return "No handoffs found"
    edges = len(summary["edges"])
    return f"{plural(n, 'handoff')} on {plural(edges, 'edge')} between {plural(len(ranks), 'rank')}"


def facts(summary: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the four things to know first, each with its sentences."""
    handoffs = [render_headline(summary).plain + "."]
    if summary["edges"]:
        handoffs += [line for line in render_left_out(summary).plain.splitlines() if line]
    return [
        ("Recorded", _recorded(summary)),
        ("Handoffs", handoffs),
        ("Clocks", _clocks(summary)),
        ("Evidence", _evidence(summary)),
    ]


def unknown(summary: Mapping[str, Any]) -> list[str]:
    """Return what the page cannot know of this run, and of any."""
    return [*_of_this_run(summary), *_ALWAYS]


_ALWAYS = (
    "What no tool recorded is in no table: work of processes without a recording, the network, and what a host thread "
    "did between two recorded calls (it is named uninstrumented host time).",
    "Causes are what the recorded dependencies bind; how much sooner the consumer would have started without one is a "
    "replay of this recording, not a measurement.",
)


def _of_this_run(summary: Mapping[str, Any]) -> Iterable[str]:
    recorded = set(_ranks(summary))
    named = {edge[end] for edge in summary["edges"] for end in ("src_rank", "dst_rank")}
    missing = sorted(r for r in named if r is not None and r >= 0 and r not in recorded)
    if missing:
        yield f"No recording of {_listed('rank', missing)}: what held a gap there is not known."
    cut = sorted(r["rank"] for r in summary["recordings"] if r["truncated"] and r["rank"] is not None)
    if cut:
        yield f"The recording of {_listed('rank', cut)} was cut off: what came later is missing."
    open_ended = [edge_name(edge) for edge in summary["edges"] if edge["unbounded"]]
    if open_ended:
        more = f" and {len(open_ended) - _FEW} more edges" if len(open_ended) > _FEW else ""
        some = ", ".join(open_ended[:_FEW])
        yield f"The clocks have no proven bound on {some}{more}: gaps there may be off by any time."
    units = summary["causes"]["units"]
    if summary["handoffs"]["total"] and not units["n"]:
        yield "No step or request is marked and counted: what share of latency a cause is cannot be told."
    without = [r["rank"] for r in summary["recordings"] if r["used"] and not r["ops"] and r["rank"] is not None]
    if without:
        yield f"No GPU work was recorded of {_listed('rank', sorted(set(without)))}: there are no streams to show."


def _ranks(summary: Mapping[str, Any]) -> list[int]:
    return sorted({r["rank"] for r in summary["recordings"] if r["rank"] is not None})


def _listed(noun: str, numbers: list[int]) -> str:
    more = f" and {len(numbers) - _FEW} more" if len(numbers) > _FEW else ""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers[:_FEW]))}{more}"


def _recorded(summary: Mapping[str, Any]) -> list[str]:
    shown = summary["recordings"]
    if not shown:
        return ["No process with a rank, marks or GPU work was found."]
    tools = dict.fromkeys(f"{r['tool']} {r['version'] or ''}".strip() for r in shown)
    files = {r["path"] for r in shown}
    windows = sorted(r["window_ns"] for r in shown if r["window_ns"] is not None)
    ranks = _ranks(summary)
    who = _listed("rank", ranks) if ranks else "no rank"
    lines = [f"{who}, by {', '.join(tools)}, in {plural(len(files), 'file')}"]
    if windows:
        low, high = duration(windows[0]), duration(windows[-1])
        lines.append(f"windows of {low}" if low == high else f"windows of {low} to {high}")
    operations, marks = (sum(r[key] or 0 for r in shown) for key in ("ops", "marks"))
    lines.append(f"{plural(operations, 'GPU operation')}, {plural(marks, 'mark')}")
    return [line[:1].upper() + line[1:] + "." for line in lines]


def _clocks(summary: Mapping[str, Any]) -> list[str]:
    clocks = summary["clocks"]
    if not clocks["hosts"]:
        return ["There is nothing to align."]
    qualities = [entry["quality"] for entry in clocks["hosts"]]
    if qualities == ["same_clock"]:
        lines = ["One recording, one host clock."]
    else:
        counts = ", ".join(f"{qualities.count(q)} {q.replace('_', ' ')}" for q in dict.fromkeys(qualities))
        reference = PurePath(str(clocks["reference"]).rsplit(":", 1)[0]).name
        lines = [f"{plural(len(qualities), 'host clock')} ({counts}), against that of {reference}."]
    lines += [render_devices(clocks["devices"])] if clocks["devices"] else []
    bounds = [edge["gap_uncertainty_ns"] for edge in summary["edges"] if edge["counted"] and not edge["unbounded"]]
    if bounds:
        lines.append(
            f"A gap is good to {duration(max(bounds))} on all edges." if max(bounds) else "Gaps are of one clock each."
        )
    if any(edge["unbounded"] for edge in summary["edges"]):
        lines.append("Some edges have no proven bound.")
    return lines


def _evidence(summary: Mapping[str, Any]) -> list[str]:
    causes = summary["causes"]
    if not sum(edge["gap_ns"] for edge in causes["edges"]):
        return ["No gap was explained: there is no counted handoff with a gap."]
    total = sum(edge["gap_ns"] for edge in causes["edges"])
    lines = [render_evidence(causes).plain]
    longest = max(causes["total"], key=lambda row: row["handoff_ns"])
    where = "" if longest["rank"] is None else f" @ rank {longest['rank']}"
    lines.append(f"Most handoff time: {longest['cause']}{where}, {percent(longest['handoff_ns'] / total)}.")
    return lines

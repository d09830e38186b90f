"""A study, as text: what each arm did against the base, then each comparison, or the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gapscope.findings import plural
from gapscope.reports.comparison import change_words, render_comparison
from gapscope.reports.sweep import render_sweep
from gapscope.reports.tables import plain_table


def render_study(found: Mapping[str, Any], verbose: bool = False) -> RenderableType:
    """Return a study for a rich console.

    Args:
        found: What `gapscope.compare.study_told` returns.
        verbose: As in `gapscope.reports.comparison.render_comparison`.
    """
    parts: list[RenderableType] = [Text(found["title"] or found["study"], style="bold")]
    for arm in found["arms"]:
        label = f", {arm['label']}" if arm["label"] else ""
        base = " (base)" if arm["name"] == found["base"] else ""
        parts.append(Text(f"{arm['name']}{base}: {plural(len(arm['runs']), 'run')}{label}"))
    if found["order"]:
        parts.append(Text(f"Started in this order: {', '.join(found['order'])}"))
    if len(found["comparisons"]) > 1:
        parts += [Text(""), arms_table(found), Text(several_words(found), style="dim")]
    for comparison in found["comparisons"]:
        parts += [Text(""), render_comparison(comparison, verbose)]
    if found["sweep"] is not None:
        parts += [Text(""), render_sweep(found["sweep"])]
    return Group(*parts)


def arms_table(found: Mapping[str, Any]) -> RenderableType:
    """Return the primary metric of each arm against the base."""
    table = plain_table(f"against {found['base']}", "about", ">runs", "difference", "verdict")
    for comparison in found["comparisons"]:
        primary = next((m for m in comparison["metrics"] if m["is_primary"]), None)
        if primary is None:
            table.add_row(comparison["b"]["name"], "nothing in common", "", "-", "no claim")
            continue
        change = "-" if primary["difference_ns"] is None else change_words(primary)
        runs = f"{primary['restarts_b']} : {primary['restarts_a']}"
        table.add_row(comparison["b"]["name"], primary["metric"], runs, change, primary["verdict"])
    return table


def several_words(found: Mapping[str, Any]) -> str:
    """Return how several arms share the confidence."""
    return (
        f"Each arm has intervals of {found['confidence'] * 100:.3g} %, so that all together have that of the study. "
        "Arms are not compared with each other, and none is called the best."
    )

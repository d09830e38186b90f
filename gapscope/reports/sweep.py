"""One metric of several arms over a parameter, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gapscope.reports.comparison import interval_words
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, signed


def render_sweep(found: Mapping[str, Any]) -> RenderableType:
    """Return a sweep for a rich console: where arms change places first, then every value.

    Args:
        found: What `gapscope.compare.sweep_told` returns.
    """
    parts: list[RenderableType] = [Text(f"{found['metric']} over {found['parameter']}", style="bold")]
    parts += [Text(crossing["words"] + ".") for crossing in found["crossings"]]
    for crossing in found["crossings"]:
        parts += [Text(""), sweep_table(found, crossing["arm"], crossing["base"])]
    parts += [Text(""), Text(how_words(found), style="dim")]
    for finding in found["findings"]:
        parts.append(Text(f"! {finding['message']} {finding['hint']}".rstrip(), style="yellow"))
    return Group(*parts)


def sweep_table(found: Mapping[str, Any], arm: str, base: str) -> RenderableType:
    """Return one row per value of an arm against the base."""
    table = plain_table(
        found["parameter"], ">n", f">p50 {base}", f">p50 {arm}", f">{arm} / {base}", "interval", ">difference",
        "interval", "verdict",
    )  # fmt: skip
    for row in _of(found["rows"], arm):
        clock = row["clock_ns"] or 0
        known = row["difference_ns"] is not None
        below = known and abs(row["difference_ns"]) < clock
        difference = signed(round(row["difference_ns"])) if known else "-"
        table.add_row(
            row["value_words"] + ("" if row["paired"] else " (unpaired)"),
            f"{row['n']:,}",
            duration(_whole(row["a_p50_ns"]), row["a_clock_ns"] or 0),
            duration(_whole(row["b_p50_ns"]), row["b_clock_ns"] or 0),
            "-" if row["ratio"] is None or below else f"x {row['ratio']:.3g}",
            "" if below else ratio_interval(row),
            f"< {duration(clock)}" if below else difference,
            "" if below else interval_words(row),
            row["verdict"],
        )
    return table


def ratio_interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a ratio across restarts, or the one within the only pair, which is named as that."""
    if row["ratio_low"] is not None:
        return f"{row['ratio_low']:.3g} … {row['ratio_high']:.3g}"
    if row["within_ratio_low"] is not None:
        return f"in this pair {row['within_ratio_low']:.3g} … {row['within_ratio_high']:.3g}"
    return ""


def how_words(found: Mapping[str, Any]) -> str:
    """Return how the numbers were had."""
    words = (
        "Ratios are of medians, averaged over pairs of restarts (as logarithms); each value has a verdict of its own, "
    )
    words += "adjusted for being one of many, and there is none for all values together. "
    if found["within_runs"]:
        words += "The values are those of the handoffs within each run. "
    words += "A crossover lies between the neighboring values whose order is certain; it is resampled straight between."
    if any(row["restarts_a"] == 1 or row["restarts_b"] == 1 for row in found["rows"]):
        words += " One start of the job says nothing about the next: record four or more per arm and value, in turn."
    return words


def _of(rows: Sequence[Mapping[str, Any]], arm: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["arm"] == arm]


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)

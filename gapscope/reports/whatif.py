"""What a scenario would have changed, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gapscope.findings import plural
from gapscope.reports.fixes import between, share
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, without_arguments


def render_effects(found: Mapping[str, Any]) -> RenderableType:
    """Return what steps and requests would have become, for a rich console.

    Args:
        found: What ``gapscope whatif --format json`` prints: ``scenario`` in words, ``tiles``, ``gone_ns``,
            ``not_replayed_ns``, ``uncertainty_ns``, ``over`` (unit to medians, see `gapscope.whatif.Effects.over`), and
            ``handoffs``: rows of ``handoff_id, gap_ns, removable_ns, unit_slack_ns, absorbed_rank, absorbed_by`` of
            those that are told.
    """
    note = (
        "The whole graph replayed: waits move, all else takes as long as it took, in the same order and with the same "
        "contention; a wait that no record ties to another rank stays as long as it was. Bounds, no forecast. Less by: "
        "the median of what each gains, which is not the difference of the medians."
    )
    scenario = Text(found["scenario"], style="bold")
    return Group(scenario, *effects_parts(found), Text(""), Text(note, style="dim"))


def effects_parts(found: Mapping[str, Any]) -> list[RenderableType]:
    """Return what shrinks and what it would change: a sentence, a table, and lines about the handoffs that are told.

    Args:
        found: See `render_effects`.
    """
    verb = "shrinks" if found["tiles"] == 1 else "shrink"
    shrunk = f"{plural(found['tiles'], 'tile')} of gaps {verb}: {duration(found['gone_ns'])} of handoff time gone"
    if found["not_replayed_ns"]:
        shrunk += (
            f"; of it, {duration(found['not_replayed_ns'])} before nothing that is recorded, which changes nothing"
        )
    parts: list[RenderableType] = [Text(shrunk + "."), Text("")]
    over = {unit: row for unit, row in found["over"].items() if row["n"]}
    if over:
        table = plain_table("", ">n", ">p50 as recorded", ">would take", ">less by", ">of it", ">four fifths of them")
        for unit, row in over.items():
            before = row["before_p50_ns"]
            if row["sooner_low_p50_ns"] is None:
                table.add_row(f"{unit}s", f"{row['n']:,}", duration(before), "not known", "not known", "-", "-")
                continue
            table.add_row(
                f"{unit}s",
                f"{row['n']:,}",
                duration(before),
                between(row["after_low_p50_ns"], row["after_high_p50_ns"]),
                between(row["sooner_low_p50_ns"], row["sooner_high_p50_ns"], found["uncertainty_ns"]),
                share(row["sooner_high_p50_ns"], before, found["uncertainty_ns"]),
                f"{duration(row['after_p10_ns'])} … {duration(row['after_p90_ns'])}",
            )
        parts.append(table)
        if any(row["sooner_low_p50_ns"] is None for row in over.values()):
            parts.append(
                Text("No recorded end of a step or request hangs on what is gone: what it would bring is not known.")
            )
    else:
        parts.append(
            Text("No step or request past start-up is marked and recorded from begin to end: no end to reach.")
        )
    return [*parts, *(Text(line) for line in _of_handoffs(found, over))]


def _of_handoffs(found: Mapping[str, Any], over: Mapping[str, Any]) -> list[str]:
    """Return what becomes of the handoffs that are told: their gap, and what takes its place."""
    lines = []
    for row in found["handoffs"]:
        line = f"{row['handoff_id']}: of a gap of {duration(row['gap_ns'])}"
        line += (
            "" if row["removable_ns"] is None else f", {duration(row['removable_ns'])} less without its dominant cause"
        )
        if row["absorbed_by"]:
            units = " and ".join(f"{unit}s" for unit in over) or "steps"
            line += (
                f". It could have come {duration(row['unit_slack_ns'])} later with all {units} ending when they did: "
            )
            line += f"behind it, {without_arguments(row['absorbed_by'])} holds."
        elif row["unit_slack_ns"] is None:
            line += ". No recorded end of a step or request hangs on it."
        elif row["unit_slack_ns"] == 0:
            line += ". Had it come later, some end would have, too."
        else:
            line += f". It could have come {duration(row['unit_slack_ns'])} later with all ends when they were."
        lines.append(line)
    return ["", *lines] if lines else []

"""Pages of what-if: which fix could reach the end of steps or requests, or what one scenario would change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapscope.page.figures import PageFigure, page_figure
from gapscope.page.simple import Section, SimplePage, Verdict
from gapscope.page.tables import blocks
from gapscope.plots.replayed import effects_spec, fixes_spec
from gapscope.reports.fixes import between, render_fixes, share
from gapscope.reports.whatif import effects_parts
from gapscope.wording import duration

_HOW = (
    "The whole graph replayed: what waited moves with what it waited for, all else takes as long as it took, in the "
    "same order and with the same contention. Replayed without a change it gives back every recorded time, else "
    "nothing is shown.",
    "Low and high differ in one assumption: what passes between something and the last of what it waited for, when "
    "something else becomes the last. Bounds of a replay, no forecast and no measurement.",
    "A host thread that waits for another thread of its own process leaves no record of it: what would be gained "
    "behind such a wait is not seen.",
)


def fixes_page(found: Mapping[str, Any]) -> SimplePage:
    """Return the page of all causes, one at a time.

    Args:
        found: What ``gapscope whatif --format json`` prints without a choice: ``fixes``.
    """
    gone = [f for f in found["fixes"] if f["to"] == "0" and f["sooner_high_p50_ns"] is not None]
    figures = {"fixes": page_figure("fixes", fixes_spec(gone))} if gone else {}
    tables = [("One cause gone, and at its best tenth", block) for block in blocks(*render_fixes(found["fixes"]))]
    single = [f for f in gone if f["cause"] is not None]
    verdicts = [_bound(max(single, key=lambda f: f["sooner_high_p50_ns"]))] if single else []
    return SimplePage(
        title="What fixes would bring",
        facts=["One cause at a time, up to the end of steps or requests; never summed."],
        verdicts=verdicts,
        sections=[Section("fixes", "fixes", figures, tables)],
        findings=[],
        how=_HOW,
        data=found,
    )


def _bound(fix: Mapping[str, Any]) -> Verdict:
    name = fix["cause"] + ("" if fix["rank"] is None else f" @ rank {fix['rank']}")
    low, high, before = fix["sooner_low_p50_ns"], fix["sooner_high_p50_ns"], fix["before_p50_ns"]
    floor = fix["uncertainty_ns"]
    part = f", {share(high, before, floor)} of it" if before else ""
    reason = (
        f"Median over {fix['units']:,} {fix['unit']}s of {duration(before)}: a bound of the replay, no measurement."
    )
    return Verdict(
        f"Most of any one cause: {name}", f"{fix['unit']}s less by {between(low, high, floor)}{part}", reason
    )


def effects_page(found: Mapping[str, Any]) -> SimplePage:
    """Return the page of one scenario.

    Args:
        found: What ``gapscope whatif --format json`` prints with a choice.
    """
    verdicts, figures = [], dict[str, PageFigure]()
    for unit, row in found["over"].items():
        if not row["n"]:
            continue
        low, high, before = row["sooner_low_p50_ns"], row["sooner_high_p50_ns"], row["before_p50_ns"]
        floor = found["uncertainty_ns"]
        part = f", {share(high, before, floor)} of it" if before else ""
        reason = f"Median over {row['n']:,} {unit}s of {duration(before)}: a bound of the replay, no measurement."
        verdicts.append(Verdict(f"{unit}s", f"less by {between(low, high, floor)}{part}", reason))
        mine = [u for u in found["units"] if u["unit"] == unit and u["steady"]]
        figures[f"effects-{unit}"] = page_figure("effects", effects_spec(mine, unit))
    tables = [("Steps and requests", block) for part in effects_parts(found) for block in blocks(part)]
    return SimplePage(
        title=f"What if: {found['scenario']}",
        facts=[],
        verdicts=verdicts,
        sections=[Section("effects", "effects", figures, tables)],
        findings=[],
        how=_HOW,
        data=found,
    )

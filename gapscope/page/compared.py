"""Pages of comparisons, studies and sweeps: the verdict and its reason on top, then what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.text import Text

from gapscope.findings import plural
from gapscope.page.figures import PageFigure, page_figure
from gapscope.page.simple import Section, SimplePage, Verdict
from gapscope.page.tables import Block, blocks
from gapscope.plots.compared import closure_spec, differences_spec, distributions_spec, paired_spec
from gapscope.plots.swept import sweep_spec
from gapscope.reports.comparison import (
    change_words,
    clock_words,
    closure_edges,
    gap_clock_ns,
    note_words,
    render_closure,
    render_metrics,
    render_pairs,
)
from gapscope.reports.study import arms_table, several_words
from gapscope.reports.sweep import how_words, sweep_table

_OF_UNITS = ("request", "latency", "step")


def comparison_page(found: Mapping[str, Any], values: pl.DataFrame) -> SimplePage:
    """Return the page of one comparison.

    Args:
        found: What `gapscope.compare.comparison_told` returns.
        values: Its values one by one (`gapscope.compare.comparing.PAIRED`).
    """
    a, b = found["a"], found["b"]
    sections, how = _comparison(found, values, "")
    return SimplePage(
        title=f"{b['name']} against {a['name']}",
        facts=[f"{b['name']} minus {a['name']}: less is faster.", _runs_of(a), _runs_of(b)],
        verdicts=[_verdict(found)],
        sections=sections,
        findings=found["findings"],
        how=how,
        data=found,
    )


def study_page(found: Mapping[str, Any], values: Sequence[pl.DataFrame]) -> SimplePage:
    """Return the page of a study.

    Args:
        found: What `gapscope.compare.study_told` returns.
        values: Of each of its comparisons the values one by one.
    """
    facts = [
        f"{arm['name']}{', ' + arm['label'] if arm['label'] else ''}: {_runs(arm['runs'])}" for arm in found["arms"]
    ]
    facts.append(f"All against {found['base']}.")
    if found["order"]:
        facts.append(f"Started in this order: {', '.join(found['order'])}.")
    if found["sweep"] is not None:
        return _sweep_page(found, facts)
    sections: list[Section] = []
    how: list[str] = []
    findings: list[Mapping[str, Any]] = []
    if len(found["comparisons"]) > 1:
        caption = "The primary metric of each arm"
        sections.append(Section("arms", "arms", {}, [(caption, block) for block in blocks(arms_table(found))]))
        how.append(several_words(found))
    for nth, (one, mine) in enumerate(zip(found["comparisons"], values, strict=True)):
        more, said = _comparison(one, mine, one["b"]["name"] if len(found["comparisons"]) > 1 else "", nth)
        sections += more
        how += said
        findings += one["findings"]
    return SimplePage(
        title=found["title"] or f"Study {found['study']}",
        facts=facts,
        verdicts=[_verdict(one, named=len(found["comparisons"]) > 1) for one in found["comparisons"]],
        sections=sections,
        findings=_once(findings),
        how=list(dict.fromkeys(how)),
        data=found,
    )


def _sweep_page(found: Mapping[str, Any], facts: Sequence[str]) -> SimplePage:
    sweep = found["sweep"]
    figure = page_figure("sweep", sweep_spec(sweep))
    tables: list[tuple[str, Block]] = [
        (f"{sweep['metric']}: {crossing['arm']} against {crossing['base']}", block)
        for crossing in sweep["crossings"]
        for block in blocks(sweep_table(sweep, crossing["arm"], crossing["base"]))
    ]
    return SimplePage(
        title=found["title"] or f"{sweep['metric']} over {sweep['parameter']}",
        facts=facts,
        verdicts=[Verdict(f"{c['arm']} against {c['base']}", c["claim"], f"{c['words']}.") for c in sweep["crossings"]],
        sections=[Section("sweep", f"{sweep['metric']} over {sweep['parameter']}", {"sweep": figure}, tables)],
        findings=sweep["findings"],
        how=[how_words(sweep)],
        data=found,
    )


def _comparison(
    found: Mapping[str, Any], values: pl.DataFrame, name: str, nth: int = 0
) -> tuple[list[Section], list[str]]:
    """Return the sections of one comparison, and how its numbers were had."""
    primary = next((m for m in found["metrics"] if m["is_primary"]), None)
    if primary is None:
        return [], ["The arms have no metric in common: nothing is compared."]
    prefix, arms = f"{name}: " if name else "", (found["a"]["name"], found["b"]["name"])
    drawn = _drawn(found)
    figures: dict[str, PageFigure] = {f"differences-{nth}": page_figure("d", differences_spec(found))}
    for i, metric in enumerate(drawn):
        if values.filter(metric=metric).drop_nulls(["a_ns", "b_ns"]).height:
            figures[f"paired-{nth}-{i}"] = page_figure("d", paired_spec(metric, values, arms))
        figures[f"spread-{nth}-{i}"] = page_figure("d", distributions_spec(metric, values, arms))
    tables = [("All metrics; those beside the primary one are adjusted for being many", block)
              for block in blocks(render_metrics(found["metrics"], verbose=True))]  # fmt: skip
    tables += [
        (f"{primary['metric']}, pair by pair", block)
        for block in blocks(render_pairs(found["pairs"], primary["metric"]))
    ]
    sections = [Section(f"differences-{nth}", f"{prefix}differences", figures, tables)]
    edges = closure_edges(found["closure"])
    if edges:
        clocks = [gap_clock_ns(found["metrics"], rows[0]["edge"]) for rows in edges]
        made = {
            f"closure-{nth}-{i}": page_figure("c", closure_spec(rows, arms, clock_words(rows[0], clock)))
            for i, (rows, clock) in enumerate(zip(edges, clocks, strict=True))
        }
        parts: list[tuple[str, Block]] = []
        for rows, clock in zip(edges, clocks, strict=True):
            words = Text(clock_words(rows[0], clock))
            parts += [(f"Mean gap of {rows[0]['edge']}", block) for block in blocks(render_closure(rows, clock), words)]
        sections.append(Section(f"closure-{nth}", f"{prefix}where the time went", made, parts))
    return sections, [note_words(primary)]


def _drawn(found: Mapping[str, Any]) -> list[str]:
    """Return the metrics that are drawn value by value: the primary one, and the gap with most handoffs."""
    gaps = sorted((m for m in found["metrics"] if m["family"] == "gap"), key=lambda m: -m["n"])
    units = [m["metric"] for m in found["metrics"] if m["family"] in _OF_UNITS and m["is_primary"]]
    primary = [m["metric"] for m in found["metrics"] if m["is_primary"] and m["family"] == "gap"]
    return list(dict.fromkeys([*units, *primary, *(m["metric"] for m in gaps[:1])]))


def _verdict(found: Mapping[str, Any], *, named: bool = False) -> Verdict:
    primary = next((m for m in found["metrics"] if m["is_primary"]), None)
    name = f"{found['b']['name']}, " if named else ""
    if primary is None:
        return Verdict(f"{name}nothing", "no claim", "The arms have no metric in common: nothing is compared.")
    words = primary["verdict"]
    if primary["difference_ns"] is not None:
        words += f", {change_words(primary)}"
    return Verdict(f"{name}{primary['metric']}", words, f"{primary['reason'][:1].upper()}{primary['reason'][1:]}.")


def _runs_of(arm: Mapping[str, Any]) -> str:
    return f"{arm['name']}: {_runs(arm['runs'])}"


def _runs(names: Sequence[str]) -> str:
    return f"{plural(len(names), 'run')} ({', '.join(names)})"


def _once(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    seen: list[Mapping[str, Any]] = []
    for finding in findings:
        if finding not in seen:
            seen.append(finding)
    return seen

"""``gapscope whatif``: what it would bring to steps and requests if some time of the gaps were gone."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from gapscope.analysis import Analysis, analyze
from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_parts, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.selection import Last, Steps, steps_of
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.reports.fixes import render_fixes
from gapscope.reports.whatif import render_effects
from gapscope.schema import SCHEMA_VERSION
from gapscope.version import VERSION

if TYPE_CHECKING:
    from gapscope.whatif import Effects

_UNITS = ("step", "request")


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


def whatif_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Recordings, as for gapscope analyze.", show_default=False),
    ] = None,
    cause: Annotated[
        str | None, typer.Option("--cause", help="Only time that this cause holds; without any choice, all in turn.")
    ] = None,
    edge: Annotated[
        str | None, typer.Option("--edge", metavar="S-D", help="Only handoffs from one rank to another, such as 0-1.")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Only what lies on this rank.")] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="Only one phase: submission, start_wait, movement or consumer_wait.")
    ] = None,
    handoff: Annotated[
        str | None, typer.Option("--handoff", metavar="KEY", help="Only this handoff, as 0-1:57 or by its id.")
    ] = None,
    to: Annotated[
        str,
        typer.Option("--to", help="What is left of it: 0, a share such as 50%, or p10 (what its best tenth spends)."),
    ] = "0",
    demo: Annotated[bool, typer.Option("--demo", help="Use the recording shipped with gapscope.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page (HTML) that needs no network.")
    ] = None,
    fmt: Annotated[
        Format, typer.Option("--format", help="text: the report; json: all numbers; csv: one line per step or request.")
    ] = Format.text,
    steps: Steps = None,
    last: Last = None,
    unmarked: Unmarked = False,
    comm_kernel: CommKernel = None,
    offset: Offset = None,
    same_host: SameHost = False,
    clock_bound: ClockBound = None,
    anchors: Anchors = None,
    rank_of: RankOf = None,
    job: Job = None,
    nsys: Nsys = None,
    strict: Strict = False,
    no_cache: NoCache = False,
) -> None:
    """Replay the run with some time of its gaps gone: how much sooner would steps and requests have ended?

    Example: gapscope whatif rank0.json.gz rank1.json.gz --cause late_submission --to p10
    """
    from gapscope.whatif import Scenario  # noqa: PLC0415 - no other command needs what computes before it knows its files

    paths = list(traces or []) + ([str(DEMO_RECORDING)] if demo else [])
    if not paths and not job:
        raise UsageError("No recording was named. Pass one, or --demo for the one shipped with gapscope.")
    source, target = _edge(edge)
    # Wrong words are refused before anything is read.
    scenario = Scenario(cause=cause, src_rank=source, dst_rank=target, rank=rank, phase=phase, to=to)
    with LateProgress() as progress:
        analysis = analyze(
            paths,
            options=load_options(nsys, no_cache, rank_of, job),
            steps=steps_of(steps),
            last=last,
            clocks=align_options(offset, same_host, clock_bound, anchors),
            unmarked=unmarked,
            comm_kernels=comm_kernel or (),
            progress=progress,
        )
    if handoff is not None:
        scenario = replace(scenario, handoff_id=analysis.handoff(handoff).id)
    if scenario == Scenario():
        _print_all(analysis, fmt, report)
    else:
        _print_one(analysis, analysis.whatif(scenario), fmt, report)
    warn_of_parts(analysis.findings)
    warn_of_unreadable(analysis.findings, strict)


def _edge(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = re.fullmatch(r"(\d{1,9})(?:-|>| → )(\d{1,9})", text.strip())
    if not found:
        raise UsageError(f"--edge {text}: give two ranks such as 0-1.")
    return int(found[1]), int(found[2])


def _print_all(analysis: Analysis, fmt: Format, report: Path | None) -> None:
    told = {"schema_version": SCHEMA_VERSION, "fixes": analysis.fixes.to_dicts()}
    if report is not None:
        if not told["fixes"]:
            raise _no_end(analysis)
        from gapscope.page.replayed import fixes_page  # noqa: PLC0415 - only pages need their templates
        from gapscope.page.simple import write_page  # noqa: PLC0415

        write_page(fixes_page(told), report, VERSION)
    if fmt is Format.json:
        typer.echo(json.dumps(told, indent=1))
    elif fmt is Format.csv:
        typer.echo(analysis.fixes.write_csv(), nl=False)
    else:
        parts = render_fixes(analysis.fixes.to_dicts())
        if not parts:
            raise _no_end(analysis)
        for part in parts:
            print_report(part)


def _no_end(analysis: Analysis) -> UsageError:
    for finding in analysis.findings:
        if finding.code == "nothing_selected":
            return UsageError(f"{finding.message} {finding.hint}")
    return UsageError(
        "Nothing can be replayed up to an end: it takes explained handoffs, and steps or requests that are marked "
        "(gapscope::step, gapscope::request). `gapscope analyze` says what is missing."
    )


def _print_one(analysis: Analysis, found: Effects, fmt: Format, report: Path | None) -> None:
    told = _told(analysis, found)
    every = {"schema_version": SCHEMA_VERSION, **told}
    every |= {"units": found.units.to_dicts(), "selected": asdict(found.scenario)}
    if report is not None:
        from gapscope.page.replayed import effects_page  # noqa: PLC0415 - only pages need their templates
        from gapscope.page.simple import write_page  # noqa: PLC0415

        write_page(effects_page(every), report, VERSION)
    if fmt is Format.json:
        typer.echo(json.dumps(every, indent=1))
    elif fmt is Format.csv:
        typer.echo(found.units.write_csv(), nl=False)
    else:
        print_report(render_effects(told))


def _told(analysis: Analysis, found: Effects) -> dict[str, Any]:
    """Return what the report tells, see `gapscope.reports.whatif.render_effects`."""
    one = analysis.handoffs.filter(pl.col("handoff_id").eq_missing(found.scenario.handoff_id))
    rows = one.select("handoff_id", "gap_ns", "removable_ns").join(analysis.slack, on="handoff_id", how="left")
    return {
        "scenario": found.scenario.words(),
        "tiles": found.tiles,
        "gone_ns": found.gone_ns,
        "not_replayed_ns": found.not_replayed_ns,
        "uncertainty_ns": found.uncertainty_ns,
        "over": {unit: found.over(unit) for unit in _UNITS},
        "handoffs": rows.to_dicts(),
    }

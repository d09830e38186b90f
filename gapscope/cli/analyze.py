"""``gapscope analyze``: recordings in, handoffs out."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from gapscope.analysis import OUTPUTS, Analysis, analyze
from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import (
    Engine,
    EngineName,
    Job,
    NoCache,
    Nsys,
    RankOf,
    RayAddress,
    Strict,
    load_options,
    with_engine,
)
from gapscope.cli.selection import Last, Steps, ranks_of, steps_of
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.reports.text import render_text


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


def analyze_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Files, folders, patterns or URLs: .nsys-rep, nsys exports, torch.profiler JSON, mark logs.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Analyze the recording shipped with gapscope: two GPUs, the sender sleeps 2 ms before each send.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write all tables as Parquet (handoffs, tiles, ...), findings.json and summary.json into this folder.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write the report as one page (HTML) that opens without a network."
        ),
    ] = None,
    fmt: Annotated[
        Format,
        typer.Option("--format", help="text: the report; json: its numbers and findings; csv: one line per handoff."),
    ] = Format.text,
    steps: Steps = None,
    last: Last = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="R,R", help="Only handoffs with one of these ranks at an end.")
    ] = None,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, help="Steps of each pair of ranks that count as start-up.")
    ] = 1,
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
    engine: Engine = EngineName.local,
    ray_address: RayAddress = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Show all notes.")] = 0,
) -> None:
    """Find the handoffs of a run, and for each the five events between producer and consumer.

    Example: gapscope analyze rank0.nsys-rep rank1.json.gz --out results
    """
    paths = list(traces or [])
    if demo:
        paths.append(str(DEMO_RECORDING))
    if not paths and not job:
        raise UsageError("No recording was named. Pass one, or --demo for the one shipped with gapscope.")
    if out is not None and report is not None:
        _keep_apart(out, report)
    options = with_engine(load_options(nsys, no_cache, rank_of, job), engine, ray_address)
    clocks = align_options(offset, same_host, clock_bound, anchors)
    with LateProgress() as progress:
        analysis = analyze(
            paths,
            options=options,
            steps=steps_of(steps),
            last=last,
            ranks=ranks_of(ranks),
            warmup=warmup,
            clocks=clocks,
            unmarked=unmarked,
            comm_kernels=comm_kernel or (),
            progress=progress,
        )
    if out is not None:
        analysis.write(out)
    if report is not None:
        analysis.write_report(report)
    _print(analysis, fmt, verbose > 0)
    warn_of_unreadable(analysis.findings, strict)


def _keep_apart(out: Path, report: Path) -> None:
    """Refuse a report where the folder of ``--out`` or one of its files goes."""
    folder, page = out.resolve(), report.resolve()
    if page == folder or page in folder.parents:
        raise UsageError(f"--report {report}: --out {out} makes this a folder. Name a file, such as report.html.")
    if page.parent == folder and page.name in OUTPUTS:
        raise UsageError(f"--report {report}: --out {out} writes a file of this name. Name another.")


def _print(analysis: Analysis, fmt: Format, verbose: bool) -> None:
    if fmt is Format.json:
        findings = [asdict(f) for f in analysis.findings]
        typer.echo(json.dumps({"summary": analysis.summary, "findings": findings}, indent=1))
    elif fmt is Format.csv:
        typer.echo(analysis.handoffs.with_columns(pl.selectors.categorical().cast(pl.String)).write_csv(), nl=False)
    else:
        print_report(render_text(analysis.summary, analysis.findings, verbose))
        if verbose and analysis.is_kept:
            typer.echo("\nComputed by an earlier look at the same contents; --no-cache computes it anew.")

"""``gapscope analyze``: recordings in, handoffs out."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from gapscope.analysis import Analysis, analyze
from gapscope.cli.progress import LateProgress
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import InputError, UsageError
from gapscope.load import LoadOptions
from gapscope.reports.text import render_text

_PIPE_WIDTH = 118


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
            help="Files, folders or patterns: .nsys-rep, nsys exports, torch.profiler JSON.",
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
            "--out", help="Write handoffs.parquet, alignment.parquet, findings.json and summary.json into this folder."
        ),
    ] = None,
    fmt: Annotated[
        Format,
        typer.Option("--format", help="text: the report; json: its numbers and findings; csv: one line per handoff."),
    ] = Format.text,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps", metavar="A:B", help="Only handoffs of steps A to B, both included; A: and :B are open."
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="R,R", help="Only handoffs with one of these ranks at an end.")
    ] = None,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, help="Steps of each pair of ranks that count as start-up.")
    ] = 1,
    rank_of: Annotated[
        list[str] | None,
        typer.Option(
            "--rank-of",
            metavar="PID=RANK",
            help="Rank of a process whose recording does not tell it.",
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="NAME=PATH[,PATH]",
            help="Recordings of a named job, such as prefill and decode.",
            show_default=False,
        ),
    ] = None,
    nsys: Annotated[
        str | None,
        typer.Option(
            "--nsys",
            metavar="PROGRAM",
            help="The nsys to export .nsys-rep files with; else GAPSCOPE_NSYS, PATH and the usual folders.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if any file cannot be read.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing on disk and use nothing kept.")] = False,
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
    options = LoadOptions(nsys=nsys, use_cache=not no_cache, rank_of=_rank_of(rank_of or []), jobs=_jobs(job or []))
    with LateProgress() as progress:
        analysis = analyze(
            paths, options=options, steps=_steps(steps), ranks=_ranks(ranks), warmup=warmup, progress=progress
        )
    if out is not None:
        analysis.write(out)
    _print(analysis, fmt, verbose > 0)
    unreadable = [f for f in analysis.findings if f.code == "unreadable_file"]
    for finding in unreadable:
        print(f"gapscope: not read: {finding.path}: {finding.message} {finding.hint}".rstrip(), file=sys.stderr)  # noqa: T201
    if strict and unreadable:
        raise InputError(unreadable[0].path or "", unreadable[0].message, unreadable[0].hint)


def _print(analysis: Analysis, fmt: Format, verbose: bool) -> None:
    if fmt is Format.json:
        findings = [asdict(f) for f in analysis.findings]
        typer.echo(json.dumps({"summary": analysis.summary, "findings": findings}, indent=1))
    elif fmt is Format.csv:
        typer.echo(analysis.handoffs.with_columns(pl.selectors.categorical().cast(pl.String)).write_csv(), nl=False)
    else:
        console = Console(highlight=False, emoji=False)
        report = render_text(analysis.summary, analysis.findings, verbose)
        if console.is_terminal:
            console.print(report)
            return
        width = console.width if "COLUMNS" in os.environ else _PIPE_WIDTH
        console = Console(highlight=False, emoji=False, width=width)
        with console.capture() as capture:
            console.print(report)
        typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _steps(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        first = int(low) if low else None
        last = (int(high) if high else None) if colon else first
    except ValueError:
        raise UsageError(f"--steps {text}: give a step or a range such as 10:20.") from None
    if first is None and last is None:
        raise UsageError(f"--steps {text}: give a step or a range such as 10:20.")
    return first, last


def _ranks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--ranks {text}: give rank numbers such as 0,1.") from None


def _rank_of(pairs: list[str]) -> dict[int, int]:
    out = {}
    for pair in pairs:
        pid, _, rank = pair.partition("=")
        if not (re.fullmatch("[0-9]{1,18}", pid) and re.fullmatch("[0-9]{1,9}", rank)):
            raise UsageError(f"--rank-of {pair}: give PID=RANK, two numbers.")
        out[int(pid)] = int(rank)
    return out


def _jobs(pairs: list[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, files = pair.partition("=")
        if not (name and equals and files):
            raise UsageError(f"--job {pair}: give NAME=PATH, or NAME=PATH,PATH.")
        out.setdefault(name, []).extend(files.split(","))
    return out

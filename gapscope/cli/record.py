"""``gapscope record``: runs a job with marks on and a capture around it, then analyzes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from gapscope_instrumentation.contract import ADAPTERS

from gapscope.analysis import analyze
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Nsys
from gapscope.cli.selection import steps_of
from gapscope.errors import GapscopeError, InputError, UsageError
from gapscope.load import LoadOptions
from gapscope.preflight.capture_commands import shown
from gapscope.preflight.job_python import JobPython, ask_python, python_of
from gapscope.preflight.nsys_ability import find_ability
from gapscope.recording import Plan, RecordingFolder, Tool, must_exist, plan, run_job
from gapscope.reports.text import render_text


def record_command(  # noqa: PLR0917 - typer hands options over by position
    job: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...", help="The job, after --: python train.py, torchrun ...", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for recordings and results.")] = Path(
        "gapscope-recording"
    ),
    tool: Annotated[
        Tool,
        typer.Option(
            "--tool",
            help="auto: nsys where it records marks, else torch; torch: torch.profiler per rank; marks: the mark log.",
        ),
    ] = Tool.auto,
    nsys: Nsys = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PROGRAM", help="The job's Python, where its command does not show it."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="A:B",
            help="Only steps A to B, both included. torch.profiler runs for these alone; nsys records all of them.",
        ),
    ] = None,
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach", metavar="NAME,NAME", help="Adapters that mark a framework's handoffs, such as torch_pipelining."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the recordings that an earlier run left in the folder.")
    ] = False,
) -> None:
    """Run a job with marks on and the right capture around it, then analyze what was recorded.

    Example: gapscope record --out run1 -- torchrun --nproc-per-node 2 train.py
    """
    if not job:
        raise UsageError("No job was named. Give its command after --, such as: gapscope record -- python train.py")
    window = steps_of(steps)
    if window and None not in window and window[0] > window[1]:  # type: ignore[operator]
        raise UsageError(f"--steps {steps}: the first is behind the last.")
    names = [name.strip() for name in (attach or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in ADAPTERS]
    if unknown:
        raise UsageError(f"--attach {unknown[0]}: there is no such adapter; known are {', '.join(ADAPTERS)}.")
    must_exist(job[0])
    ability, why_not = (None, "not asked for") if tool in {Tool.torch, Tool.marks} else find_ability(nsys)
    folder = RecordingFolder(out)
    planned = plan(job, folder, tool, ability, why_not, _job_python(job, python), os.environ, attach=names, steps=steps)
    folder.clear(overwrite)
    for note in planned.notes:
        _say(note)
    _say(f"records with {planned.tool.value}: {shown(planned.command)}")
    code = run_job(planned.command, planned.environment)
    if code:
        _say(f"the job ended with exit code {code}; what it left is analyzed.")
    try:
        _analyze(folder, planned, nsys, window)
    except GapscopeError as error:
        if not code:
            raise
        _say(str(error))
    if code:
        raise typer.Exit(code)


def _job_python(job: list[str], named: str | None) -> JobPython | None:
    """Return what the job's Python has; None where its command does not show it and it was not named."""
    program = named or python_of(job)
    if program is None:
        return None
    try:
        return ask_python(program, deep=False)
    except UsageError:
        if named:
            raise
        return None  # a guess that did not hold


def _analyze(
    folder: RecordingFolder, planned: Plan, nsys: str | None, steps: tuple[int | None, int | None] | None
) -> None:
    recordings = folder.recordings()
    if not recordings:
        raise InputError(folder.path, *_nothing(folder, planned.tool))
    if planned.tool is Tool.torch and not any(path.parent == folder.torch for path in recordings):
        _say("torch.profiler left no recording: no mark was set in a process that had loaded torch, or it was killed.")
    with LateProgress() as progress:
        analysis = analyze(
            [str(path) for path in recordings], options=LoadOptions(nsys=nsys), steps=steps, progress=progress
        )
    analysis.write(folder.results)
    print_report(render_text(analysis.summary, analysis.findings, verbose=False))
    warn_of_unreadable(analysis.findings, strict=False)
    _say(f"tables are in {folder.results}; once more: {shown(['gapscope', 'analyze', *_inputs(folder)])}")


def _inputs(folder: RecordingFolder) -> list[str]:
    """Return the shortest way to name the recordings."""
    parts = {path if path.parent == folder.path else path.parent for path in folder.recordings()}
    return sorted(str(part) for part in parts)


def _nothing(folder: RecordingFolder, tool: Tool) -> tuple[str, str]:
    if folder.report.with_suffix(".qdstrm").exists():
        return (
            "nsys wrote trace.qdstrm and could not make a report of it (it has no QdstrmImporter).",
            "Open it with a whole Nsight Systems, or record with --tool torch.",
        )
    if tool is Tool.nsys:
        return "nsys left no report.", "Its own messages above say why; --tool torch records without it."
    return (
        "the job left no recording: no mark was set.",
        "Mark its handoffs with gapscope_instrumentation, or name its framework with --attach.",
    )


def _say(text: str) -> None:
    print(f"gapscope: {text}", file=sys.stderr, flush=True)  # noqa: T201

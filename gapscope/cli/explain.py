"""``gapscope explain``: the whole chain of one handoff, with times, evidence and alternatives."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from gapscope.analysis import analyze
from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_parts, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.selection import Last, Steps, steps_of
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


def explain_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Recordings, as for gapscope analyze.", show_default=False),
    ] = None,
    handoff: Annotated[
        str | None,
        typer.Option(
            "--handoff",
            metavar="KEY",
            help="The handoff, as 0-1:57 (ranks and seq) or its id; else the longest gap past start-up.",
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Use the recording shipped with gapscope.")] = False,
    fmt: Annotated[
        Format, typer.Option("--format", help="text: the chain; json: handoff and tiles; csv: one line per tile.")
    ] = Format.text,
    every: Annotated[
        bool, typer.Option("--all", help="One line per tile, not per stretch of one cause on one thread or stream.")
    ] = False,
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
    """Print why one gap is there: every tile from the consumer back to the producer.

    Example: gapscope explain rank0.json.gz rank1.json.gz --handoff 0-1:57
    """
    paths = list(traces or []) + ([str(DEMO_RECORDING)] if demo else [])
    if not paths and not job:
        raise UsageError("No recording was named. Pass one, or --demo for the one shipped with gapscope.")
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
    found = analysis.handoff(handoff)
    tiles = found.tiles.sort("start_ns", descending=True)
    if fmt is Format.json:
        plain = {name: str(value) if isinstance(value, bytes) else value for name, value in found.row.items()}
        typer.echo(json.dumps({"handoff": plain, "tiles": tiles.to_dicts()}, indent=1))
    elif fmt is Format.csv:
        typer.echo(tiles.write_csv(), nl=False)
    else:
        print_report(found.rendered(every=every))
    warn_of_parts(analysis.findings)
    warn_of_unreadable(analysis.findings, strict)

"""``gapscope export``: the run as a trace for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope import __version__
from gapscope.analysis import Analysis, analyze
from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.selection import ranks_of, steps_of, window_of
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.wording import duration, size

if TYPE_CHECKING:
    from gapscope.exports import Written
    from gapscope.exports.window import Window

_MANY_SLICES = 4_000_000


def export_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Recordings, as for gapscope analyze.", show_default=False),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto",
            metavar="FILE",
            help="Write a Perfetto trace, such as run.pftrace; compressed if the name ends in .gz.",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="A:B", help="Only the time and handoffs of steps A to B, both included."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="A:B",
            help="Only this time, counted from the first record, such as 1.5s:1.6s or 20ms:80ms.",
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", metavar="R,R", help="Only what these ranks recorded, and handoffs that end there."),
    ] = None,
    handoff: Annotated[
        str | None,
        typer.Option(
            "--handoff", metavar="KEY", help="Only what surrounds this handoff, as 0-1:57 (ranks and seq) or its id."
        ),
    ] = None,
    no_calls: Annotated[bool, typer.Option("--no-calls", help="Leave API calls of the host out.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Use the recording shipped with gapscope.")] = False,
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
    """Write one trace of all ranks on the common timebase, with handoffs as arrows and what held them.

    Example: gapscope export --perfetto run.pftrace.gz rank0.json.gz rank1.json.gz --steps 10:12
    """
    from gapscope.exports import write_perfetto  # noqa: PLC0415 - no other command needs it

    paths = list(traces or []) + ([str(DEMO_RECORDING)] if demo else [])
    if not paths and not job:
        raise UsageError("No recording was named. Pass one, or --demo for the one shipped with gapscope.")
    if perfetto is None:
        raise UsageError("Say what to write: --perfetto run.pftrace")
    asked, chosen = window_of(window), ranks_of(ranks)
    with LateProgress() as progress:
        analysis = analyze(
            paths,
            options=load_options(nsys, no_cache, rank_of, job),
            steps=steps_of(steps),
            clocks=align_options(offset, same_host, clock_bound, anchors),
            unmarked=unmarked,
            comm_kernels=comm_kernel or (),
            progress=progress,
        )
        progress("export", 1.0)
        part, chosen = _part(analysis, asked, by_steps=steps is not None, handoff=handoff, ranks=chosen)
        calls = not no_calls
        written = write_perfetto(analysis, perfetto, ranks=chosen, window=part, calls=calls, version=__version__)
    typer.echo(_said(written))
    warn_of_unreadable(analysis.findings, strict)


def _part(
    analysis: Analysis, asked: Window, *, by_steps: bool, handoff: str | None, ranks: list[int] | None
) -> tuple[Window, list[int] | None]:
    """Return the window and the ranks that the options leave."""
    from gapscope.exports.window import begin_of, overlap, window_of_handoff, window_of_steps  # noqa: PLC0415

    begin = begin_of(analysis.trace, analysis.timebase) or 0
    low, high = (None if t is None else begin + t for t in asked)
    windows: list[Window] = [(low, high)]
    if by_steps:
        windows.append(window_of_steps(analysis.units, analysis.handoffs))
    if handoff is not None:
        found = analysis.handoff(handoff)
        windows.append(window_of_handoff(found.row))
        ends = [found.row["src_rank"], found.row["dst_rank"], *found.tiles["rank"]]
        ranks = ranks or sorted({rank for rank in ends if rank is not None and rank >= 0})
    return overlap(*windows), ranks


def _said(written: Written) -> str:
    ranks = ", ".join(map(str, written.ranks)) or "none"
    lines = [
        f"{written.path}: {written.slices:,} slices and {written.instants:,} moments of ranks {ranks}, "
        f"{written.handoffs:,} handoffs, {size(written.size_bytes)}. Open it at ui.perfetto.dev."
    ]
    if written.left_out:
        left_out = ", ".join(map(str, written.left_out))
        lines.append(
            f"Left out: ranks {left_out}, whose clocks have no place on the common timebase to cut a window from."
        )
    if written.shift_ns:
        lines.append(
            f"Times begin below zero, which a trace cannot show: all are shown {duration(written.shift_ns)} later."
        )
    if written.slices > _MANY_SLICES:
        lines.append("A browser may not hold that much: --window, --steps, --ranks and --no-calls keep it small.")
    return "\n".join(lines)

"""``gapscope align``: where the clocks of the recordings stand, and how sure that is."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.errors import UsageError


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


def align_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Recordings, as for gapscope analyze.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write alignment.parquet into this folder.")] = None,
    fmt: Annotated[
        Format,
        typer.Option("--format", help="text: the report; json: its numbers and findings; csv: table alignment."),
    ] = Format.text,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw what the recordings say about a pair of ranks (HTML)."),
    ] = None,
    pair: Annotated[
        str | None, typer.Option("--pair", metavar="R,R", help="The ranks to draw, such as 1,0 or 0:torch,0:nsys.")
    ] = None,
    offset: Offset = None,
    same_host: SameHost = False,
    clock_bound: ClockBound = None,
    anchors: Anchors = None,
    rank_of: RankOf = None,
    job: Job = None,
    nsys: Nsys = None,
    strict: Strict = False,
    no_cache: NoCache = False,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Show all clocks and notes.")] = 0,
) -> None:
    """Show where the clocks of the recordings stand against each other, with proven bounds.

    Example: gapscope align rank0.json.gz rank1.json.gz --plot clocks.html
    """
    if not traces and not job:
        raise UsageError("No recording was named.")
    from gapscope.cli.aligning import Wanted, align_clocks  # noqa: PLC0415 - no other command needs it

    align_clocks(
        list(traces or []),
        load_options(nsys, no_cache, rank_of, job),
        align_options(offset, same_host, clock_bound, anchors),
        Wanted(fmt, out, plot, pair, strict=strict, every=verbose > 0),
    )

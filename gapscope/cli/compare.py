"""``gapscope compare``: arms of runs, and what may be claimed of their difference."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.recordings import NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.unmarked import CommKernel, Unmarked

SEPARATOR = "\x1f--"
"""Stands for the ``--`` between the arms, which the parser of options would swallow."""


class ArmsCommand(typer.core.TyperCommand):
    """A command that sees the ``--`` between its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401, D102 - as its base
        return super().parse_args(ctx, [SEPARATOR if arg == "--" else arg for arg in args])


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


class FailOn(StrEnum):
    """What ends the command with 1."""

    slower = "slower"
    not_faster = "not-faster"


def compare_command(  # noqa: PLR0917 - typer hands options over by position
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A... -- B...",
            help="Runs of arm A, two dashes, runs of arm B. A run is a folder of gapscope analyze --out, or recordings "
            "of one start of the job: a file, a folder, a pattern, or several with commas between. Or one file with a "
            "study (.toml).",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        str | None, typer.Option("--names", metavar="A,B", help="How the arms are called in the report.")
    ] = None,
    primary: Annotated[
        str | None,
        typer.Option(
            "--primary", metavar="METRIC", help="What it is about, such as 'gap 0 → 1'; else request, step or gap."
        ),
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(
            "--margin", metavar="M", help="Differences of the primary metric up to here do not matter: 2%, 50us, 1ms."
        ),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option("--noise", metavar="RUN", help="More runs of arm A; in pairs they say how far A is from A."),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="Exit with 1 if the primary metric is slower, or not faster, by its verdict."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write all numbers as JSON into this file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page (HTML) that needs no network.")
    ] = None,
    fmt: Annotated[
        Format, typer.Option("--format", help="text: the report; json: all numbers; csv: one line per metric.")
    ] = Format.text,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Show causes and pairs as well.")] = 0,
    unmarked: Unmarked = False,
    comm_kernel: CommKernel = None,
    offset: Offset = None,
    same_host: SameHost = False,
    clock_bound: ClockBound = None,
    anchors: Anchors = None,
    rank_of: RankOf = None,
    nsys: Nsys = None,
    strict: Strict = False,
    no_cache: NoCache = False,
) -> None:
    """Compare arms of runs: did the gap shrink, where did the time go, did the step or request end sooner?

    Example: gapscope compare before/1 before/2 -- after/1 after/2
    """
    from gapscope.cli.comparing import Asked, run_comparison  # noqa: PLC0415 - statistics take a second to import

    run_comparison(
        Asked(
            runs=list(runs or []),
            names=names,
            primary=primary,
            margin=margin,
            noise=list(noise or []),
            fail_on=fail_on,
            out=out,
            report=report,
            fmt=fmt,
            verbose=verbose > 0,
            strict=strict,
            options=load_options(nsys, no_cache, rank_of, None),
            clocks=align_options(offset, same_host, clock_bound, anchors),
            unmarked=unmarked,
            comm_kernels=tuple(comm_kernel or ()),
        )
    )

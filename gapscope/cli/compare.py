"""``gapscope compare``: two arms of runs, and what may be claimed of their difference."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.compare import Arm, Comparison, Run, Settings, compare, read_run
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.reports.comparison import render_comparison
from gapscope.schema import SCHEMA_VERSION

SEPARATOR = "\x1f--"
"""Stands for the ``--`` between the arms, which the parser of options would swallow."""

EXIT_THRESHOLD = 1
_FAILING = {"slower": ("slower",), "not-faster": ("slower", "equivalent", "inconclusive", "below clock resolution")}


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
            "of one start of the job: a file, a folder, a pattern, or several with commas between.",
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
    """Compare two arms of runs: did the gap shrink, where did the time go, did the step or request end sooner?

    Example: gapscope compare before/1 before/2 -- after/1 after/2
    """
    first, second = split_arms(list(runs or []))
    settings = Settings(primary, *_margin(margin))
    findings: list[Finding] = []

    def read(path: str) -> Run:
        run, notes = read_run(
            path,
            options=load_options(nsys, no_cache, rank_of, None),
            clocks=align_options(offset, same_host, clock_bound, anchors),
            unmarked=unmarked,
            comm_kernels=comm_kernel or (),
            progress=progress,
        )
        findings.extend(notes)
        return run

    with LateProgress() as progress:
        arms = [
            Arm(name, [read(path) for path in paths])
            for name, paths in zip(_names(names), (first, second), strict=True)
        ]
        more = [read(path) for path in noise or []]
        pairs = list(zip(more[0::2], more[1::2], strict=False))
        found = compare(arms[0], arms[1], settings, pairs)
    told = told_of(found)
    if out is not None:
        _write(out, told)
    if fmt is Format.json:
        typer.echo(json.dumps(told, indent=1))
    elif fmt is Format.csv:
        typer.echo(found.metrics.write_csv(), nl=False)
    else:
        print_report(render_comparison(told, verbose > 0))
    warn_of_unreadable(findings, strict)
    if fail_on is not None and _fails(found, fail_on):
        raise typer.Exit(EXIT_THRESHOLD)


def split_arms(runs: list[str]) -> tuple[list[str], list[str]]:
    """Return the runs of both arms.

    Raises:
        UsageError: There are no two arms.
    """
    if runs.count(SEPARATOR) != 1:
        raise UsageError("Name the runs of arm A, two dashes, and the runs of arm B: gapscope compare a1 a2 -- b1 b2.")
    cut = runs.index(SEPARATOR)
    first, second = runs[:cut], runs[cut + 1 :]
    if not first or not second:
        raise UsageError(
            f"Arm {'A' if not first else 'B'} has no run. Name one at least on each side of the two dashes."
        )
    return first, second


def told_of(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON holds it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": {"name": found.a.name, "runs": [run.name for run in found.a.runs]},
        "b": {"name": found.b.name, "runs": [run.name for run in found.b.runs]},
        "primary": found.primary,
        "metrics": found.metrics.to_dicts(),
        "closure": found.closure.to_dicts(),
        "pairs": found.pairs.to_dicts(),
        "findings": [asdict(finding) for finding in found.findings],
    }


def _names(text: str | None) -> tuple[str, str]:
    if text is None:
        return "A", "B"
    first, comma, second = text.partition(",")
    if not (first and comma and second) or first == second:
        raise UsageError(f"--names {text}: give two names such as before,after.")
    return first, second


_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def _margin(text: str | None) -> tuple[float | None, float | None]:
    """Return a margin in nanoseconds, or as a share."""
    if text is None:
        return None, None
    number = text.rstrip("%nuµms ")
    unit = text[len(number) :].strip()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if value < 0 or (unit != "%" and unit not in _UNITS_NS):
        raise UsageError(f"--margin {text}: give a share or a time such as 2%, 50us or 1ms.")
    return (None, value / 100) if unit == "%" else (value * _UNITS_NS[unit], None)


def _fails(found: Comparison, fail_on: FailOn) -> bool:
    verdicts = found.metrics.filter("is_primary")["verdict"]
    return any(verdict in _FAILING[fail_on.value] for verdict in verdicts)


def _write(path: Path, told: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(told, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}.") from error

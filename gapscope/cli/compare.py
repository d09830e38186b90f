"""``gapscope compare``: arms of runs, and what may be claimed of their difference."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer
from rich.console import RenderableType

from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.compare import (
    Arm,
    Comparison,
    Run,
    RunPlan,
    Settings,
    Study,
    compare,
    comparison_told,
    read_plan,
    read_run,
    run_study,
    study_told,
)
from gapscope.compare.latencies import with_latencies
from gapscope.compare.margin import parse_margin
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.page.compared import comparison_page, study_page
from gapscope.page.simple import SimplePage, write_page
from gapscope.reports.comparison import render_comparison
from gapscope.reports.study import render_study
from gapscope.version import VERSION
from gapscope.writing import replacing

SEPARATOR = "\x1f--"
"""Stands for the ``--`` between the arms, which the parser of options would swallow."""

EXIT_THRESHOLD = 1
_CLAIMS = ("faster", "slower", "equivalent", "inconclusive", "below clock resolution")
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
    findings: list[Finding] = []
    if out is not None and report is not None and out.resolve() == report.resolve():
        raise UsageError(f"{out}: --out and --report name one file. Name two.")
    named = list(runs or [])
    study_file = named[0] if len(named) == 1 and named[0].endswith(".toml") else None
    if study_file is None:
        first, second = split_arms(named)
        settings = Settings(primary, *_margin(margin))
    else:
        _only_in_study(study_file, names=names, primary=primary, margin=margin, noise=noise)
    with LateProgress() as progress:

        def read(path: str | Sequence[str]) -> Run:
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

        if study_file is not None:
            found = _of_study(run_study(read_plan(study_file), lambda plan: _planned(plan, read)))
        else:
            arms = [
                Arm(n, [read(path) for path in paths]) for n, paths in zip(_names(names), (first, second), strict=True)
            ]
            found = _of_arms(compare(arms[0], arms[1], settings, _noise([read(path) for path in noise or []])))
    if out is not None:
        _write(out, found.told)
    if report is not None:
        write_page(found.page(), report, VERSION)
    if fmt is Format.json:
        typer.echo(json.dumps(found.told, indent=1))
    elif fmt is Format.csv:
        typer.echo(found.table.write_csv(), nl=False)
    else:
        print_report(found.render(verbose > 0))
    warn_of_unreadable(findings, strict)
    if fail_on is not None and _fails(found.verdicts, fail_on):
        raise typer.Exit(EXIT_THRESHOLD)


class _Found(NamedTuple):
    """What was found, in all its forms.

    Attributes:
        told: As JSON holds it.
        table: As CSV holds it.
        verdicts: Those that `--fail-on` goes by.
        render: Returns it for a console; with all causes and pairs, or without.
        page: Returns it as a page.
    """

    told: dict[str, Any]
    table: pl.DataFrame
    verdicts: list[str]
    render: Callable[[bool], RenderableType]
    page: Callable[[], SimplePage]


def _of_arms(found: Comparison) -> _Found:
    told = comparison_told(found)
    return _Found(
        told,
        found.metrics,
        _primary_verdicts([found]),
        lambda verbose: render_comparison(told, verbose),
        lambda: comparison_page(told, found.values),
    )


def _of_study(found: Study) -> _Found:
    told = study_told(found)
    if found.sweep is not None:
        table, verdicts = found.sweep.rows, found.sweep.rows["verdict"].to_list()
    else:
        tables = [one.metrics.select(pl.lit(one.b.name).alias("arm"), pl.all()) for one in found.comparisons]
        table, verdicts = pl.concat(tables), _primary_verdicts(found.comparisons)
    return _Found(
        told,
        table,
        verdicts,
        lambda verbose: render_study(told, verbose),
        lambda: study_page(told, [one.values for one in found.comparisons]),
    )


def _primary_verdicts(found: Iterable[Comparison]) -> list[str]:
    return [verdict for one in found for verdict in one.metrics.filter("is_primary")["verdict"]]


def _planned(plan: RunPlan, read: Callable[[str | Sequence[str]], Run]) -> Run:
    """Return a run of a study, with its latencies."""
    run = read(list(plan.paths))
    return run if plan.latencies is None else with_latencies(run, plan.latencies)


def _noise(runs: list[Run]) -> list[tuple[Run, Run]]:
    if len(runs) % 2:
        raise UsageError(f"--noise: {len(runs)} runs are no pairs; give two, or four.")
    return list(zip(runs[0::2], runs[1::2], strict=True))


def _only_in_study(file: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None and value != []:
            raise UsageError(f"--{name} with a study: write it into {file}, where it is decided before looking.")


def split_arms(runs: list[str]) -> tuple[list[str], list[str]]:
    """Return the runs of both arms.

    Raises:
        UsageError: There are no two arms.
    """
    if runs.count(SEPARATOR) != 1:
        raise UsageError(
            "Name the runs of arm A, two dashes, and the runs of arm B: gapscope compare a1 a2 -- b1 b2; or one file "
            "with a study: gapscope compare study.toml."
        )
    cut = runs.index(SEPARATOR)
    first, second = runs[:cut], runs[cut + 1 :]
    if not first or not second:
        raise UsageError(
            f"Arm {'A' if not first else 'B'} has no run. Name one at least on each side of the two dashes."
        )
    return first, second


def _names(text: str | None) -> tuple[str, str]:
    if text is None:
        return "A", "B"
    first, comma, second = text.partition(",")
    if not (first and comma and second) or first == second:
        raise UsageError(f"--names {text}: give two names such as before,after.")
    return first, second


def _margin(text: str | None) -> tuple[float | None, float | None]:
    """Return a margin in nanoseconds, or as a share."""
    if text is None:
        return None, None
    try:
        return parse_margin(text)
    except UsageError as error:
        raise UsageError(f"--margin {error}") from error


def _fails(verdicts: Sequence[str], fail_on: FailOn) -> bool:
    """Tell whether a verdict crosses the threshold; where none was drawn, say that nothing was checked."""
    if not any(verdict in _CLAIMS for verdict in verdicts):
        said = ", ".join(dict.fromkeys(verdicts)) or "nothing in common"
        print(f"gapscope: --fail-on {fail_on.value} had no verdict to go by ({said}).", file=sys.stderr)  # noqa: T201
    return any(verdict in _FAILING[fail_on.value] for verdict in verdicts)


def _write(path: Path, told: dict[str, Any]) -> None:
    try:
        with replacing(path) as beside:
            beside.write_text(json.dumps(told, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}.") from error

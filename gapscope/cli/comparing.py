"""What ``gapscope compare`` does: read the runs of both arms, compare them, and say it as it was asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import typer
from rich.console import RenderableType

from gapscope.cli.compare import SEPARATOR, FailOn, Format
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.clocks import AlignOptions
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
from gapscope.load import LoadOptions
from gapscope.page.compared import comparison_page, study_page
from gapscope.page.simple import SimplePage, write_page
from gapscope.reports.comparison import render_comparison
from gapscope.reports.study import render_study
from gapscope.version import VERSION
from gapscope.writing import replacing

EXIT_THRESHOLD = 1
_CLAIMS = ("faster", "slower", "equivalent", "inconclusive", "below clock resolution")
_FAILING = {"slower": ("slower",), "not-faster": ("slower", "equivalent", "inconclusive", "below clock resolution")}


@dataclass(frozen=True)
class Asked:
    """Arguments and options of the command, as `gapscope.cli.compare.compare_command` says them."""

    runs: list[str]
    names: str | None
    primary: str | None
    margin: str | None
    noise: list[str]
    fail_on: FailOn | None
    out: Path | None
    report: Path | None
    fmt: Format
    verbose: bool
    strict: bool
    options: LoadOptions
    clocks: AlignOptions | None
    unmarked: bool
    comm_kernels: tuple[str, ...]


def run_comparison(asked: Asked) -> None:
    """Do what the command says.

    Raises:
        UsageError: Options contradict each other, or a run cannot be had.
        typer.Exit: The primary metric crosses the threshold of ``--fail-on``.
    """
    findings: list[Finding] = []
    if asked.out is not None and asked.report is not None and asked.out.resolve() == asked.report.resolve():
        raise UsageError(f"{asked.out}: --out and --report name one file. Name two.")
    study_file = asked.runs[0] if len(asked.runs) == 1 and asked.runs[0].endswith(".toml") else None
    if study_file is None:
        first, second = split_arms(asked.runs)
        settings = Settings(asked.primary, *_margin(asked.margin))
    else:
        given = {"names": asked.names, "primary": asked.primary, "margin": asked.margin, "noise": asked.noise or None}
        _only_in_study(study_file, **given)
    with LateProgress() as progress:

        def read(path: str | Sequence[str]) -> Run:
            run, notes = read_run(
                path,
                options=asked.options,
                clocks=asked.clocks,
                unmarked=asked.unmarked,
                comm_kernels=asked.comm_kernels,
                progress=progress,
            )
            findings.extend(notes)
            return run

        if study_file is not None:
            found = _of_study(run_study(read_plan(study_file), lambda plan: _planned(plan, read)))
        else:
            arms = [
                Arm(n, [read(path) for path in paths])
                for n, paths in zip(_names(asked.names), (first, second), strict=True)
            ]
            found = _of_arms(compare(arms[0], arms[1], settings, _noise([read(path) for path in asked.noise])))
    if asked.out is not None:
        _write(asked.out, found.told)
    if asked.report is not None:
        write_page(found.page(), asked.report, VERSION)
    if asked.fmt is Format.json:
        typer.echo(json.dumps(found.told, indent=1))
    elif asked.fmt is Format.csv:
        typer.echo(found.table.write_csv(), nl=False)
    else:
        print_report(found.render(asked.verbose))
    warn_of_unreadable(findings, asked.strict)
    if asked.fail_on is not None and _fails(found.verdicts, asked.fail_on):
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

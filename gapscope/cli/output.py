"""What commands print."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from rich.console import Console, RenderableType

from gapscope.errors import InputError
from gapscope.findings import Finding
from gapscope.reports.tables import Literal, without_controls

_PIPE_WIDTH = 118


def print_report(report: RenderableType) -> None:
    """Print a report: in a terminal as wide as it is, elsewhere in lines of 118 without trailing spaces."""
    console = Console(highlight=False, emoji=False)
    if console.is_terminal:
        console.print(Literal(report))
        return
    width = console.width if "COLUMNS" in os.environ else _PIPE_WIDTH
    console = Console(highlight=False, emoji=False, width=width)
    with console.capture() as capture:
        console.print(Literal(report))
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def warn_of_parts(findings: Sequence[Finding]) -> None:
    """Say on stderr that files were read in part, where no report lists the findings."""
    for finding in findings:
        if finding.code == "part_read":
            print(f"gapscope: {finding.message} {finding.hint}", file=sys.stderr)  # noqa: T201


def warn_of_unreadable(findings: Sequence[Finding], strict: bool) -> None:
    """Name the files that could not be read on stderr.

    Raises:
        InputError: There are some, and ``strict`` is set.
    """
    unreadable = [f for f in findings if f.code == "unreadable_file"]
    for finding in unreadable:
        line = f"gapscope: not read: {finding.path}: {finding.message} {finding.hint}".rstrip()
        print(without_controls(line), file=sys.stderr)  # noqa: T201
    if strict and unreadable:
        raise InputError(unreadable[0].path or "", unreadable[0].message, unreadable[0].hint)

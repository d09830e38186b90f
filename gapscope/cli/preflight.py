"""``gapscope preflight``: what this environment can record, what is lost, and the exact capture commands."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gapscope.cli.output import print_report
from gapscope.cli.recordings import Nsys
from gapscope.errors import UsageError
from gapscope.preflight.capture_commands import folded, shown
from gapscope.preflight.checks import Preflight, preflight
from gapscope.preflight.command_check import CheckedCommand, check_command
from gapscope.preflight.nsys_command_check import Missing, split_command
from gapscope.recording import instrumented

_COMMAND_WIDTH = 100


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"


def preflight_command(  # noqa: PLR0917 - typer hands options over by position
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="A capture command to check, after --: nsys profile ..., python train.py.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="TEXT", help="The same as one text.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder that recordings are to go to.")] = Path(),
    nsys: Nsys = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PROGRAM", help="The job's Python; else the one that runs gapscope.", show_default=False
        ),
    ] = None,
    try_nsys: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe", help="Record two marks with nsys and read them back; else judge by versions."
        ),
    ] = True,
    fmt: Annotated[
        Format, typer.Option("--format", help="text: tables and commands; json: the same for programs.")
    ] = Format.text,
) -> None:
    """Tell what this environment can record, which answers are lost, and the exact capture commands.

    Exits with 1 if no handoff can be recorded here, or with the command to check.

    Example: gapscope preflight --command "nsys profile -t nvtx python train.py"
    """
    if words and command is not None:
        raise UsageError("Give the command to check once: with --command or after --.")
    given = split_command(command) if command is not None else list(words or [])
    if command is not None and not given:
        raise UsageError("--command: the command is empty.")
    result = preflight(nsys=nsys, python=python, out=out, try_nsys=try_nsys, environment=instrumented(os.environ))
    checked = check_command(given, nsys) if given else None
    if fmt is Format.json:
        typer.echo(json.dumps(_plain(result, checked), indent=1))
    else:
        print_report(Group(*_shown(result, checked)))
    if not result.can_record or (checked is not None and checked.records_nothing):
        raise typer.Exit(1)


def _plain(result: Preflight, checked: CheckedCommand | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "can_record": result.can_record,
        "verdict": result.verdict,
        "routes": result.routes,
        "checks": [asdict(check) for check in result.checks],
        "missing": [_plain_missing(m) for m in result.missing],
        "commands": result.commands,
    }
    if checked is not None:
        out["command"] = {
            "tool": checked.tool,
            "words": checked.words,
            "records_nothing": checked.records_nothing,
            "verdict": checked.verdict,
            "missing": [_plain_missing(m) for m in checked.missing],
            "better": checked.better,
        }
    return out


def _plain_missing(missing: Missing) -> dict[str, Any]:
    return {**asdict(missing.setting), "found": missing.found, "surely": missing.surely}


def _shown(result: Preflight, checked: CheckedCommand | None) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if checked is not None:
        parts += [Text(f"The command: {shown(checked.words)}"), Text(checked.verdict), *_losses("", checked.missing)]
        if checked.better:
            parts += [Text("\nWith all answers:"), _command(checked.better)]
        parts.append(Text("\nThe environment:"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for check in result.checks:
        table.add_row(
            *(
                Text(t)
                for t in (
                    check.what,
                    check.state,
                    f"{check.found}. {check.next_step}" if check.next_step else check.found,
                )
            )
        )
    parts.append(table)
    parts += _losses("\nWhat is lost here:", result.missing)
    titles = {
        "record": "To record and analyze:",
        "nsys": "To record with nsys:",
        "torch": "To record with torch.profiler, in the job:",
    }
    for name, text in result.commands.items():
        if checked is None or not checked.better:
            parts += [Text("\n" + titles[name]), _command(text)]
    parts.append(Text("\n" + result.verdict))
    return parts


def _command(text: str) -> RenderableType:
    """Return a command in lines that fit, each of which a shell continues; code stays as it is."""
    return Padding(Text(text if "\n" in text else folded(text, _COMMAND_WIDTH)), (0, 0, 0, 2))


def _losses(title: str, missing: list[Missing]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(title)] if title and missing else []
    for one in missing:
        if_so = "" if one.surely or not one.setting.only_if else f" Matters if {one.setting.only_if}."
        parts.append(Padding(Text(f"{one.setting.option} ({one.found})"), (0, 0, 0, 2)))
        parts.append(Padding(Text(f"costs {', '.join(one.setting.lost)}: {one.setting.because}{if_so}"), (0, 0, 0, 6)))
    return parts

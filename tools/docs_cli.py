"""The command line as a page: every command, argument and option, as the program itself defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from gapscope.cli import app

_ROOT = typer.main.get_command(app)


def commands() -> Mapping[str, Any]:
    """Return the commands of gapscope by name, in the order of its help."""
    return dict(getattr(_ROOT, "commands"))  # noqa: B009 - typer's groups are not typed


def command_line() -> str:
    """Return a section per command."""
    return "\n\n".join(_command(name, command) for name, command in commands().items())


def _command(name: str, command: Any) -> str:  # noqa: ANN401 - click's own classes come with typer
    usage = command.get_usage(typer.Context(command, info_name=f"gapscope {name}")).removeprefix("Usage: ").strip()
    paragraphs = [" ".join(part.split()) for part in command.help.split("\n\n")]
    said = [f"`{p.removeprefix('Example: ')}`" if p.startswith("Example: ") else p for p in paragraphs]
    hints = get_type_hints(command.callback)
    rows = [_row(parameter, hints[parameter.name]) for parameter in command.params]
    table = ["| argument or option | value | default | what it does |", "|---|---|---|---|", *rows]
    return "\n".join([f"## `gapscope {name}`", "", *_spaced(said), "```text", usage, "```", "", *table])


def _spaced(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")]


def _row(parameter: Any, hint: Any) -> str:  # noqa: ANN401 - as above
    if parameter.param_type_name == "argument":
        names, value = [parameter.metavar], "one or more" if parameter.nargs == -1 else "one"
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag or parameter.count else _value(parameter.metavar, hint)
    shown = f"`{_plain(parameter.default)}`" if value and parameter.default is not None else ""
    written = ", ".join(f"`{name}`" for name in names)
    return f"| {written} | {value} | {shown} | {_escaped(parameter.help)} |"


def _value(metavar: str | None, hint: Any) -> str:  # noqa: ANN401 - a type of any kind
    """Return in a word what is given with an option."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)]
    choices = [f"`{choice.value}`" for kind in kinds if issubclass(kind, Enum) for choice in kind]
    if choices:
        return ", ".join(choices)
    word = "PATH" if Path in kinds else "INTEGER" if int in kinds else "TEXT"
    return f"`{metavar or word}`"


def _plain(value: object) -> str:
    return str(getattr(value, "value", value))


def _escaped(text: str) -> str:
    """Return a text that is safe within a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


PARTS: Mapping[str, Callable[[], str]] = {"command line": command_line}

"""The command line: a skin on the library. Only this package prints and exits."""

from __future__ import annotations

import io
import sys
import warnings

import typer
from rich.console import Console

from gapscope import __version__
from gapscope.cli.align import align_command
from gapscope.cli.analyze import analyze_command
from gapscope.cli.compare import ArmsCommand, compare_command
from gapscope.cli.explain import explain_command
from gapscope.cli.export import export_command
from gapscope.cli.preflight import preflight_command
from gapscope.cli.record import record_command
from gapscope.cli.whatif import whatif_command
from gapscope.errors import GapscopeError, InputError, LoopsNotKeptWarning
from gapscope.reports.tables import without_controls

EXIT_USAGE = 2
EXIT_UNREADABLE = 3

app = typer.Typer(
    name="gapscope",
    help="A GPU finished its kernel: what is the next stage waiting for?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("analyze")(analyze_command)
app.command("explain")(explain_command)
app.command("whatif")(whatif_command)
app.command("compare", cls=ArmsCommand)(compare_command)
app.command("align")(align_command)
app.command("export")(export_command)
_JOB = {"allow_interspersed_args": False}  # what follows the first word of a command is that command's own
app.command("preflight", context_settings=_JOB)(preflight_command)
app.command("record", context_settings=_JOB)(record_command)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", "-V", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(f"gapscope {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; errors of gapscope become one message on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a sign gets a question mark, not a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    plain = warnings.formatwarning
    warnings.formatwarning = lambda message, category, *place: (
        f"gapscope: {message}\n" if category is LoopsNotKeptWarning else plain(message, category, *place)
    )
    try:
        app()
    except GapscopeError as error:
        console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        console.print(without_controls(f"gapscope: {error}"), markup=False)
        sys.exit(EXIT_UNREADABLE if isinstance(error, InputError) else EXIT_USAGE)
    except BrokenPipeError:
        raise  # whoever reads the output has had enough
    except FileNotFoundError as error:  # of what is written, the folder is made first
        said = f"gapscope: a file went away while it was used ({error}). If the cache was removed, run again."
        print(said, file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)
    except OSError as error:
        print(f"gapscope: the output cannot be written ({error.strerror or error}).", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USAGE)

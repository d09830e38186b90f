"""Put the clocks of recordings together, and show where they stand."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl
import typer

from gapscope.cli.align import Format
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.clocks import Alignment, AlignOptions, align
from gapscope.clocks.pair import clock_of_rank, default_pair, pair_view
from gapscope.errors import UsageError
from gapscope.events import find_ends
from gapscope.findings import sort_findings
from gapscope.handoffs import build_handoffs
from gapscope.load import LoadOptions, load
from gapscope.plots.alignment import alignment_figure
from gapscope.plots.html import write_figure
from gapscope.reports.text import render_alignment
from gapscope.schema import SCHEMA_VERSION
from gapscope.summary import summarize_clocks
from gapscope.writing import replacing, table_file


@dataclass(frozen=True)
class Wanted:
    """What is to be shown and written.

    Attributes:
        fmt: What goes to stdout.
        out: Folder for the table.
        plot: File for a picture.
        pair: The ranks to draw, as ``--pair`` takes them.
        strict: Exit with 3 if any file cannot be read.
        every: Show all clocks and notes.
    """

    fmt: Format
    out: Path | None
    plot: Path | None
    pair: str | None
    strict: bool
    every: bool


def align_clocks(paths: list[str], loading: LoadOptions, clocks: AlignOptions | None, wanted: Wanted) -> None:
    """Load recordings, align their clocks, and show them.

    Args:
        paths: The recordings.
        loading: How to load them.
        clocks: What the user states about the clocks.
        wanted: What is to be shown and written.

    Raises:
        UsageError: There is no such pair, or something cannot be written.
    """
    with LateProgress() as progress:
        trace = load(paths, loading, progress)
        progress("clocks", 1.0)
        ends = find_ends(trace)
        alignment = align(trace, ends, clocks)
        handoffs = build_handoffs(trace, ends, alignment)
    table = alignment.with_spans(handoffs.spans)
    findings = sort_findings([*trace.findings, *alignment.findings])
    told = summarize_clocks(trace.sources, table, handoffs.table)
    if wanted.plot is not None:
        write_figure(alignment_figure(pair_view(alignment, *_pair(alignment, wanted.pair))), wanted.plot)
    if wanted.out is not None:
        _write(table, wanted.out)
    if wanted.fmt is Format.json:
        shown = {"schema_version": SCHEMA_VERSION, "clocks": told, "findings": [asdict(f) for f in findings]}
        typer.echo(json.dumps(shown, indent=1))
    elif wanted.fmt is Format.csv:
        typer.echo(table.write_csv(), nl=False)
    else:
        print_report(render_alignment(told, findings, wanted.every))
    warn_of_unreadable(findings, wanted.strict)


_TOOL = "(nsys|torch|gapscope)"


def _pair(alignment: Alignment, text: str | None) -> tuple[int, int]:
    """Return the clocks to draw, the first against the second; without a wish, some other against the reference."""
    if text is None:
        pair = default_pair(alignment)
        if pair is None:
            raise UsageError("--plot: there is only one clock, so there is nothing to draw.")
        return pair
    found = re.fullmatch(rf"(\d{{1,9}})(?::{_TOOL})?,(\d{{1,9}})(?::{_TOOL})?", text)
    if not found:
        raise UsageError(f"--pair {text}: give two ranks such as 1,0, or 0:torch,0:nsys where two tools saw a rank.")
    return clock_of_rank(alignment, int(found[1]), found[2]), clock_of_rank(alignment, int(found[3]), found[4])


def _write(table: pl.DataFrame, out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / "alignment.parquet") as beside:
            beside.write_bytes(table_file(table, {"schema_version": str(SCHEMA_VERSION)}))
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror or error}). Name another folder.") from error

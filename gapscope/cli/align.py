"""``gapscope align``: where the clocks of the recordings stand, and how sure that is."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.clocks import Alignment, align
from gapscope.clocks.pair import clock_of_rank, default_pair, pair_view
from gapscope.errors import UsageError
from gapscope.events import find_ends
from gapscope.findings import sort_findings
from gapscope.handoffs import build_handoffs
from gapscope.load import load
from gapscope.plots.alignment import alignment_figure
from gapscope.plots.html import write_figure
from gapscope.reports.text import render_alignment
from gapscope.schema import SCHEMA_VERSION
from gapscope.summary import summarize_clocks
from gapscope.writing import replacing, table_file


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
    options = align_options(offset, same_host, clock_bound, anchors)
    with LateProgress() as progress:
        trace = load(list(traces or []), load_options(nsys, no_cache, rank_of, job), progress)
        progress("clocks", 1.0)
        ends = find_ends(trace)
        alignment = align(trace, ends, options)
        handoffs = build_handoffs(trace, ends, alignment)
    table = alignment.with_spans(handoffs.spans)
    findings = sort_findings([*trace.findings, *alignment.findings])
    clocks = summarize_clocks(trace.sources, table, handoffs.table)
    if plot is not None:
        write_figure(alignment_figure(pair_view(alignment, *_pair(alignment, pair))), plot)
    if out is not None:
        _write(table, out)
    if fmt is Format.json:
        shown = {"schema_version": SCHEMA_VERSION, "clocks": clocks, "findings": [asdict(f) for f in findings]}
        typer.echo(json.dumps(shown, indent=1))
    elif fmt is Format.csv:
        typer.echo(table.write_csv(), nl=False)
    else:
        print_report(render_alignment(clocks, findings, verbose > 0))
    warn_of_unreadable(findings, strict)


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

"""``gapscope explain``: the whole chain of one handoff, with times, evidence and alternatives."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Annotated

import polars as pl
import typer

from gapscope.analysis import analyze
from gapscope.cli.clocks import Anchors, ClockBound, Offset, SameHost, align_options
from gapscope.cli.output import print_report, warn_of_unreadable
from gapscope.cli.progress import LateProgress
from gapscope.cli.recordings import Job, NoCache, Nsys, RankOf, Strict, load_options
from gapscope.cli.unmarked import CommKernel, Unmarked
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.reports.chain import render_chain

_SHORT = re.compile(r"(?P<src>\d+)[->](?P<dst>\d+)(?:/(?P<channel>\d+))?[:/](?P<seq>-?\d+)")


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"
    csv = "csv"


def explain_command(  # noqa: PLR0917 - typer hands options over by position
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Recordings, as for gapscope analyze.", show_default=False),
    ] = None,
    handoff: Annotated[
        str | None,
        typer.Option(
            "--handoff",
            metavar="KEY",
            help="The handoff, as 0-1:57 (ranks and seq) or its id; else the longest gap past start-up.",
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Use the recording shipped with gapscope.")] = False,
    fmt: Annotated[
        Format, typer.Option("--format", help="text: the chain; json: handoff and tiles; csv: one line per tile.")
    ] = Format.text,
    every: Annotated[
        bool, typer.Option("--all", help="One line per tile, not per stretch of one cause on one thread or stream.")
    ] = False,
    unmarked: Unmarked = False,
    comm_kernel: CommKernel = None,
    offset: Offset = None,
    same_host: SameHost = False,
    clock_bound: ClockBound = None,
    anchors: Anchors = None,
    rank_of: RankOf = None,
    job: Job = None,
    nsys: Nsys = None,
    strict: Strict = False,
    no_cache: NoCache = False,
) -> None:
    """Print why one gap is there: every tile from the consumer back to the producer.

    Example: gapscope explain rank0.json.gz rank1.json.gz --handoff 0-1:57
    """
    paths = list(traces or []) + ([str(DEMO_RECORDING)] if demo else [])
    if not paths and not job:
        raise UsageError("No recording was named. Pass one, or --demo for the one shipped with gapscope.")
    with LateProgress() as progress:
        analysis = analyze(
            paths,
            options=load_options(nsys, no_cache, rank_of, job),
            clocks=align_options(offset, same_host, clock_bound, anchors),
            unmarked=unmarked,
            comm_kernels=comm_kernel or (),
            progress=progress,
        )
    row = _chosen(analysis.handoffs, handoff)
    tiles = analysis.tiles.filter(pl.col("handoff_id") == row["handoff_id"]).sort("start_ns", descending=True)
    if fmt is Format.json:
        plain = {name: str(value) if isinstance(value, bytes) else value for name, value in row.items()}
        typer.echo(json.dumps({"handoff": plain, "tiles": tiles.to_dicts()}, indent=1))
    elif fmt is Format.csv:
        typer.echo(tiles.write_csv(), nl=False)
    else:
        print_report(render_chain(row, tiles.to_dicts(), every=every))
    warn_of_unreadable(analysis.findings, strict)


def _chosen(handoffs: pl.DataFrame, key: str | None) -> dict[str, object]:
    """Return the handoff that a key names; without one, the explained one with the longest gap."""
    if not handoffs.height:
        raise UsageError("No handoffs were found. `gapscope analyze` says what is missing.")
    if key is None:
        explained = handoffs.filter(pl.col("dominant_cause").is_not_null())
        pool = explained.filter("steady") if explained.filter("steady").height else explained
        if not pool.height:
            raise UsageError("No handoff has a gap that can be explained. `gapscope analyze` says why.")
        return pool.sort("gap_ns", "handoff_id", descending=[True, False]).row(0, named=True)
    found = handoffs.filter(pl.col("handoff_id") == key)
    short = _SHORT.fullmatch(key.strip())
    if not found.height and short:
        found = handoffs.filter(
            (pl.col("src_rank") == int(short["src"]))
            & (pl.col("dst_rank") == int(short["dst"]))
            & (pl.col("seq") == int(short["seq"]))
            & ((pl.col("channel") == int(short["channel"])) if short["channel"] else pl.lit(value=True))
        )
    if found.height == 1:
        return found.row(0, named=True)
    if found.height:
        listed = ", ".join(found["handoff_id"].head(8))
        raise UsageError(f"--handoff {key}: several handoffs fit. Name one by its id: {listed}.")
    some = ", ".join(handoffs["handoff_id"].head(8))
    more = f", ... ({handoffs.height:,} in all)" if handoffs.height > 8 else ""
    raise UsageError(f"--handoff {key}: there is none. There are {some}{more}.")

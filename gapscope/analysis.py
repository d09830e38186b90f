"""From recordings to answers: the one call that does everything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.causes import Explained, explain, find_units, fragmented, interference, unit_exposure, waiting
from gapscope.clocks import Alignment, AlignOptions, align
from gapscope.errors import ReplayError, UsageError
from gapscope.events import find_ends
from gapscope.findings import Finding, findings_to_json, plural, sort_findings
from gapscope.graph import build_graph
from gapscope.handoff import Handoff, choose
from gapscope.handoffs import build_handoffs
from gapscope.handoffs.marks_cost import marks_cost, note_on_marks_cost
from gapscope.load import LoadOptions, load
from gapscope.readers.base import Progress, no_progress
from gapscope.schema import (
    EXPOSURE,
    FIXES,
    INTERFERENCE,
    MESSAGES,
    SCHEMA_VERSION,
    SLACK,
    TILES,
    UNITS,
    WAITING,
    dtypes,
)
from gapscope.summary import COUNTED, summarize
from gapscope.trace import Trace
from gapscope.unmarked import with_unmarked
from gapscope.version import VERSION
from gapscope.whatif import Effects, Model, Scenario, effects, ranked, unit_slack
from gapscope.writing import replacing, write_table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TABLES = (
    "handoffs", "tiles", "units", "exposure", "fixes", "slack", "messages", "interference", "waiting", "alignment",
)  # fmt: skip
"""Tables of an analysis; each is written as Parquet under its name."""

SUMMARY_KEY = "summary_sha256"
"""Key of `summary_digest` in the metadata of every Parquet file: which results it belongs to."""
OUTPUTS = (*(f"{name}.parquet" for name in TABLES), "findings.json", "summary.json")
"""Files that an analysis is written to."""


@dataclass(frozen=True)
class Analysis:
    """What gapscope found in the recordings of one run.

    Attributes:
        trace: The recordings.
        handoffs: Table ``handoffs`` of `gapscope.schema`, one row per handoff.
        tiles: Table ``tiles``: what held each gap, nanosecond by nanosecond.
        alignment: Table ``alignment``: where each clock stands, against the reference and, where times of handoffs
            span other pairs of clocks, against each other.
        findings: What is missing, weak or odd, and what to do about it.
        selection: What was chosen: ``steps``, ``ranks``, ``warmup``.
        timebase: The clocks themselves: what is known of them and by which records.
        units: Table ``units``: the steps and requests that marks name.
        exposure: Table ``exposure``: what held each of them, along one path from its end to its start.
        messages: Table ``messages``: handoffs of many messages, and what bound them.
        interference: Table ``interference``: kinds of operations alone and beside others; context, not a cause.
        waiting: Table ``waiting``: how long each rank's communication kernels waited for which rank.
        fixes: Table ``fixes``: what it would bring to steps or requests if one cause were gone.
        slack: Table ``slack``: how much later each handoff could have come with no unit ending later.
        model: The graph, ready to be replayed (`whatif`); None: no handoff and no step or request was found.
    """

    trace: Trace
    handoffs: pl.DataFrame
    tiles: pl.DataFrame
    alignment: pl.DataFrame
    findings: list[Finding]
    selection: dict[str, Any] = field(default_factory=lambda: {"steps": None, "ranks": None, "warmup": 1})
    timebase: Alignment | None = field(default=None, repr=False)
    units: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(UNITS)), repr=False)
    exposure: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(EXPOSURE)), repr=False)
    messages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(MESSAGES)), repr=False)
    interference: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(INTERFERENCE)), repr=False)
    waiting: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(WAITING)), repr=False)
    fixes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(FIXES)), repr=False)
    slack: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(SLACK)), repr=False)
    model: Model | None = field(default=None, repr=False)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Every number that the text report prints, as in ``summary.json``."""
        tables = {name: getattr(self, name) for name in TABLES}
        return summarize(self.trace, tables, self.findings, self.selection)

    def write(self, directory: str | PathLike[str]) -> list[Path]:
        """Write all tables as Parquet, ``findings`` and ``summary`` as JSON (`OUTPUTS`).

        Files of these names are replaced, and only once all new ones are whole.

        Returns:
            The files written. Each carries ``schema_version`` (Parquet: in the file's metadata, with the digest of
            ``summary.json``, so that files of two runs are told apart).

        Raises:
            UsageError: The directory cannot be written to.
        """
        out = Path(directory)
        findings, summary = findings_to_json(self.findings, SCHEMA_VERSION), json.dumps(self.summary, indent=1) + "\n"
        version = {"schema_version": str(SCHEMA_VERSION), SUMMARY_KEY: summary_digest(summary)}
        try:
            out.mkdir(parents=True, exist_ok=True)
            with ExitStack() as files:
                beside = {name: files.enter_context(replacing(out / name)) for name in OUTPUTS}
                for name in TABLES:
                    write_table(getattr(self, name), beside[f"{name}.parquet"], version)
                beside["findings.json"].write_text(findings)
                beside["summary.json"].write_text(summary)
        except OSError as error:
            raise UsageError(
                f"{out}: cannot be written to ({error.strerror or error}). Name another folder."
            ) from error
        return [out / name for name in OUTPUTS]

    def write_report(self, path: str | PathLike[str]) -> Path:
        """Write the report as one page (HTML) that needs no network.

        Args:
            path: The file; replaced if it exists.

        Raises:
            UsageError: It cannot be written.
        """
        from gapscope.page import write_report  # noqa: PLC0415 - only the page needs its templates

        out = Path(path)
        write_report(self, out, VERSION)
        return out

    def handoff(self, key: str | None = None) -> Handoff:
        """Return one handoff: its chain, its timeline, its picture.

        Args:
            key: Its ``handoff_id``, or ranks and seq as ``"0-1:57"``; None: the explained one with the longest gap past
                start-up.

        Raises:
            UsageError: None or several fit; the message lists some.
        """
        row = choose(self.handoffs, key)
        tiles = self.tiles.filter(pl.col("handoff_id") == row["handoff_id"][0]).sort("start_ns")
        return Handoff(row.row(0, named=True), tiles, row, self.trace, self.timebase)

    def whatif(self, scenario: Scenario) -> Effects:
        """Return what steps and requests would have become had some time been gone.

        Args:
            scenario: What is gone, such as ``gapscope.Scenario(cause="late_submission", to="p10")``.

        Raises:
            UsageError: No tile fits the scenario.
            ReplayError: The graph, replayed without a change, does not give back the recorded times.
        """
        if self.model is None:
            raise UsageError("There is nothing to replay: no handoff, step or request was found. See `findings`.")
        return effects(self.model, scenario)

    def figure(self, name: str = "gaps", *, edge: str | None = None) -> Figure:
        """Return one of the report's figures (Plotly); `Handoff.figure` has the picture of one gap.

        Args:
            name: ``gaps`` (how they are spread over each edge), ``history`` (the gaps of one edge over time),
                ``causes`` (what held them), ``phases``, ``units`` (what each step or request waited for), or
                ``clocks`` (what is known about the offset of one clock, over time).
            edge: Of ``history``: the edge as reports write it, such as ``"0 → 1"``; None: the one with most handoffs.

        Raises:
            UsageError: There is no such figure or edge, or nothing to draw in it.
        """
        from gapscope.figures import figure_of  # noqa: PLC0415 - only pictures need Plotly

        return figure_of(self, name, edge)

    def __repr__(self) -> str:
        counts = self.summary["handoffs"]
        total, counted = counts["total"], counts["counted"]
        return f"Analysis({total} handoffs, {counted} complete and steady, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        from gapscope.reports.text import render_html  # noqa: PLC0415 - only notebooks need a renderer here

        return render_html(self.summary, self.findings)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def analyze(
    source: Trace | str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    options: LoadOptions | None = None,
    steps: tuple[int | None, int | None] | None = None,
    ranks: Collection[int] | None = None,
    warmup: int = 1,
    clocks: AlignOptions | None = None,
    unmarked: bool = False,
    comm_kernels: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Analysis:
    """Find the handoffs of a run and the times of their events.

    Args:
        source: A loaded `Trace`, or what `gapscope.load` takes.
        options: How to load; see `gapscope.load.LoadOptions`.
        steps: Keep handoffs of these steps, first and last included; None at either end leaves it open.
        ranks: Keep handoffs that have one of these ranks as an end.
        warmup: Steps of each edge that count as start-up (see `gapscope.handoffs.steady`).
        clocks: What you know about the clocks; see `gapscope.clocks.AlignOptions`.
        unmarked: Make handoffs of communication without marks also where there are marks; without any it is always
            done (column ``origin``).
        comm_kernels: Patterns of the names of kernels that communicate and are no NCCL (one-shot all-reduces): the k-th
            of each rank are one collective.
        progress: Called with what is going on and the fraction done.

    Returns:
        The analysis. Where no handoff is found, a finding says what to do.

    Raises:
        UsageError: A path does not exist, or a pattern is none.
        IdentityError: Ranks contradict each other, or the files form several runs.
        InputError: None of the files could be read.
    """
    trace = source if isinstance(source, Trace) else load(source, options, progress)
    progress("handoffs", 1.0)
    marked = find_ends(trace)
    alignment = align(trace, marked, clocks)
    ends, unpaired = with_unmarked(trace, marked, wanted=unmarked, comm_kernels=_patterns(comm_kernels))
    built = build_handoffs(trace, ends, alignment, warmup)
    progress("causes", 1.0)
    handoffs = _selected(built.table, steps, ranks)
    explained, units = Explained(pl.DataFrame(schema=dtypes(TILES)), handoffs), pl.DataFrame(schema=dtypes(UNITS))
    exposure, messages = pl.DataFrame(schema=dtypes(EXPOSURE)), pl.DataFrame(schema=dtypes(MESSAGES))
    beside, waits = pl.DataFrame(schema=dtypes(INTERFERENCE)), pl.DataFrame(schema=dtypes(WAITING))
    model = None
    if handoffs.height or trace.marks["mark"].is_in(["step", "request"]).any():
        graph = build_graph(trace, alignment, ends)
        explained = explain(graph, handoffs)
        found = find_units(graph, built.table).of_steps(*(steps or (None, None)))
        units, exposure = found.table, unit_exposure(graph, found, explained)
        messages, beside = fragmented(graph, explained), interference(graph, built.table)
        waits = waiting(graph, built.table)
        model = Model(graph, explained, found)
    notes = [*trace.findings, *alignment.findings, *unpaired, *built.findings]
    if built.table.height and not handoffs.height:
        notes.append(_nothing_left(built.table))
    notes += note_on_marks_cost(marks_cost(trace, handoffs.filter(COUNTED)))
    selection = {"steps": steps and list(steps), "ranks": None if ranks is None else sorted(ranks), "warmup": warmup}
    progress("what fixes would bring", 1.0)
    fixes, slack, refused = _replayed(model)
    notes += refused
    table = alignment.with_spans(built.spans)
    return Analysis(
        trace,
        explained.handoffs,
        explained.tiles,
        table,
        sort_findings(notes),
        selection,
        alignment,
        units,
        exposure,
        messages,
        beside,
        waits,
        fixes,
        slack,
        model,
    )


def _replayed(model: Model | None) -> tuple[pl.DataFrame, pl.DataFrame, list[Finding]]:
    """Return tables ``fixes`` and ``slack``; where the graph cannot be replayed both are empty, with a finding."""
    nothing = pl.DataFrame(schema=dtypes(FIXES)), pl.DataFrame(schema=dtypes(SLACK))
    if model is None:
        return *nothing, []
    try:
        return ranked(model), unit_slack(model), []
    except ReplayError as error:
        return *nothing, [Finding("replay_differs", "warning", str(error), "What-if and slack are left out.")]


def _selected(
    handoffs: pl.DataFrame, steps: tuple[int | None, int | None] | None, ranks: Collection[int] | None
) -> pl.DataFrame:
    low, high = steps or (None, None)
    if low is not None and high is not None and low > high:
        raise UsageError(f"Steps {low} to {high}: the first is behind the last.")
    if low is not None:
        handoffs = handoffs.filter(pl.col("step") >= low)
    if high is not None:
        handoffs = handoffs.filter(pl.col("step") <= high)
    if ranks is not None:
        wanted = list(ranks)
        handoffs = handoffs.filter(pl.col("src_rank").is_in(wanted) | pl.col("dst_rank").is_in(wanted))
    return handoffs


def _patterns(comm_kernels: Sequence[str]) -> Sequence[str]:
    """Return the patterns if the engine that will match them takes them."""
    for pattern in comm_kernels:
        try:
            pl.Series([""]).str.contains(pattern)
        except pl.exceptions.ComputeError as error:
            reason = next((t for t in str(error).splitlines() if t.startswith("error: ")), "error: it cannot be read")
            raise UsageError(
                f"{pattern!r} is no pattern for names of kernels: {reason.removeprefix('error: ')}. "
                "Give a regular expression, such as one_shot."
            ) from error
    return comm_kernels


def _nothing_left(handoffs: pl.DataFrame) -> Finding:
    ends = pl.concat([handoffs["src_rank"], handoffs["dst_rank"]]).drop_nulls().unique().sort()
    steps = handoffs["step"].drop_nulls()
    there = f"steps {steps.min()!r} to {steps.max()!r}" if steps.len() else "no steps in its marks"
    return Finding(
        "nothing_selected",
        "warning",
        f"The choice of steps or ranks leaves none of {plural(handoffs.height, 'handoff')}.",
        f"The recording has {there}, and ranks {', '.join(map(str, ends))}.",
    )


def summary_digest(summary: str) -> str:
    """Return what tells the results of one analysis from those of another: the digest of its ``summary.json``."""
    return hashlib.sha256(summary.encode()).hexdigest()

"""From recordings to answers: the one call that does everything.

What computes is imported where it is asked for: results that were computed before need none of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope import results
from gapscope.errors import UsageError
from gapscope.findings import Finding, findings_to_json
from gapscope.handoff import Handoff, choose
from gapscope.load import LoadOptions, known_origin, load
from gapscope.readers.base import Progress, Window, no_progress
from gapscope.request import TABLES, Request
from gapscope.schema import EXPOSURE, FIXES, INTERFERENCE, MESSAGES, SCHEMA_VERSION, SLACK, UNITS, WAITING, dtypes
from gapscope.trace import Origin, Trace
from gapscope.version import VERSION
from gapscope.writing import replacing, table_file

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from gapscope.clocks import Alignment, AlignOptions
    from gapscope.pipeline import Stages
    from gapscope.whatif import Effects, Model, Scenario

SUMMARY_KEY = "summary_sha256"
"""Key of `summary_digest` in the metadata of every Parquet file: which results it belongs to."""
OUTPUTS = (*(f"{name}.parquet" for name in TABLES), "findings.json", "summary.json")
"""Files that an analysis is written to."""


@dataclass(frozen=True)
class Analysis:
    """What gapscope found in the recordings of one run.

    Attributes:
        opened: Returns the recordings; those of results that were computed before are opened when they are asked for.
        handoffs: Table ``handoffs`` of `gapscope.schema`, one row per handoff.
        tiles: Table ``tiles``: what held each gap, nanosecond by nanosecond.
        alignment: Table ``alignment``: where each clock stands, against the reference and, where times of handoffs
            span other pairs of clocks, against each other.
        findings: What is missing, weak or odd, and what to do about it.
        selection: What was chosen: ``steps``, ``ranks``, ``warmup``.
        units: Table ``units``: the steps and requests that marks name.
        exposure: Table ``exposure``: what held each of them, along one path from its end to its start.
        messages: Table ``messages``: handoffs of many messages, and what bound them.
        interference: Table ``interference``: kinds of operations alone and beside others; context, not a cause.
        waiting: Table ``waiting``: how long each rank's communication kernels waited for which rank.
        fixes: Table ``fixes``: what it would bring to steps or requests if one cause were gone.
        slack: Table ``slack``: how much later each handoff could have come with no unit ending later.
        stages: Returns what `timebase` and `model` are of; of results that were computed before, both are computed
            when asked for.
        is_kept: These are results that an earlier look at the same contents computed, from the cache.
        entry: Where the cache keeps the files of the tables; None: it does not, or this was made of another analysis.
    """

    opened: Callable[[], Trace] = field(repr=False)
    handoffs: pl.DataFrame
    tiles: pl.DataFrame
    alignment: pl.DataFrame
    findings: list[Finding]
    selection: dict[str, Any] = field(default_factory=lambda: Request().selection)
    units: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(UNITS)), repr=False)
    exposure: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(EXPOSURE)), repr=False)
    messages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(MESSAGES)), repr=False)
    interference: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(INTERFERENCE)), repr=False)
    waiting: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(WAITING)), repr=False)
    fixes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(FIXES)), repr=False)
    slack: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=dtypes(SLACK)), repr=False)
    stages: Callable[[], Stages] | None = field(default=None, repr=False)
    is_kept: bool = field(default=False, repr=False)
    entry: Path | None = field(default=None, init=False, repr=False)

    @cached_property
    def trace(self) -> Trace:
        """The recordings."""
        return self.opened()

    @cached_property
    def _stages(self) -> Stages | None:
        return None if self.stages is None else self.stages()

    @property
    def timebase(self) -> Alignment | None:
        """The clocks themselves: what is known of them and by which records."""
        return None if self._stages is None else self._stages.alignment

    @property
    def model(self) -> Model | None:
        """The graph, ready to be replayed (`whatif`); None: no handoff and no step or request was found."""
        return None if self._stages is None else self._stages.model

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Every number that the text report prints, as in ``summary.json``."""
        from gapscope.summary import summarize  # noqa: PLC0415 - see above

        tables = {name: getattr(self, name) for name in TABLES}
        return summarize(self.trace, tables, self.findings, self.selection)

    def write(self, directory: str | PathLike[str]) -> list[Path]:
        """Write all tables as Parquet, ``findings`` and ``summary`` as JSON (`OUTPUTS`).

        Files of these names are replaced, and only once all new ones are whole. The tables are written as they were
        found; to write others, make an analysis of them with `dataclasses.replace`.

        Returns:
            The files written. Each carries ``schema_version`` (Parquet: in the file's metadata, with the digest of
            ``summary.json``, so that files of two runs are told apart).

        Raises:
            UsageError: The directory cannot be written to.
        """
        out = Path(directory)
        findings, summary = findings_to_json(self.findings, SCHEMA_VERSION), summary_text(self.summary)
        version = file_metadata(summary)
        kept = None if self.entry is None else results.files(self.entry, TABLES, version)
        try:
            out.mkdir(parents=True, exist_ok=True)
            with ExitStack() as files:
                beside = {name: files.enter_context(replacing(out / name)) for name in OUTPUTS}
                for name in TABLES:
                    content = table_file(getattr(self, name), version) if kept is None else kept[name]
                    beside[f"{name}.parquet"].write_bytes(content)
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
        self._raise_if_nothing_is_chosen()
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
        from gapscope.whatif import effects  # noqa: PLC0415 - see above

        self._raise_if_nothing_is_chosen()
        if self.model is None:
            raise UsageError("There is nothing to replay: no handoff, step or request was found. See `findings`.")
        return effects(self.model, scenario)

    def _raise_if_nothing_is_chosen(self) -> None:
        for finding in self.findings:
            if finding.code == "nothing_selected":
                raise UsageError(f"{finding.message} {finding.hint}")

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
    last: int | None = None,
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
        steps: Keep handoffs of these steps, first and last included; None at either end leaves it open. Of large files
            only what lies around them is read.
        last: Of these, keep only so many last steps.
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
        UsageError: A path does not exist, a pattern is none, or the last steps are wanted and no mark names a step.
        IdentityError: Ranks contradict each other, or the files form several runs.
        InputError: None of the files could be read.
    """
    chosen = None if ranks is None else tuple(sorted(ranks))
    request = Request(steps, chosen, warmup, clocks, unmarked, tuple(comm_kernels))
    window = None if steps is None and last is None else Window(*(steps or (None, None)), last)
    is_whole = window is None or unmarked or bool(comm_kernels)  # what no mark names is numbered from its first on
    if isinstance(source, Trace):
        return _computed(source, _with_last(request, window, source), progress)
    paths = [source] if isinstance(source, (str, PathLike)) else list(source)
    options = options or LoadOptions()
    if not is_whole:
        options = replace(options, window=window)
    if window is None or window.last_n is None:  # how many steps there are, only the marks tell
        origin = known_origin(paths, options)
        found = _kept(origin, request)
        if found is not None:
            return _made_before(cache(lambda: _reopened(paths, options, origin)), request, *found)
    trace = _loaded(paths, options, progress)
    request = _with_last(request, window, trace)
    found = _kept(trace.origin, request)
    if found is not None:
        return _made_before(lambda: trace, request, *found)
    analysis = _computed(trace, request, progress)
    if trace.origin is not None:
        tables, entry = {name: getattr(analysis, name) for name in TABLES}, _entry(trace.origin, request)
        kept = results.Kept(tables, analysis.findings, analysis.summary)
        if results.store(entry, kept, file_metadata(summary_text(analysis.summary))) is None:
            analysis.__dict__["entry"] = entry
    return analysis


def _entry(origin: Origin, request: Request) -> Path:
    return results.entry_of(origin.cache_dir, origin.digest, request)


def _kept(origin: Origin | None, request: Request) -> tuple[results.Kept, Path] | None:
    """Return what was computed before for a request, and where it is kept."""
    if origin is None:
        return None
    entry = _entry(origin, request)
    kept = results.find(entry, TABLES)
    return None if kept is None else (kept, entry)


def _made_before(opened: Callable[[], Trace], request: Request, kept: results.Kept, entry: Path) -> Analysis:
    def stages() -> Stages:
        from gapscope.pipeline import Stages  # noqa: PLC0415 - see above

        return Stages(opened, request)

    analysis = Analysis(
        opened, findings=kept.findings, selection=request.selection, stages=stages, is_kept=True, **kept.tables
    )
    analysis.__dict__.update(summary=kept.summary, entry=entry)  # as the cached property would, and `analyze` does
    return analysis


def _loaded(paths: Sequence[str | PathLike[str]], options: LoadOptions, progress: Progress) -> Trace:
    from gapscope.compiling import compiling_told  # noqa: PLC0415 - see above

    with compiling_told(progress) as told:
        return load(paths, options, told)


def _reopened(paths: Sequence[str | PathLike[str]], options: LoadOptions, origin: Origin | None) -> Trace:
    """Return the recordings of results that were found before they were opened.

    Raises:
        UsageError: They are others by now.
    """
    trace = load(paths, options)
    if trace.origin != origin:
        raise UsageError("The recordings changed after their results were found in the cache. Analyze them again.")
    return trace


def _computed(trace: Trace, request: Request, progress: Progress) -> Analysis:
    from gapscope.compiling import compiling_told  # noqa: PLC0415 - see above
    from gapscope.pipeline import compute  # noqa: PLC0415

    with compiling_told(progress) as told:
        computed = compute(trace, request, told)
    return Analysis(
        lambda: trace,
        findings=computed.findings,
        selection=request.selection,
        stages=lambda: computed.stages,
        is_kept=False,
        **computed.tables,
    )


def _with_last(request: Request, window: Window | None, trace: Trace) -> Request:
    """Return the request with the last steps of a recording by number, where so many last ones are asked for."""
    if window is None or window.last_n is None:
        return request
    steps = trace.marks["step"].drop_nulls()
    if steps.is_empty():
        raise UsageError("The last steps were asked for, but no mark names a step.")
    return replace(request, steps=window.steps_of(steps))


def summary_text(summary: dict[str, Any]) -> str:
    """Return the content of ``summary.json``."""
    return json.dumps(summary, indent=1) + "\n"


def file_metadata(summary: str) -> dict[str, str]:
    """Return what the Parquet files of an analysis say of themselves.

    Args:
        summary: Its ``summary.json``.
    """
    return {"schema_version": str(SCHEMA_VERSION), SUMMARY_KEY: summary_digest(summary)}


def summary_digest(summary: str) -> str:
    """Return what tells the results of one analysis from those of another: the digest of its ``summary.json``."""
    return hashlib.sha256(summary.encode()).hexdigest()

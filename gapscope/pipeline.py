"""From a trace to the tables of an analysis: all stages, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial

import polars as pl

from gapscope.aside import put_aside
from gapscope.causes import Explained, explain, find_units, fragmented, interference, unit_exposure, waiting
from gapscope.clocks import Alignment, align, observe
from gapscope.errors import ReplayError
from gapscope.events import Ends, find_ends
from gapscope.findings import Finding, plural, sort_findings
from gapscope.graph import Graph, build_graph, find_items, unplaced
from gapscope.graph.floors import floors_of
from gapscope.handoffs import build_handoffs
from gapscope.handoffs.marks_cost import marks_cost, note_on_marks_cost
from gapscope.readers.base import Progress, no_progress
from gapscope.request import TABLES, Request
from gapscope.schema import EXPOSURE, FIXES, INTERFERENCE, MESSAGES, SLACK, TILES, UNITS, WAITING, Table, dtypes
from gapscope.summary import COUNTED
from gapscope.trace import Trace
from gapscope.unmarked import with_unmarked
from gapscope.whatif import Model, ranked, unit_slack


class Stages:
    """What questions need that the tables do not answer: pictures, and what-if. Computed where it is asked for.

    Args:
        opened: Returns the recordings, which may have to be opened.
        request: What was asked.
    """

    def __init__(self, opened: Callable[[], Trace], request: Request) -> None:
        self._opened, self._request = opened, request

    @property
    def _trace(self) -> Trace:
        return self._opened()

    @cached_property
    def marked(self) -> Ends | None:
        """The events of the handoffs that marks name; None: there are none."""
        return find_ends(self._trace)

    @cached_property
    def alignment(self) -> Alignment:
        """The clocks: what is known of them and by which records."""
        return align(self._trace, self.marked, self._request.clocks)

    @cached_property
    def model(self) -> Model | None:
        """The graph, ready to be replayed; None: no handoff and no step or request was found."""
        return compute(self._trace, self._request, keep_model=True).stages.model


@dataclass(frozen=True)
class Computed:
    """What an analysis is made of.

    Attributes:
        tables: `TABLES` by name.
        findings: What is missing, weak or odd, in order.
        stages: See there.
    """

    tables: Mapping[str, pl.DataFrame]
    findings: list[Finding]
    stages: Stages


_MANY_ITEMS = 40_000_000
"""Of more, a graph takes gigabytes: it is not kept, and what needs room of its own comes one after the other."""


def compute(trace: Trace, request: Request, progress: Progress = no_progress, *, keep_model: bool = False) -> Computed:
    """Return all tables of an analysis.

    Args:
        trace: The recordings.
        request: What is asked.
        progress: Called with what is going on and the fraction done.
        keep_model: Keep the graph also of a recording for which it is made anew where it is asked for.
    """
    progress("handoffs", 1.0)
    stages = Stages(lambda: trace, request)
    has_units = trace.marks["mark"].is_in(["step", "request"]).any()
    with ThreadPoolExecutor(1) as beside:  # half of it waits for no other half
        observed = beside.submit(observe, trace)
        ready = beside.submit(unplaced, trace) if trace.marks.height else None
        marked = stages.marked
        alignment = stages.alignment = align(trace, marked, request.clocks, observed.result())
        ends, unpaired = with_unmarked(trace, marked, wanted=request.unmarked, comm_kernels=request.comm_kernels)
        building = beside.submit(build_handoffs, trace, ends, alignment, request.warmup)
        graph = items = None
        if has_units or (ends is not None and ends.table.height):
            items = None if ready is None else find_items(trace, alignment, ends, ready.result())
            del ready  # it holds as much as the graph
            graph = build_graph(trace, alignment, ends, items)
        built = building.result()
        progress("causes", 1.0)
        handoffs = _selected(built.table, request)
        caused = _Caused(Explained(_empty(TILES), handoffs))
        is_large = graph is not None and graph.items.n > _MANY_ITEMS
        if graph is not None and (handoffs.height or has_units):
            found = (built.table, handoffs)
            caused = _caused(graph, found, request, beside, progress, is_large=is_large, keep_model=keep_model)
    if caused.model is not None or not is_large:
        stages.model = caused.model
    graph = items = None  # before the tiles are back
    notes = [*trace.findings, *alignment.findings, *unpaired, *built.findings]
    if built.table.height and not handoffs.height:
        notes.append(_nothing_left(built.table))
    notes += note_on_marks_cost(marks_cost(trace, handoffs.filter(COUNTED)))
    tiles = caused.explained.tiles if caused.tiles_back is None else caused.tiles_back()
    tables = (
        caused.explained.handoffs, tiles, caused.units, caused.exposure, caused.fixes, caused.slack, caused.messages,
        *caused.context, alignment.with_spans(built.spans),
    )  # fmt: skip
    return Computed(dict(zip(TABLES, tables, strict=True)), sort_findings([*notes, *caused.refused]), stages)


def _empty(table: Table) -> pl.DataFrame:
    return pl.DataFrame(schema=dtypes(table))


@dataclass
class _Caused:
    """What the graph answers: tables of `Computed`, and the model; ``tiles_back`` returns tiles that are put aside."""

    explained: Explained
    units: pl.DataFrame = field(default_factory=partial(_empty, UNITS))
    exposure: pl.DataFrame = field(default_factory=partial(_empty, EXPOSURE))
    messages: pl.DataFrame = field(default_factory=partial(_empty, MESSAGES))
    context: tuple[pl.DataFrame, pl.DataFrame] = field(default_factory=lambda: (_empty(INTERFERENCE), _empty(WAITING)))
    fixes: pl.DataFrame = field(default_factory=partial(_empty, FIXES))
    slack: pl.DataFrame = field(default_factory=partial(_empty, SLACK))
    refused: list[Finding] = field(default_factory=list)
    model: Model | None = None
    tiles_back: Callable[[], pl.DataFrame] | None = None


def _caused(
    graph: Graph,
    found: tuple[pl.DataFrame, pl.DataFrame],
    request: Request,
    beside: ThreadPoolExecutor,
    progress: Progress,
    *,
    is_large: bool,
    keep_model: bool,
) -> _Caused:
    """Return what the graph answers about handoffs: all, and those that are wanted."""
    every, wanted = found
    least = None if is_large else beside.submit(floors_of, graph)
    looking = beside.submit(_context, graph, every)
    explained, tiles_back = explain(graph, wanted), None
    if is_large:
        tiles_back, explained = put_aside(explained.tiles), explained.without_tiles()
    units = find_units(graph, every).of_steps(*(request.steps or (None, None)))
    progress("what fixes would bring", 1.0)
    model = Model(graph, explained, units, floors_of(graph) if least is None else least.result())
    replaying = beside.submit(_replayed, model)
    kept: Model | None = model
    if is_large:
        replaying.result()
        kept = model if keep_model else None
    del model  # it holds more than the rest needs
    exposure = unit_exposure(graph, units, explained)
    messages = fragmented(graph, explained)
    context, (fixes, slack, refused) = looking.result(), replaying.result()
    return _Caused(explained, units.table, exposure, messages, context, fixes, slack, refused, kept, tiles_back)


def _context(graph: Graph, handoffs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return interference(graph, handoffs), waiting(graph, handoffs)


def _replayed(model: Model) -> tuple[pl.DataFrame, pl.DataFrame, list[Finding]]:
    """Return tables ``fixes`` and ``slack``; where the graph cannot be replayed both are empty, with a finding."""
    try:
        fixes, slack = ranked(model), unit_slack(model)
    except ReplayError as error:
        nothing = _empty(FIXES), _empty(SLACK)
        return *nothing, [Finding("replay_differs", "warning", str(error), "What-if and slack are left out.")]
    model.forget()
    return fixes, slack, []


def _selected(handoffs: pl.DataFrame, request: Request) -> pl.DataFrame:
    low, high = request.steps or (None, None)
    if low is not None:
        handoffs = handoffs.filter(pl.col("step") >= low)
    if high is not None:
        handoffs = handoffs.filter(pl.col("step") <= high)
    if request.ranks is not None:
        wanted = list(request.ranks)
        handoffs = handoffs.filter(pl.col("src_rank").is_in(wanted) | pl.col("dst_rank").is_in(wanted))
    return handoffs


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

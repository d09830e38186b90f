"""From a trace to the tables of an analysis: all stages, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

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
from gapscope.schema import EXPOSURE, FIXES, INTERFERENCE, MESSAGES, SLACK, TILES, UNITS, WAITING, dtypes
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
        explained, units = Explained(pl.DataFrame(schema=dtypes(TILES)), handoffs), pl.DataFrame(schema=dtypes(UNITS))
        exposure, messages = pl.DataFrame(schema=dtypes(EXPOSURE)), pl.DataFrame(schema=dtypes(MESSAGES))
        context = pl.DataFrame(schema=dtypes(INTERFERENCE)), pl.DataFrame(schema=dtypes(WAITING))
        fixes, slack = pl.DataFrame(schema=dtypes(FIXES)), pl.DataFrame(schema=dtypes(SLACK))
        refused: list[Finding] = []
        is_large = graph is not None and graph.items.n > _MANY_ITEMS
        model = tiles_back = None
        if graph is not None and (handoffs.height or has_units):
            least = None if is_large else beside.submit(floors_of, graph)
            looking = beside.submit(_context, graph, built.table)
            explained = explain(graph, handoffs)
            if is_large:
                tiles_back, explained = put_aside(explained.tiles), explained.without_tiles()
            found = find_units(graph, built.table).of_steps(*(request.steps or (None, None)))
            progress("what fixes would bring", 1.0)
            model = Model(graph, explained, found, floors_of(graph) if least is None else least.result())
            replaying = beside.submit(_replayed, model)
            if is_large:
                replaying.result()
                model = model if keep_model else None
            units, exposure = found.table, unit_exposure(graph, found, explained)
            messages = fragmented(graph, explained)
            context, (fixes, slack, refused) = looking.result(), replaying.result()
    if model is not None or not is_large:
        stages.model = model
    graph = items = model = None  # before the tiles are back
    notes = [*trace.findings, *alignment.findings, *unpaired, *built.findings]
    if built.table.height and not handoffs.height:
        notes.append(_nothing_left(built.table))
    notes += note_on_marks_cost(marks_cost(trace, handoffs.filter(COUNTED)))
    tiles = explained.tiles if tiles_back is None else tiles_back()
    tables = (
        explained.handoffs, tiles, units, exposure, fixes, slack, messages, *context,
        alignment.with_spans(built.spans),
    )  # fmt: skip
    return Computed(dict(zip(TABLES, tables, strict=True)), sort_findings([*notes, *refused]), stages)


def _context(graph: Graph, handoffs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return interference(graph, handoffs), waiting(graph, handoffs)


def _replayed(model: Model) -> tuple[pl.DataFrame, pl.DataFrame, list[Finding]]:
    """Return tables ``fixes`` and ``slack``; where the graph cannot be replayed both are empty, with a finding."""
    try:
        fixes, slack = ranked(model), unit_slack(model)
    except ReplayError as error:
        nothing = pl.DataFrame(schema=dtypes(FIXES)), pl.DataFrame(schema=dtypes(SLACK))
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

"""Time that the profiler itself took on a host thread of the chain: flushing and requesting buffers, allocating memory.

nsys records the thread of such an activity, torch.profiler (``Activity Buffer Request``) only the process. CUPTI asks
for a buffer within an API call of the thread that needs one, before that call's own record begins. So it was a thread
that made no call meanwhile; of these, the one whose next call came first, and came sooner than the activity had lasted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.cutting import Spans
from gapscope.causes.overlaps import overlap
from gapscope.graph import Graph
from gapscope.graph.edges import LEVEL

_PROCESS = ["source", "process"]
_LANE = [*_PROCESS, "thread"]


def with_overhead(activity: Spans, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut steps of host threads where the profiler's own activity begins and ends.

    Args:
        activity: Result of `activity_of`.
        steps: Steps with ``lane``, ``is_host``.

    Returns:
        The steps with ``overhead`` (name of the activity; null: none) and ``overhead_level`` (how its thread is known,
        a number of `gapscope.graph.edges.EVIDENCE`).
    """
    pairs = activity.met(steps, steps["is_host"].fill_null(value=False))
    steps, span = activity.cut(steps, pairs)
    return steps.with_columns(activity.table[c].gather(span) for c in ("overhead", "overhead_level"))


def activity_of(graph: Graph, lanes: pl.DataFrame) -> Spans:
    """Return what the profiler did on threads, as `with_overhead` needs it.

    Args:
        graph: The graph.
        lanes: Result of `gapscope.causes.facts.graph_lanes`.
    """
    return Spans.of(lanes, _activity(graph))


def beside_profiler(graph: Graph, lanes: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return how much of each step of a host thread the profiler spent on other threads of its process, in ns.

    It may have held the thread up, by a lock or a core: no record says so, and it is no cause.

    Args:
        graph: The graph.
        lanes: Result of `gapscope.causes.facts.graph_lanes`.
        steps: Steps with ``lane`` and ``overhead``.
    """
    trace, alignment = graph.context.trace, graph.context.alignment
    rows = (
        trace.scan("ranges")
        .filter((pl.col("kind") == "overhead") & (pl.col("end_ns") > pl.col("start_ns")))
        .select(*_PROCESS, "start_ns", "end_ns")
        .collect()
    )
    nothing = pl.zeros(steps.height, pl.Int64, eager=True)
    if not rows.height or not steps.height:
        return nothing
    rows = alignment.domains.with_domain(rows, None, "", "clock").sort(*_PROCESS, "start_ns")
    shift = alignment.offsets(rows["clock"], rows["start_ns"])
    rows = rows.with_columns(pl.col("start_ns") + shift, pl.col("end_ns") + shift).drop_nulls("start_ns")
    reached = pl.col("end_ns").cum_max().shift().over(_PROCESS)
    rows = rows.with_columns(start_ns=pl.max_horizontal("start_ns", pl.min_horizontal(reached, "end_ns")))
    processes = rows.select(_PROCESS).unique(maintain_order=True).with_row_index("group")
    rows = rows.join(processes, on=_PROCESS)
    group = lanes.join(processes, on=_PROCESS, how="left", maintain_order="left").select(
        pl.when(pl.col("thread").is_not_null()).then("group")
    )
    place = group.to_series().gather(steps["lane"])
    asked = (place.is_not_null() & steps["overhead"].is_null()).to_numpy()
    found = np.zeros(steps.height, np.int64)
    start, end = (steps[c].to_numpy()[asked] for c in ("start_ns", "end_ns"))
    found[asked] = overlap(place.fill_null(0).to_numpy()[asked].astype(np.int64), start, end, rows)
    return pl.Series(found)


def _activity(graph: Graph) -> pl.DataFrame:
    """Return what the profiler did on threads, disjoint: `_LANE`, ``begin``, ``until`` (common timebase), names."""
    trace, alignment = graph.context.trace, graph.context.alignment
    rows = (
        trace.scan("ranges")
        .filter((pl.col("kind") == "overhead") & (pl.col("end_ns") > pl.col("start_ns")))
        .filter(pl.col("rank").is_not_null())
        .select(*_LANE, "start_ns", "end_ns", overhead="name")
        .collect()
    )
    known = rows.filter(pl.col("thread").is_not_null()).with_columns(overhead_level=pl.lit(LEVEL["recorded"]))
    found = _with_thread(graph, rows.filter(pl.col("thread").is_null()).drop("thread"))
    rows = pl.concat([known, found.with_columns(overhead_level=pl.lit(LEVEL["inferred"])).select(known.columns)])
    rows = alignment.domains.with_domain(rows, None, "", "clock")
    shift = alignment.offsets(rows["clock"], rows["start_ns"])
    rows = rows.with_columns(begin=pl.col("start_ns") + shift, until=pl.col("end_ns") + shift).drop_nulls("begin")
    # One activity may be within another, of which the tool may know no name: what counts is that it was the profiler.
    rows = rows.sort(*_LANE, "begin", "until")
    reached = pl.col("until").cum_max().shift().over(_LANE)
    rows = rows.with_columns(block=(pl.col("begin") >= reached).fill_null(value=False).cum_sum().over(_LANE))
    named = pl.col("overhead").filter(pl.col("overhead") != "Unknown").first()
    return (
        rows.group_by(*_LANE, "block", maintain_order=True)
        .agg(
            pl.col("begin").min(),
            pl.col("until").max(),
            overhead=pl.coalesce(named, pl.lit("profiler overhead")),
            overhead_level=pl.col("overhead_level").max().cast(pl.Int64),
        )
        .drop("block")
    )


def _with_thread(graph: Graph, rows: pl.DataFrame) -> pl.DataFrame:
    """Return activities with the thread that each was on; those of which it cannot be told are left out."""
    calls = graph.context.trace.scan("calls").select(*_LANE, "start_ns", "end_ns")
    calls = calls.join(rows.lazy().select(_PROCESS).unique(), on=_PROCESS, how="semi")
    both = pl.concat([calls.select(*_LANE, at="start_ns"), calls.select(*_LANE, at="end_ns")])
    moments = both.drop_nulls().sort("at").collect()
    numbered = rows.with_row_index("_row")
    every = numbered.join(moments.select(_LANE).unique(), on=_PROCESS).sort("start_ns")
    following = every.join_asof(
        moments.with_columns(next_ns="at"),
        left_on="start_ns", right_on="at", by=_LANE, strategy="forward", check_sortedness=False,
    )  # fmt: skip
    wait = pl.col("next_ns") - pl.col("end_ns")
    idle = following.filter((wait >= 0) & (wait < pl.col("end_ns") - pl.col("start_ns")))
    first = idle.filter(pl.col("next_ns") == pl.col("next_ns").min().over("_row"))
    return first.filter(pl.len().over("_row") == 1).select(*rows.columns, "thread")

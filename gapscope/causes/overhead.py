"""Time that the profiler itself took on a host thread of the chain: flushing and requesting buffers, allocating memory.

nsys records the thread of such an activity, torch.profiler (``Activity Buffer Request``) only the process. CUPTI asks
for a buffer within an API call of the thread that needs one, before that call's own record begins. So it was a thread
that made no call meanwhile; of these, the one whose next call came first, and came sooner than the activity had lasted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.cutting import Spans
from gapscope.causes.overlaps import Others, overlap
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
        The steps with ``overhead``: the activity; null: none.
    """
    pairs = activity.met(steps, steps["is_host"].fill_null(value=False))
    steps, span = activity.cut(steps, pairs)
    return steps.with_columns(overhead=span)


def activity_of(graph: Graph, lanes: pl.DataFrame) -> Spans:
    """Return what the profiler did on threads: ``overhead`` (its name), and ``overhead_level``.

    That is how its thread is known, a number of `gapscope.graph.edges.EVIDENCE`.

    Args:
        graph: The graph.
        lanes: Result of `gapscope.causes.facts.graph_lanes`.
    """
    return Spans.of(lanes, _activity(graph))


@dataclass(frozen=True)
class Profiling:
    """What the profiler did in processes, on whichever thread.

    Attributes:
        spans: Of each process, by a number.
        process: Number of the process of each thread, by lane; null: none is known, or it did nothing there.
    """

    spans: dict[int, Others]
    process: pl.Series

    @classmethod
    def of(cls, graph: Graph, lanes: pl.DataFrame) -> Profiling:
        """Return that of a run.

        Args:
            graph: The graph.
            lanes: Result of `gapscope.causes.facts.graph_lanes`.
        """
        alignment = graph.context.alignment
        rows = _overhead(graph).select(*_PROCESS, "start_ns", "end_ns").collect()
        rows = alignment.domains.with_domain(rows, None, "", "clock").sort(*_PROCESS, "start_ns")
        shift = alignment.offsets(rows["clock"], rows["start_ns"])
        rows = rows.with_columns(pl.col("start_ns") + shift, pl.col("end_ns") + shift).drop_nulls("start_ns")
        reached = pl.col("end_ns").cum_max().shift().over(_PROCESS)
        rows = rows.with_columns(start_ns=pl.max_horizontal("start_ns", pl.min_horizontal(reached, "end_ns")))
        processes = rows.select(_PROCESS).unique(maintain_order=True).with_row_index("group")
        process = lanes.join(processes, on=_PROCESS, how="left", maintain_order="left").select(
            pl.when(pl.col("thread").is_not_null()).then("group")
        )
        return cls(Others.of(rows.join(processes, on=_PROCESS)), process.to_series())

    def beside(self, steps: pl.DataFrame) -> pl.Series:
        """Return how much of each step of a host thread the profiler spent on other threads of its process, in ns.

        It may have held the thread up, by a lock or a core: no record says so, and it is no cause.

        Args:
            steps: Steps with ``lane`` and ``overhead``.
        """
        process = self.process.gather(steps["lane"])
        asked = (process.is_not_null() & steps["overhead"].is_null()).to_numpy()
        found = np.zeros(steps.height, np.int64)
        start, end = (steps[c].to_numpy()[asked] for c in ("start_ns", "end_ns"))
        found[asked] = overlap(process.fill_null(0).to_numpy()[asked].astype(np.int64), start, end, self.spans)
        return pl.Series(found)


def _overhead(graph: Graph) -> pl.LazyFrame:
    """Return the ranges that are the profiler's own activity."""
    ranges = graph.context.trace.scan("ranges")
    return ranges.filter((pl.col("kind") == "overhead") & (pl.col("end_ns") > pl.col("start_ns")))


def _activity(graph: Graph) -> pl.DataFrame:
    """Return what the profiler did on threads, disjoint: `_LANE`, ``begin``, ``until`` (common timebase), names."""
    alignment = graph.context.alignment
    rows = (
        _overhead(graph)
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
    calls = graph.context.trace.scan("calls").select(*_LANE, "start_ns", "end_ns").drop_nulls("thread")
    processes = rows.lazy().select(_PROCESS).unique()
    found = calls.join(processes, on=_PROCESS, how="semi").collect() if rows.height else calls.limit(0).collect()
    numbered = rows.with_row_index("_row").sort("start_ns")
    parts = [numbered.clear().with_columns(found["thread"].clear(), next_ns=pl.lit(None, dtype=pl.Int64))]
    for (source, process, thread), of_thread in found.group_by(_LANE, maintain_order=True):
        here = numbered.filter((pl.col("source") == source) & (pl.col("process") == process))
        begun, ended = (_next(of_thread[c].drop_nulls().to_numpy(), here["start_ns"]) for c in ("start_ns", "end_ns"))
        parts.append(
            here.with_columns(
                pl.lit(thread, dtype=found.schema["thread"]).alias("thread"), next_ns=pl.min_horizontal(begun, ended)
            )
        )
    following = pl.concat(parts)
    wait = pl.col("next_ns") - pl.col("end_ns")
    idle = following.filter((wait >= 0) & (wait < pl.col("end_ns") - pl.col("start_ns")))
    first = idle.filter(pl.col("next_ns") == pl.col("next_ns").min().over("_row"))
    return first.filter(pl.len().over("_row") == 1).select(*rows.columns, "thread")


def _next(moments: npt.NDArray[np.int64], at_ns: pl.Series) -> pl.Series:
    """Return the first moment that is not before each time; null: there is none."""
    moments = np.sort(moments)
    place = pl.Series(np.searchsorted(moments, at_ns.to_numpy(), side="left"))
    return pl.Series(moments).gather(place.set(place == len(moments), None))

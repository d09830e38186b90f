"""Time that the profiler itself took on a host thread of the chain: flushing and requesting buffers, allocating memory.

nsys records the thread of such an activity, torch.profiler (``Activity Buffer Request``) only the process. CUPTI asks
for a buffer within an API call of the thread that needs one, before that call's own record begins. So it was a thread
that made no call meanwhile; of these, the one whose next call came first, and came sooner than the activity had lasted.
"""

from __future__ import annotations

import polars as pl

from gapscope.graph import Graph
from gapscope.graph.edges import LEVEL

_PROCESS = ["source", "process"]
_LANE = [*_PROCESS, "thread"]


def with_overhead(graph: Graph, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut steps of host threads where the profiler's own activity begins and ends.

    Args:
        graph: The graph.
        steps: Steps with ``item``, ``is_host``, ``start_ns``, ``end_ns``.

    Returns:
        The steps with ``overhead`` (name of the activity; null: none) and ``overhead_level`` (how its thread is known,
        a number of `gapscope.graph.edges.EVIDENCE`).
    """
    activity = _activity(graph)
    if not activity.height:
        nothing = {"overhead": pl.lit(None, dtype=pl.String), "overhead_level": pl.lit(None, dtype=pl.Int64)}
        return steps.with_columns(**nothing)
    items = graph.items
    threads = items.hosts.select(*_LANE).with_row_index("item", offset=items.n_ops)
    threads = threads.with_columns(pl.col("item").cast(pl.Int64))
    placed = steps.with_row_index("_step").join(
        threads.filter(pl.col("item").is_in(steps["item"].drop_nulls().unique().implode())), on="item", how="left"
    )
    met = (
        placed.select("_step", *_LANE, "start_ns", "end_ns")
        .join(activity, on=_LANE, how="inner")
        .filter((pl.col("begin") < pl.col("end_ns")) & (pl.col("until") > pl.col("start_ns")))
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "begin"),
            end_ns=pl.min_horizontal("end_ns", "until"),
            step_end="end_ns",
            step_start="start_ns",
        )
        .sort("_step", "start_ns")
    )
    before = met.select(
        "_step",
        start_ns=pl.col("end_ns").shift().over("_step").fill_null(pl.col("step_start")),
        end_ns="start_ns",
        overhead=pl.lit(None, dtype=pl.String),
        overhead_level=pl.lit(None, dtype=pl.Int64),
    )
    after = met.group_by("_step", maintain_order=True).agg(
        start_ns=pl.col("end_ns").last(), end_ns=pl.col("step_end").last()
    )
    pieces = pl.concat(
        [met.select("_step", "start_ns", "end_ns", "overhead", "overhead_level"), before, after], how="diagonal"
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    steps = steps.with_row_index("_step")
    whole = steps.join(pieces.select("_step"), on="_step", how="anti")
    cut = steps.drop("start_ns", "end_ns").join(pieces, on="_step")
    joined = pl.concat([whole, cut], how="diagonal")
    return (
        joined.sort("walk", "start_ns")
        .drop("_step")
        .select(*(c for c in steps.columns if c != "_step"), "overhead", "overhead_level")
    )


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
    if not rows.height:
        return rows
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

"""Host time before a consumer that the pipeline's schedule itself ordered so.

A stage whose data is there may have to wait because its rank issues the stage of another microbatch first. In the
order in which data came that is no choice of the schedule: the consumer is slow. But where the data of the other stage
came later, the schedule put it first, and all the time that the host spent issuing it is the schedule's. Only marks
prove that: both stages' ``consume``, with their microbatches, and when the data of each was available.
"""

from __future__ import annotations

import polars as pl

from gapscope.causes.cutting import Spans
from gapscope.graph import Graph

_LANE = ["source", "process", "thread"]


def with_schedule(stages: Spans, facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut host time of the destination where it issued a stage first whose data came later.

    Args:
        stages: Result of `stages_of`.
        facts: Result of `gapscope.causes.facts.handoff_facts`: ``handoff``, ``step``, ``microbatch`` and
            ``available_ns`` are looked at.
        steps: Steps with ``lane``, ``side``.

    Returns:
        The steps with ``put_first``: the stage that was issued first; null: of all other time.
    """
    pairs = stages.met(steps, steps["side"] == "dst")
    walk = steps["walk"].gather(pairs["step"])
    rows = pairs.with_columns(
        facts["available_ns"].gather(walk), stages.table["stage_available_ns"].gather(pairs["span"]), walk=walk
    )
    rows = rows.filter(pl.col("stage_available_ns") > pl.col("available_ns"))
    columns = [c for c in stages.table.columns if c != "stage_available_ns"]
    rows = rows.hstack(stages.table.select(columns)[rows["span"]])
    rows = rows.hstack(facts.select("step", "microbatch", own="handoff")[rows["walk"]].rename({"step": "own_step"}))
    own, other = pl.struct(step="own_step", mb="microbatch"), pl.struct(step="stage_step", mb="stage_mb")
    put_first = (
        (pl.col("own") != pl.col("handoff"))
        & pl.col("microbatch").is_not_null()
        & (own != other)
        & (pl.col("available_ns") <= pl.col("stage_end_ns"))
    )
    steps, span = stages.cut(steps, rows.filter(put_first).select("step", "span"))
    return steps.with_columns(put_first=span)


def stages_of(graph: Graph, lanes: pl.DataFrame) -> Spans:
    """Return the stages that `with_schedule` needs.

    Args:
        graph: The graph.
        lanes: Result of `gapscope.causes.facts.graph_lanes`.
    """
    return Spans.of(lanes, _stages(graph))


def _stages(graph: Graph) -> pl.DataFrame:
    """Return the consume brackets with known data and microbatch, on the common timebase; of nested ones the outer."""
    ends, alignment = graph.context.ends, graph.context.alignment
    shape: dict[str, pl.DataType | type[pl.DataType]] = {
        **{c: graph.context.trace.marks.schema[c] for c in _LANE},
        "begin": pl.Int64, "until": pl.Int64, "handoff": pl.Int32, "stage_step": pl.Int64, "stage_mb": pl.Int64,
        "stage_available_ns": pl.Int64, "stage_end_ns": pl.Int64,
    }  # fmt: skip
    ops = graph.context.deciding_ops
    if ends is None or not ops.height:
        return pl.DataFrame(schema=shape)
    arrived = (
        ops.filter((pl.col("mark") == "receive") & pl.col("group").is_null())
        .group_by("handoff")
        .agg(stage_available_ns=pl.col("end").max())
    )
    stages = graph.context.brackets.filter((pl.col("mark") == "consume") & pl.col("mb").is_not_null() & ~pl.col("open"))
    stages = stages.join(arrived, on="handoff")
    stages = alignment.domains.with_domain(stages, None, "", "clock")
    shift = alignment.offsets(stages["clock"], stages["start_ns"])
    stages = stages.with_columns(begin=pl.col("start_ns") + shift, until=pl.col("end_ns") + shift)
    stages = stages.filter((pl.col("until") > pl.col("begin")).fill_null(value=False)).sort(
        *_LANE, "begin", -pl.col("until")
    )
    is_outer = (pl.col("begin") >= pl.col("until").cum_max().shift().over(_LANE)).fill_null(value=True)
    stages = stages.filter(is_outer).with_columns(stage_step="step", stage_mb="mb", stage_end_ns="until")
    return stages.select(pl.col(c).cast(t) for c, t in shape.items())

"""What torch's pipeline schedules write around their actions: ``PP:<stage><action><microbatch>``.

The runtime of interleaved and zero-bubble schedules writes them, as ``PP:0SEND_F2``; plain GPipe and 1F1B do not
(torch/distributed/pipelining/schedules.py, ``_Action.__repr__``). They tell stage, direction and microbatch of a send
or receive that is asked for within, and which rank holds which stage.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import with_job
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_MESSAGE = r"^PP:(\d+)(SEND|RECV)_([FB])(\d+)$"
_STAGE = r"^PP:(\d+)[A-Z]"
_TOUCHED = {"stage": pl.Int64, "other_stage": pl.Int64, "direction": pl.String, "microbatch": pl.Int64}


def with_pipeline_names(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add what the schedule's ranges say about messages.

    Args:
        trace: The recordings.
        rows: Messages with ``source, process, thread, host_ns`` and ``job``.

    Returns:
        The rows with ``stage`` (of the rank's own side), ``other_stage``, ``direction`` (``fwd``, ``bwd``),
        ``microbatch`` and ``owner`` (rank that holds the other stage); null where no range says so.
    """
    ranges = (
        trace.scan("ranges")
        .filter(pl.col("name").str.starts_with("PP:") & pl.col("end_ns").is_not_null() & pl.col("rank").is_not_null())
        .select(*_LANE, "rank", "name", action_ns="start_ns", action_end="end_ns")
        .sort("action_ns")
        .collect()
    )
    if not ranges.height:
        nothing = [pl.lit(None, dtype=t).alias(n) for n, t in {**_TOUCHED, "owner": pl.Int32}.items()]
        return rows.with_columns(nothing)
    parts = pl.col("name").str.extract_groups(_MESSAGE)
    actions = ranges.filter(pl.col("name").str.contains(_MESSAGE)).with_columns(
        stage=parts.struct.field("1").cast(pl.Int64, strict=False),
        is_forward=parts.struct.field("3") == "F",
        microbatch=parts.struct.field("4").cast(pl.Int64, strict=False),
        is_send=parts.struct.field("2") == "SEND",
    )
    # Activations go to the next stage, gradients to the one before.
    onward = pl.when(pl.col("is_forward") == pl.col("is_send")).then(1).otherwise(-1)
    actions = actions.with_columns(
        other_stage=pl.col("stage") + onward,
        direction=pl.when("is_forward").then(pl.lit("fwd")).otherwise(pl.lit("bwd")),
    )
    stages = ranges.with_columns(other_stage=pl.col("name").str.extract(_STAGE, 1).cast(pl.Int64, strict=False))
    stages = with_job(trace, stages).drop_nulls("other_stage")
    owners = stages.group_by("other_stage", "job").agg(owner=pl.col("rank").unique())
    owners = owners.filter(pl.col("owner").list.len() == 1).explode("owner")
    found = (
        rows.sort("host_ns")
        .join_asof(
            actions.select(*_LANE, *_TOUCHED, "action_ns", "action_end"),
            left_on="host_ns",
            right_on="action_ns",
            by=_LANE,
            check_sortedness=False,
        )
        .with_columns(_inside=(pl.col("host_ns") <= pl.col("action_end")).fill_null(value=False))
        .with_columns(pl.when("_inside").then(c).alias(c) for c in _TOUCHED)
        .join(owners, on=["other_stage", "job"], how="left", nulls_equal=True, maintain_order="left")
    )
    return found.drop("action_ns", "action_end", "_inside")

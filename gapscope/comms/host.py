"""Messages between hosts (gloo): which send belongs to which receive.

torch.profiler annotates them as ``gloo:send`` and ``gloo:recv`` without a peer. It is known where a pipeline schedule
names the stage (`gapscope.comms.pipeline_names`), and with exactly two ranks that send and receive, where it is the
other one; else nothing is paired.

The annotation of a send begins only when the message has been handed over (torch, ProcessGroupGloo.cpp: `send` makes
its work object last), and the thread may be held up in between. Only the operator ``c10d::send`` that encloses it
begins before the message can leave.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import of_job, other_rank, paired, with_job, with_step
from gapscope.comms.pipeline_names import with_pipeline_names
from gapscope.trace import Trace

_RANKS = 2
_LANE = ["source", "process", "thread"]
_ONE = {
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "who": pl.Int32,
    "asked_ns": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
}
_SCHEMA = {"instance": pl.String, **_ONE, **{f"{name}_2": dtype for name, dtype in _ONE.items()}}
_END = {
    **_ONE,
    "op": pl.String,
    "peer": pl.Int64,
    "by": pl.String,
    "stage": pl.Int64,
    "other_stage": pl.Int64,
    "direction": pl.String,
    "microbatch": pl.Int64,
    "job": pl.String,
    "instance": pl.String,
}


def host_message_ends(trace: Trace) -> pl.DataFrame:
    """Return one row per send and per receive.

    Returns:
        ``source, process, thread, who`` (rank), ``asked_ns`` (begin of the operator that sent; null: not recorded, or
        a receive), ``start_ns``, ``end_ns`` (the annotation, to its completion, on the file's clock), ``step``,
        ``op`` (``send``, ``recv``), ``peer`` (null: not known), ``by`` (``metadata``: a schedule names the stages;
        ``order``), ``stage``, ``other_stage``, ``direction``, ``microbatch`` (null: no schedule says so),
        ``job``, ``instance``, a text that the two ends of a message share; null where its other end is not known.
    """
    rows = (
        trace.scan("ranges")
        .filter(pl.col("name").is_in(["gloo:send", "gloo:recv"]) & pl.col("rank").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]) & pl.col("end_ns").is_not_null())
        .select(
            "source", "process", "thread", "start_ns", "end_ns", who="rank", op=pl.col("name").str.slice(5),
            host_ns="start_ns",
        )
        .collect()
    )  # fmt: skip
    if not rows.height:
        return pl.DataFrame(schema=_END)
    rows = with_job(trace, rows)
    rows = with_pipeline_names(trace, _with_operator(trace, rows))
    rows = rows.with_columns(peer=pl.coalesce(pl.col("owner").cast(pl.Int64), other_rank("who")))
    is_send = pl.col("op") == "send"
    sender = pl.when(is_send).then(pl.col("who").cast(pl.Int64)).otherwise("peer")
    receiver = pl.when(is_send).then("peer").otherwise(pl.col("who").cast(pl.Int64))
    stages = pl.format(
        " of stage {} {}",
        pl.when(is_send).then("stage").otherwise("other_stage"),
        pl.format("{} {}", "direction", "microbatch"),
    )
    channel = of_job(pl.format("gloo {} to {}", sender, receiver))
    rows = with_step(trace, rows.with_row_index("end")).with_columns(
        by=pl.when(pl.col("owner").is_not_null()).then(pl.lit("metadata")).otherwise(pl.lit("order")),
        channel=pl.coalesce(channel + stages, channel),
        what=pl.lit("message"),
        seq=pl.lit(None, dtype=pl.Int64),
        order="start_ns",
    )
    both_ends = pl.col("who").n_unique().over("channel") == _RANKS
    found = paired(rows.filter(pl.col("channel").is_not_null() & both_ends)).select("end", "instance")
    rows = rows.join(found, on="end", how="left").sort("end")
    return rows.select(pl.col(n).cast(t) for n, t in _END.items())


def _with_operator(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``asked_ns``."""
    operators = (
        trace.scan("ranges")
        .filter((pl.col("kind") == "op") & (pl.col("name") == "c10d::send") & pl.col("end_ns").is_not_null())
        .select(*_LANE, asked_ns="start_ns", asked_end="end_ns")
        .sort("asked_ns")
        .collect()
    )
    found = rows.sort("start_ns").join_asof(
        operators, left_on="start_ns", right_on="asked_ns", by=_LANE, check_sortedness=False, coalesce=False
    )
    inside = (pl.col("start_ns") <= pl.col("asked_end")).fill_null(value=False) & (pl.col("op") == "send")
    return found.with_columns(asked_ns=pl.when(inside).then("asked_ns")).drop("asked_end")


def host_messages(trace: Trace) -> pl.DataFrame:
    """Return one row per message, sender and receiver side by side.

    Returns:
        ``instance`` (text), and for the sender and, with suffix ``_2``, the receiver: ``source``, ``process``,
        ``thread``, ``who`` (rank), ``asked_ns``, ``start_ns``, ``end_ns`` (see `host_message_ends`), ``step``.
    """
    return trace.once("host_messages", lambda: _host_messages(trace))


def _host_messages(trace: Trace) -> pl.DataFrame:
    ends = host_message_ends(trace).filter(pl.col("instance").is_not_null())
    is_send = pl.col("op") == "send"
    both = ends.filter(is_send).join(ends.filter(~is_send), on="instance", suffix="_2")
    return both.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())

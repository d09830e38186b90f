"""Keys for messages between two ranks that no mark names."""

from __future__ import annotations

import polars as pl

from gapscope.trace import Trace
from gapscope.unmarked.ends import SIDE

_PAIR = ["job", "src", "dst"]
_CHANNEL = [*_PAIR, "channel"]
_STAGES = ["dir", "src_stage", "dst_stage"]


def keyed(trace: Trace, rows: pl.DataFrame, separate: list[str]) -> pl.DataFrame:
    """Return the ends of messages with a key each.

    What shares a pair of ranks and differs in communicator, direction or stages gets a channel each; the sequence
    number counts the sends of a channel in the order in which the sender asked for them. A receive whose send is not
    known counts on behind them.

    Args:
        trace: The recordings.
        rows: One row per end, in order of ``host_ns``: ``rank``, ``is_send``, ``peer``, ``instance`` (null: its other
            end is not known), ``stage``, ``other_stage``, ``direction``, ``microbatch``, the columns ``separate``, and
            what `gapscope.unmarked.ends.SIDE` has of times and facts.
        separate: Further columns whose values get channels of their own.
    """
    is_send = pl.col("is_send")
    own = pl.col("rank").cast(pl.Int64)
    recorded = trace.processes.filter(pl.col("rank").is_not_null()).select("job", peer=pl.col("rank").cast(pl.Int64))
    recorded = recorded.unique().with_columns(is_recorded=pl.lit(value=True))
    here, there = pl.col("stage"), pl.col("other_stage")
    rows = rows.join(recorded, on=["job", "peer"], how="left", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(pl.col("is_recorded").fill_null(value=False))
    rows = rows.with_columns(
        src=pl.when(is_send).then(own).otherwise("peer"),
        dst=pl.when(is_send).then("peer").otherwise(own),
        dir=_of_both(pl.col("direction")),
        mb=_of_both(pl.col("microbatch")),
        src_stage=_of_both(pl.when(is_send).then(here).otherwise(there)),
        dst_stage=_of_both(pl.when(is_send).then(there).otherwise(here)),
        # A peer that is not among the recordings leaves an end alone; one that is, and is not paired, leaves a doubt.
        is_ambiguous=pl.col("instance").is_null() & (pl.col("peer").is_null() | pl.col("is_recorded")),
        end=pl.when(is_send).then(pl.lit("src")).otherwise(pl.lit("dst")),
    )
    kinds = [*separate, *_STAGES]
    rows = rows.with_columns(channel=pl.struct(kinds).rank("dense").over(_PAIR).cast(pl.Int64) - 1)
    sent = rows.filter(is_send).with_columns(seq=pl.int_range(pl.len(), dtype=pl.Int64).over(_CHANNEL))
    received = rows.filter(~is_send).drop("seq", strict=False)
    of_send = sent.filter(pl.col("instance").is_not_null()).select("instance", "seq")
    received = (
        received.join(of_send, on="instance", how="left", maintain_order="left")
        if sent.height
        else (received.with_columns(seq=pl.lit(None, dtype=pl.Int64)))
    )
    counts = sent.group_by(_CHANNEL).agg(n_sent=pl.len().cast(pl.Int64))
    received = received.join(counts, on=_CHANNEL, how="left", nulls_equal=True, maintain_order="left")
    alone = pl.col("seq").is_null()
    behind = pl.col("n_sent").fill_null(0) + alone.cum_sum().over(_CHANNEL).cast(pl.Int64) - 1
    received = received.with_columns(seq=pl.when(alone).then(behind).otherwise("seq")).drop("n_sent")
    every = pl.concat([sent, received], how="diagonal_relaxed")
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in SIDE.items() if n not in every.columns]
    return every.with_columns(missing).select(pl.col(n).cast(t) for n, t in SIDE.items())


def _of_both(value: pl.Expr) -> pl.Expr:
    """Return a value that only one end of a message may know for both."""
    known = value.drop_nulls().first().over("instance")
    return pl.when(pl.col("instance").is_not_null()).then(pl.coalesce(value, known)).otherwise(value)

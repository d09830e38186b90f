"""By what means a handoff moved, where its marks do not say it: inferred from what its marks launched."""

from __future__ import annotations

import polars as pl

from gapscope.events.pairing import KEY


def infer_transport(trace_ranges: pl.LazyFrame, brackets: pl.DataFrame) -> pl.DataFrame:
    """Return ``KEY, inferred`` (`nccl`, `gloo`, `copy_engine`, `mailbox`, `unknown`).

    The rule, first match wins: an NCCL or RCCL kernel in submit or receive is ``nccl``; a ``gloo:`` range in submit or
    receive, or work on the host, is ``gloo``; a copy within or between devices in submit is ``copy_engine``; a copy to
    the host in submit and one from the host in receive is ``mailbox``.

    Args:
        trace_ranges: Table ``ranges``.
        brackets: Result of `gapscope.events.times.mark_times`.
    """
    transfers = brackets.filter(pl.col("mark").is_in(["submit", "receive"]))
    gloo = _marks_with_gloo(trace_ranges, transfers)
    nccl = pl.col("kernels").list.eval(pl.element().str.contains("(?i)nccl|rccl")).list.any()
    facts = transfers.with_columns(
        nccl=nccl,
        gloo=pl.col("mark_id").is_in(gloo.implode()),
        peer=pl.col("copy_kinds").list.set_intersection(["DtoD", "PtoP"]).list.len() > 0,
        out=pl.col("copy_kinds").list.contains("DtoH"),
        into=pl.col("copy_kinds").list.contains("HtoD"),
    )
    submit, receive = pl.col("mark") == "submit", pl.col("mark") == "receive"

    def seen(what: str, where: pl.Expr | None = None) -> pl.Expr:
        flag = pl.col(what).fill_null(value=False)
        return (flag if where is None else flag & where).any()

    return facts.group_by(KEY).agg(
        inferred=pl.when(seen("nccl"))
        .then(pl.lit("nccl"))
        .when(seen("gloo"))
        .then(pl.lit("gloo"))
        .when(seen("peer", submit))
        .then(pl.lit("copy_engine"))
        .when(seen("out", submit) & seen("into", receive))
        .then(pl.lit("mailbox"))
        .otherwise(pl.lit("unknown"))
    )


def _marks_with_gloo(ranges: pl.LazyFrame, transfers: pl.DataFrame) -> pl.Series:
    """Return the ids of marks within which a ``gloo:`` range begins on the same thread."""
    lane = ["source", "process", "thread"]
    gloo = (
        ranges.filter(pl.col("name").str.starts_with("gloo:"))
        .select(*lane, gloo_ns="start_ns")
        .sort("gloo_ns")
        .collect()
    )
    within = gloo.join_asof(
        transfers.select(*lane, "mark_id", "end_ns", _start="start_ns").sort("_start"),
        left_on="gloo_ns",
        right_on="_start",
        by=lane,
        check_sortedness=False,
    )
    return within.filter(pl.col("gloo_ns") <= pl.col("end_ns"))["mark_id"].unique()

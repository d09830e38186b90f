"""Sends and receives that torch.profiler recorded with their peer: a receive cannot end before its send began.

The reverse is not true: sends are eager and may end before the receive is posted. Peers stand in the host's records
(``record_param_comms``); the kernel of one or several of them is launched within the ``nccl:`` annotation that follows
on the same thread. A kernel of a coalesced batch carries no metadata itself, but starts no later than each of its sends
and ends no earlier than each of its receives.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.ordinals import paired, with_step
from gapscope.clocks.observations import Evidence

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
_KERNEL = "(?i)(nccl|rccl).*(send|recv)"


def send_recv(context: Context) -> Evidence:
    """Return what sends and receives say that the recordings name."""
    if not context.several_clocks:
        return nothing()
    rows = _with_kernels(context)
    if not rows.height:
        return nothing()
    is_send = pl.col("op") == "send"
    here, there = pl.col("rank").cast(pl.Int64), pl.col("peer")
    rows = rows.with_columns(
        who="rank",
        channel=pl.format(
            "send {} to {} in group {}",
            pl.when(is_send).then(here).otherwise(there),
            pl.when(is_send).then(there).otherwise(here),
            pl.col("group").fill_null("?"),
        ),
        what=pl.format("{}", pl.col("size_bytes").fill_null(-1)),
        order="host_ns",
    )
    rows = context.domains.with_domain(paired(with_step(context.trace, rows)), "device", "", "domain")
    both = rows.filter(is_send).join(rows.filter(~is_send), on="instance", suffix="_2")
    frame = both.select(
        "instance", "who", "who_2", earlier="domain", later="domain_2", earlier_ns="op_start", later_ns="op_end_2"
    )
    texts = (
        pl.format("start of {} on rank {}", "instance", "who"),
        pl.format("end of {} on rank {}", "instance", "who_2"),
    )
    return context.evidence(frame, "send_recv", texts, pl.col("instance"))


def _with_kernels(context: Context) -> pl.DataFrame:
    """Return host records of sends and receives with ``op_start``, ``op_end`` and ``device`` of their kernel."""
    trace = context.trace
    rows = (
        trace.scan("comms")
        .filter(pl.col("op").cast(pl.String).is_in(["send", "recv"]) & pl.col("thread").is_not_null())
        .filter(pl.col("peer").is_not_null() & pl.col("rank").is_not_null())
        .select(*_LANE, "rank", "op", "group", "peer", "seq", "size_bytes", host_ns="start_ns")
        .sort("host_ns")
        .collect()
    )
    if not rows.height:
        return rows
    kernels = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null() & pl.col("name").cast(pl.String).str.contains(_KERNEL))
        .select(*_CORRELATION, "device", op_start="start_ns", op_end="end_ns")
        .collect()
    )
    launches = (
        trace.scan("calls")
        .select(*_LANE, "correlation", launch_ns="start_ns")
        .join(kernels.lazy(), on=_CORRELATION)
        .sort("launch_ns")
        .collect()
    )
    batches = (
        trace.scan("ranges")
        .filter((pl.col("kind") == "annotation") & pl.col("name").str.starts_with("nccl:"))
        .filter(pl.col("end_ns").is_not_null())
        .select(*_LANE, batch_ns="start_ns", batch_end="end_ns")
        .sort("batch_ns")
        .collect()
    )
    inside = launches.join_asof(
        batches, left_on="launch_ns", right_on="batch_ns", by=_LANE, check_sortedness=False
    ).filter(pl.col("launch_ns") <= pl.col("batch_end"))
    # An annotation with two launches, or a record that is lost, leaves open which kernel is whose.
    single = inside.filter(pl.len().over([*_LANE, "batch_ns"]) == 1)
    following = rows.join_asof(
        batches.select(*_LANE, "batch_ns"),
        left_on="host_ns",
        right_on="batch_ns",
        by=_LANE,
        strategy="forward",
        check_sortedness=False,
    )
    return following.join(single.drop("correlation", "batch_end"), on=[*_LANE, "batch_ns"])

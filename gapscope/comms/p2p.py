"""Sends and receives that torch.profiler recorded with their peer: which kernels belong together.

Peers stand in the host's records (``record_param_comms``); the kernel of one or several of them is launched within the
``nccl:`` annotation that follows on the same thread. A kernel of a coalesced batch carries no metadata itself.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import paired, with_step
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
_KERNEL = "(?i)(nccl|rccl).*(send|recv)"


def sends_and_receives(trace: Trace) -> pl.DataFrame:
    """Return one row per message, the sending and the receiving kernel side by side.

    Returns:
        ``instance`` (text), and for the sender and, with suffix ``_2``, the receiver: ``source``, ``process``,
        ``thread``, ``who`` (rank), ``correlation``, ``device``, ``op_start``, ``op_end`` (on the file's clock),
        ``host_ns`` (the host's record began), ``batch_ns`` (the annotation of the launch began), ``size_bytes``.
    """
    rows = _with_kernels(trace)
    if not rows.height:
        return pl.DataFrame(schema=_SCHEMA)
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
    rows = paired(with_step(trace, rows))
    both = rows.filter(is_send).join(rows.filter(~is_send), on="instance", suffix="_2")
    return both.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


_ONE = {
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "who": pl.Int32,
    "correlation": pl.Int64,
    "device": pl.Int32,
    "op_start": pl.Int64,
    "op_end": pl.Int64,
    "host_ns": pl.Int64,
    "batch_ns": pl.Int64,
    "size_bytes": pl.Int64,
    "step": pl.Int64,
}
_SCHEMA = {"instance": pl.String, "group": pl.String, **_ONE, **{f"{name}_2": dtype for name, dtype in _ONE.items()}}


def _with_kernels(trace: Trace) -> pl.DataFrame:
    """Return host records of sends and receives with ``op_start``, ``op_end`` and ``device`` of their kernel."""
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
    return following.join(single.drop("batch_end"), on=[*_LANE, "batch_ns"])

"""Sends and receives of NCCL and RCCL: their kernels, and which send belongs to which receive.

torch.profiler writes the peer into the host's records (``record_param_comms``); the kernel of one or several of them is
launched within the ``nccl:`` annotation that follows on the same thread. A kernel of a coalesced batch carries no
metadata itself. nsys has NCCL's own ranges without a peer: with exactly two ranks that send and receive, the peer is
the other one.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.nccl_ranges import launching, nccl_ranges, operations
from gapscope.comms.ordinals import of_job, other_rank, paired, with_job, with_step
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
_KERNEL = "(?i)(nccl|rccl).*(send|recv)"
_RANKS = 2
_RECORD = {
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "rank": pl.Int32,
    "op": pl.String,
    "group": pl.String,
    "peer": pl.Int64,
    "seq": pl.Int64,
    "size_bytes": pl.Int64,
    "host_ns": pl.Int64,
    "host_end": pl.Int64,
    "by": pl.String,
}
_END = {
    **_RECORD,
    "correlation": pl.Int64,
    "device": pl.Int32,
    "stream": pl.Int64,
    "op_start": pl.Int64,
    "op_end": pl.Int64,
    "batch_ns": pl.Int64,
    "batch_end": pl.Int64,
    "step": pl.Int64,
    "job": pl.String,
    "instance": pl.String,
}


def message_ends(trace: Trace) -> pl.DataFrame:
    """Return one row per send and per receive that a rank asked for.

    Returns:
        ``source, process, thread, rank, op`` (``send``, ``recv``), ``group``, ``peer`` (null: not known), ``seq``,
        ``size_bytes``, ``host_ns``, ``host_end`` (its host record), ``by`` (``metadata``: torch recorded its peer;
        ``order``), ``correlation``, ``device``, ``stream``, ``op_start``, ``op_end`` (of its kernel; null: not known),
        ``batch_ns``, ``batch_end`` (the range within which it was launched), ``step``, ``job``, and ``instance``, a
        text that the two ends of a message share; null where its other end is not known.
    """
    rows = pl.concat([_of_torch(trace), _of_nsys(trace)])
    if not rows.height:
        return pl.DataFrame(schema=_END)
    rows = _with_peer_and_group(with_job(trace, rows))
    is_send = pl.col("op") == "send"
    here, there = pl.col("rank").cast(pl.Int64), pl.col("peer")
    rows = rows.with_row_index("end").with_columns(
        who="rank",
        channel=of_job(
            pl.format(
                "send {} to {} in group {}",
                pl.when(is_send).then(here).otherwise(there),
                pl.when(is_send).then(there).otherwise(here),
                pl.col("group").fill_null("?"),
            )
        ),
        what=pl.col("size_bytes").cast(pl.String),
        order="host_ns",
    )
    rows = with_step(trace, rows)
    both_ends = pl.col("who").n_unique().over("channel") == _RANKS
    found = paired(rows.filter(pl.col("channel").is_not_null() & both_ends)).select("end", "instance")
    rows = rows.join(found, on="end", how="left").sort("end")
    return rows.select(pl.col(n).cast(t) for n, t in _END.items())


def sends_and_receives(trace: Trace) -> pl.DataFrame:
    """Return one row per message, the sending and the receiving kernel side by side.

    Returns:
        ``instance`` (text), ``group``, ``by``, and for the sender and, with suffix ``_2``, the receiver: ``source``,
        ``process``, ``thread``, ``who`` (rank), ``correlation``, ``device``, ``op_start``, ``op_end`` (on the file's
        clock), ``host_ns`` (the host's record began), ``batch_ns`` (the range of the launch began), ``size_bytes``.
    """
    return trace.once("sends_and_receives", lambda: _sends_and_receives(trace))


def _sends_and_receives(trace: Trace) -> pl.DataFrame:
    ends = message_ends(trace).filter(pl.col("instance").is_not_null() & pl.col("op_start").is_not_null())
    ends = ends.rename({"rank": "who"})
    is_send = pl.col("op") == "send"
    both = ends.filter(is_send).join(ends.filter(~is_send), on="instance", suffix="_2")
    both = both.with_columns(by=pl.when(pl.col("by_2") == "order").then("by_2").otherwise("by"))
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
_SCHEMA = {
    "instance": pl.String,
    "group": pl.String,
    "by": pl.String,
    **_ONE,
    **{f"{name}_2": dtype for name, dtype in _ONE.items()},
}


def _of_torch(trace: Trace) -> pl.DataFrame:
    """Return the host records of torch with their kernels."""
    rows = (
        trace.scan("comms")
        .filter(pl.col("op").cast(pl.String).is_in(["send", "recv"]) & pl.col("thread").is_not_null())
        .filter(pl.col("peer").is_not_null() & pl.col("rank").is_not_null())
        .with_columns(host_ns="start_ns", host_end="end_ns", by=pl.lit("metadata"))
        .select(pl.col(n).cast(t) for n, t in _RECORD.items())
        .sort("host_ns")
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
    return _with_kernels(trace, rows, batches)


def _of_nsys(trace: Trace) -> pl.DataFrame:
    """Return the sends and receives among NCCL's own ranges with their kernels."""
    ranges = nccl_ranges(trace)
    rows = operations(ranges).filter(pl.col("op").is_in(["send", "recv"]))
    rows = rows.with_columns(host_ns="start_ns", host_end="end_ns", by=pl.lit("order"))
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in _RECORD.items() if n not in rows.columns]
    rows = rows.with_columns(missing).select(pl.col(n).cast(t) for n, t in _RECORD.items())
    return _with_kernels(trace, rows, launching(ranges))


def _with_peer_and_group(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill in the peer where only two ranks send and receive, and the group where there is only one.

    A rank may send to itself (all-to-all does): of several sends in one launch nobody can tell which goes to the other.
    """
    groups = pl.col("group").drop_nulls()
    only = pl.when(groups.n_unique().over("job") == 1).then(groups.first().over("job"))
    several = pl.len().over([*_LANE, "batch_ns", "op"]) > 1
    guess = pl.when(~several).then(other_rank("rank"))
    return rows.with_columns(
        peer=pl.coalesce("peer", guess),
        group=pl.coalesce("group", only),
    )


def _with_kernels(trace: Trace, rows: pl.DataFrame, batches: pl.DataFrame) -> pl.DataFrame:
    """Add the kernel of each record; null where a batch has none, or several.

    Args:
        trace: The recordings.
        rows: Columns `_RECORD`, ordered by ``host_ns``.
        batches: ``source, process, thread, batch_ns, batch_end``, ordered by ``batch_ns``: what encloses launches.
    """
    if not rows.height:
        return pl.DataFrame(schema={n: t for n, t in _END.items() if n not in ("step", "job", "instance")})
    kernels = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null() & pl.col("name").cast(pl.String).str.contains(_KERNEL))
        .select(*_CORRELATION, "device", "stream", op_start="start_ns", op_end="end_ns")
        .collect()
    )
    launches = (
        trace.scan("calls")
        .select(*_LANE, "correlation", launch_ns="start_ns")
        .join(kernels.lazy(), on=_CORRELATION)
        .sort("launch_ns")
        .collect()
    )
    inside = launches.join_asof(
        batches, left_on="launch_ns", right_on="batch_ns", by=_LANE, check_sortedness=False
    ).filter(pl.col("launch_ns") <= pl.col("batch_end"))
    # An annotation with two launches, or a record that is lost, leaves open which kernel is whose.
    single = inside.filter(pl.len().over([*_LANE, "batch_ns"]) == 1).drop("launch_ns", "batch_end")
    following = rows.join_asof(
        batches, left_on="host_ns", right_on="batch_ns", by=_LANE, strategy="forward", check_sortedness=False
    )
    found = following.join(single, on=[*_LANE, "batch_ns"], how="left", maintain_order="left")
    return found.select(pl.col(n).cast(t) for n, t in _END.items() if n in found.columns)

"""What a communication's operation had to wait for, and what had to wait for it, on its own rank.

By order on the stream and by waits for events: the producer's last operation is the latest-ending one that the
communication's stream had to wait for (on the same stream the one before it), the consumer's first is the
earliest-starting one that had to wait for the communication (on the same stream the one after it). Communication itself
is neither. Nothing is taken from order in time alone.
"""

from __future__ import annotations

import polars as pl

from gapscope import comms
from gapscope.comms.streams import streams_of
from gapscope.trace import Trace

_PROCESS = ["source", "process"]
_CORRELATION = [*_PROCESS, "correlation"]
_STREAM = [*_PROCESS, "device", "stream"]
_NCCL = r"(?i)(nccl|rccl)"


def with_neighbors(trace: Trace, ends: pl.DataFrame) -> pl.DataFrame:
    """Add the operations around each communication.

    Args:
        trace: The recordings.
        ends: Has ``source, process, correlation`` and ``op_start`` of its operation; null: not known.

    Returns:
        The rows with ``before_<x>`` and ``after_<x>`` for ``ns`` and ``end_ns`` (start and end on the file's clock),
        ``device``, ``stream`` and ``correlation``; null where nothing recorded tells it.
    """
    # A replayed graph has many operations of one correlation id.
    keys = ends.select(*_CORRELATION, start_ns="op_start").drop_nulls().unique()
    ops = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null() & pl.col("correlation").is_not_null())
        .join(keys.lazy().select(_PROCESS).unique(), on=_PROCESS, how="semi")
        .select(
            *_STREAM, "correlation", "start_ns", "end_ns",
            is_nccl=pl.col("name").cast(pl.String).str.contains(_NCCL),
        )
        .join(keys.lazy().with_columns(is_chosen=pl.lit(value=True)), on=[*_CORRELATION, "start_ns"], how="left")
        .sort(*_STREAM, "correlation", "start_ns")
        .collect()
        .with_row_index("op")
        .with_columns(pl.col("op").cast(pl.Int64))
    )  # fmt: skip
    is_comm = pl.col("is_nccl") | pl.col("is_chosen").fill_null(value=False)
    plain = pl.when(~is_comm).then("op")
    ops = ops.with_columns(
        stream_no=pl.struct(_STREAM).rle_id(),
        last=plain.forward_fill().over(_STREAM),
        next=plain.backward_fill().over(_STREAM),
    )
    waits = comms.event_waits(trace, streams_of(ops)).filter(
        (pl.col("kind") == "stream_wait") & pl.col("behind").is_not_null()
    )
    before = _running(ops, waits, at="behind", to="op", plain="last", of="end_ns", descending=False)
    after = _running(ops, waits, at="op", to="behind", plain="next", of="start_ns", descending=True)
    chosen = ops.filter(pl.col("is_chosen")).select(*_CORRELATION, "op", op_start="start_ns")
    facts = chosen.unique([*_CORRELATION, "op_start"], keep="first", maintain_order=True)
    for found, prefix in ((before, "before"), (after, "after")):
        there = found.join(
            ops.select(
                "op",
                **{
                    f"{prefix}_ns": "start_ns",
                    f"{prefix}_end_ns": "end_ns",
                    f"{prefix}_device": "device",
                    f"{prefix}_stream": "stream",
                    f"{prefix}_correlation": "correlation",
                },
            ),
            left_on="found",
            right_on="op",
        )
        facts = facts.join(there.drop("found"), left_on="op", right_on="at", how="left")
    return ends.join(facts.drop("op"), on=[*_CORRELATION, "op_start"], how="left", maintain_order="left")


def _running(
    ops: pl.DataFrame, waits: pl.DataFrame, *, at: str, to: str, plain: str, of: str, descending: bool
) -> pl.DataFrame:
    """Return ``at, found``: for each operation the latest of what comes before it, or the earliest of what is behind.

    Args:
        ops: Operations, by stream and order on it.
        waits: ``op`` (waited for) and ``behind`` (that had to wait).
        at: Which end of a wait is on the operation's own stream.
        to: The other end.
        plain: Column that leads from an operation to the nearest that is no communication, itself included.
        of: Time that decides.
        descending: Look at what comes behind, and for the earliest.
    """
    step = -1 if descending else 1
    own = ops.select(at="op", found=pl.col(plain).shift(step).over(_STREAM))
    nearest = ops.select("op", found=pl.col(plain))
    other = waits.select(at=at, op=to).join(nearest, on="op").select("at", "found")
    rows = pl.concat([own, other]).join(ops.select(at="op", stream_no="stream_no"), on="at")
    rows = rows.join(ops.select(found="op", time=of), on="found", how="left")
    rows = rows.sort("at", "time", descending=[descending, descending], nulls_last=False)
    time = pl.col("time")
    best = (time.cum_min() if descending else time.cum_max()).over("stream_no")
    rows = rows.with_columns(found=pl.when(time == best).then("found").forward_fill().over("stream_no"))
    return rows.unique("at", keep="last", maintain_order=True).select("at", "found").drop_nulls()

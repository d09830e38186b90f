"""Streams and hosts that wait for events, and the operation that each event stands for.

What waits for an event goes on when the last operation enqueued before the event's record has ended. nsys names the
record (``eventSyncId``, never the event's handle, which is reused) and its stream. torch.profiler names neither: then
it is the latest record on the same thread before the wait, and the last operation enqueued before that on another
stream of the process. A later operation than that was not waited for if what stood behind the wait started before it
had ended (receives that are posted ahead and waited for one by one): then it is the last one on its stream that had
ended. All waits before an operation are kept; a wait also holds later operations, which the order on the stream carries
on.
"""

from __future__ import annotations

import polars as pl

from gapscope.trace import Trace

_PROCESS = ["source", "process"]
_CORRELATION = [*_PROCESS, "correlation"]


def event_waits(trace: Trace, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the waits for events whose operation is known.

    Args:
        trace: The recordings.
        ops: Operations with ``source, process, device, stream, correlation, start_ns, end_ns, op`` (a number of the
            caller's own).

    Returns:
        One row per wait: ``source, process, correlation`` (of the waiting call), ``kind`` (``stream_wait``,
        ``event_sync``), ``op`` (that it waits for), ``behind`` (first operation that was enqueued on the waiting stream
        after it; null: none, or a host waits), ``evidence``.
    """
    waits = (
        trace.scan("syncs")
        .filter(pl.col("correlation").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["stream_wait", "event_sync"]))
        .select(
            *_CORRELATION, "device", "stream", "event_sync", "record_correlation", kind=pl.col("kind").cast(pl.String)
        )
        .collect()
        .unique(_CORRELATION, maintain_order=True)
    )
    if not waits.height:
        return pl.DataFrame(schema=_SCHEMA)
    ops = in_order(ops)
    released = released_by(trace, on_devices(ops, waits).with_row_index("wait"), ops)
    return released.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


_SCHEMA = {
    "source": pl.Int32,
    "process": pl.Int64,
    "correlation": pl.Int64,
    "kind": pl.String,
    "op": pl.Int64,
    "behind": pl.Int64,
    "evidence": pl.String,
}


def in_order(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the operations with a correlation id, ordered by it.

    Args:
        ops: See `event_waits`.
    """
    ops = ops.filter(pl.col("correlation").is_not_null())
    columns = [*_CORRELATION, "device", "stream", pl.col("op").cast(pl.Int64), "start_ns", "end_ns"]
    return ops.select(columns).sort("correlation", "op")


def on_devices(ops: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``syncs`` with the device of their stream.

    nsys writes device 0 for every wait, and torch none for a record. The operations of a stream say where it is; only
    where two devices of a process have streams of one number, the row itself does.

    Args:
        ops: Result of `in_order`.
        rows: Have ``source, process, stream, device``.
    """
    known = (
        ops.select(*_PROCESS, "device", "stream")
        .unique()
        .group_by(*_PROCESS, "stream")
        .agg(of_stream=pl.col("device").unique())
    )
    known = known.filter(pl.col("of_stream").list.len() == 1).explode("of_stream")
    rows = rows.join(known, on=[*_PROCESS, "stream"], how="left", maintain_order="left")
    return rows.with_columns(device=pl.coalesce("of_stream", "device")).drop("of_stream")


def released_by(trace: Trace, waits: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the waits with ``op`` (the operation that releases each), ``behind`` and ``evidence``.

    Args:
        trace: The recordings.
        waits: ``wait`` (a number), ``source, process, correlation, device, stream, event_sync, record_correlation,
            kind``.
        ops: Result of `in_order`.
    """
    waits = _with_first_behind(waits, ops)
    syncs = trace.scan("syncs").filter((pl.col("kind") == "event_record") & pl.col("correlation").is_not_null())
    records = on_devices(ops, syncs.select(*_CORRELATION, "event_sync", "device", "stream").collect())
    records = records.rename({"device": "record_device", "stream": "record_stream"})
    by_id = waits.filter(pl.col("event_sync").is_not_null()).join(
        records.filter(pl.col("event_sync").is_not_null() & pl.col("record_stream").is_not_null())
        .rename({"correlation": "record"})
        .unique([*_PROCESS, "event_sync"], keep="none"),
        on=[*_PROCESS, "event_sync"],
    )
    known = by_id.sort("record").join_asof(
        ops.rename({"correlation": "op_correlation"}),
        left_on="record",
        right_on="op_correlation",
        by_left=[*_PROCESS, "record_device", "record_stream"],
        by_right=[*_PROCESS, "device", "stream"],
        check_sortedness=False,
    )
    unnamed = waits.join(by_id.select("wait"), on="wait", how="anti")
    columns = ["wait", *_CORRELATION, "kind", "op", "behind"]
    parts = [
        known.select(*columns, evidence=pl.lit("recorded")),
        _guessed(trace, unnamed, ops).select(*columns, evidence=pl.lit("inferred")),
    ]
    return pl.concat(parts).drop_nulls("op")


def _guessed(trace: Trace, waits: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return waits whose record is not named: by the latest record of the same thread."""
    calls = (
        trace.scan("calls")
        .filter(pl.col("correlation").is_not_null() & pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
        .join(waits.lazy().select(_PROCESS).unique(), on=_PROCESS, how="semi")
    )
    waiting = calls.join(waits.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
    threads = waiting.select(*_CORRELATION, "thread").collect().unique(_CORRELATION)
    records = (
        calls.filter(pl.col("family") == "event_record")
        .select(*_PROCESS, "thread", record="correlation")
        .sort("record")
        .collect()
    )
    placed = waits.join(threads, on=_CORRELATION).sort("correlation")
    placed = placed.join_asof(
        records, left_on="correlation", right_on="record", by=[*_PROCESS, "thread"], check_sortedness=False
    ).with_columns(record=pl.coalesce("record_correlation", "record"))
    placed = placed.filter(pl.col("record").is_not_null())
    streams = ops.select(*_PROCESS, other_device="device", other="stream").unique()
    is_own = (pl.col("other_device") == pl.col("device")) & (pl.col("other") == pl.col("stream"))
    candidates = (
        placed.join(streams, on=_PROCESS)
        .filter(~is_own.fill_null(value=False))
        .sort("record")
        .join_asof(
            ops.select(*_PROCESS, "device", "stream", "op", "end_ns", op_correlation="correlation"),
            left_on="record",
            right_on="op_correlation",
            by_left=[*_PROCESS, "other_device", "other"],
            by_right=[*_PROCESS, "device", "stream"],
            check_sortedness=False,
        )
        .drop_nulls("op")
    )
    chosen = _ended_before(candidates, ops)
    return chosen.sort("op_correlation").unique("wait", keep="last", maintain_order=True)


def _ended_before(candidates: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Put the last operation that had ended in place of one that ended after what stood behind the wait had started.

    Only times of one device are compared; they have one clock.
    """
    late = (pl.col("end_ns") > pl.col("behind_ns")) & (pl.col("other_device") == pl.col("device"))
    late = late.fill_null(value=False)
    instead = (
        candidates.filter(late)
        .drop("op", "end_ns", "op_correlation")
        .sort("behind_ns")
        .join_asof(
            ops.select(*_PROCESS, "device", "stream", "op", "end_ns", op_correlation="correlation").sort("end_ns"),
            left_on="behind_ns",
            right_on="end_ns",
            by_left=[*_PROCESS, "other_device", "other"],
            by_right=[*_PROCESS, "device", "stream"],
            check_sortedness=False,
        )
        .drop_nulls("op")
    )
    return pl.concat([candidates.filter(~late), instead.select(candidates.columns)])


def _with_first_behind(waits: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Add the first operation enqueued on the stream after the wait: ``behind, behind_ns``; null where a host waits."""
    behind = ops.select(
        *_PROCESS, "device", "stream", behind="op", behind_ns="start_ns", behind_correlation="correlation"
    ).unique([*_PROCESS, "device", "stream", "behind_correlation"], keep="first", maintain_order=True)
    is_stream = pl.col("kind") == "stream_wait"
    streams = (
        waits.filter(is_stream)
        .sort("correlation")
        .join_asof(
            behind,
            left_on="correlation",
            right_on="behind_correlation",
            by=[*_PROCESS, "device", "stream"],
            strategy="forward",
            check_sortedness=False,
        )
    )
    return pl.concat([streams, waits.filter(~is_stream)], how="diagonal")

"""Streams and hosts that wait for events, and the operation that each event stands for.

What waits for an event goes on when the last operation enqueued before the event's record has ended. nsys names the
record (``eventSyncId``, never the event's handle, which is reused) and its stream. torch.profiler names neither: then
it is the latest record on the same thread before the wait, and the last operation enqueued before that on another
stream of the process; what ended only after the waiting operation had started is not it. All waits before an
operation are kept; a wait also holds later operations, which the order on the stream carries on.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.streams import Streams
from gapscope.trace import Trace

_PROCESS = ["source", "process"]
_CORRELATION = [*_PROCESS, "correlation"]
_SCHEMA = {
    "source": pl.Int32,
    "process": pl.Int64,
    "correlation": pl.Int64,
    "kind": pl.String,
    "op": pl.Int64,
    "behind": pl.Int64,
    "evidence": pl.String,
}


def event_waits(trace: Trace, streams: Streams) -> pl.DataFrame:
    """Return the waits for events whose operation is known.

    Args:
        trace: The recordings.
        streams: Their operations.

    Returns:
        One row per wait: ``source, process, correlation`` (of the waiting call), ``kind`` (``stream_wait``,
        ``event_sync``), ``op`` (number of the operation that it waits for), ``behind`` (first operation that was
        enqueued on the waiting stream after it; null: none, or a host waits), ``evidence``.
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
    released = released_by(trace, on_devices(streams, waits).with_row_index("wait"), streams)
    return released.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


def on_devices(streams: Streams, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``syncs`` with the device of their stream.

    nsys writes device 0 for every wait, and torch none for a record. The operations of a stream say where it is; only
    where two devices of a process have streams of one number, the row itself does.

    Args:
        streams: Operations of the recordings.
        rows: Have ``source, process, stream, device``.
    """
    known = streams.table.group_by(*_PROCESS, "stream").agg(of_stream=pl.col("device").unique())
    known = known.filter(pl.col("of_stream").list.len() == 1).explode("of_stream")
    rows = rows.join(known, on=[*_PROCESS, "stream"], how="left", maintain_order="left")
    return rows.with_columns(device=pl.coalesce("of_stream", "device")).drop("of_stream")


def released_by(trace: Trace, waits: pl.DataFrame, streams: Streams) -> pl.DataFrame:
    """Return the waits with ``op`` (the operation that releases each), ``behind`` and ``evidence``.

    Args:
        trace: The recordings.
        waits: ``wait`` (a number), ``source, process, correlation, device, stream, event_sync, record_correlation,
            kind``.
        streams: Operations of the recordings.
    """
    waits = _with_first_behind(waits, streams)
    syncs = trace.scan("syncs").filter((pl.col("kind") == "event_record") & pl.col("correlation").is_not_null())
    records = on_devices(streams, syncs.select(*_CORRELATION, "event_sync", "device", "stream").collect())
    records = records.rename({"device": "record_device", "stream": "record_stream"})
    by_id = waits.filter(pl.col("event_sync").is_not_null()).join(
        records.filter(pl.col("event_sync").is_not_null() & pl.col("record_stream").is_not_null())
        .rename({"correlation": "record"})
        .unique([*_PROCESS, "event_sync"], keep="none"),
        on=[*_PROCESS, "event_sync"],
    )
    known = streams.beside(by_id, "record_device", "record_stream", "record", "op", behind=False)
    unnamed = waits.join(by_id.select("wait"), on="wait", how="anti")
    columns = ["wait", *_CORRELATION, "kind", "op", "behind"]
    parts = [known.select(*columns, evidence=pl.lit("recorded"))]
    if unnamed.height:
        parts.append(_guessed(trace, unnamed, streams).select(*columns, evidence=pl.lit("inferred")))
    return pl.concat(parts).drop_nulls("op")


def _guessed(trace: Trace, waits: pl.DataFrame, streams: Streams) -> pl.DataFrame:
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
    others = streams.table.select(*_PROCESS, other_device="device", other="stream")
    is_own = (pl.col("other_device") == pl.col("device")) & (pl.col("other") == pl.col("stream"))
    candidates = placed.join(others, on=_PROCESS).filter(~is_own.fill_null(value=False))
    candidates = streams.beside(candidates, "other_device", "other", "record", "op", behind=False).drop_nulls("op")
    chosen = _ended_before(candidates, streams)
    enqueued = streams.correlation.gather(chosen["op"]).alias("op_correlation")
    chosen = chosen.with_columns(enqueued).sort("op_correlation", "op")
    return chosen.unique("wait", keep="last", maintain_order=True)


def _ended_before(candidates: pl.DataFrame, streams: Streams) -> pl.DataFrame:
    """Put the last operation that had ended in place of one that ended after what stood behind the wait had started.

    Only times of one device are compared; they have one clock.
    """
    start, end = pl.Series(streams.start), pl.Series(streams.end)
    rows = candidates.with_columns(
        end_ns=end.gather(candidates["op"]), behind_ns=start.gather(candidates["behind"].cast(pl.UInt32))
    )
    late = (pl.col("end_ns") > pl.col("behind_ns")) & (pl.col("other_device") == pl.col("device"))
    late = late.fill_null(value=False)
    instead = streams.ended_by(rows.filter(late).drop("op"), "other_device", "other", "behind_ns", "op")
    return pl.concat([rows.filter(~late), instead.drop_nulls("op").select(rows.columns)])


def _with_first_behind(waits: pl.DataFrame, streams: Streams) -> pl.DataFrame:
    """Add ``behind``: the first operation enqueued on the stream after the wait; null where a host waits."""
    found = streams.beside(waits, "device", "stream", "correlation", "behind", behind=True)
    return found.with_columns(behind=pl.when(pl.col("kind") == "stream_wait").then("behind"))

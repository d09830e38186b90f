"""A stream that waits for an event goes on when the last operation before the event's record has ended.

nsys names the record (``eventSyncId``, never the event's handle, which is reused) and its stream. torch.profiler
names neither: then it is the latest record on the same thread before the wait, and the last operation enqueued before
that on another stream of the process. All waits before an operation are kept; a wait also holds later operations,
which the order on the stream carries on.
"""

from __future__ import annotations

import polars as pl

from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges

_PROCESS = ["source", "process"]
_CORRELATION = [*_PROCESS, "correlation"]


def event_waits(context: Context) -> pl.DataFrame:
    """Return edges from the end of the operation that an event stands for to what waited for it."""
    syncs = context.trace.scan("syncs").filter(pl.col("correlation").is_not_null())
    waits = (
        syncs.filter(pl.col("kind").cast(pl.String).is_in(["stream_wait", "event_sync"]))
        .select(
            *_CORRELATION, "device", "stream", "event_sync", "record_correlation", kind=pl.col("kind").cast(pl.String)
        )
        .collect()
        .unique(_CORRELATION, maintain_order=True)
    )
    if not waits.height:
        return pl.DataFrame(schema=EDGE)
    waits = on_devices(context, waits).with_row_index("wait")
    released = released_by(context, waits)
    end = pl.Series(context.items.end)
    released = released.with_columns(ready_ns=end.gather(released["op"])).with_columns(pl.col("op").cast(pl.Int64))
    streams = _first_behind(context, released.filter(pl.col("kind") == "stream_wait"))
    hosts = context.items.calls_by_correlation(released.filter(pl.col("kind") == "event_sync"), "correlation", "call")
    parts = [
        edges(
            streams.with_columns(to=pl.col("behind").cast(pl.Int64) * 2, **{"from": pl.col("op") * 2 + 1}),
            "event",
            pl.col("evidence"),
        ),
        edges(
            hosts.with_columns(to=pl.col("call").cast(pl.Int64) * 2 + 1, **{"from": pl.col("op") * 2 + 1}),
            "sync",
            pl.col("evidence"),
        ),
    ]
    return pl.concat(parts)


def on_devices(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``syncs`` with the device of their stream.

    nsys writes device 0 for every wait, and torch none for a record. The operations of a stream say where it is; only
    where two devices of a process have streams of one number, the row itself does.
    """
    known = context.items.streams.group_by(*_PROCESS, "stream").agg(of_stream=pl.col("device").unique())
    known = known.filter(pl.col("of_stream").list.len() == 1).explode("of_stream")
    rows = rows.join(known, on=[*_PROCESS, "stream"], how="left", maintain_order="left")
    return rows.with_columns(device=pl.coalesce("of_stream", "device")).drop("of_stream")


def released_by(context: Context, waits: pl.DataFrame) -> pl.DataFrame:
    """Return the waits with ``op`` (the operation that releases each) and ``evidence``."""
    syncs = context.trace.scan("syncs").filter((pl.col("kind") == "event_record") & pl.col("correlation").is_not_null())
    records = on_devices(context, syncs.select(*_CORRELATION, "event_sync", "device", "stream").collect())
    records = records.rename({"device": "record_device", "stream": "record_stream"})
    by_id = waits.filter(pl.col("event_sync").is_not_null()).join(
        records.filter(pl.col("event_sync").is_not_null() & pl.col("record_stream").is_not_null())
        .rename({"correlation": "record"})
        .unique([*_PROCESS, "event_sync"], keep="none"),
        on=[*_PROCESS, "event_sync"],
    )
    known = context.items.beside(by_id, "record_device", "record_stream", "record", "op", behind=False)
    unnamed = waits.join(by_id.select("wait"), on="wait", how="anti")
    guessed = _guessed(context, unnamed)
    columns = ["wait", *_CORRELATION, "device", "stream", "kind", "op"]
    return pl.concat(
        [
            known.select(*columns, evidence=pl.lit("recorded")),
            guessed.select(*columns, evidence=pl.lit("inferred")),
        ]
    ).drop_nulls("op")


def _guessed(context: Context, waits: pl.DataFrame) -> pl.DataFrame:
    """Return waits whose record is not named: by the latest record of the same thread."""
    items = context.items
    waits = items.calls_by_correlation(waits, "correlation", "call").drop_nulls("call")
    thread = items.hosts["thread"].gather(waits["call"] - items.n_ops)
    is_record = (items.hosts["family"] == "event_record").fill_null(value=False)
    records = (
        items.hosts.filter(is_record & items.hosts["correlation"].is_not_null())
        .select(*_PROCESS, "thread", record="correlation")
        .sort("record")
    )
    placed = waits.with_columns(thread).sort("correlation")
    placed = placed.join_asof(
        records, left_on="correlation", right_on="record", by=[*_PROCESS, "thread"], check_sortedness=False
    ).with_columns(record=pl.coalesce("record_correlation", "record"))
    placed = placed.filter(pl.col("record").is_not_null())
    streams = items.streams.select(*_PROCESS, other_device="device", other="stream")
    is_own = (pl.col("other_device") == pl.col("device")) & (pl.col("other") == pl.col("stream"))
    candidates = placed.join(streams, on=_PROCESS).filter(~is_own.fill_null(value=False))
    candidates = items.beside(candidates, "other_device", "other", "record", "op", behind=False).drop_nulls("op")
    enqueued = items.ops["correlation"].gather(candidates["op"]).alias("op_correlation")
    latest = candidates.with_columns(enqueued).sort("op_correlation")
    return latest.unique("wait", keep="last", maintain_order=True)


def _first_behind(context: Context, waits: pl.DataFrame) -> pl.DataFrame:
    """Return stream waits with ``behind``: the first operation enqueued on that stream after the wait."""
    return context.items.beside(waits, "device", "stream", "correlation", "behind", behind=True)

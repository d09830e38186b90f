"""A stream, or a host, that waits for an event goes on when the last operation before the event's record has ended."""

from __future__ import annotations

import polars as pl

from gapscope import comms
from gapscope.graph.context import Context
from gapscope.graph.edges import edges

_PROCESS = ["source", "process"]


def event_waits(context: Context) -> pl.DataFrame:
    """Return edges from the end of the operation that an event stands for to what waited for it."""
    items = context.items
    waits = _for_their_receives(context, comms.event_waits(context.trace, items.streams))
    end = pl.Series(items.end)
    waits = waits.with_columns(ready_ns=end.gather(waits["op"]), **{"from": pl.col("op") * 2 + 1})
    streams = waits.filter(pl.col("kind") == "stream_wait")
    hosts = items.calls_by_correlation(waits.filter(pl.col("kind") == "event_sync"), "correlation", "call")
    return pl.concat(
        [
            edges(streams.with_columns(to=pl.col("behind") * 2), "event", pl.col("evidence")),
            edges(hosts.with_columns(to=pl.col("call").cast(pl.Int64) * 2 + 1), "sync", pl.col("evidence")),
        ]
    )


def _for_their_receives(context: Context, waits: pl.DataFrame) -> pl.DataFrame:
    """Let a consumer wait for its own receive, where its wait was taken to be for another handoff's.

    Receives may all be posted first and waited for one by one. Where the record is not named, the latest before a wait
    is then that of the receive that was posted last; marks say which receive the consumer needs. Of several waits
    before a consumer only the first is changed: the others may be for what it needs besides.
    """
    waits = waits.with_row_index("wait")
    guess = (pl.col("evidence") == "inferred") & (pl.col("kind") == "stream_wait") & pl.col("behind").is_not_null()
    first = waits.filter(guess).sort("correlation").unique([*_PROCESS, "behind"], keep="first", maintain_order=True)
    if not first.height:
        return waits.drop("wait")
    marked = context.deciding_ops.filter(pl.col("evidence") == "declared")
    received = marked.filter(pl.col("mark") == "receive").select(*_PROCESS, "handoff", "item", "start")
    consumed = marked.filter(pl.col("mark") == "consume").select(*_PROCESS, "handoff", behind="item")
    of_other = first.join(received.select(op="item").unique(), on="op", how="semi")
    if not of_other.height:
        return waits.drop("wait")
    pairs = of_other.join(consumed, on=[*_PROCESS, "behind"]).join(received, on=[*_PROCESS, "handoff"])
    pairs = pairs.filter((pl.col("item") != pl.col("op")).all().over("wait"))
    own = pairs.sort("start").unique("wait", keep="last", maintain_order=True)
    items = context.items
    one, other = (
        items.ops_at(own[c].cast(pl.Int64)).select("device", "stream", "correlation") for c in ("item", "behind")
    )
    is_before = (
        ((one["device"] != other["device"]) | (one["stream"] != other["stream"]))
        & (one["correlation"] < own["correlation"]).fill_null(value=False)
        & pl.Series(items.end[own["item"].to_numpy()] <= items.start[own["behind"].to_numpy()])
    )
    own = own.filter(is_before).select("wait", own="item")
    return (
        waits.join(own, on="wait", how="left", maintain_order="left")
        .with_columns(
            op=pl.coalesce("own", "op"),
            evidence=pl.when(pl.col("own").is_not_null()).then(pl.lit("declared")).otherwise("evidence"),
        )
        .drop("wait", "own")
    )

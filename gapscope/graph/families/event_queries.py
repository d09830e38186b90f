"""A host that polls an event goes on when the last operation before the event's record has ended.

No record says which query succeeded. Polling is a run of two or more queries of one event on one thread with nothing
but queries between them; the last of the run is the one that ended it, if the operation ended after the query before it
had begun and before it returned itself. A single query, or one between other calls, is no waiting.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.event_waits import on_devices, released_by
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges

_PROCESS = ["source", "process"]
_CORRELATION = [*_PROCESS, "correlation"]
_THREAD = [*_PROCESS, "thread"]
_POLLED = [*_THREAD, "event", "event_sync"]


def event_queries(context: Context) -> pl.DataFrame:
    """Return edges from the end of an operation to the query that found it ended.

    An operation that ended before that query began holds its start: the host had been polling, and came back late. One
    that ended while it ran holds its return.
    """
    polls = _last_polls(context)
    if not polls.height:
        return pl.DataFrame(schema=EDGE)
    items = context.items
    # The record is the latest before the first of the run.
    waits = polls.select(
        *_PROCESS, "device", "stream", "event_sync", "record_correlation", "wait", correlation="first_correlation",
        kind=pl.lit("event_sync"),
    )  # fmt: skip
    found = released_by(context.trace, on_devices(items.streams, waits), items.streams).select("wait", "op")
    rows = polls.join(found.unique("wait", keep="none"), on="wait", maintain_order="left")
    start, end = pl.Series(items.start), pl.Series(items.end)
    rows = rows.with_columns(
        ready_ns=end.gather(rows["op"]),
        begin=start.gather(rows["item"]),
        until=end.gather(rows["item"]),
        earlier=start.gather(rows["item_before"]),
    )
    bound = context.alignment.uncertainty(
        pl.Series(items.clock_of(rows["op"].to_numpy())),
        pl.Series(items.clock_of(rows["item"].to_numpy())),
        rows["ready_ns"],
    )
    rows = rows.with_columns(bound=bound).filter(
        pl.col("ready_ns").is_between(pl.col("earlier") - pl.col("bound"), pl.col("until") + pl.col("bound"))
    )
    node = pl.col("item") * 2 + (pl.col("ready_ns") > pl.col("begin")).cast(pl.Int64)
    return edges(rows.with_columns(to=node, **{"from": pl.col("op") * 2 + 1}), "sync", "inferred")


def _last_polls(context: Context) -> pl.DataFrame:
    """Return the last query of each run, with ``wait``, ``item``, ``item_before`` and ``first_correlation``."""
    syncs = context.trace.scan("syncs").filter((pl.col("kind") == "event_query") & pl.col("correlation").is_not_null())
    queries = syncs.select(*_CORRELATION, "device", "stream", "event", "event_sync", "record_correlation").collect()
    queries = queries.filter(pl.col("event").is_not_null() | pl.col("event_sync").is_not_null())
    queries = queries.unique(_CORRELATION, keep="none", maintain_order=True)
    items = context.items
    at = (
        (items.hosts["family"] == "event_query").arg_true().cast(pl.Int64) if queries.height else pl.Series([0]).clear()
    )
    # Queries with nothing between them are as far behind their number among all queries.
    calls = (
        items.hosts_at(at + items.n_ops)
        .with_columns(correlation=items.call_ids(at))
        .select(*_CORRELATION, "thread", item=at + items.n_ops, others=at - pl.int_range(pl.len()))
    )
    polls = calls.filter(pl.col("correlation").is_not_null()).join(queries, on=_CORRELATION).sort("item")
    run = [*_POLLED, "others"]
    polls = polls.with_columns(
        item_before=pl.col("item").shift().over(run), first_correlation=pl.col("correlation").first().over(run)
    )
    last = polls.unique(run, keep="last", maintain_order=True).filter(pl.col("item_before").is_not_null())
    return last.with_row_index("wait")

"""The legacy default stream: it waits for all blocking streams of its context, and they for it.

An operation in it begins when all that was enqueued before in blocking streams has ended; one in a blocking stream,
when all that was enqueued before in the legacy default stream has (CUDA runtime API, "stream synchronization
behavior"). Streams made non-blocking, as torch and NCCL make theirs, take no part. So there are edges only where the
recording says how both streams were made (nsys); a stream of which that is not known is taken to be non-blocking.
"""

from __future__ import annotations

import polars as pl

from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges

_DEVICE = ["source", "process", "device"]
_STREAM = [*_DEVICE, "stream"]


def default_stream(context: Context) -> pl.DataFrame:
    """Return edges between operations of the legacy default stream and of blocking streams, either way."""
    ops = _operations(context)
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    default, blocking = (ops.filter(pl.col("made") == kind) for kind in ("legacy_default", "blocking"))
    streams = blocking.select(*_STREAM).unique()
    from_default = _last_before(blocking, default)
    # Of each blocking stream the last operation counts.
    into_default = _last_before(default.drop("stream").join(streams, on=_DEVICE), blocking, by=_STREAM)
    return pl.concat([from_default, into_default])


def _operations(context: Context) -> pl.DataFrame:
    """Return the operations of streams that take part.

    Columns `_STREAM`, ``made``, ``item``, ``end_ns``, ``began``, ``thread``, ``enqueued``, ``returned``, ``before``:
    ``enqueued`` is their correlation id, ``returned`` the end of their call, ``before`` the id of the operation before
    them on their stream.
    """
    streams = context.trace.scan("streams").filter(pl.col("kind").is_not_null() & pl.col("device").is_not_null())
    made = streams.select("source", "process", "context", "device", "stream", made=pl.col("kind").cast(pl.String))
    known = made.collect()
    # Streams of two contexts on one device may have the same number.
    single = known.group_by(_DEVICE).agg(pl.col("context").n_unique()).filter(pl.col("context") == 1)
    takes_part = pl.col("made").is_in(["legacy_default", "blocking"])
    known = known.join(single.select(_DEVICE), on=_DEVICE, how="semi").filter(takes_part)
    known = known.filter(pl.col("made").n_unique().over(_DEVICE) > 1)
    if not known.height:
        return known
    items = context.items
    numbered = items.ops.select(*_STREAM, "correlation", "call", "is_declared").with_row_index("item")
    numbered = numbered.join(known.select(*_STREAM, "made"), on=_STREAM)
    # All that a replayed graph launches has one id, and what stands for calls that are not recorded is no order.
    numbered = numbered.filter(
        pl.col("correlation").is_not_null() & pl.col("call").is_not_null() & ~pl.col("is_declared")
    )
    numbered = numbered.unique(["source", "process", "correlation"], keep="none", maintain_order=True)
    call = numbered["call"]
    return (
        numbered.with_columns(
            pl.col("item").cast(pl.Int64),
            enqueued="correlation",
            end_ns=pl.Series(items.end).gather(numbered["item"]),
            began=pl.Series(items.start).gather(call),
            returned=pl.Series(items.end).gather(call),
            thread=pl.Series(items.lane).gather(call),
        )
        .sort("enqueued")
        .with_columns(before=pl.col("enqueued").shift().over(_STREAM).fill_null(-1))
        .drop("correlation", "call", "is_declared")
    )


def _last_before(later: pl.DataFrame, earlier: pl.DataFrame, by: list[str] = _DEVICE) -> pl.DataFrame:
    """Return edges from the end of what was enqueued last before each operation, unless its stream carries it on."""
    columns = [*by, "enqueued", "item", "end_ns", "returned", "thread"]
    rows = later.sort("enqueued").join_asof(
        earlier.select(columns).rename({c: f"{c}_2" for c in columns if c not in by}).sort("enqueued_2"),
        left_on="enqueued", right_on="enqueued_2", by=by, allow_exact_matches=False, check_sortedness=False,
    )  # fmt: skip
    rows = rows.filter(pl.col("enqueued_2") > pl.col("before"))
    # Calls of two threads at once: the ids do not tell which of them enqueued first.
    in_order = (pl.col("thread") == pl.col("thread_2")) | (pl.col("returned_2") <= pl.col("began"))
    rows = rows.filter(in_order)
    return edges(
        rows.with_columns(ready_ns="end_ns_2", to=pl.col("item") * 2, **{"from": pl.col("item_2") * 2 + 1}),
        "default_stream",
        "structural",
    )

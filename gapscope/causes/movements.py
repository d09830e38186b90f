"""When bytes moved: of a copy its whole length, of a communication kernel only what followed the last peer's start.

A receive or an all-reduce that was launched early runs and waits; that is not slow movement. A send that ends before
its receive starts has filled a buffer: the pair is then one movement, from the later of the two starts to the receive's
end. A receive whose send is not known is left out, for nobody can tell how much of it was waiting.
"""

from __future__ import annotations

import polars as pl

from gapscope.causes.all_ranks import edges_of
from gapscope.events.pairing import KEY
from gapscope.graph import Graph

NCCL = "(?i)nccl|rccl"

MOVEMENT: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("job", "group", "mark"), pl.String),
    **dict.fromkeys(("src", "dst", "channel", "seq", "item", "start_ns", "end_ns", "began", "size_bytes"), pl.Int64),
    "is_nccl": pl.Boolean,
}


def peers(graph: Graph) -> pl.DataFrame:
    """Return one row per communication kernel that ended only after a peer's start, by ``item``.

    Returns:
        ``item``, ``from_ns`` (the later of its own start and its peers'), ``latest`` (the item that started then),
        ``sender`` (the last peer that an edge comes from).
    """
    edges, items = graph.edges, graph.items
    chosen, to = edges_of(graph, "send_recv", "collective")
    rows = pl.DataFrame({"item": to // 2, "sender": edges.source[chosen] // 2, "peer_ns": edges.ready[chosen]})
    rows = rows.sort("item", "peer_ns").unique("item", keep="last", maintain_order=True)
    own = pl.Series(items.start).gather(rows["item"])
    return rows.select(
        "item",
        "sender",
        from_ns=pl.max_horizontal("peer_ns", own),
        latest=pl.when(pl.col("peer_ns") > own).then("sender").otherwise("item"),
    )


def senders(graph: Graph) -> pl.DataFrame:
    """Return the sends of which the receive is known: ``item``, ``from_ns`` (from when on it moved bytes).

    A send waits for its receive, unless it fills a buffer and ends before that starts.
    """
    items = graph.items
    chosen, to = edges_of(graph, "send_recv")
    rows = pl.DataFrame({"item": graph.edges.source[chosen] // 2, "receive": to // 2})
    start, end = pl.Series(items.start), pl.Series(items.end)
    rows = rows.with_columns(
        own=start.gather(rows["item"]), own_end=end.gather(rows["item"]), asked=start.gather(rows["receive"])
    )
    waited = pl.col("asked").is_between("own", "own_end")
    return rows.group_by("item").agg(from_ns=pl.when(waited).then("asked").otherwise("own").max())


def handoff_movements(graph: Graph) -> pl.DataFrame:
    """Return the operations that moved the bytes of each handoff between two ranks.

    Of those launched inside ``submit`` and ``receive`` these are the copies and communication kernels; where a submit
    has neither, its kernels (a transport of the user's own). A paired send and receive are one row.

    Returns:
        Columns `KEY`, ``item``, ``mark``, ``start_ns`` (bytes could move), ``end_ns``, ``began`` (the item whose start
        that was), ``size_bytes`` (of copies; null: not recorded), ``is_nccl``.
    """
    ops = graph.context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=MOVEMENT)
    ops = ops.filter(pl.col("mark").is_in(["submit", "receive"]) & pl.col("group").is_null())
    ops = ops.unique([*KEY, "item"], keep="first", maintain_order=True)
    about = graph.items.ops[ops["item"]].select("kind", pl.col("size_bytes").cast(pl.Int64))
    ops = pl.concat([ops.select(*KEY, "item", "mark", "start", "end", "is_nccl"), about], how="horizontal")
    is_move = (pl.col("kind") == "memcpy") | pl.col("is_nccl")
    own = ~is_move & (pl.col("kind") == "kernel") & (pl.col("mark") == "submit")
    own = own & ~is_move.any().over([*KEY, "mark"])
    ops = ops.filter(is_move | own)
    ops = ops.join(peers(graph), on="item", how="left", maintain_order="left")
    # A send whose receive is there is part of that movement.
    paired = ops.filter(pl.col("is_nccl"))["sender"].drop_nulls()
    is_part = (pl.col("mark") == "submit") & pl.col("item").is_in(paired.implode())
    is_lost = (pl.col("mark") == "receive") & pl.col("sender").is_null()
    ops = ops.filter(~(pl.col("is_nccl") & (is_part | is_lost)))
    ops = ops.with_columns(
        start_ns=pl.min_horizontal(pl.coalesce("from_ns", "start"), "end"),
        end_ns="end",
        began=pl.coalesce("latest", "item"),
    )
    return ops.select(pl.col(n).cast(t) for n, t in MOVEMENT.items())

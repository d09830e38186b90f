"""Communication kernels on the chain whose peer is not known: how much of their time was waiting for it.

A receive or a collective runs while it waits for its peer, and then while the bytes move. Where no record pairs it with
its peer, the two cannot be told apart in one kernel. Of several of one kind and size the shortest waited least, so what
the others took longer is waiting, at least (algorithms.md 2.3, the form that needs no clocks). A send is left out:
it may be eager and wait for nobody. Nor can a receive between hosts be split whose sender is not known.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.causes.cutting import cut_inside
from gapscope.events.pairing import KEY, message_facts
from gapscope.graph import Graph
from gapscope.graph.edges import TYPE
from gapscope.graph.kernels import BODY

FEWEST = 2
"""Kernels of one kind and size that are needed to tell waiting from moving."""

UNPAIRED = pl.Enum(["waiting", "moving", "not split"])

_CORRELATION = ["source", "process", "correlation"]
_ALIKE = ["source", "process", "name", "role", "size_bytes"]


def with_unknown_peers(lonely: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut the bodies of communication kernels whose peer is not known where moving can have begun.

    Args:
        lonely: Result of `lonely_of`.
        steps: Steps with ``item``, ``what``, ``start_ns``, ``end_ns``.

    Returns:
        The steps with ``unpaired`` (`UNPAIRED`); null: of anything else.
    """
    if not lonely.height:
        return steps.with_columns(unpaired=pl.lit(None, dtype=UNPAIRED))
    joined = steps.join(lonely, on="item", how="left", maintain_order="left")
    is_of = (pl.col("what") == BODY) & pl.col("is_alone").fill_null(value=False)
    moving = joined.select(pl.when(is_of).then("moving_ns")).to_series()
    return (
        cut_inside(joined, moving)
        .with_columns(
            unpaired=pl.when(is_of & pl.col("moving_ns").is_null())
            .then(pl.lit("not split", dtype=UNPAIRED))
            .when(is_of & (pl.col("start_ns") >= pl.col("moving_ns")))
            .then(pl.lit("moving", dtype=UNPAIRED))
            .when(is_of)
            .then(pl.lit("waiting", dtype=UNPAIRED))
        )
        .drop("is_alone", "moving_ns")
    )


def lonely_of(graph: Graph) -> pl.DataFrame:
    """Return communication kernels and host receives without a known peer: ``item, is_alone, moving_ns``.

    ``moving_ns`` is when its bytes can have begun to move at the earliest; null: nothing tells.
    """
    return pl.concat([_kernels(graph), _messages(graph)]).with_columns(pl.col("item").cast(pl.Int32))


def _kernels(graph: Graph) -> pl.DataFrame:
    """Return communication kernels without a known peer."""
    items = graph.items
    communicating = pl.Series(graph.context.communicates).arg_true()
    lonely = _without(graph, communicating, "send_recv", "collective")
    names = items.ops["name"].gather(lonely).unique()
    if not len(names):
        return pl.DataFrame(schema={"item": pl.Int64, "is_alone": pl.Boolean, "moving_ns": pl.Int64})
    rows = communicating.filter(items.ops["name"].gather(communicating).is_in(names.implode()))
    item = rows.to_numpy()
    alike = (
        items.ops_at(rows)
        .select(*_CORRELATION, pl.col("name").cast(pl.String))
        .with_columns(
            item=rows.cast(pl.Int64),
            end_ns=pl.Series(items.end[item]),
            took_ns=pl.Series(items.end[item] - items.start[item]),
        )
    )
    alike = _with_size(graph, alike).filter(pl.col("role") != "send")
    several = pl.col("size_bytes").is_not_null() & (pl.len().over(_ALIKE) >= FEWEST)
    shortest = pl.col("took_ns").min().over(_ALIKE)
    return alike.select(
        "item", is_alone=pl.lit(value=True), moving_ns=pl.when(several).then(pl.col("end_ns") - shortest)
    ).filter(pl.col("item").is_in(lonely.implode()))


def _messages(graph: Graph) -> pl.DataFrame:
    """Return host receives without a known sender, in the columns of `_kernels`."""
    hosts = graph.items.hosts
    ranges = hosts["family"].is_null().arg_true()  # API calls are of a family
    received = ranges.filter(hosts["name"].gather(ranges).cast(pl.String) == "gloo:recv")
    lonely = _without(graph, received.cast(pl.Int64) + graph.items.n_ops, "host_message").alias("item")
    return lonely.to_frame().with_columns(is_alone=pl.lit(value=True), moving_ns=pl.lit(None, dtype=pl.Int64))


def _without(graph: Graph, items: pl.Series, *kinds: str) -> pl.Series:
    """Return the items to whose ends no edge of these types leads."""
    edges, ends = graph.edges, items.to_numpy().astype(np.int64) * 2 + 1
    led_to = edges.to[np.isin(edges.kind, [TYPE[kind] for kind in kinds])]
    return items.filter(pl.Series(~np.isin(ends, led_to), dtype=pl.Boolean))


def _with_size(graph: Graph, kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``role`` (``send``, ``receive`` or the collective; empty: not known) and ``size_bytes`` (null: not known)."""
    rows = graph.context.trace.scan("comms").filter(pl.col("correlation").is_not_null())
    rows = rows.join(kernels.lazy().select(_CORRELATION).unique(), on=_CORRELATION, how="semi").select(
        *_CORRELATION, of_record=pl.col("op").cast(pl.String).replace("recv", "receive"), recorded_bytes="size_bytes"
    )
    recorded = rows.collect().unique(_CORRELATION, keep="none")
    found = kernels.join(recorded, on=_CORRELATION, how="left")
    ops, ends = graph.context.deciding_ops, graph.context.ends
    if ends is not None and ops.height:
        messages = message_facts(ends.marks).filter(pl.col("messages") == 1)
        marked = ops.filter(pl.col("mark").is_in(["submit", "receive"])).select(
            *KEY, "mark", pl.col("item").cast(pl.Int64)
        )
        marked = marked.join(messages.select(*KEY, "size_bytes"), on=KEY, how="left", nulls_equal=True)
        group = pl.col("group").is_not_null()
        marked = marked.select(
            "item",
            of_mark=pl.when(group).then(pl.lit("collective")).when(pl.col("mark") == "submit").then(pl.lit("send"))
            .otherwise(pl.lit("receive")),
            marked_bytes="size_bytes",
        )  # fmt: skip
        found = found.join(marked.unique("item", keep="none"), on="item", how="left")
    else:
        found = found.with_columns(of_mark=pl.lit(None, dtype=pl.String), marked_bytes=pl.lit(None, dtype=pl.Int64))
    return found.with_columns(
        role=pl.coalesce("of_record", "of_mark", pl.lit("")), size_bytes=pl.coalesce("recorded_bytes", "marked_bytes")
    )

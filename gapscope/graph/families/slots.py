"""A transfer needs its slot: the consumer must have released what an earlier handoff left in it.

The acknowledgment leaves no record on the GPU, and no id. What released it is inferred from the run as a whole: that
the k-th transfer of an edge always began after some stage of the (k-n)-th handoff on the destination had ended, and
that transfers which were launched earlier began right when it did. A stage that a transfer once did not wait for is
no release; one that never held a transfer up is not worth an edge.
"""

from __future__ import annotations

import polars as pl

from gapscope.events.pairing import KEY
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges
from gapscope.graph.families.flags import launch_starts, memory_calls

_EDGE = [c for c in KEY if c != "seq"]
SLOTS = (1, 2, 3, 4, 8)
"""Numbers of slots that are tried."""

NEAR_NS = 50_000
"""How soon after its release a held transfer begins."""

FEWEST_HELD = 2


def slots(context: Context) -> pl.DataFrame:
    """Return edges from what released a slot to the transfer that needed it."""
    ops = context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    plain = ops.filter(~pl.col("is_nccl") & pl.col("group").is_null() & (pl.col("src") != pl.col("dst")))
    first = plain.filter(pl.col("mark") == "submit").unique("handoff", keep="first", maintain_order=True)
    sent = _with_wait_recorded(context, first).with_columns(launched=_launched(context, first["item"]))
    of_handoffs = _edges_of(context, sent)
    sent = _numbered(sent, of_handoffs).select("edge", "seq", "item", "start", "launched", "wait_recorded")
    sent = sent.sort("edge", "seq")
    candidates = []
    for stage in ("receive", "consume"):
        done = _numbered(ops.filter((pl.col("mark") == stage) & pl.col("group").is_null()).sort("end"), of_handoffs)
        done = done.unique(["edge", "seq"], keep="last", maintain_order=True)
        done = done.select("edge", "seq", release="item", ready_ns="end")
        both = sent.join(done, on=["edge", "seq"], how="left", nulls_equal=True, maintain_order="left").drop("seq")
        for n in SLOTS:
            is_freed = (pl.col("edge") == pl.col("edge").shift(n)) & pl.col("release").is_not_null()
            freed = both.with_columns(pl.col("release", "ready_ns").shift(n)).filter(is_freed)
            candidates.append(freed.with_columns(stage=pl.lit(stage), n=pl.lit(n)))
    every = pl.concat(candidates)
    if not every.height:
        return pl.DataFrame(schema=EDGE)
    bound = context.alignment.uncertainty(
        _clock(context, every["item"]), _clock(context, every["release"]), every["start"]
    )
    every = every.with_columns(bound=bound.fill_null(0), after=pl.col("start") - pl.col("ready_ns")).with_columns(
        held=(pl.col("launched") < pl.col("ready_ns"))
        & pl.col("after").is_between(-pl.col("bound"), NEAR_NS + pl.col("bound"))
    )
    judged = (
        every.group_by("edge", "stage", "n")
        .agg(
            held=pl.col("held").sum(),
            never=(pl.col("after") < -pl.col("bound")).any(),
            waits=pl.col("wait_recorded").all(),
            typical=pl.col("after").median(),
        )
        .filter(~pl.col("never") & pl.col("waits") & (pl.col("held") >= FEWEST_HELD))
        .sort("held", pl.col("typical"), descending=[True, False])
        .unique("edge", keep="first", maintain_order=True)
    )
    chosen = every.join(judged.select("edge", "stage", "n"), on=["edge", "stage", "n"], how="semi")
    return edges(chosen.with_columns(to=pl.col("item") * 2, **{"from": pl.col("release") * 2 + 1}), "ack", "inferred")


def _edges_of(context: Context, sent: pl.DataFrame) -> pl.Series:
    """Return the number of the edge of each handoff; null: nothing was sent along it."""
    handoffs = context.handoffs
    edges_sent = handoffs.select(_EDGE)[sent["handoff"]].unique(maintain_order=True).with_row_index("edge")
    return handoffs.join(edges_sent, on=_EDGE, how="left", nulls_equal=True, maintain_order="left")["edge"]


def _numbered(ops: pl.DataFrame, of_handoffs: pl.Series) -> pl.DataFrame:
    """Return operations with ``edge``, those of no edge left out."""
    return ops.drop(_EDGE).with_columns(of_handoffs.gather(ops["handoff"])).filter(pl.col("edge").is_not_null())


def _clock(context: Context, items: pl.Series) -> pl.Series:
    return pl.Series(context.items.clock_of(items.to_numpy()))


def _launched(context: Context, items: pl.Series) -> pl.Series:
    """Return when the call that launched each operation returned; the operation's own start where none is recorded."""
    call = context.items.call_of(items)
    returned = pl.Series(context.items.end).gather(call)
    return returned.fill_null(pl.Series(context.items.start).gather(items))


def _with_wait_recorded(context: Context, sent: pl.DataFrame) -> pl.DataFrame:
    """Add ``wait_recorded``: a wait for a flag is recorded before the transfer, or its tool records none at all."""
    begin = sent.select("handoff", launch_ns=launch_starts(context, sent["item"]))
    waits = memory_calls(context, "Wait").join(begin, on="handoff")
    # A batch may hold a wait if it comes before the transfer.
    waits = waits.filter(~pl.col("is_batch") | (pl.col("call_end") <= pl.col("launch_ns")))
    waits = waits.select("handoff", has_wait=pl.lit(value=True))
    tools = context.trace.sources.select("source", tool="tool")
    return (
        sent.join(waits.unique("handoff"), on="handoff", how="left")
        .join(tools, on="source", how="left")
        .with_columns(wait_recorded=pl.col("has_wait").fill_null(value=False) | (pl.col("tool") != "nsys"))
    )

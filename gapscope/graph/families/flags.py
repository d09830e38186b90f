"""Transfers that a memory flag announces (mailboxes, one-sided copies): the receiver goes on when the flag is written.

A flag leaves no record on the GPU. Marks say which transfer it is about, so the release is declared: the flag is
written no earlier than the end of the transfer before it on its stream and no earlier than the call that writes it.
That call is recorded by nsys (``cuStreamWriteValue``) and not by torch.profiler.
"""

from __future__ import annotations

import polars as pl

from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges
from gapscope.graph.pairs import by_slot

_BATCH = "BatchMemOp"
_SLOT = ["handoff", "slot"]


def flags(context: Context) -> pl.DataFrame:
    """Return edges from the end of a transfer, and the call that writes its flag, to the operation behind the wait."""
    ops = context.deciding_ops
    if not ops.height:
        return pl.DataFrame(schema=EDGE)
    plain = ops.filter(~pl.col("is_nccl") & pl.col("group").is_null() & (pl.col("src") != pl.col("dst")))
    sent = plain.filter(pl.col("mark") == "submit").sort("end").unique(_SLOT, keep="last", maintain_order=True)
    received = plain.filter(pl.col("mark") == "receive").unique(_SLOT, keep="first", maintain_order=True)
    both = by_slot(sent, received)
    behind = both.with_columns(to=pl.col("item_2") * 2, ready_ns="end", **{"from": pl.col("item") * 2 + 1})
    writes = memory_calls(context, "Write").rename({"call_start": "w_start", "call_end": "w_end"})
    written = both.join(writes.select(*_SLOT, "call", "w_start", "w_end", "is_batch"), on=_SLOT, nulls_equal=True)
    # A batch holds waits, writes or both, which no record tells; the flag is written behind the transfer.
    written = written.filter(~pl.col("is_batch") | (pl.col("w_start") >= launch_starts(context, written["item"])))
    written = written.sort("w_start").unique(_SLOT, keep="last", maintain_order=True)
    # As with a launch, what waits may go on before the call returns.
    ready = (
        pl.when(pl.col("w_start") <= pl.col("start_2")).then(pl.min_horizontal("w_end", "start_2")).otherwise("w_end")
    )
    called = written.with_columns(to=pl.col("item_2") * 2, ready_ns=ready, **{"from": pl.col("call") * 2 + 1})
    return pl.concat([edges(behind, "flag", pl.col("evidence")), edges(called, "flag", pl.col("evidence"))])


def memory_calls(context: Context, name: str) -> pl.DataFrame:
    """Return the recorded stream memory calls of a kind in each submit, and batches, which may hold some.

    Args:
        context: See there.
        name: What the call's name contains: ``Write`` or ``Wait``.

    Returns:
        Columns of `gapscope.graph.context.Context.memory_calls`, and ``is_batch``.
    """
    of_call = pl.col("name").cast(pl.String)
    calls = context.memory_calls.with_columns(is_batch=of_call.str.contains(_BATCH))
    return calls.filter(of_call.str.contains(name) | pl.col("is_batch"))


def launch_starts(context: Context, items: pl.Series) -> pl.Series:
    """Return when the call began that launched each operation; null where it is not recorded."""
    return pl.Series(context.items.start).gather(context.items.call_of(items))

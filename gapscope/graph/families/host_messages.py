"""A receive on the host returns when the message is there: not before the send began."""

from __future__ import annotations

import polars as pl

from gapscope import comms
from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges

_PLACE = ["source", "process", "thread", "raw_start_ns"]


def host_messages(context: Context) -> pl.DataFrame:
    """Return edges from the start of a send to the return of its receive."""
    items = context.items
    rows = comms.host_messages(context.trace)
    if not rows.height:
        return pl.DataFrame(schema=EDGE)
    numbers = items.hosts["family"].is_null().arg_true().cast(pl.Int64) + items.n_ops
    ranges = items.hosts_at(numbers).select(*_PLACE, item=numbers)
    rows = rows.join(ranges, left_on=["source", "process", "thread", "start_ns"], right_on=_PLACE).join(
        ranges, left_on=["source_2", "process_2", "thread_2", "start_ns_2"], right_on=_PLACE, suffix="_2"
    )
    # The annotation may begin after the message has left; the operator around it does not.
    earlier = (rows["start_ns"] - rows["asked_ns"]).fill_null(0)
    ready = pl.Series(items.start).gather(rows["item"]) - earlier
    return edges(
        rows.with_columns(ready_ns=ready, to=pl.col("item_2") * 2 + 1, **{"from": pl.col("item") * 2}),
        "host_message",
        "inferred",
    )

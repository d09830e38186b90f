"""The two ends of a handoff's transfer, message by message."""

from __future__ import annotations

import polars as pl


def by_slot(sent: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    """Return what was sent beside what received it, the latter with suffix ``_2``.

    A receive that is marked as one, of a handoff that was sent as several messages, needs all of them.

    Args:
        sent: Operations with ``handoff`` and ``slot``, one per slot.
        received: The same on the destination.
    """
    single = received.filter(pl.len().over("handoff") == 1)
    for_all = sent.filter(pl.len().over("handoff") > 1).join(single, on="handoff", suffix="_2")
    rest = sent.join(for_all.select("handoff").unique(), on="handoff", how="anti", maintain_order="left")
    both = rest.join(received.with_columns(slot_2="slot"), on=["handoff", "slot"], nulls_equal=True, suffix="_2")
    return pl.concat([both, for_all.select(both.columns)])

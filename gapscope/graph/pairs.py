"""The two ends of a handoff's transfer, message by message."""

from __future__ import annotations

import polars as pl

from gapscope.events.pairing import KEY

_SLOT = [*KEY, "slot"]


def by_slot(sent: pl.DataFrame, received: pl.DataFrame) -> pl.DataFrame:
    """Return what was sent beside what received it, the latter with suffix ``_2``.

    A receive that is marked as one, of a handoff that was sent as several messages, needs all of them.

    Args:
        sent: Operations with the key and ``slot``, one per slot.
        received: The same on the destination.
    """
    single = received.filter(pl.len().over(KEY) == 1)
    for_all = sent.filter(pl.len().over(KEY) > 1).join(single, on=KEY, nulls_equal=True, suffix="_2")
    rest = sent.join(for_all.select(KEY).unique(), on=KEY, how="anti", nulls_equal=True, maintain_order="left")
    both = rest.join(received.with_columns(slot_2="slot"), on=_SLOT, nulls_equal=True, suffix="_2")
    return pl.concat([both, for_all.select(both.columns)])

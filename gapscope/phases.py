"""The four phases of a gap: a view of the same nanoseconds, not an explanation."""

from __future__ import annotations

import polars as pl

PHASES = ("submission", "start_wait", "movement", "consumer_wait")
UNPOSTED = "movement_unposted"
"""Part of the movement phase in which the receive had not been posted yet."""


def with_phases(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return the handoffs with the four phases of each gap, in ns.

    The gap is cut at submit, movement_start and available. An event that came before the gap began, or before the
    event that precedes it in the list of five, cuts nothing off: its phase is 0 (a transfer submitted while the
    producer was still running has no submission phase). So the phases are never negative and add up to the gap exactly.

    Args:
        handoffs: Table ``handoffs``.

    Returns:
        The table with ``submission_ns, start_wait_ns, movement_ns, consumer_wait_ns`` and ``movement_unposted_ns``: the
        part of ``movement_ns`` before the destination had posted its receive. A phase is null where one of the events
        that bound it is missing (the others are there all the same), and all are where the gap is missing or negative;
        the last also where ``receive_post_ns`` is.
    """
    start, end = pl.col("producer_finish_ns"), pl.col("consumer_start_ns")
    events = ("producer_finish", "submit", "movement_start", "available", "consumer_start")
    cuts = [start]
    for event in events[1:-1]:  # an event that is missing cuts nothing, and bounds no phase
        cuts.append(pl.min_horizontal(pl.max_horizontal(cuts[-1], pl.col(f"{event}_ns")), end))
    cuts.append(end)
    there = [pl.col(f"{e}_ns").is_not_null() for e in events]
    has_gap = there[0] & there[-1] & (pl.col("gap_ns") >= 0)
    posted = pl.min_horizontal(pl.max_horizontal(cuts[2], pl.col("receive_post_ns")), cuts[3])
    is_known = has_gap & there[2] & there[3] & pl.col("receive_post_ns").is_not_null()
    return handoffs.with_columns(
        *(
            pl.when(has_gap & there[i] & there[i + 1]).then(cuts[i + 1] - cuts[i]).alias(f"{phase}_ns")
            for i, phase in enumerate(PHASES)
        ),
        pl.when(is_known).then(posted - cuts[2]).alias(f"{UNPOSTED}_ns"),
    )

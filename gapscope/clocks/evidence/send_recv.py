"""Sends and receives that the recordings name: a receive cannot end before its send began.

The reverse is not true: sends are eager and may end before the receive is posted. A kernel of several messages starts
no later than each of its sends and ends no earlier than each of its receives.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.observations import Evidence
from gapscope.comms import sends_and_receives


def send_recv(context: Context) -> Evidence:
    """Return what sends and receives say that the recordings name."""
    if not context.several_clocks:
        return nothing()
    # Without a recorded peer and size a pairing is likely, but not a fact to build clocks on.
    known = sends_and_receives(context.trace).filter(pl.col("by") == "metadata")
    rows = context.domains.with_domain(known, "device", "", "earlier")
    rows = context.domains.with_domain(
        rows.rename({"source_2": "to_source", "process_2": "to_process"}), "device_2", "to_", "later"
    )
    texts = (
        pl.format("start of {} on rank {}", "instance", "who"),
        pl.format("end of {} on rank {}", "instance", "who_2"),
    )
    frame = rows.with_columns(earlier_ns="op_start", later_ns="op_end_2")
    return context.evidence(frame, "send_recv", texts, pl.col("instance"))

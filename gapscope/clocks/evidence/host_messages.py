"""Messages between hosts (gloo): a receive cannot return before the operator that sends began."""

from __future__ import annotations

import polars as pl

from gapscope import comms
from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.observations import Evidence


def host_messages(context: Context) -> Evidence:
    """Return what gloo's sends and receives say."""
    if not context.several_clocks:
        return nothing()
    rows = context.domains.with_domain(comms.host_messages(context.trace), None, "", "earlier")
    rows = rows.rename({"source_2": "to_source", "process_2": "to_process"})
    rows = context.domains.with_domain(rows, None, "to_", "later")
    texts = (
        pl.format("send of {} on rank {}", "instance", "who"),
        pl.format("receive of {} on rank {}", "instance", "who_2"),
    )
    frame = rows.with_columns(earlier_ns="asked_ns", later_ns="end_ns_2")
    return context.evidence(frame, "host_message", texts, pl.col("instance"))

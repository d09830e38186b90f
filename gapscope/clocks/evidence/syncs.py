"""A synchronizing call cannot return before the operation that it waited for ended."""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context
from gapscope.clocks.observations import Evidence
from gapscope.comms import blocking_copies, host_waits


def syncs(context: Context) -> Evidence:
    """Return what stream and device synchronizations say."""
    return _evidence(context, host_waits(context.trace, context.calls), "sync")


def copies(context: Context) -> Evidence:
    """Return what blocking copies to the host say."""
    return _evidence(context, blocking_copies(context.trace), "copy")


def _evidence(context: Context, waits: pl.DataFrame, kind: str) -> Evidence:
    found = context.domains.with_domain(waits, "device", "", "earlier")
    found = context.domains.with_domain(found, None, "", "later")
    number = context.call_number()
    texts = (
        pl.format("end of {} {} of process {}", pl.col("name").str.slice(0, 40), "op", "process"),
        pl.format("return of {} {}", "call", number),
    )
    return context.evidence(found, kind, texts, number)

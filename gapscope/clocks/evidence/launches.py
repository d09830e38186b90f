"""A device operation cannot start before the call that launched it began (not: returned).

Large recordings are sampled: fewer facts loosen the bound, and never make it wrong.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context
from gapscope.clocks.observations import Evidence

MOST_OPERATIONS = 300_000
"""Operations of a run that are looked at, evenly spread."""

_CORRELATION = ["source", "process", "correlation"]


def launches(context: Context) -> Evidence:
    """Return what launches say."""
    ops = context.trace.scan("ops").filter(pl.col("start_ns").is_not_null() & pl.col("correlation").is_not_null())
    total = ops.select(pl.len()).collect().item()
    step = -(-total // MOST_OPERATIONS) or 1
    chosen = ops.select(*_CORRELATION, "device", "name", later_ns="start_ns").gather_every(step).collect()
    # Of operations with the same call (a replayed graph) the first is the one that binds.
    first = chosen.sort("later_ns").unique(_CORRELATION, keep="first", maintain_order=True)
    calls = (
        context.trace.scan("calls")
        .select(*_CORRELATION, call="name", earlier_ns="start_ns")
        .join(first.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
        .collect()
    )
    found = first.join(calls, on=_CORRELATION)
    found = context.domains.with_domain(found, None, "", "earlier")
    found = context.domains.with_domain(found, "device", "", "later")
    number = context.call_number()
    texts = (
        pl.format("call {} {}", pl.col("call").cast(pl.String), number),
        pl.format("start of {} {}", pl.col("name").cast(pl.String).str.slice(0, 40), number),
    )
    return context.evidence(found, "launch", texts, number)

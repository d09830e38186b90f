"""A device operation cannot start before the call that launched it began (not: returned).

Large recordings are sampled: fewer facts loosen the bound, and never make it wrong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks.evidence.context import Context
from gapscope.clocks.observations import Evidence
from gapscope.comms.waits import numbered_ops
from gapscope.correlation import expand

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

MOST_OPERATIONS = 300_000
"""Operations of a run that are looked at, evenly spread."""

_CORRELATION = ["source", "process", "correlation"]


def launches(context: Context) -> Evidence:
    """Return what launches say."""
    ops = numbered_ops(context.trace)
    total = ops.select(pl.len()).collect().item()
    step = -(-total // MOST_OPERATIONS) or 1
    chosen = ops.select(*_CORRELATION, "device", "name", later_ns="start_ns").gather_every(step).collect()
    low, high = context.calls.spans(chosen)
    first = _first_of_each(low, high, chosen["later_ns"].to_numpy())
    at, row = expand(low[first], high[first])
    calls = context.calls.at(at)
    found = chosen[first[row]].with_columns(
        context.calls.column("start_ns", calls).alias("earlier_ns"), _call=pl.Series(calls)
    )
    found = context.domains.with_domain(found, None, "", "earlier")
    found = context.domains.with_domain(found, "device", "", "later")
    number = context.call_number()
    texts = (
        pl.format("call {} {}", pl.col("call").cast(pl.String), number),
        pl.format("start of {} {}", pl.col("name").cast(pl.String).str.slice(0, 40), number),
    )

    def with_call(kept: pl.DataFrame) -> pl.DataFrame:
        return kept.with_columns(context.calls.column("name", kept["_call"].to_numpy()).alias("call"))

    return context.evidence(found, "launch", texts, number, with_call)


def _first_of_each(low: Indices, high: Indices, later_ns: Ints) -> Indices:
    """Return of the operations with the same call (a replayed graph) the first, which is the one that binds."""
    there = np.flatnonzero(high > low)
    order = there[np.lexsort((later_ns[there], low[there]))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = low[order[1:]] != low[order[:-1]]
    first = order[is_first]
    return np.asarray(first[np.argsort(later_ns[first], kind="stable")], np.int32)

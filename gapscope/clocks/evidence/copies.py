"""A blocking copy from device to host returns after the copy has ended.

So says the CUDA driver API's documentation ("API synchronization behavior"), for pageable and pinned memory alike; a
blocking copy to the device may return while the transfer still runs and says nothing.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context
from gapscope.clocks.observations import Evidence

_CORRELATION = ["source", "process", "correlation"]
_BLOCKING = r"^(cuda|cu|hip)Memcpy"
_NOT_BLOCKING = r"Async|Peer|Prefetch|Batch"


def blocking_copies(context: Context) -> Evidence:
    """Return what blocking copies say."""
    ops = (
        context.trace.scan("ops")
        .filter((pl.col("copy_kind") == "DtoH").fill_null(value=False) & pl.col("end_ns").is_not_null())
        .select(*_CORRELATION, "device", earlier_ns="end_ns")
    )
    name = pl.col("name").cast(pl.String)
    calls = (
        context.trace.scan("calls")
        .filter(pl.col("family") == "memcpy")
        .select(*_CORRELATION, call="name", later_ns="end_ns")
    )
    found = calls.join(ops, on=_CORRELATION).with_columns(name=pl.col("call")).collect()
    found = found.filter(name.str.contains(_BLOCKING) & ~name.str.contains(_NOT_BLOCKING))
    found = context.domains.with_domain(found, "device", "", "earlier")
    found = context.domains.with_domain(found, None, "", "later")
    number = pl.format("{} of process {}", "correlation", "process")
    texts = (
        pl.format("end of copy {}", number),
        pl.format("return of {} {}", pl.col("call").cast(pl.String), number),
    )
    return context.evidence(found, "copy", texts, number)

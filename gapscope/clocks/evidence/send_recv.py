"""Sends and receives that torch.profiler recorded with their peer: a receive cannot end before its send began.

The reverse is not true: sends are eager and may end before the receive is posted.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.collectives import communication_kernels
from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.ordinals import paired
from gapscope.clocks.observations import Evidence


def send_recv(context: Context) -> Evidence:
    """Return what sends and receives say that the recordings name."""
    if not context.several_clocks:
        return nothing()
    kernels = communication_kernels(context, ("send", "recv"))
    kernels = kernels.filter(pl.col("peer").is_not_null()) if kernels.height else kernels
    if not kernels.height:
        return nothing()
    is_send = pl.col("op") == "send"
    here, there = pl.col("who").cast(pl.Int64), pl.col("peer")
    rows = paired(
        kernels.with_columns(
            channel=pl.format(
                "send {} to {} in group {}",
                pl.when(is_send).then(here).otherwise(there),
                pl.when(is_send).then(there).otherwise(here),
                pl.col("group").fill_null("?"),
            ),
            what=pl.format("{}", pl.col("size_bytes").fill_null(-1)),
        )
    )
    both = rows.filter(is_send).join(rows.filter(~is_send), on="instance", suffix="_2")
    frame = both.select(
        "instance", "who", "who_2", earlier="domain_in", later="domain_out_2", earlier_ns="start_ns",
        later_ns="end_ns_2",
    )  # fmt: skip
    texts = (
        pl.format("start of {} on rank {}", "instance", "who"),
        pl.format("end of {} on rank {}", "instance", "who_2"),
    )
    return context.evidence(frame, "send_recv", texts, pl.col("instance"))

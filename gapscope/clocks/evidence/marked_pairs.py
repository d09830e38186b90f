"""Handoffs that marks name: data is available after it was sent, and after its first byte moved.

Only across files: within one file both ends have the same host clock, and an event out of order there is a finding
about the job, not about a clock.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.observations import Evidence


def marked_pairs(context: Context) -> Evidence:
    """Return what the marks of pairs of ranks say."""
    if context.ends is None or not context.several_clocks:
        return nothing()
    pairs = context.ends.table.filter(
        pl.col("group").is_null() & ~pl.col("repeated") & (pl.col("src") != pl.col("dst")).fill_null(value=False)
    )
    domains = context.domains
    pairs = domains.with_domain(pairs, None, "src_", "src_host")
    pairs = domains.with_domain(pairs, None, "dst_", "dst_host")
    pairs = domains.with_domain(
        pairs.with_columns(src_device="movement_start_device"), "src_device", "src_", "movement_clock"
    )
    pairs = domains.with_domain(pairs.with_columns(dst_device="available_device"), "dst_device", "dst_", "later")
    pairs = pairs.filter((pl.col("src_host") != pl.col("dst_host")).fill_null(value=False))
    key = pl.format("{}>{}/{}/{}", "src", "dst", "channel", "seq")
    available = pl.format("available {}", key)
    message = context.evidence(
        pairs.select("src", "dst", "channel", "seq", "later", earlier="src_host", earlier_ns="submit_ns",
                     later_ns="available_ns"),
        "message", (pl.format("submit {}", key), available), key,
    )  # fmt: skip
    transfer = context.evidence(
        pairs.select("src", "dst", "channel", "seq", "later", earlier="movement_clock",
                     earlier_ns="movement_start_ns", later_ns="available_ns"),
        "transfer", (pl.format("movement_start {}", key), available), key,
    )  # fmt: skip
    return Evidence(
        pl.concat([message.observations, transfer.observations]), counts={**message.counts, **transfer.counts}
    )

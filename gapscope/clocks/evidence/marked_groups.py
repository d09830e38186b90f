"""Collectives that marks name (``group=``): no rank has the result before every rank has sent."""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.pairs_of_group import full
from gapscope.clocks.observations import Evidence


def marked_groups(context: Context) -> Evidence:
    """Return what the marks of groups say."""
    if context.ends is None or not context.several_clocks:
        return nothing()
    sides = context.ends.table.filter(pl.col("group").is_not_null() & ~pl.col("repeated"))
    if not sides.height:
        return nothing()
    sides = sides.with_columns(
        src_source=pl.coalesce("src_source", "dst_source"),
        src_process=pl.coalesce("src_process", "dst_process"),
        in_device="movement_start_device",
        out_device="available_device",
    )
    sides = context.domains.with_domain(sides, "in_device", "src_", "domain_in")
    sides = context.domains.with_domain(sides, "out_device", "src_", "domain_out")
    host = context.domains.with_domain(sides.select("src_source", "src_process"), None, "src_", "host")["host"]
    instance = pl.format("{}/{}/{}", "group", "channel", "seq")
    members = sides.with_columns(host=host).select(
        # Where the movement's start is not known, the send call's is earlier and just as true.
        instance=pl.when(pl.col("job").is_null()).then(instance).otherwise(pl.format("{}:{}", "job", instance)),
        who="side_rank",
        domain_in=pl.when(pl.col("movement_start_ns").is_null()).then("host").otherwise("domain_in"),
        start_ns=pl.coalesce("movement_start_ns", "submit_ns"),
        domain_out="domain_out",
        # What a submit alone launched may be a push that waits for nobody; only its marks say that it is the whole.
        end_ns=pl.when(~pl.col("available_in_submit")).then("available_ns"),
    )
    return full(context, members)

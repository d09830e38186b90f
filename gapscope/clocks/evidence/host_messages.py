"""Messages between hosts (gloo): a receive cannot return before its send began.

torch.profiler annotates them as ``gloo:send`` and ``gloo:recv`` without a peer. With exactly two ranks that send and
receive, the peer is the other one; with more, nothing is paired.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.ordinals import paired, with_step
from gapscope.clocks.observations import Evidence

_RANKS = 2


def host_messages(context: Context) -> Evidence:
    """Return what gloo's sends and receives say."""
    if not context.several_clocks:
        return nothing()
    rows = (
        context.trace.scan("ranges")
        .filter(pl.col("name").is_in(["gloo:send", "gloo:recv"]) & pl.col("rank").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]) & pl.col("end_ns").is_not_null())
        .select("source", "process", "rank", "name", "start_ns", "end_ns", host_ns="start_ns")
        .collect()
    )
    ranks = sorted(rows["rank"].unique())
    if len(ranks) != _RANKS:
        return nothing()
    one, two = ranks
    is_send = pl.col("name") == "gloo:send"
    forward = (pl.col("rank") == one) == is_send
    rows = with_step(context.trace, rows).with_columns(
        who="rank",
        channel=pl.when(forward).then(pl.lit(f"gloo {one} to {two}")).otherwise(pl.lit(f"gloo {two} to {one}")),
        what=pl.lit("message"),
        seq=pl.lit(None, dtype=pl.Int64),
        order="start_ns",
    )
    rows = paired(context.domains.with_domain(rows, None, "", "domain"))
    both = rows.filter(is_send).join(rows.filter(~is_send), on="instance", suffix="_2")
    frame = both.select(
        "instance", "who", "who_2", earlier="domain", later="domain_2", earlier_ns="start_ns", later_ns="end_ns_2"
    )
    texts = (
        pl.format("send of {} on rank {}", "instance", "who"),
        pl.format("receive of {} on rank {}", "instance", "who_2"),
    )
    return context.evidence(frame, "host_message", texts, pl.col("instance"))

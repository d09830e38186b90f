"""Messages between hosts (gloo): which send belongs to which receive.

torch.profiler annotates them as ``gloo:send`` and ``gloo:recv`` without a peer. With exactly two ranks that send and
receive, the peer is the other one; with more, nothing is paired.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import paired, with_step
from gapscope.trace import Trace

_RANKS = 2
_ONE = {
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "who": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
}
_SCHEMA = {"instance": pl.String, **_ONE, **{f"{name}_2": dtype for name, dtype in _ONE.items()}}


def host_messages(trace: Trace) -> pl.DataFrame:
    """Return one row per message, sender and receiver side by side.

    Returns:
        ``instance`` (text), and for the sender and, with suffix ``_2``, the receiver: ``source``, ``process``,
        ``thread``, ``who`` (rank), ``start_ns``, ``end_ns`` (on the file's clock), ``step``.
    """
    rows = (
        trace.scan("ranges")
        .filter(pl.col("name").is_in(["gloo:send", "gloo:recv"]) & pl.col("rank").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]) & pl.col("end_ns").is_not_null())
        .select("source", "process", "thread", "rank", "name", "start_ns", "end_ns", host_ns="start_ns")
        .collect()
    )
    ranks = sorted(rows["rank"].unique())
    if len(ranks) != _RANKS:
        return pl.DataFrame(schema=_SCHEMA)
    one, two = ranks
    is_send = pl.col("name") == "gloo:send"
    forward = (pl.col("rank") == one) == is_send
    rows = with_step(trace, rows).with_columns(
        who="rank",
        channel=pl.when(forward).then(pl.lit(f"gloo {one} to {two}")).otherwise(pl.lit(f"gloo {two} to {one}")),
        what=pl.lit("message"),
        seq=pl.lit(None, dtype=pl.Int64),
        order="start_ns",
    )
    rows = paired(rows)
    both = rows.filter(is_send).join(rows.filter(~is_send), on="instance", suffix="_2")
    return both.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())

"""Copies from one GPU to another without marks: one-sided, so the destination's side is hardly recorded.

The copy names both devices. They are those of two ranks where just one rank works on each of them; peer copies never
leave a host. What the destination waited for is a memory flag, of which nothing is recorded: the consumer stays
unknown, and the end of the copy is when the data was there.
"""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import with_job
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace
from gapscope.unmarked.ends import SIDE
from gapscope.unmarked.neighbors import with_neighbors

_CORRELATION = ["source", "process", "correlation"]
_PAIR = ["src", "dst"]
_OF_COPY = ["rank", "device", "stream", "from_device", "to_device", "size_bytes"]


def peer_copies(trace: Trace) -> pl.DataFrame:
    """Return the ends of copies between the GPUs of two ranks, columns `gapscope.unmarked.ends.SIDE`."""
    known = [pl.col(c).is_not_null() for c in ("rank", "start_ns", "from_device", "to_device")]
    copies = (
        trace.scan("ops")
        .filter((pl.col("copy_kind") == "PtoP").fill_null(value=False) & pl.all_horizontal(known))
        .select(*_CORRELATION, *_OF_COPY, op_start="start_ns", op_end="end_ns")
        .collect()
    )
    if not copies.height:
        return pl.DataFrame(schema=SIDE)
    copies = with_job(trace, _with_ranks(trace, copies)).drop_nulls(_PAIR).filter(pl.col("src") != pl.col("dst"))
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .select(*_CORRELATION, "thread", host_ns="start_ns", host_end="end_ns")
        .join(copies.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
        .unique(_CORRELATION, keep="first")
        .collect()
    )
    copies = copies.join(calls, on=_CORRELATION, how="left", maintain_order="left").sort("op_start")
    copies = with_neighbors(trace, copies).with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64).over(_PAIR),
        channel=pl.lit(0, dtype=pl.Int64),
        before_source=pl.lit("derived"),
        after_source=pl.lit("derived"),
        time_source=pl.lit("derived"),
        transport=pl.lit("copy_engine"),
        origin=pl.lit("metadata"),
        evidence=pl.lit("inferred"),
        is_ambiguous=pl.lit(value=False),
    )
    # Where the destination fetches the data itself, the work before the copy is not the producer's.
    pushed = pl.col("rank") == pl.col("src")
    nothing = [
        pl.lit(None, dtype=t).alias(n) for n, t in SIDE.items() if n.startswith("after_") and n != "after_source"
    ]
    before = [n for n in SIDE if n.startswith("before_") and n != "before_source"]
    copies = copies.with_columns(nothing).with_columns(pl.when(pushed).then(n).alias(n) for n in before)
    ends = [copies.with_columns(end=pl.lit(end)) for end in ("src", "dst")]
    every = pl.concat(ends)
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in SIDE.items() if n not in every.columns]
    return every.with_columns(missing).select(pl.col(n).cast(t) for n, t in SIDE.items())


def _with_ranks(trace: Trace, copies: pl.DataFrame) -> pl.DataFrame:
    """Add ``src`` and ``dst``: the rank that alone works on a device; null: none, or several."""
    owners = (
        trace.scan("ops")
        .filter((pl.col("kind") == "kernel") & pl.col("rank").is_not_null() & pl.col("device").is_not_null())
        .select("source", "device", "rank")
        .unique()
        .collect()
    )
    owners = owners.join(trace.sources.select("source", "host"), on="source", how="left")
    hosts = owners["host"].drop_nulls().unique()
    copies = copies.join(trace.sources.select("source", "host"), on="source", how="left", maintain_order="left")
    if len(hosts) == 1:  # a file that does not name its host is taken to be of the only one that is named
        owners, copies = (f.with_columns(host=pl.lit(hosts[0])) for f in (owners, copies))
    single = owners.group_by("host", "device").agg(owner=pl.col("rank").unique())
    single = single.filter(pl.col("owner").list.len() == 1).explode("owner")
    for side, device in (("src", "from_device"), ("dst", "to_device")):
        of_device = single.select("host", pl.col("device").alias(device), pl.col("owner").cast(pl.Int64).alias(side))
        copies = copies.join(of_device, on=["host", device], how="left", nulls_equal=True, maintain_order="left")
    return copies.drop("host")

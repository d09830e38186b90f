"""NCCL calls as its own NVTX ranges tell them (nsys): which operation, on which thread, and with which kernel.

The ranges have no peer, size or communicator in a default export: their payloads are null. An operation is launched in
the end of the outermost group that it is in (``ncclGroupEnd``), or in its own range where it is in none.
"""

from __future__ import annotations

import polars as pl

from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_OPS = {
    "ncclSend": "send",
    "ncclRecv": "recv",
    "ncclAllReduce": "allreduce",
    "ncclAllGather": "allgather",
    "ncclReduceScatter": "reducescatter",
    "ncclBroadcast": "broadcast",
    "ncclBcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAlltoAll": "alltoall",
}
RANGES = {
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "rank": pl.Int32,
    "name": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


def nccl_ranges(trace: Trace) -> pl.DataFrame:
    """Return the closed ranges of NCCL's NVTX domain on ranked processes, columns `RANGES`.

    Some exports do not name the domain.
    """
    rows = (
        trace.scan("ranges")
        .filter((pl.col("kind") == "push_pop") & pl.col("name").str.starts_with("nccl"))
        .filter((pl.col("domain").cast(pl.String) == "NCCL").fill_null(value=True) & pl.col("end_ns").is_not_null())
        .filter(pl.col("rank").is_not_null())
        .select(*RANGES)
        .sort("start_ns")
        .collect()
    )
    return rows.select(pl.col(n).cast(t) for n, t in RANGES.items())


def operations(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the operations among the ranges: `RANGES` without ``name``, with ``op`` (of `gapscope.schema.COMM_OP`)."""
    return ranges.filter(pl.col("name").is_in(list(_OPS))).with_columns(op=pl.col("name").replace(_OPS)).drop("name")


def launching(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges that launch: ``source, process, thread, batch_ns, batch_end``.

    Groups nest, and only the end of the outermost launches what was asked for in it.
    """
    step = pl.col("name").replace_strict({"ncclGroupStart": 1, "ncclGroupEnd": -1}, default=0, return_dtype=pl.Int64)
    counted = ranges.sort("start_ns").with_columns(depth=step.cum_sum().over(_LANE))
    # A recording may begin within a group.
    lowest = pl.min_horizontal(pl.col("depth").cum_min().over(_LANE), 0)
    outer = counted.filter((pl.col("depth") == lowest) & (pl.col("name") != "ncclGroupStart"))
    return outer.select(*_LANE, batch_ns="start_ns", batch_end="end_ns").sort("batch_ns")

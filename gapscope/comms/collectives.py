"""Collectives that torch.profiler recorded with their metadata: which kernels of which ranks are one operation."""

from __future__ import annotations

import polars as pl

from gapscope.comms.ordinals import paired, with_step
from gapscope.trace import Trace

FULL = ("allreduce", "allgather", "reducescatter", "barrier")
"""Every rank waits for every other. All-to-all is not among them: a pair that exchanges nothing does not wait for each
other, and sizes per pair are not recorded."""

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
_CORRELATION = ["source", "process", "correlation"]


def collective_members(trace: Trace) -> pl.DataFrame:
    """Return one row per kernel of a collective whose peers are known.

    Returns:
        ``instance`` (a text that the kernels of one operation share), ``op`` (text), ``source``, ``process``,
        ``correlation``, ``who`` (rank), ``device``, ``start_ns``, ``end_ns`` (on the file's clock), ``is_root``.
    """
    kernels = _kernels(trace)
    if not kernels.height:
        return pl.DataFrame(schema=_SCHEMA)
    rows = paired(
        kernels.with_columns(
            channel=pl.format("group {}{}", pl.col("group").fill_null("?"), pl.col("group_ranks").fill_null("")),
            what=pl.format("{} {}", pl.col("op").cast(pl.String), pl.col("size_bytes").fill_null(-1)),
        )
    )
    rows = rows.with_columns(
        op=pl.col("op").cast(pl.String),
        instance=pl.format("{} in {}", pl.col("op").cast(pl.String), "instance"),
        is_root=(pl.col("root_rank") == pl.col("who")).fill_null(value=False),
    )
    return rows.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


_SCHEMA = {
    "instance": pl.String,
    "op": pl.String,
    "source": pl.Int32,
    "process": pl.Int64,
    "correlation": pl.Int64,
    "who": pl.Int32,
    "device": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "is_root": pl.Boolean,
    "size_bytes": pl.Int64,
    "group": pl.String,
    "seq": pl.Int64,
}


def _kernels(trace: Trace) -> pl.DataFrame:
    """Return the kernels of collectives with their metadata.

    Returns:
        Columns of table ``comms``, ``who`` (rank), ``root_rank`` (null if there is none or it is not recorded),
        ``device``, ``host_ns`` (launch), ``step`` and ``order``.
    """
    kernels = (
        trace.scan("comms")
        .filter(
            pl.col("correlation").is_not_null()
            & pl.col("rank").is_not_null()
            & ~pl.col("op").cast(pl.String).is_in(["send", "recv", "coalesced"])
        )
        .collect()
    )
    if not kernels.height:
        return kernels.with_columns(who=pl.col("rank"))
    ops_there = (
        trace.scan("ops")
        .select(*_CORRELATION, "device")
        .join(kernels.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
        .unique(_CORRELATION)
        .collect()
    )
    calls = (
        trace.scan("calls")
        .select(*_CORRELATION, host_ns="start_ns")
        .join(kernels.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
        .unique(_CORRELATION)
        .collect()
    )
    roots = (
        trace.scan("comms")
        .filter(pl.col("root").is_not_null() & pl.col("external_id").is_not_null())
        .select("source", "process", "external_id", position="root")
        .unique(["source", "process", "external_id"], keep="none")
        .collect()
    )
    members = pl.col("group_ranks").str.extract_all(r"\d+").cast(pl.List(pl.Int32))
    found = (
        kernels.join(ops_there, on=_CORRELATION)
        .join(calls, on=_CORRELATION)
        .join(roots, on=["source", "process", "external_id"], how="left")
        .with_columns(root_rank=members.list.get(pl.col("position"), null_on_oob=True))
    )
    return with_step(trace, found).with_columns(who="rank", order="host_ns")

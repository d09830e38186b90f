"""Collectives: which kernels of which ranks are one operation.

torch.profiler writes group and size to the kernel. nsys has NCCL's own ranges without a group: with exactly two ranks
that do collectives, the group is theirs. Kernels that are no NCCL (one-shot all-reduces of engines) count where the
user declares their names.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gapscope.comms.nccl_ranges import launching, nccl_ranges, operations
from gapscope.comms.ordinals import of_job, paired, with_job, with_step
from gapscope.trace import Trace

FULL = ("allreduce", "allgather", "reducescatter", "barrier")
"""Every rank waits for every other. All-to-all is not among them: a pair that exchanges nothing does not wait for each
other, and sizes per pair are not recorded."""

FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
DECLARED = "declared"
"""Operation of a kernel whose name the user gave."""

_CORRELATION = ["source", "process", "correlation"]
_LANE = ["source", "process", "thread"]
_RANKS = 2
_KERNEL = r"(?i)(nccl|rccl)"
_NOT_P2P = ["send", "recv", "coalesced"]
_END = {
    "instance": pl.String,
    "op": pl.String,
    "source": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "correlation": pl.Int64,
    "who": pl.Int32,
    "device": pl.Int32,
    "stream": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "is_root": pl.Boolean,
    "size_bytes": pl.Int64,
    "group": pl.String,
    "seq": pl.Int64,
    "step": pl.Int64,
    "host_ns": pl.Int64,
    "host_end": pl.Int64,
    "by": pl.String,
    "group_ranks": pl.String,
    "group_size": pl.Int64,
    "job": pl.String,
}


def collective_ends(trace: Trace, declared: Sequence[str] = (), *, only_declared: bool = False) -> pl.DataFrame:
    """Return one row per kernel of a collective.

    Args:
        trace: The recordings.
        declared: Patterns of the names of kernels that are collectives of all ranks that run them.
        only_declared: Leave out what the recordings themselves say to be collectives.

    Returns:
        ``instance`` (a text that the kernels of one operation share; null: its peers are not known), ``op`` (text),
        ``source``, ``process``, ``thread`` (of the launch), ``correlation``, ``who`` (rank), ``device``, ``stream``,
        ``start_ns``, ``end_ns`` (on the file's clock), ``is_root``, ``size_bytes``, ``group``, ``seq``, ``step``,
        ``host_ns``, ``host_end`` (the record of the host that asked for it), ``by`` (``metadata``, ``order`` or
        ``declared``), ``group_ranks``, ``group_size`` (as recorded) and ``job``.
    """
    told = [] if only_declared else [_of_torch(trace), _of_nsys(trace)]
    rows = pl.concat([*told, _of_names(trace, declared)])
    if not rows.height:
        return pl.DataFrame(schema=_END)
    named = pl.format("{} {}", "op", "size_bytes")
    rows = rows.with_row_index("end").with_columns(
        what=pl.when(pl.col("by") == "metadata").then(pl.coalesce(named, "op")).otherwise(pl.coalesce("name", "op")),
    )
    rows = with_step(trace, with_job(trace, rows)).sort("host_ns", "start_ns", "end")
    # All operations of a replayed graph have one call: their own order decides among them.
    rows = rows.with_columns(order=pl.int_range(pl.len()), channel=of_job(pl.col("channel")))
    found = paired(rows.filter(pl.col("channel").is_not_null())).select("end", "instance")
    rows = rows.join(found, on="end", how="left").sort("end")
    instance = pl.format("{} in {}", "op", "instance")
    alone = pl.len().over("instance") < _RANKS
    rows = rows.with_columns(instance=pl.when(~alone).then(instance))
    return rows.select(pl.col(n).cast(t) for n, t in _END.items())


def collective_members(trace: Trace) -> pl.DataFrame:
    """Return the kernels of collectives whose group torch recorded and whose peers are known; see `collective_ends`."""
    return trace.once("collective_members", lambda: _collective_members(trace))


def _collective_members(trace: Trace) -> pl.DataFrame:
    ends = collective_ends(trace)
    return ends.filter(pl.col("instance").is_not_null() & (pl.col("by") == "metadata"))


_ROW = [n for n in _END if n not in ("instance", "step", "job")]


def _with_kernels(trace: Trace, rows: pl.DataFrame, names: str) -> pl.DataFrame:
    """Add ``device, stream, start_ns, end_ns, name`` of kernels and ``thread, call_ns, call_end`` of their launch.

    Args:
        trace: The recordings.
        rows: ``source, process, correlation``, and ``start_ns`` if the kernel's own is known: a replayed graph has many
            operations of one correlation id.
        names: Pattern of the names of the kernels.
    """
    key = [*_CORRELATION, *(["start_ns"] if "start_ns" in rows.columns else [])]
    ops_there = (
        trace.scan("ops")
        .filter(pl.col("start_ns").is_not_null() & pl.col("name").cast(pl.String).str.contains(names))
        .select(*_CORRELATION, "device", "stream", "start_ns", "end_ns", name=pl.col("name").cast(pl.String))
        .join(rows.lazy().select(key), on=key, how="semi")
        .unique(key, keep="none")
        .collect()
    )
    calls = (
        trace.scan("calls")
        .select(*_CORRELATION, "thread", call_ns="start_ns", call_end="end_ns")
        .join(rows.lazy().select(_CORRELATION), on=_CORRELATION, how="semi")
        .unique(_CORRELATION, keep="first")
        .collect()
    )
    return rows.join(ops_there, on=key).join(calls, on=_CORRELATION, how="left")


def _of_torch(trace: Trace) -> pl.DataFrame:
    """Return the kernels that carry metadata, with ``channel`` and ``name``."""
    kernels = (
        trace.scan("comms")
        .filter(pl.col("correlation").is_not_null() & pl.col("rank").is_not_null())
        .filter(~pl.col("op").cast(pl.String).is_in(_NOT_P2P))
        .drop("thread", "end_ns", "root")
        .collect()
    )
    if not kernels.height:
        return _nothing()
    records = (
        trace.scan("comms")
        .filter(pl.col("correlation").is_null() & pl.col("external_id").is_not_null())
        .select("source", "process", "external_id", position="root", record_ns="start_ns", record_end="end_ns")
        .unique(["source", "process", "external_id"], keep="none")
        .collect()
    )
    members = pl.col("group_ranks").str.extract_all(r"\d+").cast(pl.List(pl.Int64), strict=False)
    found = (
        _with_kernels(trace, kernels, "")
        .join(records, on=["source", "process", "external_id"], how="left")
        .with_columns(
            op=pl.col("op").cast(pl.String),
            who="rank",
            is_root=(members.list.get(pl.col("position"), null_on_oob=True) == pl.col("rank")).fill_null(value=False),
            channel=pl.format("group {}{}", pl.col("group").fill_null("?"), pl.col("group_ranks").fill_null("")),
            host_ns=pl.coalesce("record_ns", "call_ns", "start_ns"),
            host_end=pl.coalesce(pl.max_horizontal("record_end", "call_end"), "start_ns"),
            by=pl.lit("metadata"),
        )
    )
    return found.select(*(pl.col(n).cast(_END[n]) for n in _ROW), "channel", "name")


def _of_nsys(trace: Trace) -> pl.DataFrame:
    """Return the kernels of NCCL's own ranges; a channel only where just two ranks have any."""
    ranges = nccl_ranges(trace)
    rows = operations(ranges).filter(~pl.col("op").is_in(["send", "recv"]))
    if not rows.height:
        return _nothing()
    kernels = trace.scan("ops").filter(pl.col("name").cast(pl.String).str.contains(_KERNEL)).select(_CORRELATION)
    launches = (
        trace.scan("calls")
        .select(*_LANE, "correlation", launch_ns="start_ns")
        .join(kernels, on=_CORRELATION, how="semi")
        .sort("launch_ns")
        .collect()
    )
    batches = launching(ranges)
    inside = launches.join_asof(
        batches, left_on="launch_ns", right_on="batch_ns", by=_LANE, check_sortedness=False
    ).filter(pl.col("launch_ns") <= pl.col("batch_end"))
    asked = rows.sort("start_ns").join_asof(
        batches, left_on="start_ns", right_on="batch_ns", by=_LANE, strategy="forward", check_sortedness=False
    )
    # Several operations or kernels of one group: which is whose stays open.
    asked = asked.filter(pl.len().over([*_LANE, "batch_ns"]) == 1)
    single = inside.filter(pl.len().over([*_LANE, "batch_ns"]) == 1).select(*_LANE, "batch_ns", "correlation")
    asked = asked.rename({"start_ns": "host_ns", "end_ns": "host_end"}).join(single, on=[*_LANE, "batch_ns"])
    found = with_job(trace, _with_kernels(trace, asked.drop("thread"), _KERNEL))
    is_two = pl.col("rank").n_unique().over("job") == _RANKS
    channel = pl.when(is_two).then(pl.lit("group ?"))
    found = found.with_columns(who="rank", is_root=pl.lit(value=False), channel=channel, by=pl.lit("order"))
    missing = [pl.lit(None, dtype=_END[n]).alias(n) for n in _ROW if n not in found.columns]
    return found.with_columns(missing).select(*(pl.col(n).cast(_END[n]) for n in _ROW), "channel", "name")


def _of_names(trace: Trace, declared: Sequence[str]) -> pl.DataFrame:
    """Return the kernels whose names the user gave; each pattern is a group."""
    parts = [_nothing()]
    for pattern in declared:
        rows = (
            trace.scan("ops")
            .filter(pl.col("name").cast(pl.String).str.contains(pattern) & pl.col("rank").is_not_null())
            .filter((pl.col("kind") == "kernel") & pl.col("correlation").is_not_null())
            .filter(pl.col("start_ns").is_not_null())
            .select(*_CORRELATION, "start_ns", who="rank")
            .unique(maintain_order=True)
            .collect()
        )
        found = _with_kernels(trace, rows, pattern).with_columns(
            op=pl.lit(DECLARED),
            is_root=pl.lit(value=False),
            group=pl.lit(pattern),
            channel=pl.lit(pattern),
            host_ns=pl.coalesce("call_ns", "start_ns"),
            host_end=pl.coalesce("call_end", "start_ns"),
            by=pl.lit(DECLARED),
        )
        missing = [pl.lit(None, dtype=_END[n]).alias(n) for n in _ROW if n not in found.columns]
        parts.append(found.with_columns(missing).select(*(pl.col(n).cast(_END[n]) for n in _ROW), "channel", "name"))
    return pl.concat(parts)


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema={**{n: _END[n] for n in _ROW}, "channel": pl.String, "name": pl.String})

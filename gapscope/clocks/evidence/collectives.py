"""Collectives that torch.profiler recorded with their metadata: full dependencies between all ranks of a group.

Left out are all-to-all (a pair that exchanges nothing does not wait for each other, and sizes per pair are not
recorded) and rooted operations whose root is not recorded.
"""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.ordinals import paired, with_step
from gapscope.clocks.evidence.pairs_of_group import full, rooted
from gapscope.clocks.observations import Evidence

FULL = ("allreduce", "allgather", "reducescatter", "barrier")
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
_CORRELATION = ["source", "process", "correlation"]


def collectives(context: Context) -> Evidence:
    """Return what the collectives say that the recordings name."""
    if not context.several_clocks:
        return nothing()
    kernels = _kernels(context)
    if not kernels.height:
        return nothing()
    rows = paired(
        kernels.with_columns(
            channel=pl.format("group {}{}", pl.col("group").fill_null("?"), pl.col("group_ranks").fill_null("")),
            what=pl.format("{} {}", pl.col("op").cast(pl.String), pl.col("size_bytes").fill_null(-1)),
        )
    )
    rows = rows.with_columns(
        instance=pl.format("{} in {}", pl.col("op").cast(pl.String), "instance"),
        is_root=(pl.col("root_rank") == pl.col("who")).fill_null(value=False),
    )
    op = pl.col("op").cast(pl.String)
    members = ["instance", "who", "domain_in", "start_ns", "domain_out", "end_ns", "is_root"]
    everyone = full(context, rows.filter(op.is_in(FULL)).select(members))
    parts = [
        rooted(context, rows.filter(op.is_in(ops)).select(members), from_root=outward)
        for ops, outward in ((FROM_ROOT, True), (TO_ROOT, False))
    ]
    counts = dict(everyone.counts)
    for part in parts:
        for kind, count in part.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    return Evidence(pl.concat([everyone.observations, *(p.observations for p in parts)]), everyone.soft, counts)


def _kernels(context: Context) -> pl.DataFrame:
    """Return the kernels of collectives with their metadata.

    Returns:
        Columns of table ``comms``, ``who`` (rank), ``root_rank`` (null if there is none or it is not recorded),
        ``domain_in``, ``domain_out`` (device clock), ``host_ns`` (launch), ``step`` and ``order``.
    """
    trace = context.trace
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
    found = context.domains.with_domain(found, "device", "", "domain_in")
    found = with_step(trace, found)
    return found.with_columns(who="rank", domain_out="domain_in", order="host_ns")

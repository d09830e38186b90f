"""Collectives: no rank leaves before every rank has entered, or before the root has."""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context
from gapscope.clocks.observations import SOFT, Evidence

MOST_PAIRS = 400_000
"""Pairs of ranks times instances that are looked at; beyond that the shortest collectives of each stretch of time
are taken, which bind most."""


def full(context: Context, members: pl.DataFrame) -> Evidence:
    """Return what collectives say in which every rank waits for every other.

    Args:
        context: See there.
        members: One row per instance and participant: ``instance, who, domain_in, start_ns, domain_out, end_ns``.
    """
    members = _chosen(members.drop_nulls(["domain_in", "domain_out", "start_ns", "end_ns"]))
    pairs = members.join(members, on="instance", suffix="_2").filter(pl.col("who") != pl.col("who_2"))
    frame = pairs.select(
        "instance", "who", "who_2", earlier="domain_in", later="domain_out_2", earlier_ns="start_ns",
        later_ns="end_ns_2",
    )  # fmt: skip
    clock = context.domains.clock
    different = clock[frame["earlier"].to_numpy()] != clock[frame["later"].to_numpy()]
    found = context.evidence(
        frame.filter(pl.Series(different, dtype=pl.Boolean)),
        "collective",
        (
            pl.format("start of {} on rank {}", "instance", "who"),
            pl.format("end of {} on rank {}", "instance", "who_2"),
        ),
        pl.col("instance"),
    )
    soft = members.select("instance", "start_ns", "end_ns", domain="domain_out")
    return Evidence(found.observations, soft.select(pl.col(n).cast(t) for n, t in SOFT.items()), found.counts)


def rooted(context: Context, members: pl.DataFrame, *, from_root: bool) -> Evidence:
    """Return what collectives say in which all wait for the root (broadcast), or the root for all (reduce).

    Args:
        context: See there.
        members: As for `full`, with ``is_root``.
        from_root: Data goes from the root to the others.
    """
    members = members.drop_nulls(["domain_in", "domain_out", "start_ns", "end_ns"])
    root = members.filter("is_root")
    others = members.filter(~pl.col("is_root"))
    senders, receivers = (root, others) if from_root else (others, root)
    frame = senders.join(receivers, on="instance", suffix="_2").select(
        "instance", "who", "who_2", earlier="domain_in", later="domain_out_2", earlier_ns="start_ns",
        later_ns="end_ns_2",
    )  # fmt: skip
    texts = (
        pl.format("start of {} on rank {}", "instance", "who"),
        pl.format("end of {} on rank {}", "instance", "who_2"),
    )
    return context.evidence(frame, "rooted", texts, pl.col("instance"))


def _chosen(members: pl.DataFrame) -> pl.DataFrame:
    """Return members of instances so that there are not more than `MOST_PAIRS` pairs."""
    sizes = members.group_by("instance", maintain_order=True).agg(
        n=pl.len(), longest=(pl.col("end_ns") - pl.col("start_ns")).max(), first=pl.col("start_ns").min()
    )
    sizes = sizes.filter(pl.col("n") > 1).sort("first")
    pairs = sizes.select((pl.col("n").cast(pl.Int64) * (pl.col("n").cast(pl.Int64) - 1)).sum()).item() or 0
    if pairs > MOST_PAIRS:
        stretch = -(-pairs // MOST_PAIRS)
        sizes = (
            sizes.with_row_index("_i").sort("longest").group_by(pl.col("_i") // stretch, maintain_order=True).first()
        )
    return members.join(sizes.select("instance"), on="instance", how="semi")

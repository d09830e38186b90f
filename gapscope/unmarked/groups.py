"""Collectives without marks: one end per rank of a group, and messages from and to a root."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gapscope.comms.collectives import DECLARED, FROM_ROOT, TO_ROOT, collective_ends
from gapscope.trace import Trace
from gapscope.unmarked.ends import SIDE
from gapscope.unmarked.neighbors import with_neighbors


def groups(
    trace: Trace, declared: Sequence[str], *, only_declared: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the ends of collectives, columns `gapscope.unmarked.ends.SIDE`, and kernels that belong to none.

    Args:
        trace: The recordings.
        declared: See `gapscope.comms.collectives.collective_ends`.
        only_declared: See there.

    Returns:
        The ends of collectives of all with all, those of messages from or to a root, and ``op, rank, by, n``: how many
        kernels have no known peers; 0 with a pattern as ``op``: no kernel has such a name.
    """
    members = collective_ends(trace, declared, only_declared=only_declared)
    kernel = ["source", "process", "device", "stream", "start_ns"]
    members = members.unique(kernel, keep="first", maintain_order=True)
    alone = members.filter(pl.col("instance").is_null()).group_by("op", "by", rank="who").agg(n=pl.len())
    unmet = [pattern for pattern in declared if pattern not in members["group"]]
    alone = pl.concat([alone, pl.DataFrame([{"op": p, "by": DECLARED, "n": 0} for p in unmet], schema=alone.schema)])
    members = members.filter(pl.col("instance").is_not_null()).rename(
        {"start_ns": "op_start", "end_ns": "op_end", "who": "rank"}
    )
    members = with_neighbors(trace, members)
    # Groups of one name may have different members: each is a group of its own.
    name = pl.coalesce("group", pl.lit("?"))
    several = pl.col("group_ranks").n_unique().over("job", "group") > 1
    members = members.with_columns(
        group=pl.when(several).then(pl.format("{}{}", name, pl.col("group_ranks").fill_null(""))).otherwise(name),
        evidence=_evidence(),
        transport=pl.when(pl.col("by") != DECLARED).then(pl.lit("nccl")),
        is_partial=(pl.col("group_size") > pl.col("rank").n_unique().over("instance")).fill_null(value=False),
    )
    # Numbered in the order of one of their ranks, so that the clocks of the others do not matter.
    order = members.sort("rank", "host_ns", "op_start").unique("instance", keep="first", maintain_order=True)
    order = order.select("instance", seq_of=pl.int_range(pl.len(), dtype=pl.Int64).over("job", "group"))
    members = members.join(order, on="instance", maintain_order="left")
    is_rooted = pl.col("op").is_in([*FROM_ROOT, *TO_ROOT])
    everyone = members.filter(~is_rooted).with_columns(
        seq="seq_of",
        side_rank=pl.col("rank").cast(pl.Int64),
        channel=pl.lit(0, dtype=pl.Int64),
        end=pl.lit("both"),
        src=pl.lit(None, dtype=pl.Int64),
        dst=pl.lit(None, dtype=pl.Int64),
    )
    rooted = pl.concat(_sides(r) for r in _rooted(members.filter(is_rooted)))
    return _sides(everyone), rooted, alone.sort("rank", "op")


def _evidence() -> pl.Expr:
    return (
        pl.when(pl.col("by") == DECLARED)
        .then(pl.lit("declared"))
        .when(pl.col("seq").is_not_null())
        .then(pl.lit("recorded"))
        .otherwise(pl.lit("inferred"))
    )


def _rooted(members: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the ends of messages between a root and each other rank: source ends, then destination ends."""
    root = members.filter("is_root")
    others = members.filter(~pl.col("is_root"))
    of_root = root.select("instance", root="rank")
    others = others.join(of_root, on="instance").with_columns(other="rank")
    root = root.join(others.select("instance", "other"), on="instance").with_columns(root="rank")
    sides = []
    for rows in (root, others):
        is_source = pl.col("op").is_in(FROM_ROOT) == pl.col("is_root")
        outward = pl.col("op").is_in(FROM_ROOT)
        sides.append(
            rows.with_columns(
                src=pl.when(outward).then("root").otherwise("other").cast(pl.Int64),
                dst=pl.when(outward).then("other").otherwise("root").cast(pl.Int64),
                channel=pl.col("group").rank("dense").cast(pl.Int64) - 1,
                seq="seq_of",
                group=pl.lit(None, dtype=pl.String),
                end=pl.when(is_source).then(pl.lit("src")).otherwise(pl.lit("dst")),
            )
        )
    return sides


def _sides(rows: pl.DataFrame) -> pl.DataFrame:
    derived = pl.lit("derived")
    rows = rows.with_columns(
        before_source=derived,
        after_source=derived,
        time_source=derived,
        origin=pl.when(pl.col("by") == DECLARED).then(pl.lit("order")).otherwise("by"),
        is_ambiguous=pl.lit(value=False),
    )
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in SIDE.items() if n not in rows.columns]
    return rows.with_columns(missing).select(pl.col(n).cast(t) for n, t in SIDE.items())

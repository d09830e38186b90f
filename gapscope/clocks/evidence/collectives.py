"""Collectives that the recordings name: no rank leaves before every rank has entered, or before the root has."""

from __future__ import annotations

import polars as pl

from gapscope.clocks.evidence.context import Context, nothing
from gapscope.clocks.evidence.pairs_of_group import full, rooted
from gapscope.clocks.observations import Evidence
from gapscope.comms.collectives import FROM_ROOT, FULL, TO_ROOT, collective_members


def collectives(context: Context) -> Evidence:
    """Return what the collectives say that the recordings name."""
    if not context.several_clocks:
        return nothing()
    rows = context.domains.with_domain(collective_members(context.trace), "device", "", "domain_in")
    rows = rows.with_columns(domain_out="domain_in")
    everyone = full(context, rows.filter(pl.col("op").is_in(FULL)))
    parts = [
        rooted(context, rows.filter(pl.col("op").is_in(ops)), from_root=outward)
        for ops, outward in ((FROM_ROOT, True), (TO_ROOT, False))
    ]
    counts = dict(everyone.counts)
    for part in parts:
        for kind, count in part.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    return Evidence(pl.concat([everyone.observations, *(p.observations for p in parts)]), everyone.soft, counts)

"""Where facts about the clocks come from: one file per family, one line here.

A family takes a `Context` and returns `gapscope.clocks.observations.Evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from gapscope.clocks.evidence.collectives import collectives
from gapscope.clocks.evidence.context import Context
from gapscope.clocks.evidence.host_messages import host_messages
from gapscope.clocks.evidence.launches import launches
from gapscope.clocks.evidence.marked_groups import marked_groups
from gapscope.clocks.evidence.marked_pairs import marked_pairs
from gapscope.clocks.evidence.nested import nested_ranges
from gapscope.clocks.evidence.send_recv import send_recv
from gapscope.clocks.evidence.syncs import copies, syncs
from gapscope.clocks.observations import SOFT, Evidence

_Family = Callable[[Context], Evidence]

OF_CALLS: tuple[_Family, ...] = (launches, syncs, copies)
"""Families that look at the calls of each process and need no marks."""

BETWEEN_FILES: tuple[_Family, ...] = (
    marked_pairs,
    marked_groups,
    collectives,
    send_recv,
    host_messages,
    nested_ranges,
)


def gather(context: Context, of_calls: Sequence[Evidence]) -> Evidence:
    """Return what all families found.

    Args:
        context: What they work with.
        of_calls: What those of `OF_CALLS` found.
    """
    found = [*of_calls, *(family(context) for family in BETWEEN_FILES)]
    counts: dict[str, int] = {}
    for part in found:
        for kind, count in part.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    soft = [part.soft for part in found if part.soft.height]
    return Evidence(
        pl.concat([part.observations for part in found]),
        pl.concat(soft) if soft else pl.DataFrame(schema=SOFT),
        counts,
        [note for part in found for note in part.notes],
    )


__all__ = ["BETWEEN_FILES", "OF_CALLS", "Context", "gather"]

"""Families of edges: one file each, one line here.

A family takes a `gapscope.graph.context.Context` and returns edges (`gapscope.graph.edges.EDGE`). Order on a stream
and on a thread and the launch of an operation are not here: every item has at most one of each, so the walk has them
in arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from gapscope.graph.context import Context
from gapscope.graph.families.collectives import collectives
from gapscope.graph.families.default_stream import default_stream
from gapscope.graph.families.event_queries import event_queries
from gapscope.graph.families.events import event_waits
from gapscope.graph.families.flags import flags
from gapscope.graph.families.host_messages import host_messages
from gapscope.graph.families.slots import slots
from gapscope.graph.families.syncs import syncs
from gapscope.graph.families.transfers import transfers

FAMILIES: tuple[Callable[[Context], pl.DataFrame], ...] = (
    event_waits,
    event_queries,
    default_stream,
    syncs,
    transfers,
    collectives,
    host_messages,
    flags,
    slots,
)

__all__ = ["FAMILIES"]

"""What the families of edges work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.events.pairing import KEY
from gapscope.graph.items import Items
from gapscope.trace import Trace

_OPERATION = ["source", "process", "device", "stream", "raw_start_ns"]


@dataclass(frozen=True)
class Context:
    """What the families of edges work with.

    Attributes:
        trace: The recordings.
        alignment: Where their clocks stand.
        items: Operations and host items.
        ends: Events of the handoffs that marks name; None: there are none.
    """

    trace: Trace
    alignment: Alignment
    items: Items
    ends: Ends | None

    @cached_property
    def bracket_ops(self) -> pl.DataFrame:
        """Return which operations were launched inside which bracket.

        Returns:
            The columns of a handoff's key, ``side_rank``, ``slot``, ``mark``, ``source``, ``process``, ``thread``,
            ``item``, ``start``, ``end`` (common timebase), ``raw_start_ns``, ``is_nccl``, ``evidence`` (how it is known
            which operations belong to the handoff), ordered by start.
        """
        columns = [*KEY, "side_rank", "slot", "mark", "source", "process", "thread", "evidence"]
        if self.ends is None:
            return pl.DataFrame(schema=dict.fromkeys([*columns, "item", "start", "end", "is_nccl"], pl.Int64))
        numbers = self.items.ops.with_row_index("item").select(
            *_OPERATION,
            pl.col("item").cast(pl.Int64),
            start=pl.Series(self.items.start[: self.items.n_ops]),
            end=pl.Series(self.items.end[: self.items.n_ops]),
            is_nccl=pl.col("name").cast(pl.String).str.contains("(?i)nccl|rccl"),
        )
        launched = self.ends.launched.filter(pl.col("start_ns").is_not_null()).select(
            "mark_id", "device", "stream", raw_start_ns="start_ns"
        )
        return (
            launched.join(self.ends.brackets.select("mark_id", *columns), on="mark_id")
            .join(numbers, on=_OPERATION, nulls_equal=True)
            .unique(["mark_id", "item"], maintain_order=True)
            .sort("start", "item")
        )

"""What the families of edges work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.events.enclosing import LANE, by_thread, enclosed, nested_receives
from gapscope.events.pairing import KEY
from gapscope.graph.items import Items
from gapscope.trace import Trace

_NO_ROWS = pl.DataFrame(schema={"mark_id": pl.UInt32, "item": pl.Int64})
_BRACKET = [*KEY, "side_rank", "slot", "mark", "source", "process", "thread", "evidence"]


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
    def deciding_ops(self) -> pl.DataFrame:
        """Return which operations were launched inside which bracket, as far as edges and events hang on them.

        All operations of ``submit`` and ``receive``; of ``produce`` and ``consume`` those that started first or ended
        last.

        Returns:
            The columns of a handoff's key, ``side_rank``, ``slot``, ``mark``, ``source``, ``process``, ``thread``,
            ``item``, ``start``, ``end`` (common timebase), ``is_nccl``, ``evidence`` (how it is known which operations
            belong to the handoff), ordered by start.
        """
        if self.ends is None:
            return self._described(_NO_ROWS)
        return self._described(self._identified(self.ends.launched.filter("decides")))

    def brackets_of(self, items: pl.Series) -> pl.DataFrame:
        """Return all brackets that launched some operations, in the columns of `deciding_ops`.

        Args:
            items: Numbers of items, of which those of operations are looked at; may repeat and hold nulls.
        """
        if self.ends is None:
            return self._described(_NO_ROWS)
        ops = items.filter(items < self.items.n_ops).unique().cast(pl.Int64)
        return self._described(pl.concat([self._by_call(ops), self._identified(self.ends.launched, ops)]))

    def _by_call(self, ops: pl.Series) -> pl.DataFrame:
        """Return ``mark_id, item``: the brackets of marks around the calls that launched some operations."""
        assert self.ends is not None
        about = self.items.ops.select("is_declared", pl.col("correlation").cast(pl.Int64))[ops]
        launch = about.with_columns(self.items.call_of(ops).cast(pl.Int64), item=ops)
        launch = launch.filter(pl.col("call").is_not_null() & ~pl.col("is_declared"))
        launching = launch.unique("call", maintain_order=True)  # their ids are those of what they launched
        hosts = self.items.hosts_at(launching["call"])
        about = launching.select("correlation", "call", start_ns=hosts["raw_start_ns"])
        calls = by_thread(about, hosts.select(LANE).with_row_index("row"))
        # What no mark names has its operation given.
        brackets = self.ends.brackets.filter(pl.col("evidence") == "declared")
        inside = enclosed(self.trace, brackets, nested_receives(brackets), calls)
        marks = pl.Series(inside.mark, dtype=pl.UInt32)
        rows = pl.DataFrame({"mark_id": marks, "call": calls.table["call"].gather(inside.call)})
        return rows.join(launch, on="call", maintain_order="left").select("mark_id", "item")

    def _identified(self, launched: pl.DataFrame, among: pl.Series | None = None) -> pl.DataFrame:
        """Return ``mark_id, item``: operations by their stream and start.

        Args:
            launched: Rows of `gapscope.events.Ends.launched`.
            among: Items that they may be; None: all.
        """
        assert self.ends is not None
        brackets = self.ends.brackets.select("mark_id", "source", "process")
        placed = launched.select("mark_id", "device", "stream", "start_ns").join(
            brackets, on="mark_id", maintain_order="left"
        )
        row, item = self.items.started(placed, None if among is None else among.to_numpy())
        return pl.DataFrame({"mark_id": placed["mark_id"].gather(row).cast(pl.UInt32), "item": item})

    def _described(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the columns of `deciding_ops` for rows with ``mark_id`` and ``item``."""
        if self.ends is None:
            return pl.DataFrame(schema=dict.fromkeys([*_BRACKET, "item", "start", "end", "is_nccl"], pl.Int64))
        pair = pl.col("mark_id").cast(pl.Int64) * self.items.n_ops + pl.col("item")
        rows = rows.filter(pair.is_first_distinct())
        item = rows["item"].to_numpy()
        name = self.items.ops["name"].gather(rows["item"])
        return (
            rows.join(self.ends.brackets.select("mark_id", *_BRACKET), on="mark_id", maintain_order="left")
            .with_columns(
                start=pl.Series(self.items.start[item]), end=pl.Series(self.items.end[item]), is_nccl=_matching(name)
            )
            .drop("mark_id")
            .sort("start", "item", maintain_order=True)
        )


def _matching(names: pl.Series) -> pl.Series:
    """Return which names are of NCCL or RCCL kernels; each different name is looked at once."""
    different = names.unique()
    hits = different.filter(different.cast(pl.String).str.contains("(?i)nccl|rccl"))
    return names.to_physical().is_in(hits.to_physical().implode())

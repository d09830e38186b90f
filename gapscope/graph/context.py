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
_LAUNCHED = ("mark_id", "device", "stream", "raw_start_ns", "raw_end_ns")


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
        """Return which operations were launched inside which bracket: one row for each, millions in a large recording.

        Returns:
            The columns of a handoff's key, ``side_rank``, ``slot``, ``mark``, ``source``, ``process``, ``thread``,
            ``item``, ``start``, ``end`` (common timebase), ``raw_start_ns``, ``is_nccl``, ``evidence`` (how it is known
            which operations belong to the handoff), ordered by start.
        """
        return self._named(self._launched)

    @cached_property
    def deciding_ops(self) -> pl.DataFrame:
        """Return the rows of `bracket_ops` that edges and events hang on, without making the others.

        All operations of ``submit`` and ``receive``; of ``produce`` and ``consume`` those that started first or ended
        last.
        """
        if self.ends is None:
            return self.bracket_ops
        launched = self._launched
        stages = self.ends.brackets.filter(pl.col("mark").is_in(["produce", "consume"])).select("mark_id")
        bounds = (
            launched.lazy()
            .group_by("mark_id", "device")
            .agg(_first=pl.col("raw_start_ns").min(), _last=pl.col("raw_end_ns").max())
            .join(stages.lazy(), on="mark_id")
            .collect()
        )
        # Times narrow the rows down at little cost; only what is left is joined.
        kept = launched.filter(
            ~pl.col("mark_id").is_in(stages["mark_id"].implode())
            | pl.col("raw_start_ns").is_in(bounds["_first"].implode())
            | pl.col("raw_end_ns").is_in(bounds["_last"].implode())
        )
        kept = kept.join(bounds, on=["mark_id", "device"], how="left", nulls_equal=True, maintain_order="left")
        decides = (pl.col("raw_start_ns") == pl.col("_first")) | (pl.col("raw_end_ns") == pl.col("_last"))
        return self._named(kept.filter(decides.fill_null(value=True)).drop("_first", "_last"))

    def brackets_of(self, items: pl.Series) -> pl.DataFrame:
        """Return the rows of `bracket_ops` of some items, without making the others."""
        if self.ends is None:
            return self.bracket_ops
        n = self.items.n_ops
        wanted = items.drop_nulls().unique()
        starts = self.items.ops["raw_start_ns"].gather(wanted.filter(wanted < n))
        found = self._named(self._launched.filter(pl.col("raw_start_ns").is_in(starts.unique().implode())))
        return found.filter(pl.col("item").is_in(wanted.implode()))

    @property
    def _launched(self) -> pl.DataFrame:
        """Return timed operations of brackets: ``mark_id, device, stream, raw_start_ns, raw_end_ns``."""
        if self.ends is None:
            return pl.DataFrame(schema=dict.fromkeys(_LAUNCHED, pl.Int64))
        timed = self.ends.launched
        if timed["start_ns"].null_count():
            timed = timed.filter(pl.col("start_ns").is_not_null())
        return timed.select("mark_id", "device", "stream", raw_start_ns="start_ns", raw_end_ns="end_ns")

    def _named(self, launched: pl.DataFrame) -> pl.DataFrame:
        """Return rows of `_launched` as `bracket_ops`."""
        columns = [*KEY, "side_rank", "slot", "mark", "source", "process", "thread", "evidence"]
        if self.ends is None:
            return pl.DataFrame(schema=dict.fromkeys([*columns, "item", "start", "end", "is_nccl"], pl.Int64))
        items = self.items
        starts = launched["raw_start_ns"].unique()
        numbers = items.ops.lazy().select(*_OPERATION, "name").with_row_index("item")
        if 2 * len(starts) < items.n_ops:
            numbers = numbers.filter(pl.col("raw_start_ns").is_in(starts.implode()))
        numbered = numbers.collect()
        item = numbered["item"].to_numpy()
        numbered = numbered.select(
            *_OPERATION,
            pl.col("item").cast(pl.Int64),
            start=pl.Series(items.start[item]),
            end=pl.Series(items.end[item]),
            is_nccl=pl.col("name").cast(pl.String).str.contains("(?i)nccl|rccl"),
        )
        return (
            launched.drop("raw_end_ns")
            .join(self.ends.brackets.select("mark_id", *columns), on="mark_id")
            .join(numbered, on=_OPERATION, nulls_equal=True)
            .unique(["mark_id", "item"], maintain_order=True)
            .sort("start", "item")
        )

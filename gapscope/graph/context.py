"""What the families of edges work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.events.pairing import KEY
from gapscope.graph.items import Items
from gapscope.trace import Trace

_OPERATION = ["source", "process", "device", "stream", "raw_start_ns"]
_LATE = 2**62
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
        stages = self.ends.brackets.filter(pl.col("mark").is_in(["produce", "consume"]))["mark_id"]
        marks = launched["mark_id"].to_numpy()
        is_stage = np.zeros(int(max(marks.max(initial=0), stages.max() or 0)) + 1, np.bool_)
        is_stage[stages.to_numpy()] = True
        device = launched["device"].rank("dense").fill_null(0).to_numpy().astype(np.int64)
        place = marks * (int(device.max(initial=0)) + 1) + device
        start, end = launched["raw_start_ns"].to_numpy(), launched["raw_end_ns"].fill_null(_LATE).to_numpy()
        first = np.full(int(place.max(initial=0)) + 1, _LATE, np.int64)
        last = np.full(len(first), -_LATE, np.int64)
        np.minimum.at(first, place, start)
        np.maximum.at(last, place, end)
        decides = ~is_stage[marks] | (start == first[place]) | (end == last[place])
        return self._named(launched.filter(pl.Series(decides)))

    def brackets_of(self, items: pl.Series) -> pl.DataFrame:
        """Return the rows of `bracket_ops` of some items, without making the others."""
        if self.ends is None:
            return self.bracket_ops
        n = self.items.n_ops
        wanted = items.drop_nulls().unique()
        starts = pl.Series(self.items.times.raw_start(wanted.filter(wanted < n).to_numpy()))
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
        starts = pl.Series(items.times.raw_starts(items.n_ops))
        began = starts.is_in(launched["raw_start_ns"].unique().implode())
        numbers = began.arg_true().cast(pl.Int64)
        item = numbers.to_numpy()
        numbered = items.ops_at(numbers).select(
            *_OPERATION,
            item=numbers,
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

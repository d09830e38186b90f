"""What the families of edges work with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.events.enclosing import LANE, by_thread, enclosed, nested_receives
from gapscope.events.pairing import KEY
from gapscope.graph.items import Items
from gapscope.graph.kernels import NONE
from gapscope.trace import Trace

COMMUNICATION = "(?i)nccl|rccl"
"""What the names of communication kernels have in them."""

_NO_ROWS = pl.DataFrame(schema={"mark_id": pl.UInt32, "item": pl.Int64})
_BRACKET = ["handoff", *KEY, "side_rank", "slot", "mark", "source", "process", "thread", "evidence"]


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
    def handoffs(self) -> pl.DataFrame:
        """Return the handoffs that brackets are of: their keys, and ``handoff``, a number that stands for the key."""
        assert self.ends is not None
        numbered = self.ends.brackets.select(KEY).unique(maintain_order=True).with_row_index("handoff")
        return numbered.with_columns(pl.col("handoff").cast(pl.Int32))

    def numbers_of(self, handoffs: pl.DataFrame) -> pl.Series:
        """Return the numbers of handoffs (Int32, see `handoffs`); `NONE`: no bracket is of it.

        Args:
            handoffs: Rows of table ``handoffs``: of a group its key has no ranks.
        """
        keys = handoffs.with_columns(
            pl.when(pl.col("group").is_null()).then(f"{side}_rank").alias(side) for side in ("src", "dst")
        ).select(KEY)
        found = keys.join(self.handoffs, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        return found["handoff"].cast(pl.Int32).fill_null(NONE)

    @cached_property
    def brackets(self) -> pl.DataFrame:
        """Return the brackets of marks with ``handoff``, the number of theirs."""
        assert self.ends is not None
        return self.ends.brackets.join(self.handoffs, on=KEY, how="left", nulls_equal=True, maintain_order="left")

    @cached_property
    def communicates(self) -> npt.NDArray[np.bool_]:
        """Return which operations are communication kernels, by their names."""
        return matching(self.items.ops["name"], COMMUNICATION).to_numpy()

    @cached_property
    def deciding_ops(self) -> pl.DataFrame:
        """Return which operations were launched inside which bracket, as far as edges and events hang on them.

        All operations of ``submit`` and ``receive``; of ``produce`` and ``consume`` those that started first or ended
        last.

        Returns:
            ``handoff`` (see `handoffs`), the columns of its key, ``side_rank``, ``slot``, ``mark``, ``source``,
            ``process``, ``thread``, ``item``, ``start``, ``end`` (common timebase), ``is_nccl``, ``evidence`` (how it
            is known which operations belong to the handoff), ordered by start.
        """
        if self.ends is None:
            return self._described(_NO_ROWS)
        return self._described(self._identified(self.ends.launched.filter("decides")))

    @cached_property
    def memory_calls(self) -> pl.DataFrame:
        """Return the recorded stream memory calls inside each submit.

        Returns:
            ``handoff``, ``slot``, ``call`` (number of the item), ``call_start``, ``call_end`` (common timebase),
            ``name``.
        """
        items, lane = self.items, ["source", "process", "thread"]
        numbers = (items.hosts["family"] == "stream_memop").arg_true().cast(pl.Int64) + items.n_ops
        calls = items.hosts_at(numbers).with_columns(
            call=numbers,
            call_start=pl.Series(items.start).gather(numbers),
            call_end=pl.Series(items.end).gather(numbers),
        )
        brackets = self.brackets.filter(pl.col("mark") == "submit").select(
            *lane, "handoff", "slot", bracket_ns="start_ns", bracket_end="end_ns"
        )
        inside = calls.sort("raw_start_ns").join_asof(
            brackets.sort("bracket_ns"), left_on="raw_start_ns", right_on="bracket_ns", by=lane, check_sortedness=False
        )
        inside = inside.filter(pl.col("raw_start_ns") <= pl.col("bracket_end"))
        return inside.select("handoff", "slot", "call", "call_start", "call_end", "name")

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
        about = self.items.ops.select("is_declared", "correlation")[ops]
        launch = about.with_columns(
            pl.col("correlation").cast(pl.Int64), self.items.call_of(ops).cast(pl.Int64), item=ops
        )
        launch = launch.filter(pl.col("call").is_not_null() & ~pl.col("is_declared"))
        launching = launch.unique("call", maintain_order=True)  # their ids are those of what they launched
        hosts = self.items.hosts_at(launching["call"])
        about = launching.select("correlation", "call", start_ns=hosts["raw_start_ns"])
        calls = by_thread(about, hosts.select(LANE).with_row_index("row"))
        # What no mark names has its operation given.
        brackets = self.brackets.filter(pl.col("evidence") == "declared")
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
        brackets = self.brackets.select("mark_id", "source", "process")
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
        return (
            rows.join(self.brackets.select("mark_id", *_BRACKET), on="mark_id", maintain_order="left")
            .with_columns(
                start=pl.Series(self.items.start[item]),
                end=pl.Series(self.items.end[item]),
                is_nccl=pl.Series(self.communicates[item]),
            )
            .drop("mark_id")
            .sort("start", "item", maintain_order=True)
        )


def matching(names: pl.Series, pattern: str, but: str | None = None) -> pl.Series:
    """Return which names match a regular expression; each different name is looked at once, and a null matches nothing.

    Args:
        names: Categorical.
        pattern: The expression.
        but: A name that is none of them all the same.
    """
    different = names.unique().drop_nulls()
    codes, all_codes = (values.to_physical().fill_null(0).to_numpy() for values in (names, different))
    is_hit = np.zeros(int(all_codes.max(initial=0)) + 1, np.bool_)
    texts = different.cast(pl.String)
    is_hit[all_codes] = (texts.str.contains(pattern) & texts.ne_missing(but)).to_numpy()
    found = pl.Series(is_hit[codes])
    return found & names.is_not_null() if names.null_count() else found

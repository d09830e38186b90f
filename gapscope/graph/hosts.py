"""What takes time on host threads: API calls, ranges of host messages, stand-ins for calls that no tool recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.events import Ends
from gapscope.graph.kernels import NONE
from gapscope.graph.placing import Numbers
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.trace import Trace

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

THREAD = ["source", "process", "thread"]
STREAM = ["source", "process", "device", "stream"]
_LAUNCHED = ["op_device", "op_stream", "op_start_ns"]
IN_ORDER = np.zeros(0, np.int32)
IS_UNSEEN = (pl.col("by") == "span") & pl.col("start_ns").is_not_null()
HOST_RANGES = "^(gloo):"


class Hosts(NamedTuple):
    """Host items by thread and start.

    Attributes:
        table: ``correlation`` of each.
        about: ``name, family`` of each.
        lane: Thread of each.
        start: Starts as recorded,
        end: and ends,
        order: which of them each item has, as `gapscope.graph.placing.Recorded` has it.
        threads: `THREAD`, ``first``, ``until``.
        unseen: `_unseen_launches`.
    """

    table: pl.DataFrame
    about: pl.DataFrame
    lane: Indices
    start: Ints
    end: Ints
    order: Indices
    threads: pl.DataFrame
    unseen: pl.DataFrame

    def start_of(self, numbers: Numbers) -> Ints:
        """Return the starts of some, as recorded."""
        found: Ints = self.start[self.order[numbers] if len(self.order) else numbers]
        return found


def find_hosts(trace: Trace, ends: Ends | None) -> Hosts:
    """Return host items by thread and start."""
    calls = trace.scan("calls", used=True).select(*THREAD, "start_ns", "end_ns", "correlation", "name", "family")
    schema = calls.collect_schema()
    ranges = (
        trace.scan("ranges", used=True)
        .filter(pl.col("name").str.contains(HOST_RANGES) & pl.col("end_ns").is_not_null())
        .filter(pl.col("kind").cast(pl.String).is_in(["annotation", "push_pop"]))
        .select(
            *THREAD, "start_ns", "end_ns", correlation=pl.lit(None, dtype=pl.Int64),
            name=pl.col("name").cast(pl.Categorical()), family=pl.lit(None, dtype=schema["family"]),
        ).collect()
    )  # fmt: skip
    unseen = _unseen_launches(ends, schema)
    used = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
    stand_ins = unseen.drop(_LAUNCHED).unique(maintain_order=True).join(used, on=["source", "process"], how="semi")
    rest = pl.concat([ranges, stand_ins])
    every = pl.concat([calls, rest.lazy()]) if rest.height else calls
    times = every.select("start_ns", "end_ns").collect()
    if times["start_ns"].null_count() or times["end_ns"].null_count():
        is_timed = pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null()
        every, times = every.filter(is_timed), times.filter(is_timed)
    threads, lane = lanes_of(every, THREAD, nulls_last=False)
    start, end = times["start_ns"].to_numpy(), times["end_ns"].to_numpy()
    del times
    order = order_by_lane(lane, threads.height, [start, end], second_down=True)
    table, about = every.select("correlation").collect().rechunk(), every.select("name", "family").collect()
    if order is None:
        order = IN_ORDER
    else:
        lane, table, about = lane[order], table[order], about[order]
    at = np.searchsorted(lane, np.arange(threads.height + 1, dtype=np.int32))
    threads = threads.with_columns(first=pl.Series(at[:-1]), until=pl.Series(at[1:]))
    return Hosts(table, about, lane, start, end, order, threads, unseen)


def _unseen_launches(ends: Ends | None, schema: pl.Schema) -> pl.DataFrame:
    """Return host items that stand for calls which are not recorded, with `_LAUNCHED` of what they launched."""
    if ends is None:
        return pl.DataFrame(schema={**schema, "op_device": pl.Int32, "op_stream": pl.Int64, "op_start_ns": pl.Int64})
    inside = ends.launched.filter(IS_UNSEEN)
    brackets = ends.brackets.select("mark_id", *THREAD, "mark", begin="start_ns", until="end_ns")
    inside = inside.select("mark_id", op_device="device", op_stream="stream", op_start_ns="start_ns")
    found = inside.join(brackets, on="mark_id")
    # Of nested brackets the innermost says most.
    found = found.sort("begin").unique(["source", "process", *_LAUNCHED], keep="last", maintain_order=True)
    return found.select(
        *THREAD, start_ns="begin", end_ns=pl.min_horizontal("until", "op_start_ns"),
        correlation=pl.lit(None, dtype=pl.Int64), name=pl.format("gapscope::{}", "mark").cast(pl.Categorical()),
        family=pl.lit(None, dtype=schema["family"]), op_device="op_device", op_stream="op_stream",
        op_start_ns="op_start_ns",
    ).filter(pl.col("end_ns") >= pl.col("start_ns"))  # fmt: skip


def with_unseen(ops: pl.LazyFrame, call: Indices, hosts: Hosts) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """Return the host items that launched operations, now also those that stand for calls which are not recorded.

    Args:
        ops: `STREAM` and ``start_ns``.
        call: Number of the host item that launched each; -1: not recorded.
        hosts: Host items.

    Returns:
        The numbers, and which of them are of such stand-ins.
    """
    if not hosts.unseen.height:
        return call, np.zeros(len(call), np.bool_)
    numbers = hosts.about["family"].is_null().arg_true()
    number = numbers.to_numpy()
    row = hosts.order[number] if len(hosts.order) else number
    numbered = hosts.about[numbers].select("name", unseen=numbers)
    numbered = numbered.with_columns(start_ns=pl.Series(hosts.start[row]), end_ns=pl.Series(hosts.end[row]))
    numbered = numbered.hstack(hosts.threads.select(THREAD)[hosts.lane[number]].get_columns())
    # Of several tensors' operations some may start in the same nanosecond, on streams of their own.
    started = [*STREAM, "start_ns"]
    stands = hosts.unseen.join(numbered, on=[*THREAD, "start_ns", "end_ns", "name"]).select(
        "source", "process", "unseen", device="op_device", stream="op_stream", start_ns="op_start_ns"
    )
    stands = stands.unique(started, maintain_order=True)
    found = ops.select(started).collect().join(stands, on=started, how="left", maintain_order="left", nulls_equal=True)
    unseen = found["unseen"].cast(pl.Int32).fill_null(NONE).to_numpy()
    declared = (call == NONE) & (unseen != NONE)
    return np.where(declared, unseen, call), declared

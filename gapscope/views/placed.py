"""Everything recorded on the common timebase, lane by lane: operations, calls, ranges and marks.

A lane is a stream of a device or a thread of a host, as its process's file numbers it. A rank that two tools saw is
shown as the tool saw it that recorded its GPU work; so the lanes are those that table ``tiles`` names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from gapscope.clocks import Alignment
from gapscope.trace import Trace

KINDS = pl.Enum(["kernel", "memcpy", "memset", "graph", "call", "mark", "range", "overhead"])
"""What an item is: an operation by its kind, a host call, a gapscope mark, another range of the host, or the
profiler's own recorded activity."""

_LANE = ["source", "process", "device", "stream", "thread"]
_ITEM = {"start_ns": pl.Int64, "end_ns": pl.Int64, "kind": KINDS, "name": pl.Categorical}
_HOST_RANGES = ["push_pop", "start_end", "instant", "annotation", "overhead"]
_OWN = "^gapscope::"
_NEVER = 2**63 - 1

Windows = Mapping[int, pl.DataFrame]
"""Rank to windows of the common timebase: ``start_ns, end_ns``."""


@dataclass(frozen=True)
class Placed:
    """What was recorded, on the common timebase.

    Attributes:
        lanes: One row per lane, position is number: ``rank, source, process, device, stream, thread``, ``lane`` (as
            table ``tiles`` writes it: ``gpu0:stream7``, ``host:1234``), ``name`` (of the thread; null: not recorded).
        items: One row per item, by lane and start: ``lane`` (number), ``start_ns, end_ns`` (Unix ns on the common
            timebase), ``kind`` (`KINDS`), ``name``.
    """

    lanes: pl.DataFrame
    items: pl.DataFrame


def place(
    trace: Trace,
    alignment: Alignment | None,
    *,
    ranks: Collection[int] | None = None,
    windows: Windows | None = None,
    unclosed: bool = False,
) -> Placed:
    """Return what was recorded of some ranks within some windows.

    Args:
        trace: The recordings.
        alignment: Where their clocks stand; None: all on one clock.
        ranks: Ranks that are wanted; None: all.
        windows: Keep what lies in or reaches into one of these windows of its rank, and nothing of ranks without any;
            None: keep all. Items without a time are left out.
        unclosed: Keep what never closed, too; its ``end_ns`` is null.
    """
    chosen = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary")).select("source", "process")
    parts = [
        _kept(part.join(chosen.lazy(), on=["source", "process"], how="semi"), alignment, ranks, windows, unclosed)
        for part in (_ops(trace), _calls(trace), _ranges(trace), _marks(trace))
    ]
    items = pl.concat(parts)
    lanes = find_lanes(trace, items)
    numbers = lanes.select(*_LANE, lane=pl.int_range(pl.len(), dtype=pl.Int32))
    items = items.join(numbers, on=_LANE, how="left", nulls_equal=True).select("lane", *_ITEM)
    return Placed(lanes, items.sort("lane", "start_ns", "end_ns", descending=[False, False, True]))


def find_lanes(trace: Trace, items: pl.DataFrame) -> pl.DataFrame:
    """Return the lanes of items, by rank, hosts first (see `Placed`).

    Args:
        trace: The recordings.
        items: Has ``source, process, device, stream, thread`` and ``rank``.
    """
    lanes = items.select("rank", *_LANE).unique()
    text = pl.coalesce(
        pl.format("host:{}", "thread"),
        pl.format("gpu{}:stream{}", "device", "stream"),
        pl.format("gpu{}", "device"),
        pl.lit("host"),
    )
    threads = trace.threads.select("source", "process", "thread", "name").unique(["source", "process", "thread"])
    lanes = lanes.join(threads, on=["source", "process", "thread"], how="left")
    return lanes.with_columns(lane=text).sort("rank", pl.col("thread").is_null(), *_LANE)


def _ops(trace: Trace) -> pl.LazyFrame:
    return trace.scan("ops").select(
        "rank", "source", "process", "device", "stream", pl.lit(None, pl.Int64).alias("thread"), "start_ns", "end_ns",
        pl.col("kind").cast(pl.String).cast(KINDS), "name",
    )  # fmt: skip


def _of_host(frame: pl.LazyFrame, kind: pl.Expr, name: str = "name") -> pl.LazyFrame:
    return frame.select(
        "rank", "source", "process", pl.lit(None, pl.Int32).alias("device"), pl.lit(None, pl.Int64).alias("stream"),
        "thread", "start_ns", "end_ns", kind.cast(KINDS).alias("kind"), pl.col(name).cast(pl.Categorical).alias("name"),
    )  # fmt: skip


def _calls(trace: Trace) -> pl.LazyFrame:
    return _of_host(trace.scan("calls"), pl.lit("call"))


def _ranges(trace: Trace) -> pl.LazyFrame:
    """Return ranges of the host; the marks among them are in a table of their own."""
    ranges = trace.scan("ranges").with_columns(_kind=pl.col("kind").cast(pl.String))
    ranges = ranges.filter(pl.col("_kind").is_in(_HOST_RANGES) & ~pl.col("name").str.contains(_OWN))
    ranges = ranges.filter((pl.col("domain").cast(pl.String) != "gapscope").fill_null(value=True))
    kind = pl.when(pl.col("_kind") == "overhead").then(pl.lit("overhead")).otherwise(pl.lit("range"))
    return _of_host(ranges, kind)


def _marks(trace: Trace) -> pl.LazyFrame:
    """Return marks of the host, named as text marks are written."""
    key = (
        pl.when(pl.col("group").is_not_null())
        .then(pl.format(" group={} seq={}", "group", "seq"))
        .when(pl.col("src").is_not_null())
        .then(pl.format(" src={} dst={} channel={} seq={}", "src", "dst", "channel", "seq"))
        .when(pl.col("step").is_not_null())
        .then(pl.format(" step={}", "step"))
        .otherwise(pl.lit(""))
    )
    marks = trace.marks.lazy().filter(pl.col("asked_ns").is_null()).with_columns(_text=pl.col("mark") + key)
    return _of_host(marks, pl.lit("mark"), "_text")


def _kept(
    frame: pl.LazyFrame,
    alignment: Alignment | None,
    ranks: Collection[int] | None,
    windows: Windows | None,
    unclosed: bool,
) -> pl.DataFrame:
    frame = frame.filter(pl.col("start_ns").is_not_null() & (pl.col("end_ns").is_not_null() | unclosed))
    wanted = ranks if windows is None else [r for r in windows if ranks is None or r in ranks]
    if wanted is not None:
        frame = frame.filter(pl.col("rank").is_in(list(wanted)))
    placed = _on_timebase(frame.collect(), alignment)
    return placed if windows is None else placed.filter(_inside(placed, windows))


def _on_timebase(frame: pl.DataFrame, alignment: Alignment | None) -> pl.DataFrame:
    """Return the items with their times on the common timebase; those amid a jump of their clock are left out.

    Times of a clock that has no place there stay as recorded, as those of table ``tiles`` do.
    """
    if alignment is None or not frame.height:
        return frame
    frame = alignment.domains.with_domain(frame, "device", "", "_clock")
    shift = alignment.offsets(frame["_clock"], frame["start_ns"])
    apart = [int(c) for c in np.flatnonzero(~alignment.placed)]
    shift = shift.zip_with(~frame["_clock"].is_in(apart).fill_null(value=False), pl.repeat(0, frame.height, eager=True))
    frame = frame.with_columns(_shift=shift).filter(pl.col("_shift").is_not_null())
    moved = (pl.col("start_ns", "end_ns") + pl.col("_shift")).cast(pl.Int64)
    return frame.with_columns(moved).drop("_clock", "_shift")


def _inside(items: pl.DataFrame, windows: Windows) -> pl.Series:
    """Tell which items lie in or reach into a window of their rank."""
    found = np.zeros(items.height, np.bool_)
    rank, start = (items[c].to_numpy() for c in ("rank", "start_ns"))
    end = items["end_ns"].fill_null(_NEVER).to_numpy()
    for wanted, spans in windows.items():
        mine = np.flatnonzero(rank == wanted)
        joined = _joined(spans)
        if not len(mine) or not joined.height:
            continue
        begin, until = joined["start_ns"].to_numpy(), joined["end_ns"].to_numpy()
        first = np.minimum(np.searchsorted(until, start[mine]), len(until) - 1)
        found[mine] = (until[first] >= start[mine]) & (begin[first] <= end[mine])
    return pl.Series(found)


def _joined(spans: pl.DataFrame) -> pl.DataFrame:
    """Return windows in order, those that overlap as one."""
    spans = spans.sort("start_ns")
    reach = pl.col("end_ns").cum_max().shift(1)
    spans = spans.with_columns(_run=(pl.col("start_ns") > reach).fill_null(value=True).cum_sum())
    return spans.group_by("_run", maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())

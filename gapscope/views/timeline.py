"""What surrounds one handoff: its events, its tiles, and what the lanes of its ranks did meanwhile.

Rows are what a picture shows from top to bottom: first the source's rank, then the destination's, then others that the
chain passes; of a rank its host threads (marks and ranges in one row, calls in the next) and then its streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gapscope.clocks import Alignment
from gapscope.schema import EVENTS
from gapscope.trace import Trace
from gapscope.views.placed import KINDS, Placed, place

MOST_BARS = 300
"""Bars of one row that are drawn; of more the longest."""

_FIVE = tuple(e for e in EVENTS if e != "receive_post")
_PAD_PERCENT, _LEAST_PAD_NS = 15, 20_000
_ON_DESTINATION = ("receive_post", "arrival", "available", "consumer_start")
_OWN_ERROR = {"submit": "submission_uncertainty_ns", "consumer_start": "gap_uncertainty_ns"}
_ABOVE_CALLS = ("mark", "range", "overhead")

PARTS = ("ranges", "calls", "ops")
"""What a row holds: of a thread marks, ranges and the profiler's own work, or its calls; of a stream its operations."""

ROW = {
    "row": pl.Int64,
    "rank": pl.Int64,
    "lane": pl.String,
    "part": pl.Enum(PARTS),
    "thread_name": pl.String,
    "left_out": pl.Int64,
}
BAR = {
    "row": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": KINDS,
    "name": pl.String,
    "depth": pl.Int64,
}
EVENT = {
    "event": pl.String,
    "at_ns": pl.Int64,
    "source": pl.String,
    "rank": pl.Int64,
    "error_ns": pl.Int64,
}
ARROW = {"at_ns": pl.Int64, "from_row": pl.Int64, "to_row": pl.Int64}


@dataclass(frozen=True)
class Timeline:
    """One handoff and what surrounds it. All times are Unix nanoseconds on the common timebase.

    Attributes:
        handoff: Row of table ``handoffs``.
        zero_ns: Time that pictures count from: `producer_finish`, else the first event that is known.
        start_ns: Begin of the window shown.
        end_ns: Its end.
        rows: One line per row of the picture, from the top: ``row, rank, lane, part, thread_name`` (null: not
            recorded), ``left_out`` (bars that are not shown, the shortest).
        bars: What was recorded: ``row, start_ns, end_ns, kind, name, depth`` (how many marks and ranges enclose it).
        tiles: Rows of table ``tiles`` in order of time, with ``row`` (null: the tile's lane is unknown).
        events: ``event, at_ns, source, rank`` and ``error_ns``: by how much the clocks may be off between it and
            `producer_finish` (null: no bound is known); of `movement_start`, `receive_post` and `available` the bound
            of the whole handoff, which is no less.
        arrows: Where the chain goes from one row to another: ``at_ns, from_row, to_row``, in order of time.
    """

    handoff: Mapping[str, Any]
    zero_ns: int
    start_ns: int
    end_ns: int
    rows: pl.DataFrame
    bars: pl.DataFrame
    tiles: pl.DataFrame
    events: pl.DataFrame
    arrows: pl.DataFrame


def windows_of(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return the window that a picture of each handoff shows: ``start_ns, end_ns``; null if no event is known.

    It holds the gap, or the known events where there is none, and a seventh or 20 µs more on both sides; events before
    or after the gap widen it by the length of the gap at most.
    """
    five = [f"{event}_ns" for event in _FIVE]
    has_gap = (pl.col("gap_ns") >= 0).fill_null(value=False)
    first, last = pl.min_horizontal(five), pl.max_horizontal(five)
    low = pl.when(has_gap).then("producer_finish_ns").otherwise(first)
    high = pl.when(has_gap).then("consumer_start_ns").otherwise(last)
    span = high - low
    pad = pl.max_horizontal(span * _PAD_PERCENT // 100, pl.lit(_LEAST_PAD_NS))
    return handoffs.select(
        start_ns=pl.max_horizontal(first, low - span) - pad, end_ns=pl.min_horizontal(last, high + span) + pad
    )


def timeline_of(trace: Trace, alignment: Alignment | None, handoff: pl.DataFrame, tiles: pl.DataFrame) -> Timeline:
    """Return what surrounds one handoff.

    Args:
        trace: The recordings.
        alignment: Where their clocks stand.
        handoff: Its row of table ``handoffs``.
        tiles: Its rows of table ``tiles``.
    """
    window = windows_of(handoff)
    ranks = _ranks(handoff, tiles)
    seen = window if window["start_ns"].null_count() == 0 else window.clear()
    placed = place(trace, alignment, windows=dict.fromkeys(ranks, seen))
    return timeline_from(placed, handoff, tiles)


def timeline_from(placed: Placed, handoff: pl.DataFrame, tiles: pl.DataFrame) -> Timeline:
    """Return what surrounds one handoff, of what is on the common timebase already (see `timeline_of`)."""
    row = handoff.row(0, named=True)
    events = _events(row)
    start_ns, end_ns = windows_of(handoff).row(0)
    known = [row["producer_finish_ns"], *events["at_ns"].head(1), 0]
    zero_ns = next(int(t) for t in known if t is not None)
    if start_ns is None:
        start_ns = end_ns = zero_ns
    ranks = _ranks(handoff, tiles)
    near = placed.items.filter((pl.col("end_ns") >= start_ns) & (pl.col("start_ns") <= end_ns))
    near = near.join(placed.lanes.with_row_index("lane_number"), left_on="lane", right_on="lane_number")
    near = near.filter(pl.col("rank").is_in(ranks)).with_columns(_part()).rename({"lane": "_n", "lane_right": "lane"})
    tiles = tiles.sort("start_ns")
    rows = _rows(near, tiles, ranks, placed.lanes)
    key = ["rank", "lane", "part"]
    near = near.with_columns(pl.col("rank").cast(pl.Int64))
    bars = near.join(rows.select(*key, "row"), on=key)
    bars = bars.with_columns(_length=pl.col("end_ns") - pl.col("start_ns"))
    nth = pl.struct(-pl.col("_length"), "start_ns").rank("ordinal").over("row")
    bars = bars.with_columns(_nth=nth)
    left_out = bars.group_by("row").agg(left_out=(pl.col("_nth") > MOST_BARS).sum().cast(pl.Int64))
    rows = rows.join(left_out, on="row", how="left", maintain_order="left").with_columns(
        pl.col("left_out").fill_null(0)
    )
    bars = bars.filter(pl.col("_nth") <= MOST_BARS).sort("row", "start_ns", "end_ns", descending=[False, False, True])
    bars = bars.with_columns(depth=_depths(bars), name=pl.col("name").cast(pl.String))
    tiles = _with_rows(tiles, rows)
    return Timeline(
        row, zero_ns, start_ns, end_ns, _conform(rows, ROW), _conform(bars, BAR), tiles, events, _arrows(tiles)
    )


def _conform(frame: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(dtype) for name, dtype in columns.items())


def _ranks(handoff: pl.DataFrame, tiles: pl.DataFrame) -> list[int]:
    """Return the ranks of a picture, from the top."""
    ends = [handoff["src_rank"][0], handoff["dst_rank"][0]]
    others = tiles["rank"].drop_nulls().unique().sort().to_list()
    return [r for r in dict.fromkeys([*ends, *others]) if r is not None]


def _part() -> pl.Expr:
    above = pl.col("kind").cast(pl.String).is_in(_ABOVE_CALLS)
    part = pl.when(above).then(pl.lit("ranges")).when(pl.col("thread").is_not_null()).then(pl.lit("calls"))
    return part.otherwise(pl.lit("ops")).cast(pl.Enum(PARTS)).alias("part")


def _rows(near: pl.DataFrame, tiles: pl.DataFrame, ranks: list[int], lanes: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each lane that has anything to show: bars, or a tile."""
    with_bars = near.select(pl.col("rank").cast(pl.Int64), "lane", "part").unique()
    is_host = pl.col("lane").str.starts_with("host")
    with_tiles = tiles.filter(pl.col("lane").is_not_null() & pl.col("rank").is_not_null()).select(
        "rank", "lane", part=pl.when(is_host).then(pl.lit("calls")).otherwise(pl.lit("ops")).cast(pl.Enum(PARTS))
    )
    names = lanes.select(pl.col("rank").cast(pl.Int64), "lane", thread_name="name").unique(["rank", "lane"], keep="any")
    place_of = pl.col("rank").replace_strict({r: i for i, r in enumerate(ranks)}, return_dtype=pl.Int64)
    number = pl.col("lane").str.extract_all(r"\d+").list.eval(pl.element().cast(pl.Int64))
    rows = pl.concat([with_bars, with_tiles]).unique().join(names, on=["rank", "lane"], how="left")
    rows = rows.sort(place_of, ~is_host, number, "lane", "part")
    return rows.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))


def _depths(bars: pl.DataFrame) -> pl.Series:
    """Return how many bars of its row enclose each; rows are in order of start, the longer first."""
    depth = np.zeros(bars.height, np.int64)
    row, start, end = (bars[c].to_numpy() for c in ("row", "start_ns", "end_ns"))
    for lane in bars.filter(pl.col("kind").cast(pl.String).is_in(_ABOVE_CALLS))["row"].unique():
        mine = np.flatnonzero(row == lane)
        ended = np.searchsorted(np.sort(end[mine]), start[mine], side="right")
        depth[mine] = np.maximum(np.arange(len(mine)) - ended, 0)
    return pl.Series(depth)


def _with_rows(tiles: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    held = rows.filter(pl.col("part").cast(pl.String) != "ranges").select("rank", "lane", "row")
    return tiles.join(held, on=["rank", "lane"], how="left", maintain_order="left")


def _arrows(tiles: pl.DataFrame) -> pl.DataFrame:
    """Return where the chain leaves a row: at the end of one tile, which is the start of the next."""
    known = tiles.filter(pl.col("row").is_not_null())
    steps = known.select(at_ns="start_ns", from_row=pl.col("row").shift(1), to_row="row")
    return _conform(steps.filter(pl.col("from_row") != pl.col("to_row")), ARROW)


def _events(handoff: Mapping[str, Any]) -> pl.DataFrame:
    """Return the events that have a time, in order of time; with the arrival of a collective."""
    found = []
    for event in (*EVENTS, "arrival"):
        at_ns = handoff[f"{event}_ns"]
        if at_ns is None:
            continue
        rank = handoff["dst_rank" if event in _ON_DESTINATION else "src_rank"]
        error = handoff[_OWN_ERROR.get(event, "uncertainty_ns")]
        source = "derived" if event == "arrival" else str(handoff[f"{event}_source"])
        found.append((event, at_ns, source, rank, 0 if event == "producer_finish" else error))
    return pl.DataFrame(found, schema=EVENT, orient="row").sort("at_ns", maintain_order=True)

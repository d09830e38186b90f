"""The ends of all handoffs: one row per end with its events."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS, HANDOFF_POINTS

from gapscope.events.enclosing import STAGE, nested_receives
from gapscope.events.launched import launched_inside
from gapscope.events.pairing import FACTS, SIDE, event_times
from gapscope.events.points import point_times
from gapscope.events.times import close_open_ranges, mark_times
from gapscope.lanes import lanes_of
from gapscope.trace import Trace

BRACKET = [
    "mark_id", *SIDE, "slot", "step", "mb", "mark", "source", "process", "thread", "start_ns", "end_ns", "open",
    "first_ns", "first_reason", "first_device", "last_ns", "last_reason", "last_device", "time_source", "copy_kinds",
    "kernels", "evidence",
]  # fmt: skip
"""What is kept of brackets: there may be millions."""

_LATE = 2**62

_ORIGIN = {
    "job": pl.String,
    "src": pl.Int64,
    "dst": pl.Int64,
    "channel": pl.Int64,
    "group": pl.String,
    "seq": pl.Int64,
    "origin": pl.String,
}


@dataclass(frozen=True)
class Ends:
    """What the marks of a trace give, before any two clocks are compared.

    Attributes:
        marks: Handoff marks of primary processes: ``mark_id`` and `gapscope.events.pairing.FACTS`.
        brackets: Those that are brackets, with the times they give: columns `BRACKET`
            (`gapscope.events.times.mark_times`).
        launched: Timed operations launched inside a bracket: ``mark_id, start_ns, end_ns, device, stream, by``
            (see `gapscope.events.launched.launched_inside`), ``decides``: all of a ``submit`` or ``receive``, and of a
            ``produce`` or ``consume`` what started first or ended last on a device. Of the others only those are here
            of which no call is recorded; there are millions with one.
        table: One row per end of a handoff (`gapscope.events.pairing.event_times`): a pair of ranks has one row, in
            which each event stands on the clock of its own rank; a group has one row per rank.
        origins: A handoff's key and ``origin`` (`metadata`, `order`) for handoffs that no mark names.
    """

    marks: pl.DataFrame
    brackets: pl.DataFrame
    launched: pl.DataFrame
    table: pl.DataFrame
    origins: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_ORIGIN))


def find_ends(trace: Trace) -> Ends | None:
    """Return the ends of all handoffs that the marks of a trace name; None if no mark names one."""
    marks = _usable_marks(trace)
    if not marks.height:
        return None
    brackets = close_open_ranges(marks, trace)
    nested = nested_receives(brackets)
    launched = launched_inside(trace, brackets, nested)
    brackets = mark_times(trace, brackets, nested, launched)
    brackets = brackets.with_columns(evidence=pl.lit("declared"))
    launched, table = _deciding(launched, brackets), event_times(brackets, point_times(trace, marks))
    return Ends(marks.select("mark_id", *FACTS), brackets.select(BRACKET), launched, table)


def _usable_marks(trace: Trace) -> pl.DataFrame:
    """Return handoff marks of primary processes with ``mark_id`` and ``side_rank``."""
    marks = trace.marks.filter(pl.col("mark").is_in(HANDOFF_BRACKETS + HANDOFF_POINTS))
    if not trace.processes["primary"].all():
        primary = trace.processes.filter("primary").select("source", "process")
        marks = marks.join(primary, on=["source", "process"], how="semi", maintain_order="left")
    side_rank = pl.when(pl.col("group").is_not_null()).then(pl.col("rank").cast(pl.Int64))
    return marks.with_row_index("mark_id").with_columns(side_rank=side_rank)


def _deciding(launched: pl.DataFrame, brackets: pl.DataFrame) -> pl.DataFrame:
    """Return `Ends.launched`."""
    timed = launched.filter(pl.col("start_ns").is_not_null())
    timed = timed.select("mark_id", "start_ns", "end_ns", "device", "stream", "by")
    is_stage = np.zeros(1 + int(brackets["mark_id"].max() or 0), np.bool_)  # type: ignore[arg-type]
    is_stage[brackets.filter(pl.col("mark").is_in(STAGE))["mark_id"].to_numpy()] = True
    marks, (devices, device) = timed["mark_id"].to_numpy(), lanes_of(timed, ["device"], nulls_last=False)
    place = marks.astype(np.int64) * devices.height + device
    start, end = timed["start_ns"].to_numpy(), timed["end_ns"].fill_null(_LATE).to_numpy()
    first, last = (np.full(len(is_stage) * devices.height, edge, np.int64) for edge in (_LATE, -_LATE))
    np.minimum.at(first, place, start)
    np.maximum.at(last, place, end)
    decides = ~is_stage[marks] | (start == first[place]) | (end == last[place])
    return timed.with_columns(decides=pl.Series(decides, dtype=pl.Boolean)).filter(
        pl.col("decides") | (pl.col("by") == "span")
    )

"""The ends of all handoffs: one row per end with its events."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS, HANDOFF_POINTS

from gapscope.events.launched import launched_inside
from gapscope.events.pairing import event_times
from gapscope.events.points import point_times
from gapscope.events.times import close_open_ranges, mark_times
from gapscope.trace import Trace

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
        marks: Handoff marks of primary processes, with ``mark_id`` and ``side_rank``.
        brackets: Those that are brackets, with the times they give (`gapscope.events.times.mark_times`).
        launched: One row per operation launched inside a bracket: ``mark_id, start_ns, end_ns, device, stream, by``
            (see `gapscope.events.launched.launched_inside`).
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
    launched = launched_inside(trace, brackets)
    brackets = mark_times(trace, brackets, launched)
    brackets = brackets.with_columns(evidence=pl.lit("declared"))
    launched = launched.select("mark_id", "start_ns", "end_ns", "device", "stream", "by")
    return Ends(marks, brackets, launched, event_times(brackets, point_times(trace, marks)))


def _usable_marks(trace: Trace) -> pl.DataFrame:
    """Return handoff marks of primary processes with ``mark_id`` and ``side_rank``."""
    primary = trace.processes.filter("primary").select("source", "process")
    return (
        trace.marks.filter(pl.col("mark").is_in(HANDOFF_BRACKETS + HANDOFF_POINTS))
        .join(primary, on=["source", "process"], how="semi", maintain_order="left")
        .with_row_index("mark_id")
        .with_columns(side_rank=pl.when(pl.col("group").is_not_null()).then(pl.col("rank").cast(pl.Int64)))
    )

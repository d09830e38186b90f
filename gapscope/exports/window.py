"""Which time of a run an export is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.clocks import Alignment
from gapscope.errors import UsageError
from gapscope.schema import EVENTS
from gapscope.trace import Trace

Window = tuple[int | None, int | None]
"""Begin and end, Unix ns on the common timebase; None: as far as there is anything."""

_LEAST_PAD_NS = 100_000


def begin_of(trace: Trace, timebase: Alignment | None) -> int | None:
    """Return the time of the first record on the common timebase; None if there is none."""
    frame = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary"))
    began = frame["window_start_ns"]
    if timebase is not None:
        clock = timebase.domains.with_domain(frame.select("source", "process"), None, "", "clock")["clock"]
        began = began + timebase.offsets(clock, began)
    first = began.min()
    return first if isinstance(first, int) else None


def window_of_steps(units: pl.DataFrame, handoffs: pl.DataFrame) -> Window:
    """Return the time from the beginning of some steps, or of their handoffs, to the end of the last.

    Args:
        units: Rows of table ``units`` with these steps.
        handoffs: Their rows of table ``handoffs``.

    Raises:
        UsageError: None of them has a time.
    """
    steps = units.filter(pl.col("unit") == "step")
    events = [handoffs[f"{event}_ns"] for event in EVENTS]
    first = [t for s in (steps["start_ns"], *events) if isinstance(t := s.min(), int)]
    last = [t for s in (steps["end_ns"], *events) if isinstance(t := s.max(), int)]
    if not first or not last:
        raise UsageError("None of these steps is in the recordings. `gapscope analyze` lists what there is.")
    return min(first), max(last)


def window_of_handoff(handoff: Mapping[str, Any]) -> Window:
    """Return the time around a handoff: from half of its length before its first event to as much after its last.

    Raises:
        UsageError: None of its events is known.
    """
    times = [handoff[f"{event}_ns"] for event in EVENTS if handoff[f"{event}_ns"] is not None]
    if not times:
        raise UsageError(f"Handoff {handoff['handoff_id']}: no time of it is known.")
    pad = max((max(times) - min(times)) // 2, _LEAST_PAD_NS)
    return min(times) - pad, max(times) + pad


def overlap(*windows: Window) -> Window:
    """Return the time that lies in all windows.

    Raises:
        UsageError: There is none.

    >>> overlap((None, 10), (3, None), (None, None))
    (3, 10)
    """
    begins, ends = [b for b, _ in windows if b is not None], [e for _, e in windows if e is not None]
    begin, end = max(begins, default=None), min(ends, default=None)
    if begin is not None and end is not None and begin > end:
        raise UsageError("No time is in all of --window, --steps and --handoff.")
    return begin, end

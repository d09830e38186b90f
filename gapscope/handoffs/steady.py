"""Which handoffs belong to the start-up of a capture.

The rule, in the order of the text reports: a handoff is *not* steady if

1. its step is the first step recorded on its edge (src, dst, channel), or, where its marks name no step, if it is the
   first handoff of its edge: one rank waits for the other's profiler in it;
2. its first mark lies before both of its ranks have begun to record.

`--warmup N` makes rule 1 count the first N steps (or handoffs).
"""

from __future__ import annotations

import polars as pl

_EDGE = ["job", "src", "dst", "channel", "group"]


def start_up_rule(warmup: int = 1) -> str:
    """Return the rule in words.

    >>> start_up_rule(2)
    'the first 2 recorded steps of each edge, and what began before both ranks recorded'
    """
    steps = "" if warmup == 0 else "the first recorded step" if warmup == 1 else f"the first {warmup} recorded steps"
    return (f"{steps} of each edge, and " if steps else "") + "what began before both ranks recorded"


def with_steady(frame: pl.DataFrame, warmup: int = 1) -> pl.DataFrame:
    """Add ``steady``.

    Args:
        frame: Handoffs with ``step``, ``seq``, and on the common timebase ``first_mark_ns`` and ``both_record_ns``:
            when the later of the two ranks began to record (null if not known).
        warmup: Steps (or, without steps, handoffs) of each edge that count as start-up.
    """
    unit = pl.coalesce("step", "seq").rank("dense").over(_EDGE)
    early = pl.col("first_mark_ns") < pl.col("both_record_ns")
    return frame.with_columns(steady=(unit > warmup) & ~early.fill_null(value=False))

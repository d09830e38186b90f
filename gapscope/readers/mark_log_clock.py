"""From the monotonic clock of a mark log to Unix time, by its anchors."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gapscope.findings import Finding
from gapscope.readers.base import FIRST_UNIX_NS, LAST_UNIX_NS

_DRIFT_PPM = 30
"""How fast the two clocks of a host may part; on Linux they do not at all, but for steps of the wall clock."""

_STEP_NS = 1_000
"""What two readings may differ beyond their widths before it is called a step."""


@dataclass(frozen=True)
class LogClock:
    """How times of a log become those of the tables.

    Attributes:
        shift_ns: Added to times of the monotonic clock.
        epoch_ns: Unix time at the log's zero, which is its best anchor; None: there is none, times count from the
            first mark.
        system_clock_ns: Reading of the monotonic clock at that zero.
        error_ns: How far off the anchor's Unix time may be; None: there is none.
        origin: How it was had, in one phrase.
        steps: Differences beyond what the anchors' widths and drift allow, from one anchor to the next.
    """

    shift_ns: int
    epoch_ns: int | None
    system_clock_ns: int
    error_ns: int | None
    origin: str
    steps: tuple[int, ...] = ()

    def findings(self, path: str) -> list[Finding]:
        """Return what is to be said about it."""
        if self.epoch_ns is None:
            return [
                Finding(
                    "log_without_anchor",
                    "warning",
                    "The log has no reading of Unix time: its times count from its first mark.",
                    "Other recordings of the same host place it only if they carry a reading of the monotonic clock.",
                    path=path,
                )
            ]
        if not self.steps:
            return []
        largest = max(self.steps, key=abs)
        return [
            Finding(
                "wall_clock_stepped",
                "warning",
                f"The host's wall clock was set {len(self.steps)} time(s) while the log was written, by up to "
                f"{largest:+,} ns. The marks do not move with it: all follow its first reading.",
                "Check how the host keeps time; times of other hosts may be that far off.",
                path=path,
                count=len(self.steps),
            )
        ]


def find_clock(anchors: pl.DataFrame, first_ns: int) -> LogClock:
    """Return how times of a log become Unix times.

    Args:
        anchors: ``before, unix, after`` in the order of the file.
        first_ns: First time of a mark, on the monotonic clock.

    The anchors before the first step of the wall clock agree, and the narrowest of them is used.
    """
    rows = anchors.filter(
        (pl.col("before") >= 0)
        & (pl.col("after") >= pl.col("before"))
        & (pl.col("after") < 2**62)
        & pl.col("unix").is_between(FIRST_UNIX_NS, LAST_UNIX_NS)
    ).sort("before", maintain_order=True)
    if not rows.height:
        return LogClock(-first_ns, None, first_ns, None, "the first mark")
    rows = rows.with_columns(
        middle=(pl.col("before") + pl.col("after")) // 2, half=(pl.col("after") - pl.col("before") + 1) // 2
    )
    rows = rows.with_columns(offset=pl.col("unix") - pl.col("middle"))
    moved, passed = pl.col("offset").diff(), pl.col("middle").diff()
    allowed = pl.col("half") + pl.col("half").shift() + _STEP_NS + passed * _DRIFT_PPM // 1_000_000
    rows = rows.with_columns(step=pl.when(moved.abs() > allowed).then(moved))
    before = rows.filter(pl.col("step").is_not_null().cum_sum() == 0)
    best = before.sort("half", maintain_order=True).row(0, named=True)
    steps = tuple(rows["step"].drop_nulls().to_list())
    count = before.height
    origin = (
        "the log's reading of both clocks"
        if count == 1
        else f"the narrowest of the log's {count} readings of both clocks"
    )
    return LogClock(best["offset"], best["unix"], best["middle"], best["half"], origin, steps)

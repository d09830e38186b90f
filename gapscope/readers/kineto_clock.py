"""From the times of a file to Unix nanoseconds, or to the knowledge that this cannot be done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import polars as pl

from gapscope.findings import Finding
from gapscope.readers.base import FIRST_UNIX_NS, LAST_UNIX_NS
from gapscope.readers.kineto_fields import GPU_OPS
from gapscope.readers.kineto_rows import EPOCH_NS, RowStore


@dataclass(frozen=True, slots=True)
class Clock:
    """How starts become times.

    Attributes:
        offset_ns: To be added to every start.
        epoch: True if the starts themselves count from 1970.
        kind: As `SourceInfo.clock`.
        origin: As `SourceInfo.clock_origin`.
        epoch_ns: As `SourceInfo.epoch_ns`.
        findings: What is odd about it.
    """

    offset_ns: int
    epoch: bool
    kind: Literal["unix", "relative"]
    origin: str
    epoch_ns: int | None = None
    findings: tuple[Finding, ...] = ()


def base_time(value: object) -> int | None:
    """Return the value of ``baseTimeNanoseconds`` as an integer; None if it is none or no plausible time.

    >>> base_time(1790857026000000000), base_time("1790857026000000000"), base_time(0), base_time(None)
    (1790857026000000000, 1790857026000000000, None, None)
    """
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,19}\s*", value):
        value = int(value)
    return value if isinstance(value, int) and FIRST_UNIX_NS <= value <= LAST_UNIX_NS else None


def find_clock(base: object, rows: RowStore, path: str) -> Clock:
    """Decide what the starts count from, by the base that the file names and the size of most starts."""
    epoch = rows.epoch > rows.relative
    offset = base_time(base)
    findings = []
    if base is not None and offset is None and base != 0:
        message = f"baseTimeNanoseconds is {str(base)[:40]!r}, which is no time; it is not used."
        findings.append(Finding("base_time_unusable", "warning", message, path=path))
    if epoch:
        if offset is not None:
            message = "The times count from 1970 already although the file names a base; the base is not added."
            findings.append(Finding("base_time_not_added", "info", message, path=path))
        return Clock(0, True, "unix", "ts, microseconds since 1970", None, tuple(findings))
    if offset is not None:
        return Clock(offset, False, "unix", "baseTimeNanoseconds + ts", offset, tuple(findings))
    if rows.relative:
        message = "The times count from an unknown zero: the file has no baseTimeNanoseconds and they are too small."
        hint = "Numbers within this file hold; across files they need matching marks or communication to be aligned."
        findings.append(Finding("relative_clock", "warning", message, hint, path=path))
    return Clock(0, False, "relative", "ts, zero unknown", None, tuple(findings))


def with_times(frame: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """Return the rows with ``start_ns`` and ``end_ns`` instead of ``start`` and ``duration``, and what is wrong.

    New columns besides: ``untimed`` (GPU operation recorded with 0/0, or at 1970), ``negative`` (duration below zero)
    and ``alien`` (start of another kind than the file's: from 1970 among relative ones, or the reverse).
    The end is null without duration or with a negative one; GPU operations that lack either have neither.
    """
    start, duration = pl.col("start"), pl.col("duration")
    on_gpu = pl.col("row").is_in(GPU_OPS)
    zero = (start == 0) & (duration.fill_null(0) == 0)
    alien = (start < EPOCH_NS) if clock.epoch else (start >= EPOCH_NS)
    frame = frame.with_columns(
        untimed=(on_gpu & (zero | ((start == 0) & clock.epoch))).fill_null(False),
        negative=(duration < 0).fill_null(False),
        alien=(alien & ~(on_gpu & (start == 0))).fill_null(False),
        start_ns=start + clock.offset_ns,
    )
    known = ~pl.col("untimed") & ~pl.col("alien")
    complete = known & duration.is_not_null() & (duration >= 0)
    return frame.with_columns(
        start_ns=pl.when(complete | (known & ~on_gpu)).then("start_ns"),
        end_ns=pl.when(complete).then(pl.col("start_ns") + duration),
    ).drop("start", "duration")

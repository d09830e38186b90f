"""What part of a recording is read: some steps, with one step of margin on either side.

The steps of a file are those of its own step marks. Kept is what overlaps the time from the start of the step before
the first chosen one to the end of the step behind the last, and, whatever its time, what was launched by a call in
there, or launches something that ran in there. All marks are kept, and all that names processes, threads and streams.

Communication is paired between ranks by its number, or by counting within a step (`gapscope.comms.ordinals`), so a
window changes no pair. Handoffs that no mark names are numbered from the first of the recording on: a file without
marks of handoffs is read as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS, HANDOFF_POINTS, NVTX_DOMAIN, PREFIX

from gapscope.findings import Finding
from gapscope.readers.base import SourceTables, Window
from gapscope.readers.packing import all_unpacked, packed

_BEGIN, _END = -(2**63), 2**63 - 1
_ID = ["process", "correlation"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time of one file, in its own nanoseconds; both ends belong to it."""

    begin_ns: int
    end_ns: int

    def overlaps(self) -> pl.Expr:
        """Tell if a row lies in it in part; null where it has no time. A row without an end is as long as nothing."""
        end = pl.max_horizontal("start_ns", pl.coalesce("end_ns", "start_ns"))
        return (pl.col("start_ns") <= self.end_ns) & (end >= self.begin_ns)


@dataclass(frozen=True, slots=True)
class Ids:
    """The correlation ids of some rows, as one span for each process: ids count the calls of a process."""

    spans: pl.DataFrame

    @staticmethod
    def of(rows: pl.DataFrame) -> Ids:
        """Return the spans of rows with ``process`` and ``correlation``."""
        ids = rows.drop_nulls(_ID).group_by("process").agg(
            lowest=pl.col("correlation").min(), highest=pl.col("correlation").max()
        )  # fmt: skip
        return Ids(ids.sort("process"))

    def include(self) -> pl.Expr:
        """Tell if a row has one of them."""
        found = pl.lit(False)
        for process, lowest, highest in self.spans.iter_rows():
            found |= (pl.col("process") == process) & pl.col("correlation").is_between(lowest, highest)
        return found.fill_null(value=False)

    @property
    def whole(self) -> tuple[int, int]:
        """The lowest and the highest of all processes; (0, -1) if there is none."""
        if self.spans.is_empty():
            return 0, -1
        return int(self.spans["lowest"].min()), int(self.spans["highest"].max())  # type: ignore[arg-type]


def stretch_of(ranges: pl.DataFrame, window: Window) -> Stretch | None:
    """Return the time that a window stands for in one file; None if its marks name no step, or no handoff.

    Args:
        ranges: Table ``ranges`` of the file.
        window: The steps that are wanted.
    """
    first_word = pl.col("name").str.strip_prefix(PREFIX).str.extract(r"^(\S+)", 1)
    marks = ranges.filter(is_mark() & pl.col("start_ns").is_not_null()).with_columns(mark=first_word)
    steps = _steps(marks.filter(pl.col("mark") == "step"))
    if steps.is_empty() or not marks["mark"].is_in(HANDOFF_BRACKETS + HANDOFF_POINTS).any():
        return None
    first, last = window.steps_of(steps["step"])
    before = steps.filter(pl.col("step") < first)
    after = steps.filter(pl.col("step") > last)
    inner = steps.filter(pl.col("step").is_between(first, last))
    begins = pl.concat([before.tail(1), inner, after.head(1)])
    begin = begins["start_ns"].min() if before.height else None
    end = begins["end_ns"].max() if after.height else None
    return Stretch(begin if isinstance(begin, int) else _BEGIN, end if isinstance(end, int) else _END)


def _steps(marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``step, start_ns, end_ns`` of the steps that marks in text or compact form name, by number."""
    text = pl.col("name").str.extract(r"\sstep=(\S+)", 1).cast(pl.Int64, strict=False)
    return (
        marks.select("start_ns", step=pl.coalesce(text, "payload"), end_ns=pl.coalesce("end_ns", "start_ns"))
        .drop_nulls()
        .group_by("step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("step")
    )


def is_mark() -> pl.Expr:
    """Tell if a row of ``ranges`` is a mark: those are kept whatever their time."""
    return pl.col("name").str.starts_with(PREFIX) | (pl.col("domain").cast(pl.String) == NVTX_DOMAIN).fill_null(
        value=False
    )


def windowed(source: SourceTables, window: Window) -> SourceTables:
    """Return what a window leaves of a whole file.

    Args:
        source: The file.
        window: The steps that are wanted.

    Returns:
        The tables; all of them, with a finding, where the marks name no step, or no handoff.
    """
    tables = source.tables
    stretch = stretch_of(tables["ranges"].filter(is_mark()).collect(), window)
    if stretch is None:
        note = Finding(
            "window_without_steps",
            "info",
            "The file has no marks of steps, or none of handoffs, so all of it was read to choose from.",
            path=source.info.path,
        )
        return replace(source, findings=(*source.findings, note))
    inside = stretch.overlaps().fill_null(value=False)
    called = Ids.of(tables["calls"].filter(inside).select(_ID).collect()).include()
    frames = {name: tables[name].filter(inside | called).collect() for name in ("ops", "syncs", "comms")}
    ran = Ids.of(frames["ops"]).include()
    frames["calls"] = tables["calls"].filter(inside | ran).collect()
    frames["ranges"] = tables["ranges"].filter(inside | is_mark()).collect()
    frames = {name: packed(frames[name] if name in frames else tables[name].collect()) for name in tables}
    return replace(source, info=replace(source.info, is_part=True), tables=all_unpacked(frames), packed=frames)

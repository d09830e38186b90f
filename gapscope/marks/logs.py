"""The marks of a trace and of the mark log of the same process, put together.

A trace's own marks keep their times, since these stand on the clock of its GPU work; what they do not say (compact
marks say the key alone) is filled from the log. A trace that holds work of the process and none of its marks adopts
those of the log, on its own clock as far as both files say where that stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS, HANDOFF_POINTS, UNITS

_OWNER = ["source", "process"]
_KEY = ["src", "dst", "group", "channel", "seq", "slot", "_unit"]
_ABOUT = ("step", "mb", "size_bytes", "dir", "src_stage", "dst_stage", "kind", "transport", "device", "name")
_OF_MARK = (*_ABOUT, "fields", "job")


@dataclass(frozen=True)
class Link:
    """A process of a trace, and the mark log of the same rank at the same time.

    Attributes:
        source, process: The trace's.
        log_source, log_process: The log's.
        rank: Rank of both.
    """

    source: int
    process: int
    log_source: int
    log_process: int
    rank: int


def find_links(processes: pl.DataFrame) -> list[Link]:
    """Return which processes of traces have which mark logs: same job and rank, at the same time.

    Args:
        processes: With ``rank``, ``job``, ``tool``, ``clock`` and windows.
    """
    ranked = processes.filter(pl.col("rank").is_not_null())
    is_log = pl.col("tool") == "gapscope"
    pairs = ranked.filter(~is_log).join(ranked.filter(is_log), on=["job", "rank"], suffix="_log", nulls_equal=True)
    apart = (pl.col("window_start_ns") > pl.col("window_end_ns_log")) | (
        pl.col("window_end_ns") < pl.col("window_start_ns_log")
    )
    comparable = (pl.col("clock") == "unix") & (pl.col("clock_log") == "unix")
    found = pairs.filter(~(apart & comparable).fill_null(value=True)).sort("source", "process", "source_log")
    return [
        Link(r["source"], r["process"], r["source_log"], r["process_log"], r["rank"])
        for r in found.iter_rows(named=True)
    ]


def fill(marks: pl.DataFrame, links: Sequence[Link]) -> pl.DataFrame:
    """Return the marks with what those of traces do not say filled from the logs of the same processes.

    From the log's mark of the same name, key and slot; failing that, what is the same for all marks of a message, from
    any mark of that key and slot.

    Args:
        marks: All marks of a run, ranks known, compact keys whole.
        links: Which process has which log.
    """
    if not links:
        return marks
    linked = pl.DataFrame(
        [(k.source, k.process, k.log_source, k.log_process) for k in links],
        schema={"source": pl.Int32, "process": pl.Int64, "log_source": pl.Int32, "log_process": pl.Int64},
        orient="row",
    )
    unit = pl.when(pl.col("mark") == "step").then("step")
    rows = marks.with_columns(_unit=unit).with_row_index("_row")
    poor = rows.filter((pl.col("form") == "compact") | pl.any_horizontal(pl.col(c).is_null() for c in _ABOUT))
    poor = poor.join(linked.select(_OWNER).unique(), on=_OWNER, how="semi")
    if not poor.height:
        return marks
    said = rows.filter(pl.col("error_ns").is_null()).rename({"source": "log_source", "process": "log_process"})
    said = said.join(linked, on=["log_source", "log_process"])
    by_mark = said.group_by([*_OWNER, "mark", *_KEY]).agg(
        pl.col(c).drop_nulls().first().alias(f"_m_{c}") for c in _OF_MARK
    )
    by_key = (
        said.filter(~pl.col("mark").is_in(UNITS))
        .group_by([*_OWNER, *_KEY])
        .agg(pl.col(c).drop_nulls().first().alias(f"_k_{c}") for c in _ABOUT)
    )
    joined = poor.select("_row", *_OWNER, "mark", *_KEY, "form", *_OF_MARK)
    joined = joined.join(by_mark, on=[*_OWNER, "mark", *_KEY], how="left", nulls_equal=True, maintain_order="left")
    joined = joined.join(by_key, on=[*_OWNER, *_KEY], how="left", nulls_equal=True, maintain_order="left")
    filled = joined.select(
        "_row",
        *(pl.coalesce(c, f"_m_{c}", f"_k_{c}").alias(f"_f_{c}") for c in _ABOUT),
        pl.coalesce("fields", "_m_fields").alias("_f_fields"),
        pl.coalesce("job", "_m_job").alias("_f_job"),
    )
    full = rows.join(filled, on="_row", how="left", maintain_order="left")
    return full.with_columns(pl.coalesce(c, f"_f_{c}").alias(c) for c in _OF_MARK).select(marks.columns)


def adopt(
    marks: pl.DataFrame, link: Link, window: tuple[int, int], shift_ns: int, *, units: bool
) -> tuple[pl.DataFrame, int]:
    """Return the marks with those of a log that lie in a trace's window made marks of the trace, and how many they are.

    Times of the device stay behind: the trace recorded the work itself.

    Args:
        marks: All marks of a run.
        link: The process and its log.
        window: First and last recorded time of the process in the trace.
        shift_ns: Added to times of the log to get those of the trace.
        units: Adopt marks of steps and requests, too.
    """
    start, end = pl.col("start_ns") + shift_ns, pl.col("end_ns") + shift_ns
    wanted = [*HANDOFF_BRACKETS, *HANDOFF_POINTS, *(UNITS if units else ())]
    mine = (pl.col("source") == link.log_source) & (pl.col("process") == link.log_process)
    inside = (start <= window[1]) & (end.is_null() | (end >= window[0]))
    mine &= pl.col("mark").is_in(wanted) & pl.col("error_ns").is_null() & inside
    taken = marks.select(mine.fill_null(value=False).sum()).item()
    source, process = pl.lit(link.source, pl.Int32), pl.lit(link.process, pl.Int64)
    moved = marks.with_columns(
        source=pl.when(mine).then(source).otherwise("source"),
        process=pl.when(mine).then(process).otherwise("process"),
        start_ns=pl.when(mine).then(start).otherwise("start_ns"),
        end_ns=pl.when(mine).then(end).otherwise("end_ns"),
    )
    return moved, int(taken or 0)

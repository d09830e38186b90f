"""Who recorded what: the rank of each process, which recordings merge, which do not belong together.

A rank comes from the marks, then from the file's own field, then from an option, then from the mark log of the same
process, then from the file name; never from a pid alone, a device number or a stream. A contradiction is an error
that names both sides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import polars as pl

from gapscope.errors import IdentityError
from gapscope.findings import Finding

LOG = "gapscope"
"""Tool of the mark log in table ``processes``."""

_RANK_IN_NAME = re.compile(r"rank[-_ \[(]*(\d{1,9})(?!\d)", re.IGNORECASE)
_AT_SOURCE = ("produce", "submit", "producer_finish")
_AT_DESTINATION = ("receive", "consume", "available", "consumer_start")


def ranks_from_marks(marks: pl.DataFrame, paths: Sequence[str]) -> pl.DataFrame:
    """Return ``source, process, mark_rank``: the rank that the marks of each process state.

    Raises:
        IdentityError: The marks of one process state two ranks.
    """
    stated = (
        pl.when(pl.col("stated_rank").is_not_null())
        .then("stated_rank")
        .when(pl.col("mark").is_in(_AT_SOURCE) & (pl.col("src") >= 0))
        .then("src")
        .when(pl.col("mark").is_in(_AT_DESTINATION) & (pl.col("dst") >= 0))
        .then("dst")
    )
    key = pl.format("{} src={} dst={} seq={}", "text", "src", "dst", "seq")
    text = pl.when(pl.col("form") == "text").then("text").otherwise(pl.coalesce(key, "text"))
    said = marks.select("source", "process", text=text, mark_rank=stated.cast(pl.Int32, strict=False)).drop_nulls(
        "mark_rank"
    )
    first = said.group_by("source", "process", "mark_rank", maintain_order=True).first()
    several = first.filter(pl.len().over("source", "process") > 1).sort("source", "process", "mark_rank")
    if several.height:
        one, two = several.head(2).rows(named=True)
        raise IdentityError(
            f"{paths[one['source']]}: process {one['process']} marks itself as rank {one['mark_rank']} "
            f"({one['text']!r}) and as rank {two['mark_rank']} ({two['text']!r}). "
            "produce and submit belong to rank src, receive and consume to rank dst; mend the marks or add rank=."
        )
    return first.select("source", "process", "mark_rank")


def ranks_from_logs(processes: pl.DataFrame) -> pl.DataFrame:
    """Return the processes with ``log_rank``, and with ``job`` where a mark log of the same process knows it.

    The same process has the same pid, on the same host where both files name one, at the same time where both have
    absolute time.

    Args:
        processes: ``source, process, tool, pid, host, job, clock, mark_rank, file_rank`` and windows of all files.
    """
    is_log = pl.col("tool") == LOG
    logs = processes.filter(is_log & pl.col("pid").is_not_null())
    columns = ("pid", "host", "job", "clock", "window_start_ns", "window_end_ns")
    logs = logs.select(*columns, log_rank=pl.coalesce("mark_rank", "file_rank"))
    both = processes.filter(~is_log).join(logs, on="pid", suffix="_log")
    names = [pl.col(c).str.to_lowercase().str.split(".").list.first() for c in ("host", "host_log")]
    apart = (pl.col("window_start_ns") > pl.col("window_end_ns_log")) | (
        pl.col("window_end_ns") < pl.col("window_start_ns_log")
    )
    absolute = (pl.col("clock") == "unix") & (pl.col("clock_log") == "unix")
    same = both.filter((names[0] == names[1]).fill_null(value=True) & ~(apart & absolute).fill_null(value=False))
    told = same.group_by("source", "process").agg(
        log_rank=pl.when(pl.col("log_rank").n_unique() == 1).then(pl.col("log_rank").first()),
        log_job=pl.when(pl.col("job_log").n_unique() == 1).then(pl.col("job_log").first()),
    )
    told = told.with_columns(pl.col("log_rank").cast(pl.Int32))
    joined = processes.join(told, on=["source", "process"], how="left", maintain_order="left")
    return joined.with_columns(job=pl.coalesce("job", "log_job")).drop("log_job")


def assign_ranks(processes: pl.DataFrame, paths: list[str], rank_of: Mapping[int, int]) -> pl.DataFrame:
    """Return the processes with ``rank`` and ``rank_source`` (``mark``, ``file``, ``option``, ``log``, ``name``, null).

    Args:
        processes: ``source, process, pid, tool, file_rank, mark_rank, log_rank, has_ops, n_marks`` of all files.
        paths: Path of each source.
        rank_of: Option ``--rank-of``: pid to rank.

    Raises:
        IdentityError: Two of mark, file, option and file name disagree.
    """
    working = processes["has_ops"] | (processes["n_marks"] > 0)
    alone = processes.with_columns(_w=working).with_columns(_n=pl.col("_w").sum().over("source"))
    ranks: list[int | None] = []
    origins: list[str | None] = []
    for row in alone.iter_rows(named=True):
        name = _RANK_IN_NAME.search(re.split(r"[\\/]", paths[row["source"]])[-1])
        # A log is named when its process begins, perhaps before the job gives it the rank that the log then says.
        named = name is not None and row["_w"] and row["_n"] == 1 and (row["tool"] != LOG or row["file_rank"] is None)
        said = {
            "mark": row["mark_rank"],
            "file": row["file_rank"],
            "option": rank_of.get(row["pid"] if row["pid"] is not None else row["process"]),
            "log": row["log_rank"],
            "name": int(name[1]) if name and named else None,
        }
        known = {origin: rank for origin, rank in said.items() if rank is not None}
        if len(set(known.values())) > 1:
            (a, x), (b, y) = list(known.items())[:2] if len(set(list(known.values())[:2])) > 1 else _disagreeing(known)
            raise IdentityError(
                f"{paths[row['source']]}: process {row['process']} is rank {x} by {_SAID[a]} "
                f"and rank {y} by {_SAID[b]}. Mend the one that is wrong (rename the file, or drop the option)."
            )
        origin = next(iter(known), None)
        ranks.append(known[origin] if origin else None)
        origins.append(origin)
    return processes.with_columns(
        rank=pl.Series(ranks, dtype=pl.Int32), rank_source=pl.Series(origins, dtype=pl.String)
    )


_SAID = {
    "mark": "its marks",
    "file": "the file's own field",
    "option": "option --rank-of",
    "log": "its mark log",
    "name": "the file name",
}


def _disagreeing(known: Mapping[str, int]) -> list[tuple[str, int]]:
    items = list(known.items())
    other = next(item for item in items[1:] if item[1] != items[0][1])
    return [items[0], other]


def choose_primary(processes: pl.DataFrame, paths: list[str]) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the processes with ``primary``, and findings.

    Where two tools saw the same rank at the same time, the one that recorded its GPU work is primary; a mark log gives
    way to any trace that has marks or work of its rank. Windows of one rank and one pid that do not overlap are
    windows of one run.

    Args:
        processes: Those of all files, with ``rank``, counts of marks, and ``has_work``: GPU operations or API calls.
        paths: Path of each source.

    Raises:
        IdentityError: One rank was recorded twice at the same time by one tool, or the files form several runs.
    """
    ranked = processes.filter(pl.col("rank").is_not_null() & (pl.col("has_ops") | (pl.col("n_marks") > 0)))
    pairs = (
        ranked.join(ranked, on=["job", "rank"], suffix="_2", nulls_equal=True)
        .filter(pl.col("source") < pl.col("source_2"))
        .with_columns(
            overlap=(pl.col("window_start_ns") <= pl.col("window_end_ns_2"))
            & (pl.col("window_start_ns_2") <= pl.col("window_end_ns")),
            same_clock=(pl.col("clock") == "unix") & (pl.col("clock_2") == "unix"),
        )
        .with_columns(together=(pl.col("overlap") & pl.col("same_clock")) | _own_log())
        .sort("rank", "source", "source_2")
    )
    apart = pairs.filter(~pl.col("together") & (pl.col("pid") != pl.col("pid_2")))
    if apart.height:
        raise IdentityError(_several_runs(ranked, paths, apart.row(0, named=True)))
    twice = pairs.filter(pl.col("together") & (pl.col("tool") == pl.col("tool_2")))
    if twice.height:
        row = twice.row(0, named=True)
        raise IdentityError(
            f"Rank {row['rank']} was recorded twice at the same time by {_TOOLS[row['tool']]}: "
            f"{paths[row['source']]} and {paths[row['source_2']]}. Name only one of them."
        )
    merged = pairs.filter("together")
    loses = _losers(merged)
    primary = [(s, p) not in loses for s, p in processes.select("source", "process").iter_rows()]
    findings = [
        Finding(
            "merged_tools",
            "info",
            f"Rank {row['rank']} was seen by {_TOOLS[row['tool']]} and {_TOOLS[row['tool_2']]}; times come from the "
            "recording that holds its GPU work.",
            rank=row["rank"],
        )
        for row in merged.unique(["rank", "tool", "tool_2"], maintain_order=True).iter_rows(named=True)
    ]
    return processes.with_columns(primary=pl.Series(primary, dtype=pl.Boolean)), findings


def _own_log() -> pl.Expr:
    """Tell if of two recordings one is the mark log of the other's process, and their times cannot be compared."""
    one_is_log = (pl.col("tool") == LOG) != (pl.col("tool_2") == LOG)
    same = one_is_log & ~pl.col("same_clock") & (pl.col("pid") == pl.col("pid_2"))
    return same.fill_null(value=False)


_TOOLS = {"nsys": "nsys", "torch": "torch", LOG: "the mark log"}


def _losers(merged: pl.DataFrame) -> set[tuple[int, int]]:
    """Return source and process of those that are not primary."""

    def beats_log(trace: str, log: str) -> pl.Expr:
        has_marks, has_work = pl.col(f"n_handoffs{trace}") > 0, pl.col(f"has_work{trace}")
        # Times of the device stand behind those of recorded operations only.
        return pl.col(f"has_ops{trace}") | ((has_marks | has_work) & (pl.col(f"n_device_times{log}") == 0))

    by_work = (pl.col("n_ops") > pl.col("n_ops_2")) | (
        (pl.col("n_ops") == pl.col("n_ops_2")) & (pl.col("n_marks") >= pl.col("n_marks_2"))
    )
    first_wins = (
        pl.when((pl.col("tool_2") == LOG) & (pl.col("tool") != LOG))
        .then(beats_log("", "_2"))
        .when((pl.col("tool") == LOG) & (pl.col("tool_2") != LOG))
        .then(~beats_log("_2", ""))
        .otherwise(by_work)
    )
    lost = merged.select(
        source=pl.when(first_wins).then("source_2").otherwise("source"),
        process=pl.when(first_wins).then("process_2").otherwise("process"),
    )
    return set(lost.iter_rows())


def _several_runs(ranked: pl.DataFrame, paths: list[str], example: Mapping[str, object]) -> str:
    """Return a message that lists the groups of files whose windows overlap."""
    windows = (
        ranked.group_by("source")
        .agg(pl.col("window_start_ns").min(), pl.col("window_end_ns").max())
        .sort("window_start_ns", "source")
        .with_columns(_until=pl.col("window_end_ns").cum_max().shift(1))
        .with_columns(group=(pl.col("window_start_ns") > pl.col("_until")).fill_null(value=False).cum_sum())
    )
    common = os.path.commonpath([os.path.dirname(p) for p in paths]) if len(paths) > 1 else ""  # noqa: PTH120
    short = [os.path.relpath(p, common) if common else p for p in paths]
    lines = [
        f"  run {number + 1}: " + ", ".join(short[s] for s in part["source"].sort())
        for number, (_, part) in enumerate(windows.group_by("group", maintain_order=True))
    ]
    return (
        f"The files form several runs: rank {example['rank']} is process {example['pid']} in one and "
        f"{example['pid_2']} in another. Name the files of one run:\n" + "\n".join(lines)
    )

"""Which process each row belongs to: host processes by pid, GPU rows by the process that launched them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from gapscope.readers.kineto_fields import Row
from gapscope.readers.kineto_rows import TEXT_KEY
from gapscope.schema import conform

# What mergers of traces write: "[TP00-PP01] 83" (SGLang), "rank0: 83", ...
_BRACKETS = re.compile(r"(\[[^\]]*\])\s*(.*)", re.DOTALL)
_WORDS = re.compile(r"(.*?\S)(?:\s+|\s*[:/_-]\s*)(-?[0-9]{1,18})", re.DOTALL)
_GPU_STREAM = re.compile(r"\s*stream\s+\d+\s*", re.IGNORECASE)
_AUTOGRAD = "pt_autograd"
_SHARED_CORRELATIONS = 0.25  # a process whose calls share more of their ids than this is two ranks in one


class AmbiguousRanksError(Exception):
    """Rows of several ranks cannot be told apart."""


class Pid(NamedTuple):
    """A pid as recorded: the label that a merger of traces wrote before it, and the number."""

    label: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class Processes:
    """Who is who in one file.

    Attributes:
        table: The table `processes`.
        host: Process of a pid of the host.
        device: Process of the pid of a GPU row.
        other: Process of the pid of a row that is neither, by its label.
        numbers: Number in a pid; for a GPU row that is the device.
        main: Process of a row without a pid.
        duplicate_correlations: Calls that share their correlation id with another one of their process.
    """

    table: pl.DataFrame
    host: Mapping[int, int]
    device: Mapping[int, int]
    other: Mapping[int, int]
    numbers: Mapping[int, int | None]
    main: int
    duplicate_correlations: int = 0


def parse_pid(text: str) -> Pid:
    """Split a pid that is text.

    >>> parse_pid("[TP00-PP01] 83"), parse_pid("rank 3: 7"), parse_pid("CUDA functions")
    (Pid(label='[TP00-PP01]', number=83), Pid(label='rank 3', number=7), Pid(label='CUDA functions', number=None))
    """
    text = text.strip()
    if match := _BRACKETS.fullmatch(text):
        return Pid(match[1], int(match[2]) if re.fullmatch(r"-?[0-9]{1,18}", match[2]) else None)
    if match := _WORDS.fullmatch(text):
        return Pid(match[1], int(match[2]))
    return Pid(text or None, None)


def find_processes(frames: Mapping[str, pl.DataFrame], texts: pl.Series, file_rank: int | None) -> Processes:
    """Find the processes of a file.

    Args:
        frames: The groups of rows.
        texts: The strings that keys beyond TEXT_KEY stand for.
        file_rank: Rank that the file states for itself.

    Raises:
        AmbiguousRanksError: The file holds several ranks that cannot be told apart.
    """
    keys = {group: frames[group]["pid"].drop_nulls().unique().to_list() for group in frames}
    host_rows = _count(frames["calls"], frames["comms"], frames["autograd"], _host_ranges(frames["ranges"]))
    pids = {key: _pid(key, texts) for group in keys.values() for key in group}
    hosts = _number_hosts({key: pids[key] for key in host_rows})
    spans = frames["ranges"].filter(row=Row.GPU_SPAN)["pid"].drop_nulls().unique().to_list()
    device_keys = {*keys["ops"], *keys["syncs"], *spans}
    if not hosts and any(frames[group].height for group in ("ops", "syncs", "ranges", "calls", "comms")):
        hosts = _stand_ins(pids)
    calls = _count(frames["calls"])
    by_label: dict[str | None, list[int]] = {}
    for key in sorted(hosts, key=lambda k: (-calls.get(k, 0), -host_rows.get(k, 0), hosts[k])):
        by_label.setdefault(pids[key].label, []).append(key)
    device = {}
    for key in sorted(device_keys):
        candidates = by_label.get(pids[key].label) or [k for group in by_label.values() for k in group]
        device[key] = hosts[candidates[0] if len(candidates) == 1 else _launcher(key, candidates, frames, pids)]
    mains = {label: hosts[group[0]] for label, group in by_label.items()}
    main = min(mains.values(), default=1)
    rank_of = {main: file_rank} if len(mains) == 1 else {}  # a merged file keeps the rank of one of its ranks
    return Processes(
        table=_table(hosts, pids, _process_names(frames["names"], texts), rank_of),
        host={key: hosts[key] for key in host_rows},
        device=device,
        other={key: mains.get(pid.label, main) for key, pid in pids.items()},
        numbers={key: pid.number for key, pid in pids.items()},
        main=main,
        duplicate_correlations=_duplicates(frames["calls"]),
    )


def _host_ranges(ranges: pl.DataFrame) -> pl.DataFrame:
    return ranges.filter(pl.col("row").is_in([Row.ANNOTATION, Row.OP]))


def _count(*frames: pl.DataFrame) -> dict[int, int]:
    counts: dict[int, int] = {}
    for frame in frames:
        for key, count in frame["pid"].drop_nulls().value_counts().iter_rows():
            counts[key] = counts.get(key, 0) + count
    return counts


def _pid(key: int, texts: pl.Series) -> Pid:
    return parse_pid(texts[TEXT_KEY - key]) if key <= TEXT_KEY else Pid(None, key)


def _number_hosts(pids: Mapping[int, Pid]) -> dict[int, int]:
    """Give each host process its pid as number; numbers from 1 on where a pid is missing or occurs twice."""
    distinct = sorted(set(pids.values()), key=lambda pid: (pid.label or "", -1 if pid.number is None else pid.number))
    numbers = [pid.number for pid in distinct if pid.number is not None]
    own = len(set(numbers)) < len(distinct)
    number_of = {pid: k if own or pid.number is None else pid.number for k, pid in enumerate(distinct, start=1)}
    return {key: number_of[pid] for key, pid in pids.items()}


def _stand_ins(pids: dict[int, Pid]) -> dict[int, int]:
    """Return one unknown process for each label, for a file without any host activity."""
    hosts: dict[int, int] = {}
    for label in sorted({pid.label for pid in pids.values()} or {None}, key=lambda text: text or ""):
        key = TEXT_KEY * 2 - len(hosts)  # no string has this key
        pids[key] = Pid(label, None)
        hosts[key] = len(hosts) + 1
    return hosts


def _launcher(key: int, candidates: list[int], frames: Mapping[str, pl.DataFrame], pids: Mapping[int, Pid]) -> int:
    """Return which of several host pids launched the operations of a GPU's pid, by correlation id."""
    operations = frames["ops"].filter(pl.col("pid") == key).select("correlation").drop_nulls().unique()
    calls = frames["calls"].filter(pl.col("pid").is_in(candidates)).select("pid", "correlation").drop_nulls().unique()
    matches = dict(operations.join(calls, on="correlation")["pid"].value_counts().iter_rows())
    best = max(matches.values(), default=0)
    winners = [k for k in candidates if matches.get(k, 0) == best]
    if best > 0 and len(winners) > 1:
        names = ", ".join(str(pids[k].number) for k in winners)
        gpu = pids[key].number
        raise AmbiguousRanksError(f"the operations of GPU {gpu} fit the calls of processes {names} equally well")
    return winners[0]


def _duplicates(calls: pl.DataFrame) -> int:
    """Count calls that share pid and correlation id with another call.

    Raises:
        AmbiguousRanksError: They are so many that two ranks must have the same pid.
    """
    total = extra = 0
    for key in calls["pid"].unique():
        ids = calls.filter(pl.col("pid").eq_missing(key))["correlation"]
        ids = ids.filter((ids > 0) & (ids != 2**32 - 1))
        total, extra = total + len(ids), extra + len(ids) - ids.n_unique()
    if extra > _SHARED_CORRELATIONS * total:
        raise AmbiguousRanksError(f"{extra} of its {total} API calls repeat the correlation id of another one")
    return extra


def _process_names(names: pl.DataFrame, texts: pl.Series) -> dict[int, str]:
    titled = names.filter(row=Row.PROCESS_NAME).drop_nulls(["pid", "title"]).sort("pid", "title")
    return {key: texts[title].strip() for key, title in titled.select("pid", "title").iter_rows()}


def _table(
    hosts: Mapping[int, int], pids: Mapping[int, Pid], names: Mapping[int, str], rank_of: Mapping[int, int | None]
) -> pl.DataFrame:
    rows: dict[int, tuple[int, int | None, str | None, int | None]] = {}
    for key, process in sorted(hosts.items(), key=lambda item: (item[1], item[0])):
        rows[process] = (process, pids[key].number, pids[key].label or names.get(key) or None, rank_of.get(process))
    types = {"process": pl.Int64, "pid": pl.Int64, "label": pl.String, "file_rank": pl.Int32}
    return conform(pl.DataFrame(list(rows.values()), schema=types, orient="row"), "processes")


def find_threads(
    frames: Mapping[str, pl.DataFrame], texts: pl.Series, processes: Processes
) -> tuple[pl.DataFrame, dict[int, int]]:
    """Return the table `threads`, and the numbers of threads that are named by text.

    Those count down from -1 in alphabetical order.
    """
    host = ("calls", "comms", "autograd", "ranges", "names")
    used = {key for group in host for key in frames[group]["tid"].drop_nulls().unique().to_list() if key <= TEXT_KEY}
    words = sorted({texts[TEXT_KEY - key] for key in used})
    own = {key: -1 - words.index(texts[TEXT_KEY - key]) for key in used}
    named: dict[tuple[int, int], str | None] = {}
    for row, pid, tid, title in frames["names"].select("row", "pid", "tid", "title").sort("title").iter_rows():
        name = texts[title].strip() if title is not None else ""
        if row == Row.THREAD_NAME and pid in processes.host and tid is not None and not _GPU_STREAM.fullmatch(name):
            thread = (processes.host[pid], own.get(tid, tid))
            named[thread] = max(named.get(thread) or "", name) or None
    autograd = set()
    for pid, tid in frames["autograd"].select("pid", "tid").drop_nulls().unique().iter_rows():
        autograd.add((processes.host[pid], own.get(tid, tid)))
    autograd |= {thread for thread, name in named.items() if name and _AUTOGRAD in name}
    known = sorted(named.keys() | autograd)
    table = pl.DataFrame(
        [(process, thread, named.get((process, thread)), (process, thread) in autograd) for process, thread in known],
        schema={"process": pl.Int64, "thread": pl.Int64, "name": pl.String, "autograd": pl.Boolean},
        orient="row",
    )
    return conform(table, "threads"), own

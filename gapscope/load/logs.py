"""What mark logs add to the traces of the same processes: fields, marks, and who ran where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from gapscope.findings import Finding, plural
from gapscope.identity import LOG
from gapscope.marks import Link, adopt, fill, find_links
from gapscope.readers.base import SourceInfo, SourceTables
from gapscope.schema import CLAIM_ERROR_NS, SYSTEM_CLOCK_NS

_ONE_BOOT_NS = 1_000_000_000
_TIMES = ("start_ns", "end_ns")


def on_one_clock(files: Sequence[SourceTables]) -> list[SourceTables]:
    """Return the files with all mark logs of one boot of a host on one reading of Unix time, the most precise.

    Their times are of one monotonic clock already; it is only where that stands that each log read by itself.
    """
    best: dict[tuple[str, str], SourceInfo] = {}
    for file in files:
        info, key = file.info, _boot(file.info)
        if key is not None and (key not in best or _error(info) < _error(best[key])):
            best[key] = info
    return [file if (key := _boot(file.info)) is None else _moved(file, best[key]) for file in files]


def _boot(info: SourceInfo) -> tuple[str, str] | None:
    """Return host and boot of a log whose clock is known."""
    known = info.tool == LOG and info.epoch_ns is not None and info.system_clock_ns is not None
    return (info.host, info.boot_id) if known and info.host and info.boot_id else None


def _error(info: SourceInfo) -> int:
    return CLAIM_ERROR_NS[info.tool] if info.claim_error_ns is None else info.claim_error_ns


def _zero_ns(info: SourceInfo) -> int:
    """Return the time of the file's tables at which the host's monotonic clock read zero."""
    return (info.epoch_ns or 0) + info.shift_ns - (info.system_clock_ns or 0)


def _moved(file: SourceTables, to: SourceInfo) -> SourceTables:
    """Return a log with Unix time as another log of the same clock has it."""
    by = _zero_ns(to) - _zero_ns(file.info)
    if not by:
        return file

    def shifted(frame: pl.DataFrame | None, columns: Sequence[str] = _TIMES) -> pl.DataFrame | None:
        return None if frame is None else frame.with_columns(pl.col(c) + by for c in columns)

    ranges = file.tables["ranges"].with_columns(pl.col(c) + by for c in _TIMES)
    info = replace(file.info, epoch_ns=(file.info.epoch_ns or 0) + by, claim_error_ns=_error(to))
    return replace(
        file,
        info=info,
        tables={**file.tables, "ranges": ranges},
        windows=shifted(file.windows, ("window_start_ns", "window_end_ns")),
        marks=shifted(file.marks),
        own_marks=shifted(file.own_marks),
    )


@dataclass(frozen=True)
class Placement:
    """Where times of a log stand in a trace.

    Attributes:
        shift_ns: Added to times of the log.
        error_ns: How far off that may be.
        how: By what, in words.
    """

    shift_ns: int
    error_ns: int
    how: str


def place(log: SourceInfo, trace: SourceInfo) -> Placement | None:
    """Return where times of a log stand in a trace of the same process; None if the files do not say.

    By their readings of the host's monotonic clock, else by their absolute times.
    """
    absolute = log.clock == "unix" and trace.clock == "unix"
    known = all(
        i.system_clock_ns is not None and (i.clock == "relative" or i.epoch_ns is not None) for i in (log, trace)
    )
    if known:
        zero = [_zero_ns(i if i.clock == "unix" else replace(i, epoch_ns=0)) for i in (trace, log)]
        shift = zero[0] - zero[1]
        if not absolute or abs(shift - trace.shift_ns) < _ONE_BOOT_NS:
            error = SYSTEM_CLOCK_NS[trace.tool] + SYSTEM_CLOCK_NS[log.tool]
            return Placement(shift, error, "their readings of the host's monotonic clock")
    if not absolute:
        return None
    return Placement(trace.shift_ns, _error(trace) + _error(log), "their absolute times")


@dataclass(frozen=True)
class Merging:
    """What came of putting logs and traces together.

    Attributes:
        processes: With counts and windows as they are now.
        marks: Filled and adopted.
        links: Which process of a trace has which log.
        findings: What was done, and what could not be.
    """

    processes: pl.DataFrame
    marks: pl.DataFrame
    links: list[Link]
    findings: list[Finding]


class Logs:
    """Mark logs beside traces.

    Args:
        files: All files of the run.
    """

    def __init__(self, files: Sequence[SourceTables]) -> None:
        self._files = files
        self._any = any(f.info.tool == LOG for f in files)

    def with_work(self, processes: pl.DataFrame) -> pl.DataFrame:
        """Add ``has_work``: GPU operations or API calls; asked only where it decides something."""
        is_asked = [self._any and tool != LOG for tool in processes["tool"]]
        works = [
            row["has_ops"]
            or (asked and row["rank"] is not None and not row["n_handoffs"] and bool(self._threads(*_owner(row)).len()))
            for row, asked in zip(processes.iter_rows(named=True), is_asked, strict=True)
        ]
        return processes.with_columns(has_work=pl.Series(works, dtype=pl.Boolean))

    def merge(self, processes: pl.DataFrame, marks: pl.DataFrame) -> Merging:
        """Return marks of traces filled from logs, and marks of logs adopted by traces that have none."""
        ranks = processes.select("source", "process", rank_of="rank", job_of="job")
        links = find_links(processes) if self._any else []
        if links:
            linked = pl.DataFrame([(k.source, k.process) for k in links], schema=["source", "process"], orient="row")
            linked = linked.cast({"source": pl.Int32, "process": pl.Int64}).unique().with_columns(_linked=True)
            marks = (
                marks.join(linked, on=["source", "process"], how="left", maintain_order="left")
                .join(ranks, on=["source", "process"], how="left", maintain_order="left")
                .with_columns(job=pl.when("_linked").then(pl.coalesce("job", "job_of")).otherwise("job"))
                .drop("_linked", "rank_of", "job_of")
            )
            marks = fill(marks, links)
        findings: list[Finding] = []
        for link in links:
            trace, log = _row(processes, link.source, link.process), _row(processes, link.log_source, link.log_process)
            if not trace["primary"] or log["primary"]:
                continue
            if trace["n_handoffs"]:
                findings += self._outside(marks, link, trace)
            elif trace["has_work"] and log["n_handoffs"]:
                processes, marks, notes = self._adopted(processes, marks, link, trace)
                findings += notes
        findings += _requests_without_id(marks, processes)
        return Merging(processes, marks, links, findings)

    def _adopted(
        self, processes: pl.DataFrame, marks: pl.DataFrame, link: Link, trace: dict[str, object]
    ) -> tuple[pl.DataFrame, pl.DataFrame, list[Finding]]:
        file, log = self._files[link.source].info, self._files[link.log_source].info
        placed = place(log, file)
        if placed is None:
            return (
                processes,
                marks,
                [_not_adopted(file, link, "nothing tells where the times of the one stand in the other")],
            )
        window = (_int(trace["window_start_ns"]), _int(trace["window_end_ns"]))
        threads = self._threads(link.source, link.process)
        mine = marks.filter((pl.col("source") == link.log_source) & (pl.col("process") == link.log_process))
        if threads.len() and not mine["thread"].is_in(threads.implode()).any():
            why = "none of the threads that set its marks made an API call there"
            return processes, marks, [_not_adopted(file, link, why)]
        marks, taken = adopt(marks, link, window, placed.shift_ns, units=not trace["n_units"])
        if not taken:
            return processes, marks, [_not_adopted(file, link, "no mark of it lies within what the trace recorded")]
        now = marks.filter((pl.col("source") == link.source) & (pl.col("process") == link.process))
        owner = (pl.col("source") == link.source) & (pl.col("process") == link.process)
        log_owner = (pl.col("source") == link.log_source) & (pl.col("process") == link.log_process)
        first, last = now["start_ns"].min(), now["end_ns"].max()
        # A mark begins before the first call in it: with its own marks, the trace's window would have begun there.
        processes = processes.with_columns(
            n_marks=pl.when(owner)
            .then(now.height)
            .when(log_owner)
            .then(pl.col("n_marks") - taken)
            .otherwise("n_marks"),
            window_start_ns=pl.when(owner)
            .then(pl.min_horizontal("window_start_ns", pl.lit(first)))
            .otherwise("window_start_ns"),
            window_end_ns=pl.when(owner)
            .then(pl.max_horizontal("window_end_ns", pl.lit(last)))
            .otherwise("window_end_ns"),
        )
        finding = Finding(
            "log_marks_adopted",
            "warning" if placed.error_ns > _SMALL_NS else "info",
            f"The trace has work of rank {link.rank} and no marks of its handoffs: {plural(taken, 'mark')} of the "
            f"mark log stand in, placed by {placed.how}, good to {placed.error_ns:,} ns (evidence: declared). A call "
            "that close to the edge of a mark may count on the wrong side of it.",
            "Newer nvtx packages record nothing under an older nsys: nvtx==0.2.11, or a newer nsys, puts the marks "
            "into the "
            "trace." if file.tool == "nsys" else "",
            path=file.path,
            rank=link.rank,
            count=taken,
        )  # fmt: skip
        return processes, marks, [finding]

    def _outside(self, marks: pl.DataFrame, link: Link, trace: dict[str, Any]) -> list[Finding]:
        """Return how many marks of a log lie before or after what the trace recorded."""
        mine = (pl.col("source") == link.log_source) & (pl.col("process") == link.log_process)
        inside = (pl.col("start_ns") <= trace["window_end_ns"]) & (
            pl.col("end_ns").is_null() | (pl.col("end_ns") >= trace["window_start_ns"])
        )
        n = int(marks.select((mine & ~inside).sum()).item() or 0)
        if not n:
            return []
        return [
            Finding(
                "log_marks_outside",
                "info",
                f"{plural(n, 'mark')} of rank {link.rank} in the mark log lie before or after what the trace "
                "recorded; they are not used.",
                "Analyzed without the trace, the log gives their host times.",
                path=self._files[link.log_source].info.path,
                rank=link.rank,
                count=n,
            )
        ]

    def _threads(self, source: int, process: int) -> pl.Series:
        """Return the threads of a process that made API calls."""
        calls = self._files[source].tables["calls"].filter(pl.col("process") == process)
        return calls.select(pl.col("thread").drop_nulls().unique()).collect().to_series()


_SMALL_NS = 10_000


def _owner(row: dict[str, object]) -> tuple[int, int]:
    return _int(row["source"]), _int(row["process"])


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _row(processes: pl.DataFrame, source: int, process: int) -> dict[str, object]:
    return processes.row(by_predicate=(pl.col("source") == source) & (pl.col("process") == process), named=True)


def _not_adopted(file: SourceInfo, link: Link, why: str) -> Finding:
    return Finding(
        "log_marks_not_adopted",
        "warning",
        f"The trace has work of rank {link.rank} and no marks of its handoffs, and those of the mark log cannot "
        f"stand in: {why}.",
        "Record both in one run of the job.",
        path=file.path,
        rank=link.rank,
    )


def _requests_without_id(marks: pl.DataFrame, processes: pl.DataFrame) -> list[Finding]:
    primary = processes.filter("primary").select("source", "process")
    unnamed = (pl.col("form") == "compact") & ~pl.col("fields").str.contains(r"(?:^|\s)id=").fill_null(value=False)
    rows = marks.filter((pl.col("mark") == "request") & unnamed).join(primary, on=["source", "process"], how="semi")
    if not rows.height:
        return []
    return [
        Finding(
            "request_ids_unknown",
            "warning",
            f"{plural(rows.height, 'request mark')} in compact form: the id of a request does not fit into it, and "
            "no mark log tells it. They are left out.",
            "Name the mark logs (*.gslog) of the run, too, or mark in text form (GAPSCOPE_NVTX=text).",
            count=rows.height,
        )
    ]


def hosts_from_logs(sources: pl.DataFrame, links: Sequence[Link]) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the sources with host and boot as the logs of their processes name them, and what was learned.

    Args:
        sources: Table ``sources``.
        links: Which process of a trace has which log.
    """
    known = dict(zip(sources["source"], sources.select("host", "boot_id").rows(), strict=True))
    told: dict[int, set[tuple[str | None, str | None]]] = {}
    for link in links:
        told.setdefault(link.source, set()).add(known[link.log_source])
    hosts, boots, findings = [], [], list[Finding]()
    for row in sources.iter_rows(named=True):
        host, boot = row["host"], row["boot_id"]
        said = told.get(row["source"], set())
        if len(said) == 1:
            log_host, log_boot = next(iter(said))
            if host is None and log_host is not None:
                host = log_host
                findings.append(
                    Finding(
                        "host_from_log",
                        "info",
                        f"The file does not name its host; the mark log of its process does: {log_host}.",
                        path=row["path"],
                    )
                )
            boot = log_boot if boot is None and host == log_host else boot
        hosts.append(host)
        boots.append(boot)
    return sources.with_columns(
        host=pl.Series(hosts, dtype=pl.String), boot_id=pl.Series(boots, dtype=pl.String)
    ), findings

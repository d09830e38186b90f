"""Tables of the files of one run, put together: marks, ranks, which recording counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS, HANDOFF_POINTS, UNITS

from gapscope import identity
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.load.logs import Logs, hosts_from_logs, on_one_clock
from gapscope.marks import parse_marks, unwrap, with_group_names, without_definitions
from gapscope.readers.base import SourceTables
from gapscope.readers.packing import unpacked
from gapscope.schema import MARKS, SOURCES, dtypes
from gapscope.trace import Trace

_WINDOW_TABLES = ("ops", "calls", "ranges")
_AT_ONCE = 1 << 20  # rows
_OWNER = ["source", "process"]


def assemble(
    files: Sequence[SourceTables],
    jobs: Sequence[str | None] | None = None,
    rank_of: Mapping[int, int] | None = None,
    findings: Iterable[Finding] = (),
) -> Trace:
    """Put the tables of the files of one run together.

    Args:
        files: What the readers delivered, in the order of `Trace.sources`.
        jobs: Job of each file; None where the marks tell it.
        rank_of: Rank of a pid, where the recording does not tell.
        findings: What was found while reading.

    Raises:
        IdentityError: Ranks contradict each other, or the files form several runs.
    """
    jobs = jobs or [None] * len(files)
    files = on_one_clock(files)
    findings = list(findings)
    paths = [f.info.path for f in files]
    marks, notes = _all_marks(files, jobs)
    processes = pl.concat([_processes(number, file, jobs[number]) for number, file in enumerate(files)])
    processes = _with_counts(processes.join(identity.ranks_from_marks(marks, paths), on=_OWNER, how="left"), marks)
    _check_pids(processes, rank_of or {})
    processes = identity.ranks_from_logs(processes)
    processes = identity.assign_ranks(processes, paths, rank_of or {})
    logs = Logs(files)
    processes = logs.with_work(processes)
    processes, merged = identity.choose_primary(processes, paths)
    merging = logs.merge(processes, without_definitions(marks))
    processes, marks = merging.processes, merging.marks
    findings += [*notes, *merged, *merging.findings]
    marks = marks.drop("rank").join(processes.select(*_OWNER, "rank"), on=_OWNER, how="left")
    marks = marks.select(list(MARKS)).sort("source", "process", "start_ns", "end_ns", "text", nulls_last=True)
    marks = _with_one_nothing(marks)
    sources, told = hosts_from_logs(_sources(files, processes), merging.links)
    findings += told
    findings += [
        Finding(
            "empty_recording",
            "warning",
            "The file is valid, but holds nothing that was recorded.",
            "The process may have set no mark while they were on."
            if tool == identity.LOG
            else "The profiler may never have become active: check its schedule, or the capture range.",
            path=path,
        )
        for path, tool in sources.filter(pl.col("window_start_ns").is_null()).select("path", "tool").iter_rows()
    ]
    return Trace(sources, processes, marks, findings, tuple(replace(f, marks=None, own_marks=None) for f in files))


def _with_one_nothing(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the same rows; columns of one type without a value share their memory: most keys are in no mark."""
    nothing: dict[pl.DataType, pl.Series] = {}
    for column in frame.get_columns():
        if column.null_count() == frame.height:
            shared = nothing.setdefault(column.dtype, column)
            frame = frame.with_columns(shared.alias(column.name))
    return frame


def _all_marks(files: Sequence[SourceTables], jobs: Sequence[str | None]) -> tuple[pl.DataFrame, list[Finding]]:
    """Return the marks of all files, definitions included, with whole keys, and what cannot be used of them."""
    marks, findings = pl.DataFrame(schema=dtypes(MARKS)), list[Finding]()
    for number, file in enumerate(files):
        found, notes = file.marks, list[Finding]()
        if found is None:
            found, notes = marks_of(file)
        job = pl.coalesce("job", pl.lit(jobs[number], dtype=pl.String))
        marks = marks.vstack(found.with_columns(source=pl.lit(number, dtype=pl.Int32), job=job))
        findings += notes
    marks, notes = with_group_names(marks)
    return unwrap(marks), [*findings, *notes]


def _with_counts(processes: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Add how many marks each process has, of which kinds, and the job that they name."""
    counts = (
        without_definitions(marks)
        .group_by(_OWNER)
        .agg(
            n_marks=pl.len(),
            n_handoffs=pl.col("mark").is_in(HANDOFF_BRACKETS + HANDOFF_POINTS).sum(),
            n_units=pl.col("mark").is_in(UNITS).sum(),
            n_device_times=pl.col("error_ns").is_not_null().sum(),
            mark_job=pl.col("job").first(),
        )
    )
    numbers = ["n_marks", "n_handoffs", "n_units", "n_device_times"]
    return (
        processes.join(counts, on=_OWNER, how="left")
        .with_columns(pl.col(numbers).fill_null(0), job=pl.coalesce("job", "mark_job"))
        .sort(_OWNER)
    )


def _check_pids(processes: pl.DataFrame, rank_of: Mapping[int, int]) -> None:
    unknown = sorted(set(rank_of) - set(processes["pid"].drop_nulls()) - set(processes["process"]))
    if unknown:
        pids = ", ".join(
            str(p) for p in processes.filter(pl.col("has_ops") | (pl.col("n_marks") > 0))["pid"].unique().sort()
        )
        raise UsageError(
            f"--rank-of {unknown[0]}: no recording has that pid. Processes with marks or GPU work: {pids}."
        )


def marks_of(file: SourceTables) -> tuple[pl.DataFrame, list[Finding]]:
    """Return all marks of one file, and findings on those that cannot be used."""
    found, notes = parse_marks(file.tables["ranges"], file.info.path)
    if file.own_marks is None:
        return found, notes
    return pl.concat([file.own_marks, found.with_columns(form=pl.lit("log"))]), notes


def windows_of(file: SourceTables) -> pl.DataFrame:
    """Return when each process of a file was recorded, and how many GPU operations of it."""
    parts = pl.collect_all(
        [
            rows.group_by("process").agg(
                pl.col("start_ns").min().alias("first"),
                pl.max_horizontal(pl.col("end_ns").max(), pl.col("start_ns").max()).alias("last"),
                pl.len().alias("n").cast(pl.Int64),
            ).with_columns(table=pl.lit(table))
            for table in _WINDOW_TABLES
            for rows in _pieces(file, table)
        ]
    )  # fmt: skip
    return (
        pl.concat(parts)
        .group_by("process")
        .agg(
            window_start_ns=pl.col("first").min(),
            window_end_ns=pl.col("last").max(),
            n_ops=pl.col("n").filter(pl.col("table") == "ops").sum().cast(pl.Int64),
        )
    )


def _pieces(file: SourceTables, table: str) -> Iterable[pl.LazyFrame]:
    """Return the rows of a table in pieces: the ends of all at once are more than the table as it lies in memory."""
    if file.packed is None:
        return [file.tables[table]]
    rows = file.packed[table]
    return [unpacked(piece.lazy(), table) for piece in rows.iter_slices(_AT_ONCE)] or [unpacked(rows.lazy(), table)]


def _processes(number: int, file: SourceTables, job: str | None) -> pl.DataFrame:
    """Return the processes of one file with their windows and what was recorded of them."""
    windows = windows_of(file) if file.windows is None else file.windows
    return (
        file.tables["processes"]
        .collect()
        .join(windows, on="process", how="full", coalesce=True)
        .with_columns(
            pl.col("n_ops").fill_null(0),
            source=pl.lit(number, dtype=pl.Int32),
            tool=pl.lit(file.info.tool),
            clock=pl.lit(file.info.clock),
            host=pl.lit(file.info.host, dtype=pl.String),
            job=pl.lit(job, dtype=pl.String),
        )
        .with_columns(has_ops=pl.col("n_ops") > 0)
    )


def _sources(files: Sequence[SourceTables], processes: pl.DataFrame) -> pl.DataFrame:
    of_file = processes.group_by("source").agg(
        ranks=pl.col("rank").drop_nulls().unique().sort(),
        window_start_ns=pl.col("window_start_ns").min(),
        window_end_ns=pl.col("window_end_ns").max(),
    )
    rows = [
        {
            "source": number,
            "path": f.info.path,
            "format": f.info.format,
            "tool": f.info.tool,
            "version": f.info.tool_version,
            "schema": f.info.schema_version,
            "host": f.info.host,
            "boot_id": f.info.boot_id,
            "clock": f.info.clock,
            "clock_origin": f.info.clock_origin,
            "epoch_ns": f.info.epoch_ns,
            "system_clock_ns": f.info.system_clock_ns,
            "counter_ns": f.info.counter_ns,
            "shift_ns": f.info.shift_ns,
            "claim_error_ns": f.info.claim_error_ns,
            "resolution_ns": f.info.resolution_ns,
            "cpu_only": f.info.cpu_only,
            "gpu_traced": f.info.gpu_traced,
            "cpu_traced": f.info.cpu_traced,
            "truncated": f.info.truncated,
            "calls_in_order": f.info.calls_in_order,
            "gpu_device": f.info.gpu_device,
            "marks_cost": json.dumps(dict(f.info.marks_cost), sort_keys=True) if f.info.marks_cost else None,
            "events": f.info.events,
            "dropped": json.dumps(dict(f.info.dropped), sort_keys=True),
        }
        for number, f in enumerate(files)
    ]
    schema = {n: t for n, t in dtypes(SOURCES).items() if n not in of_file.columns or n == "source"}
    frame = pl.DataFrame(rows, schema=schema).join(of_file, on="source", how="left", maintain_order="left")
    return frame.select(pl.col(n).cast(t) for n, t in dtypes(SOURCES).items())

"""What is missing from an Nsight Systems export: not traced, not recorded, or lost.

Missing records are said, never taken for zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.readers.nsys_calls import CALL_TABLES
from gapscope.readers.nsys_export import KEPT_TABLES
from gapscope.readers.nsys_meta import Meta
from gapscope.readers.nsys_ops import GRAPH_TRACE, KERNEL, OP_TABLES
from gapscope.readers.nsys_ranges import NVTX
from gapscope.readers.nsys_raw import Tables
from gapscope.readers.nsys_reading import NO_PROCESS, Counts, Reading
from gapscope.readers.packing import unpacked
from gapscope.schema import reader_dtypes

_FEW = 0.01  # share of launches without a record that the edges of a capture explain
_SPARSE = 16  # ids so much wider apart than they are many are looked for, not marked in a table


def note_gaps_in_record(reading: Reading, meta: Meta, frames: Mapping[str, pl.DataFrame]) -> None:
    """Add findings on what the export lacks, and on rows that could not be used as they were.

    Args:
        reading: The export.
        meta: What it says about itself.
        frames: Its tables, packed.
    """
    tables, counts, foreign = reading.tables, reading.counts, reading.counts.foreign
    filtered = meta.export.get("EXPORT_PARAM_TABLES_TO_EXPORT", "")
    if filtered.replace(",", " ") not in ("", KEPT_TABLES.replace(",", " ")):
        message = f"the export was limited to some tables (--tables={filtered})"
        tables.note("partial_export", "warning", message, "What is missing may be in the report.")
    _note_counts(tables, counts)
    ops, calls = frames["ops"], frames["calls"]
    ranges = unpacked(frames["ranges"].lazy(), "ranges").filter(pl.col("kind") != "overhead").collect()
    seen = ops.height or calls.height or ranges.height or frames["syncs"].height or foreign
    if not seen and not tables.damaged:
        tables.note(
            "no_events",
            "warning",
            "the export is valid but holds no CUDA and no NVTX event",
            "The capture range was probably never started (cudaProfilerStart, or the NVTX range that --capture-range "
            "names), or the processes that were recorded do no GPU work.",
        )
        return
    if tables.damaged.isdisjoint(OP_TABLES):  # what is missing is not missing from the recording, and is said already
        _note_no_operations(meta, tables, frames)
        if "correlationId" in tables.columns(KERNEL) or not tables.has(KERNEL):
            _note_lost_launches(tables, ops, calls)
    if ops.height and calls.is_empty() and tables.damaged.isdisjoint(CALL_TABLES):
        message = "GPU operations were recorded, but no API calls: which mark launched them is not known"
        tables.note("no_api_calls", "warning", message, "Export the report again, with all its tables.")
    if NVTX not in tables.damaged and ranges.is_empty():
        _note_no_ranges(meta, tables, foreign)
    _note_graphs(tables, ops)
    _note_silent_processes(tables, ops, calls, ranges)
    if NO_PROCESS in frames["processes"]["process"]:
        tables.note(
            "unknown_process",
            "warning",
            "some rows do not name their process; they stand under process 0",
            "Ranks that share this file cannot be told apart for these rows.",
        )


def _note_counts(tables: Tables, counts: Counts) -> None:
    if counts.untimed:
        message = f"{counts.untimed} GPU operations were recorded without a time; they count as existing, untimed"
        tables.note("untimed_ops", "warning", message, count=counts.untimed)
    if counts.impossible:
        message = f"{counts.impossible} records have impossible times (an end before the start, or out of range)"
        tables.note("impossible_times", "warning", message, "Their times count as not recorded.", counts.impossible)
    if counts.damaged:
        message = f"{counts.damaged} records have no usable start and were left out"
        tables.note("damaged_records", "warning", message, "The file may be damaged.", counts.damaged)


def _note_no_operations(meta: Meta, tables: Tables, frames: Mapping[str, pl.DataFrame]) -> None:
    """Say why there are no GPU operations: none recorded, not traced, or not known."""
    if frames["ops"].height:
        return
    hint = "Record with `nsys profile -t cuda,nvtx`."
    if frames["calls"].height or meta.cuda_traced:
        message = "CUDA was traced, but no GPU operation was recorded"
        hint = "Check the findings `nsys_diagnostic`, and that the capture lasted until the work had run on the GPU."
        tables.note("no_gpu_operations", "warning", message, hint)
    elif meta.cuda_traced is False:
        tables.note("gpu_not_traced", "warning", "CUDA was not traced: what the GPU did is not recorded", hint)
    else:
        message = "the export has no GPU operations and does not say whether CUDA was traced"
        tables.note("gpu_activity_unknown", "warning", message, hint)


def _note_no_ranges(meta: Meta, tables: Tables, foreign: int) -> None:
    """Say why there are no ranges: none known, none recorded, or not traced."""
    if foreign:
        message = f"none of the {foreign} NVTX ranges is a gapscope mark or of a library that gapscope knows"
        tables.note("only_foreign_ranges", "info", message, count=foreign)
    elif meta.nvtx_traced is False:
        message = "NVTX was not traced: marks are not recorded"
        tables.note("nvtx_not_traced", "warning", message, "Record with `nsys profile -t cuda,nvtx`.")
    else:
        message = "NVTX was traced, but no range was recorded" if meta.nvtx_traced else "the export has no NVTX ranges"
        tables.note("no_nvtx_ranges", "info", message, "Without marks, handoffs are found by communication only.")


def _note_graphs(tables: Tables, ops: pl.DataFrame) -> None:
    replays = int((ops["kind"] == "graph").sum()) if "kind" in ops.columns else 0
    if replays:
        tables.note(
            "graph_level_tracing",
            "info",
            f"{replays} replays of CUDA graphs are recorded as one block each; the kernels inside are not visible",
            "Record with `--cuda-graph-trace=node` to see them (it costs more).",
            replays,
        )


def _note_lost_launches(tables: Tables, ops: pl.DataFrame, calls: pl.DataFrame) -> None:
    """Count calls that launch kernels or graphs and have no GPU record with their correlation id.

    Copies and fills are left out: some of them leave no record by nature (host to host, prefetches, empty ones).
    """
    if ops.is_empty() and not tables.has(GRAPH_TRACE):
        launches = _launches(calls).filter(pl.col("family") == "graph_launch")
        if launches.height:
            _note_graph_work(tables, launches.height)
        return  # no GPU operations at all: said already
    launches = _launches(calls)
    lost = launches.filter(~_recorded(launches, ops))
    if not tables.has(GRAPH_TRACE):
        graphs = lost.filter(pl.col("family") == "graph_launch").height
        if graphs:
            _note_graph_work(tables, graphs)
            lost = lost.filter(pl.col("family") != "graph_launch")
    sizes = dict(launches.group_by("process").len().iter_rows())
    for process, number in sorted(lost.group_by("process").len().iter_rows()):
        few = number <= _FEW * sizes[process]
        tables.note(
            "launches_without_device_record",
            "info" if few else "warning",
            f"{number} of {sizes[process]} launch calls of process {process} have no GPU record",
            "At the edges of a capture this is normal; otherwise records were lost.",
            number,
        )


def _launches(calls: pl.DataFrame) -> pl.DataFrame:
    launching = pl.col("family").is_in(["launch", "graph_launch"])
    return _as_packed(calls, "calls", "process", "correlation", "family").filter(launching).collect()


def _as_packed(rows: pl.DataFrame, table: str, *columns: str) -> pl.LazyFrame:
    """Return some columns of packed rows as they are, in a third of the bytes; null where all are and none is kept."""
    missing = [pl.lit(None, dtype=reader_dtypes(table)[c]).alias(c) for c in columns if c not in rows.columns]
    return rows.lazy().with_columns(missing).select(columns)


def _note_graph_work(tables: Tables, number: int) -> None:
    tables.note(
        "graph_work_not_captured",
        "warning",
        f"device work of {number} graph launches was not captured",
        "The GPU was not idle there. Record with `--cuda-graph-trace=node` or `=graph`.",
        number,
    )


def _recorded(launches: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Tell for each launch if an operation has its process and correlation id."""
    pair = ["process", "correlation"]
    out = np.zeros(launches.height, bool)
    calls_of, correlations = launches["process"].to_numpy(), launches["correlation"].fill_null(0).to_numpy()
    for process in launches["process"].unique():
        own = _as_packed(ops, "ops", *pair).filter(pl.col("process") == process).select("correlation")
        mine = calls_of == process
        out[mine] = _among(correlations[mine], own.collect().to_series().drop_nulls().to_numpy())
    return pl.Series(out) | launches["correlation"].is_null()


def _among(wanted: npt.NDArray[np.integer], ids: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Tell which ids are among some; those count the calls of a process, so most of their range is there."""
    if not len(ids):
        return np.zeros(len(wanted), bool)
    lowest, highest = int(ids.min()), int(ids.max())
    inside = (wanted >= lowest) & (wanted <= highest)
    if highest - lowest > _SPARSE * len(ids):
        ids = np.sort(ids)
        inside[inside] = ids[np.searchsorted(ids, wanted[inside])] == wanted[inside]
        return inside
    seen = np.zeros(highest - lowest + 1, bool)
    seen[ids.astype(np.int64) - lowest] = True
    inside[inside] = seen[wanted[inside].astype(np.int64) - lowest]
    return inside


def _note_silent_processes(tables: Tables, ops: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame) -> None:
    marked = set(ranges.filter(pl.col("name").str.starts_with("gapscope"))["process"].unique())
    active = set(ops["process"].unique()) | set(calls["process"].unique())
    if not active:
        return
    for process in sorted(marked - active):
        tables.note(
            "process_without_gpu_activity",
            "warning",
            f"process {process} has gapscope marks but no CUDA activity, although CUDA was recorded for others",
            "Its handoffs have no GPU times. If the process uses a GPU, check that nsys followed it.",
        )

"""Reads a raw recording into plain lists, with the standard library alone.

Times are Unix nanoseconds as integers. Nothing is filtered, joined or repaired here. A record that this reader does
not understand is an error: a reference that guesses is worth nothing.
"""

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import polars as pl

Process = tuple[str, int]  # the file and the process id in it: the same id in two files may be two processes

NVTX_PUSH_POP_RANGE = 59
NVTX_START_END_RANGE = 60
THREAD_PART_OF_GLOBAL_ID = 0xFFFFFF


@dataclass(frozen=True)
class HostRange:
    """An annotation on a host thread. `end_ns` is None where the range was never closed."""

    process: Process
    thread: int
    text: str
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True)
class GpuOperation:
    """A kernel, copy, memset, or a whole CUDA graph where the tool traced graphs as one block."""

    process: Process
    correlation: int
    device: int
    stream: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ApiCall:
    """A CUDA runtime or driver call on a host thread."""

    process: Process
    thread: int
    correlation: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class GpuSpan:
    """The tool's own projection of an annotation onto a stream (only torch.profiler has these)."""

    process: Process
    device: int
    stream: int
    text: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Recording:
    """Everything that the reference needs of one file."""

    path: Path
    ranges: list[HostRange]
    operations: list[GpuOperation]
    calls: list[ApiCall]
    spans: list[GpuSpan]


def load_recording(path):
    """Reads one file or directory, told apart by its name."""
    path = Path(path)
    if path.name.endswith((".json", ".json.gz")):
        return _load_kineto(path)
    if path.name.endswith((".sqlite", ".sqlite.gz")):
        return _load_nsys(path, sqlite_tables(path))
    if path.is_dir():
        return _load_nsys(path, parquet_tables(path))
    raise ValueError(f"not a recording this reader knows: {path}")


def _file_bytes(path):
    if path.name.endswith(".gz"):
        with gzip.open(path) as file:
            return file.read()
    return path.read_bytes()


# Kineto -------------------------------------------------------------------------------------------------------------


def _nanoseconds(microseconds):
    """Microseconds, as written in the file, to nanoseconds, exactly."""
    nanoseconds = Decimal(microseconds) * 1000
    if nanoseconds != int(nanoseconds):
        raise ValueError(f"not a whole number of nanoseconds: {microseconds} us")
    return int(nanoseconds)


def _load_kineto(path):
    document = json.loads(_file_bytes(path), parse_float=Decimal)
    base_ns = document["baseTimeNanoseconds"]

    # The GPU rows of a Kineto file name no process (their pid is the device), but a file holds one process only.
    process_ids = {
        event["pid"]
        for event in document["traceEvents"]
        if event.get("cat") in ("user_annotation", "cuda_runtime", "cuda_driver")
    }
    if len(process_ids) > 1:
        raise ValueError(f"several processes in one Kineto file: {path}")
    process = (str(path), max(process_ids, default=0))

    ranges, operations, calls, spans = [], [], [], []
    for event in document["traceEvents"]:
        if event["ph"] != "X":
            continue
        category = event.get("cat")
        start_ns = base_ns + _nanoseconds(event["ts"])
        end_ns = start_ns + _nanoseconds(event["dur"])
        arguments = event.get("args", {})
        if category == "user_annotation":
            ranges.append(HostRange(process, event["tid"], event["name"], start_ns, end_ns))
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            operations.append(
                GpuOperation(
                    process, arguments["correlation"], event["pid"], event["tid"], event["name"], start_ns, end_ns
                )
            )
        elif category in ("cuda_runtime", "cuda_driver"):
            calls.append(ApiCall(process, event["tid"], arguments["correlation"], event["name"], start_ns, end_ns))
        elif category == "gpu_user_annotation":
            spans.append(GpuSpan(process, event["pid"], event["tid"], event["name"], start_ns, end_ns))
    return Recording(path, ranges, operations, calls, spans)


# Nsight Systems -----------------------------------------------------------------------------------------------------

OPERATION_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
OTHER_TABLES = ("TARGET_INFO_SESSION_START_TIME", "StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")


def sqlite_tables(path):
    """The tables we need, as lists of dicts. A table that is not there is an empty list."""
    tables = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_file_bytes(path))
        connection.row_factory = sqlite3.Row
        present = {row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in OPERATION_TABLES + OTHER_TABLES:
            rows = connection.execute(f"SELECT * FROM {table}") if table in present else []
            tables[table] = [dict(row) for row in rows]
    return tables


def parquet_tables(directory):
    """The same from an export that has one Parquet file a table. polars only decodes the files."""
    tables = {}
    for table in OPERATION_TABLES + OTHER_TABLES:
        file = directory / f"{table}.parquet"
        tables[table] = pl.read_parquet(file).to_dicts() if file.exists() else []
    return tables


def _load_nsys(path, tables):
    (session,) = tables["TARGET_INFO_SESSION_START_TIME"]
    base_ns = session["utcEpochNs"]
    strings = {row["id"]: row["value"] for row in tables["StringIds"]}

    def process_of(global_id):
        return (str(path), global_id & ~THREAD_PART_OF_GLOBAL_ID)

    ranges = []
    for row in tables["NVTX_EVENTS"]:
        if row["eventType"] not in (NVTX_PUSH_POP_RANGE, NVTX_START_END_RANGE):
            continue
        text = row["text"] if row["text"] is not None else strings[row["textId"]]
        end_ns = None if row["end"] is None else base_ns + row["end"]
        ranges.append(HostRange(process_of(row["globalTid"]), row["globalTid"], text, base_ns + row["start"], end_ns))

    operations = []
    for table in OPERATION_TABLES:
        for row in tables[table]:
            name = strings[row["shortName"]] if "shortName" in row else table.rpartition("KIND_")[2].lower()
            operations.append(
                GpuOperation(
                    process_of(row["globalPid"]),
                    row["correlationId"],
                    row["deviceId"],
                    row["streamId"],
                    name,
                    base_ns + row["start"],
                    base_ns + row["end"],
                )
            )

    calls = [
        ApiCall(
            process_of(row["globalTid"]),
            row["globalTid"],
            row["correlationId"],
            strings[row["nameId"]],
            base_ns + row["start"],
            base_ns + row["end"],
        )
        for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"]
    ]
    return Recording(path, ranges, operations, calls, spans=[])

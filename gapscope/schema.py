"""The normalized tables: columns, types, units and what null means, in one place.

Every time is in integer nanoseconds (``Int64``). Null means *not observed*; it never stands for zero.
Readers deliver the tables of `READER_TABLES` for one file, without the columns ``source`` and ``rank``;
`gapscope.trace` adds these two when it puts the files of a run together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

SCHEMA_VERSION = 1
"""Version of all tables and JSON files that gapscope writes. Columns are added, never changed in meaning."""

NAME = pl.Categorical()
"""Names repeat by the million (kernels, API calls): four bytes a row."""

OP_KIND = pl.Enum(["kernel", "memcpy", "memset", "graph"])
COPY_KIND = pl.Enum(
    ["unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
)  # positions are CUPTI's numbers (CUpti_ActivityMemcpyKind)
CALL_FAMILY = pl.Enum(
    [
        "launch",  # enqueues a kernel
        "graph_launch",  # enqueues a CUDA graph
        "memcpy",  # enqueues a copy
        "memset",  # enqueues a fill
        "event_record",
        "stream_wait",  # stream waits for an event
        "event_sync",  # host waits for an event
        "event_query",
        "stream_sync",
        "device_sync",  # host waits for the device or context
        "stream_memop",  # stream waits for or writes a memory flag, batches of them too
        "memory",  # allocation, registration, free
        "other",
    ]
)
LAUNCHING = ("launch", "graph_launch", "memcpy", "memset")
"""Families whose calls enqueue GPU operations."""

SYNC_KIND = pl.Enum(["event_record", "stream_wait", "event_sync", "event_query", "stream_sync", "device_sync"])
RANGE_KIND = pl.Enum(
    [
        "push_pop",  # NVTX push/pop, type 59
        "start_end",  # NVTX start/end, type 60
        "instant",  # NVTX mark, type 34
        "annotation",  # torch user_annotation (record_function)
        "op",  # torch cpu_op that is kept
        "gpu_span",  # torch gpu_user_annotation: extent of GPU work, not host time
        "overhead",  # the profiler's own recorded activity
    ]
)
COMM_OP = pl.Enum(
    ["send", "recv", "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "gather", "scatter"]
    + ["barrier", "coalesced", "other"]
)


class Column(NamedTuple):
    """One column of a table."""

    dtype: pl.DataType | type[pl.DataType]
    doc: str


Table = Mapping[str, Column]

_SOURCE = Column(pl.Int32(), "Position of the file in `sources`.")
_RANK = Column(pl.Int32(), "Global rank of the process; null if nothing tells it.")
_PROCESS = Column(
    pl.Int64(), "Process within the file: its pid, or a number of the reader's own where pids collide. Not unique across files."
)
_THREAD = Column(pl.Int64(), "Thread within the process, as the tool numbers it; null for GPU rows.")
_START = Column(pl.Int64(), "Start. Unix nanoseconds, or nanoseconds since an unknown zero where `sources.clock` is `relative`.")
_END = Column(pl.Int64(), "End, same clock as `start_ns`. Null: not recorded.")
_CORRELATION = Column(pl.Int64(), "CUPTI/ROCm correlation id, unique within (source, process) only; null if none or a sentinel.")
_DEVICE = Column(pl.Int32(), "Device number as that process's file gives it; null if the row has none.")
_CONTEXT = Column(pl.Int64(), "CUDA context; null if not recorded.")
_STREAM = Column(pl.Int64(), "Stream id within (source, process, device); null if none or a sentinel (-1, 4294967295).")

OPS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "device": _DEVICE,
    "context": _CONTEXT,
    "stream": _STREAM,
    "start_ns": Column(pl.Int64(), "Start on the GPU. Null: the tool recorded no time (0/0) or an impossible one."),
    "end_ns": Column(pl.Int64(), "End on the GPU. Null together with `start_ns`."),
    "correlation": _CORRELATION,
    "kind": Column(OP_KIND, "kernel, memcpy, memset, or graph (one opaque row for a whole graph replay)."),
    "name": Column(NAME, "Kernel name as the tool gives it; for copies and fills a short text; never null."),
    "size_bytes": Column(pl.Int64(), "Bytes copied or filled; null for kernels and graphs."),
    "copy_kind": Column(COPY_KIND, "Direction of a copy; null for other kinds."),
    "graph_node": Column(pl.Int64(), "Graph node id of an operation replayed from a graph; null if not from a graph or not recorded."),
}

CALLS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": _THREAD,
    "start_ns": _START,
    "end_ns": _END,
    "correlation": _CORRELATION,
    "name": Column(NAME, "API function as recorded, version suffix kept (`cudaLaunchKernel_v7000`)."),
    "family": Column(CALL_FAMILY, "What the call does, by its name without version suffix."),
}

SYNCS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "device": _DEVICE,
    "context": _CONTEXT,
    "stream": _STREAM,
    "start_ns": Column(pl.Int64(), "Start of the recorded activity; null where the table has no time (nsys event records)."),
    "end_ns": Column(pl.Int64(), "End; null as `start_ns`."),
    "correlation": _CORRELATION,
    "kind": Column(SYNC_KIND, "What it is, by API name where the call is recorded, else by the tool's own type."),
    "event": Column(pl.Int64(), "CUDA event id, reused over time; null if a sentinel (-1, 4294967295)."),
    "event_sync": Column(pl.Int64(), "nsys eventSyncId: names one record within (source, process); null if none or a sentinel."),
    "record_correlation": Column(pl.Int64(), "torch: correlation of the event record waited for; null if unknown (-1 or absent)."),
}

RANGES: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": _THREAD,
    "device": Column(pl.Int32(), "Device of a gpu_span; null for host ranges."),
    "stream": Column(pl.Int64(), "Stream of a gpu_span; null for host ranges."),
    "start_ns": _START,
    "end_ns": Column(pl.Int64(), "End; null: never closed within the capture. Equal to `start_ns` for instants."),
    "kind": Column(RANGE_KIND, "How the range was written."),
    "domain": Column(NAME, "NVTX domain name; null for the default domain and for torch."),
    "name": Column(pl.String(), "Text of the range."),
    "payload": Column(pl.Int64(), "Integer NVTX payload; null if none."),
}

COMMS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": Column(pl.Int64(), "Host thread of a record_param_comms row; null for kernel rows."),
    "start_ns": _START,
    "end_ns": _END,
    "correlation": Column(pl.Int64(), "Correlation id of the communication kernel; null for host rows."),
    "external_id": Column(pl.Int64(), "torch `External id`: ties a kernel row to its host row within (source, process); null if absent."),
    "op": Column(COMM_OP, "Operation; `wait` rows are not kept."),
    "group": Column(pl.String(), "Process group name; null if not recorded."),
    "group_ranks": Column(pl.String(), "Ranks of the group as recorded (JSON list text); null if not recorded."),
    "group_size": Column(pl.Int64(), "Number of ranks; null if not recorded."),
    "peer": Column(pl.Int64(), "Other rank of a send or receive; null for collectives or if not recorded."),
    "seq": Column(pl.Int64(), "Sequence number within the group; null if the file has none."),
    "size_bytes": Column(pl.Int64(), "Bytes handed in (received, for recv), elements times the size of dtype; null if unknown."),
    "dtype": Column(pl.String(), "Element type as recorded; null if not recorded."),
}

THREADS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": _THREAD,
    "name": Column(pl.String(), "Thread name; null if not recorded."),
    "autograd": Column(pl.Boolean(), "True if it is one of torch's backward threads, by name or by the operations it ran."),
}

PROCESSES: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "pid": Column(pl.Int64(), "Operating system pid as recorded; null if only a label is known."),
    "label": Column(pl.String(), "Name or label of the process; null if not recorded."),
    "file_rank": Column(pl.Int32(), "Rank that the file itself states for the process (distributedInfo); null if it states none."),
}

READER_TABLES: Mapping[str, Table] = {
    "ops": OPS,
    "calls": CALLS,
    "syncs": SYNCS,
    "ranges": RANGES,
    "comms": COMMS,
    "threads": THREADS,
    "processes": PROCESSES,
}
"""Tables that a reader fills. It leaves out the columns ``source`` and ``rank``."""

_ADDED_BY_TRACE = ("source", "rank")


def dtypes(table: Table) -> dict[str, pl.DataType | type[pl.DataType]]:
    """Return column name to dtype, in order."""
    return {name: column.dtype for name, column in table.items()}


def reader_dtypes(table: str) -> dict[str, pl.DataType | type[pl.DataType]]:
    """Return column name to dtype of a table as a reader delivers it."""
    return {n: c.dtype for n, c in READER_TABLES[table].items() if n not in _ADDED_BY_TRACE}


def empty_reader_table(table: str) -> pl.DataFrame:
    """Return a reader's table with no rows."""
    return pl.DataFrame(schema=reader_dtypes(table))


def conform(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return ``frame`` with exactly the columns, order and dtypes a reader has to deliver.

    Columns that ``frame`` lacks are added as null; columns that the table does not have are dropped.
    """
    wanted = reader_dtypes(table)
    return frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in wanted.items()
    )

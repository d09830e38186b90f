"""Small Nsight Systems exports of several schema ages, as SQLite files and as parquet folders."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import polars as pl

EPOCH = 1_700_000_000_000_000_000
NO_ID = 4_294_967_295
TEXT_COLUMNS = {"name", "value", "text", "label", "utcTime"}
REAL_COLUMNS = {"doubleValue", "floatValue"}
UNSIGNED = {"globalTid", "globalPid", "streamId", "contextId", "uint64Value"}  # as nsys writes them to parquet

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
START = "TARGET_INFO_SESSION_START_TIME"

STRINGS = {
    1: "cudaLaunchKernel_v7000",
    2: "cudaMemcpyAsync_v3020",
    3: "cudaEventRecord_v3020",
    4: "cudaStreamWaitEvent_v3020",
    5: "cudaStreamSynchronize_v3020",
    6: "cudaMemsetAsync_v3020",
    7: "cudaGraphLaunch_v10000",
    10: "add(float *)",
    11: "add",
    12: "mul(float *)",
    13: "mul",
    20: "ncclSend",
    21: "NCCL",
    22: "gapscope",
    23: "gapscope::submit",
    24: "CUDA profiling data flush",
    30: "python3",
    31: "pt_autograd_0",
}


def process(pid, machine=1):
    """Global id of a process; ``machine`` stands in the upper bits."""
    return machine << 48 | pid << 24


def thread(pid, tid, machine=1):
    return process(pid, machine) | tid


A, B = 100, 200  # the two processes; each numbers its correlations from 1


class Export:
    """Tables of an export, to be changed and written."""

    def __init__(self):
        self.tables = {}  # name -> (columns, rows as dicts)

    def add(self, table, *rows, columns=None):
        there, old = self.tables.get(table, ((), []))
        names = dict.fromkeys([*there, *(columns or ()), *(c for row in rows for c in row)])
        self.tables[table] = (tuple(names), [*old, *rows])
        return self

    def drop(self, *tables):
        for table in tables:
            self.tables.pop(table, None)
        return self

    def empty(self, *tables):
        for table in tables:
            self.tables[table] = (self.tables[table][0], [])
        return self

    def without(self, table, *columns):
        names, rows = self.tables[table]
        kept = tuple(c for c in names if c not in columns)
        self.tables[table] = (kept, [{c: v for c, v in row.items() if c in kept} for row in rows])
        return self

    def rename(self, table, old, new):
        names, rows = self.tables[table]
        renamed = [{new if c == old else c: v for c, v in row.items()} for row in rows]
        self.tables[table] = (tuple(new if c == old else c for c in names), renamed)
        return self

    def change(self, table, position, **values):
        names, rows = self.tables[table]
        changed = [row | values if n == position else row for n, row in enumerate(rows)]
        self.tables[table] = (tuple(dict.fromkeys([*names, *values])), changed)
        return self

    def set(self, table, name, value):
        """Set a value of a table of names and values; None takes it out."""
        columns, rows = self.tables.get(table, (("name", "value"), []))
        rows = [row for row in rows if row["name"] != name]
        self.tables[table] = (columns, rows if value is None else [*rows, {"name": name, "value": value}])
        return self

    def shuffled(self, seed=1):
        """The same rows and columns in another order."""
        order = random.Random(seed)
        out = Export()
        for table, (columns, rows) in self.tables.items():
            out.tables[table] = (
                tuple(order.sample(columns, len(columns))),
                order.sample(rows, len(rows)),
            )
        return out

    def write_sqlite(self, path, page_size=4096):
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {page_size}")
            for table, (columns, rows) in self.tables.items():
                key = " PRIMARY KEY" if table == "StringIds" or table.startswith("ENUM_") else ""
                types = [f'"{c}" {_sqlite_type(c)}{key if c == "id" else ""}' for c in columns]
                connection.execute(f'CREATE TABLE "{table}" ({", ".join(types)})')
                marks = ", ".join("?" * len(columns))
                values = [[_signed(row.get(c)) for c in columns] for row in rows]
                connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
            connection.commit()
        return path

    def write_parquet(self, folder):
        folder.mkdir(exist_ok=True)
        for table, (columns, rows) in self.tables.items():
            schema = {c: _parquet_type(c) for c in columns}
            pl.DataFrame([[row.get(c) for c in columns] for row in rows], schema=schema, orient="row").write_parquet(
                folder / f"{table}.parquet"
            )
        return folder


def _sqlite_type(column):
    return "TEXT" if column in TEXT_COLUMNS else "REAL" if column in REAL_COLUMNS else "INTEGER"


def _parquet_type(column):
    if column in TEXT_COLUMNS:
        return pl.String
    if column in REAL_COLUMNS:
        return pl.Float64
    return pl.UInt64 if column in UNSIGNED else pl.Int64


def _signed(value):
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


def call(pid, tid, start, end, correlation, name):
    """A row of the table of API calls."""
    return {
        "start": start,
        "end": end,
        "eventClass": 0,
        "globalTid": thread(pid, tid),
        "correlationId": correlation,
        "nameId": name,
        "returnValue": 0,
    }


def on_stream(pid, start, end, correlation, device=0, stream=7, context=1, **more):
    """What rows of GPU operations have in common."""
    return {
        "start": start,
        "end": end,
        "deviceId": device,
        "contextId": context,
        "streamId": stream,
        "correlationId": correlation,
        "globalPid": process(pid),
        **more,
    }


def nvtx(pid, tid, start, end, kind=59, text=None, text_id=None, domain=0, **more):
    """A row of the table of NVTX events."""
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "text": text,
        "textId": text_id,
        "globalTid": thread(pid, tid),
        "domainId": domain,
        **more,
    }


def small_export():
    """Two processes with a little of everything, in a schema of 2025."""
    out = Export()
    out.add("StringIds", *({"id": i, "value": v} for i, v in STRINGS.items()))
    out.add(
        "META_DATA_EXPORT",
        {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"},
        {"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.3"},
        {"name": "EXPORT_PARAM_TIME_NORMALIZE", "value": "false"},
        {"name": "EXPORT_PARAM_TIME_SHIFT", "value": "0"},
        {"name": "EXPORT_PARAM_TABLES_TO_EXPORT", "value": ""},
    )
    out.add(
        "META_DATA_CAPTURE",
        {"name": "CAPTURE_EVENT_TYPE", "value": "NvtxEvents"},
        {"name": "CAPTURE_EVENT_TYPE", "value": "Cuda"},
        {"name": "PROCESS_0:COLLECT_NVTX_TRACE", "value": "true"},
        {"name": "PROCESS_0:COLLECT_CUDA_TRACE", "value": "true"},
    )
    out.add(START, {"utcEpochNs": EPOCH, "utcTime": "2023-11-14T22:13:20"})
    out.add("TARGET_INFO_SYSTEM_ENV", {"name": "Hostname", "value": "node7"}, {"name": "CpuCores", "value": "2"})
    out.add(
        "PROCESSES", *({"globalPid": process(p), "pid": p, "name": n} for p, n in ((A, "r0"), (B, "r1"), (1, "init")))
    )
    out.add(
        "ThreadNames",
        {"globalTid": thread(A, 101), "nameId": 30, "priority": 10},
        {"globalTid": thread(A, 102), "nameId": 31, "priority": 20},
        {"globalTid": thread(A, 102), "nameId": 30, "priority": 10},
        {"globalTid": thread(1, 1), "nameId": 30, "priority": 10},
    )
    out.add(
        RUNTIME,
        call(A, 101, 1000, 1200, 1, 1),
        call(B, 201, 1000, 1100, 1, 1),
        call(B, 201, 1200, 1300, 2, 6),
        call(A, 101, 1300, 1350, 2, 2),
        call(A, 101, 1400, 1450, 3, 3),
        call(A, 101, 1500, 1550, 4, 4),
        call(A, 101, 1600, 1900, 5, 5),
    )
    out.add(
        KERNEL,
        on_stream(A, 2000, 2500, 1, demangledName=10, shortName=11, graphNodeId=None),
        on_stream(B, 2000, 2600, 1, device=1, stream=17, demangledName=12, shortName=13, graphNodeId=None),
    )
    out.add(MEMCPY, on_stream(A, 2600, 2700, 2, stream=13, bytes=4096, copyKind=2, graphNodeId=None))
    out.add(MEMSET, on_stream(B, 2700, 2710, 2, device=1, stream=17, bytes=64, graphNodeId=None))
    out.add(
        SYNC,
        on_stream(A, 1510, 1520, 4, stream=13, syncType=2, eventId=9, eventSyncId=33),
        on_stream(A, 1610, 1890, 5, syncType=2, eventId=NO_ID, eventSyncId=NO_ID),
    )
    record = on_stream(A, None, None, 3, eventId=9, eventSyncId=33)
    out.add(EVENT, {c: v for c, v in record.items() if c not in ("start", "end")})
    out.add(
        NVTX,
        nvtx(A, 101, -50, None, kind=75, text="NCCL", domain=1),
        nvtx(A, 101, 900, 3000, text="gapscope::step step=1"),
        nvtx(A, 101, 1010, 1020, text_id=20, domain=1),
        nvtx(B, 201, 2900, None, kind=34, text="gapscope::available src=0 dst=1 seq=1"),
        nvtx(A, 101, 1100, 1150, text="aten::add"),
    )
    return out


def oldest(export):
    """Take away what exports of 2021 did not have."""
    export.drop("META_DATA_EXPORT", "META_DATA_CAPTURE", START, "PROCESSES", EVENT)
    return export.without(SYNC, "eventSyncId").without(NVTX, "textId")


def at_start(export, **values):
    """Set what the export says about the start of its session: only these columns, in this order."""
    return export.drop(START).add(START, values)


def normalized(export, epoch=EPOCH):
    """Add the epoch to all times and say so, as ``nsys export --ts-normalize`` does."""
    for table in (KERNEL, MEMCPY, MEMSET, RUNTIME, SYNC, NVTX):
        columns, rows = export.tables[table]
        moved = [row | {c: epoch + row[c] for c in ("start", "end") if row.get(c) is not None} for row in rows]
        export.tables[table] = (columns, moved)
    return export.set("META_DATA_EXPORT", "EXPORT_PARAM_TIME_NORMALIZE", "true")


def compact_payload(seq):
    """Payload of a compact mark from rank 0 to rank 1."""
    return 1 << 30 | seq

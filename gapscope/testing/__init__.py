"""Recordings built by hand, with exact integer times, for tests of what stands on the tables.

>>> r0 = Recording("rank0", pid=10)
>>> r0.mark("produce src=0 dst=1 seq=1", 0, 100)
>>> r0.kernel(call_ns=10, start_ns=200, end_ns=260)
>>> trace(r0).ops.select("start_ns", "end_ns").rows()
[(200, 260)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import polars as pl
from gapscope_instrumentation.contract import PREFIX

from gapscope.load import assemble
from gapscope.readers.base import SourceInfo, SourceTables
from gapscope.schema import READER_TABLES, conform, empty_reader_table
from gapscope.trace import Trace

__all__ = ["Recording", "trace"]

THREAD = 1


class Recording:
    """One file with one process, filled row by row.

    Args:
        path: Name of the file.
        pid: Process, and its pid.
        tool: Who recorded.
        info: More fields of `gapscope.readers.base.SourceInfo`.
    """

    def __init__(self, path: str, pid: int = 1, tool: Literal["nsys", "torch"] = "nsys", **info: Any) -> None:
        self.pid = pid
        self.info = SourceInfo(path=path, format="built", tool=tool, **info)
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in READER_TABLES}
        self.rows["processes"].append({"process": pid, "pid": pid})
        self._correlation = 0

    def mark(self, text: str, start_ns: int, end_ns: int | None, thread: int = THREAD, **row: Any) -> None:
        """Add a host range; ``text`` without the prefix. ``end_ns`` None: it never closes."""
        default = {"kind": "push_pop", "thread": thread, "start_ns": start_ns, "end_ns": end_ns}
        self._add("ranges", {**default, "name": PREFIX + text, **row})

    def point(self, text: str, at_ns: int, thread: int = THREAD) -> None:
        """Add a point mark."""
        self.mark(text, at_ns, at_ns, thread, kind="instant")

    def gpu_span(self, text: str, start_ns: int, end_ns: int, stream: int = 7) -> None:
        """Add the tool's own GPU span of a mark."""
        row = {"kind": "gpu_span", "start_ns": start_ns, "end_ns": end_ns, "device": 0, "stream": stream}
        self._add("ranges", {**row, "name": PREFIX + text})

    def call(self, call_ns: int, thread: int = THREAD, family: str = "launch", correlation: int | None = None) -> int:
        """Add an API call of 1 ns; returns its correlation id, the next one unless given."""
        self._correlation = correlation if correlation is not None else self._correlation + 1
        row = {"thread": thread, "start_ns": call_ns, "end_ns": call_ns + 1, "correlation": self._correlation}
        self._add("calls", {**row, "name": family, "family": family})
        return self._correlation

    def kernel(
        self, call_ns: int, start_ns: int | None, end_ns: int | None, stream: int = 7, thread: int = THREAD, **op: Any
    ) -> None:
        """Add a GPU operation and the call that launched it."""
        self.op(self.call(call_ns, thread), start_ns, end_ns, stream, **op)

    def timed_call(self, start_ns: int, end_ns: int, family: str = "launch", name: str | None = None) -> int:
        """Add an API call that takes time; returns its correlation id."""
        correlation = self.call(start_ns, family=family)
        self.rows["calls"][-1].update(end_ns=end_ns, name=name or family)
        return correlation

    def event_record(self, call_ns: int, stream: int, event_sync: int | None = None, device: int = 0) -> None:
        """Add an event record in a stream; ``event_sync`` is what nsys names it by (None: as torch, with no row)."""
        correlation = self.call(call_ns, family="event_record")
        if event_sync is not None:
            row = {"device": device, "context": 1, "stream": stream, "correlation": correlation, "kind": "event_record"}
            self._add("syncs", {**row, "event_sync": event_sync})

    def stream_wait(self, call_ns: int, stream: int, event_sync: int | None = None, device: int = 0) -> None:
        """Let a stream wait for an event; ``event_sync`` None: its record is not named."""
        correlation = self.call(call_ns, family="stream_wait")
        row = {"device": device, "context": 1, "stream": stream, "correlation": correlation, "kind": "stream_wait"}
        self._add("syncs", {**row, "event_sync": event_sync})

    def message(self, name: Literal["gloo:send", "gloo:recv"], start_ns: int, end_ns: int) -> None:
        """Add a message between hosts as torch annotates it, and the operator that sends it."""
        if name == "gloo:send":
            self._add(
                "ranges",
                {"kind": "op", "thread": THREAD, "start_ns": start_ns, "end_ns": start_ns, "name": "c10d::send"},
            )
        row = {"kind": "annotation", "thread": THREAD, "start_ns": start_ns, "end_ns": end_ns, "name": name}
        self._add("ranges", row)

    def event_query(self, start_ns: int, end_ns: int, event: int = 1, event_sync: int | None = None) -> None:
        """Poll an event; ``event_sync`` None: its record is not named."""
        correlation = self.timed_call(start_ns, end_ns, "event_query")
        row = {"device": 0, "context": 1, "correlation": correlation, "kind": "event_query"}
        self._add("syncs", {**row, "event": event, "event_sync": event_sync})

    def stream(self, stream: int, kind: str, device: int = 0) -> None:
        """Say how a stream was made, as nsys does: one of `gapscope.schema.STREAM_KIND`."""
        self._add("streams", {"context": 1, "device": device, "stream": stream, "kind": kind})

    def overhead(self, name: str, start_ns: int, end_ns: int, thread: int | None = THREAD) -> None:
        """Add the profiler's own recorded activity; ``thread`` None: the tool does not say whose, as torch."""
        row = {"kind": "overhead", "thread": thread, "start_ns": start_ns, "end_ns": end_ns, "name": name}
        self._add("ranges", row)

    def add_process(self, other: Recording) -> Recording:
        """Let this file hold the process of another recording, too."""
        for table, rows in other.rows.items():
            self.rows[table] += rows
        return self

    def op(self, correlation: int, start_ns: int | None, end_ns: int | None, stream: int = 7, **op: Any) -> None:
        """Add a GPU operation alone."""
        row = {"device": 0, "context": 1, "stream": stream, "start_ns": start_ns, "end_ns": end_ns, "kind": "kernel"}
        self._add("ops", {**row, "name": "kernel", "correlation": correlation, **op})

    def sync(
        self, start_ns: int, end_ns: int, stream: int | None = 7, thread: int = THREAD, family: str = "stream_sync"
    ) -> None:
        """Add a synchronizing call and what the tool says it waited for; ``stream`` None: it does not say."""
        correlation = self.call(start_ns, thread, family)
        self.rows["calls"][-1]["end_ns"] = end_ns
        if stream is not None:
            row = {"device": 0, "context": 1, "stream": stream, "start_ns": start_ns, "end_ns": end_ns}
            self._add("syncs", {**row, "correlation": correlation, "kind": family})

    def communication(self, op: str, call_ns: int, start_ns: int, end_ns: int, stream: int = 9, **row: Any) -> None:
        """Add a kernel that communicates, the call that launched it, and what the tool knows of the communication.

        Args:
            op: One of `gapscope.schema.COMM_OP`.
            call_ns: Start of the call.
            start_ns: Start of the kernel.
            end_ns: End of the kernel.
            stream: Stream of the kernel.
            row: More columns of table ``comms``: ``seq``, ``group``, ``peer``, ``size_bytes``, ...
        """
        correlation = self.call(call_ns)
        self.op(correlation, start_ns, end_ns, stream, name=f"nccl_{op}")
        default = {"op": op, "group": "0", "start_ns": start_ns, "end_ns": end_ns, "correlation": correlation}
        self._add("comms", {**default, **row})

    def on_clock(self, host: Callable[[int], int], device: Callable[[int], int] | None = None) -> Recording:
        """Let another clock have recorded all of it.

        Args:
            host: From a time of a host record as it stands to what that clock showed then.
            device: The same for times that the device's clock tells; None: as the host.
        """
        for table, rows in self.rows.items():
            for row in rows:
                on_gpu = table == "ops" or (table == "comms" and row.get("thread") is None)
                on_gpu = on_gpu or row.get("kind") == "gpu_span"
                show = device if device is not None and on_gpu else host
                for column in ("start_ns", "end_ns"):
                    if row.get(column) is not None:
                        row[column] = show(row[column])
        return self

    def shift(self, by_ns: int) -> Recording:
        """Add a constant to all times."""
        return self.on_clock(lambda ns: ns + by_ns)

    def thread(self, thread: int, name: str, autograd: bool = False) -> None:
        """Name a thread."""
        self._add("threads", {"thread": thread, "name": name, "autograd": autograd})

    def tables(self) -> SourceTables:
        """Return what a reader would deliver."""
        frames = {}
        for name, rows in self.rows.items():
            filled = pl.DataFrame(rows, infer_schema_length=None) if rows else empty_reader_table(name)
            frames[name] = conform(filled, name).lazy()
        return SourceTables(self.info, frames)

    def _add(self, table: str, row: Mapping[str, Any]) -> None:
        self.rows[table].append({"process": self.pid, **row})


def trace(*recordings: Recording, rank_of: Mapping[int, int] | None = None) -> Trace:
    """Return the trace of the recordings of one run."""
    return assemble([r.tables() for r in recordings], rank_of=rank_of)

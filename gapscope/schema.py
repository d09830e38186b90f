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

CLAIM_ERROR_NS = {"nsys": 50_000, "torch": 500, "gapscope": 1_000}
"""How far a file's absolute time may be off from its host's clock where it does not say itself, by tool: nsys writes
one pair of readings of unknown precision; torch fits about a thousand pairs; the mark log says it
(``sources.claim_error_ns``)."""

SYSTEM_CLOCK_NS = {"nsys": 1_000, "torch": 1_000, "gapscope": 0}
"""The same for the reading of the host's monotonic clock, which newer nsys writes; times of the mark log are of that
clock."""

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
STREAM_KIND = pl.Enum(
    [
        "blocking",  # waits for the legacy default stream of its context, and that for it
        "non_blocking",
        "legacy_default",
    ]
)
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
    [
        "send",
        "recv",
        "allreduce",
        "allgather",
        "reducescatter",
        "alltoall",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "barrier",
        "coalesced",
        "other",
    ]
)


class Column(NamedTuple):
    """One column of a table."""

    dtype: pl.DataType | type[pl.DataType]
    doc: str


Table = Mapping[str, Column]

_SOURCE = Column(pl.Int32(), "Position of the file in `sources`.")
_RANK = Column(pl.Int32(), "Global rank of the process; null if nothing tells it.")
_PROCESS = Column(
    pl.Int64(),
    "Process within the file: its pid, or a number of the reader's own where pids collide. Not unique across files.",
)
_THREAD = Column(pl.Int64(), "Thread within the process, as the tool numbers it; null for GPU rows.")
_START = Column(
    pl.Int64(), "Start. Unix nanoseconds, or nanoseconds since an unknown zero where `sources.clock` is `relative`."
)
_END = Column(pl.Int64(), "End, same clock as `start_ns`. Null: not recorded.")
_CORRELATION = Column(
    pl.Int64(), "CUPTI/ROCm correlation id, unique within (source, process) only; null if none or a sentinel."
)
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
    "from_device": Column(pl.Int32(), "Device that a copy between two devices reads; null for all else."),
    "to_device": Column(pl.Int32(), "Device that a copy between two devices writes; null for all else."),
    "graph_node": Column(
        pl.Int64(), "Graph node id of an operation replayed from a graph; null if not from a graph or not recorded."
    ),
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
    "start_ns": Column(
        pl.Int64(), "Start of the recorded activity; null where the table has no time (nsys event records)."
    ),
    "end_ns": Column(pl.Int64(), "End; null as `start_ns`."),
    "correlation": _CORRELATION,
    "kind": Column(SYNC_KIND, "What it is, by API name where the call is recorded, else by the tool's own type."),
    "event": Column(pl.Int64(), "CUDA event id, reused over time; null if a sentinel (-1, 4294967295)."),
    "event_sync": Column(
        pl.Int64(), "nsys eventSyncId: names one record within (source, process); null if none or a sentinel."
    ),
    "record_correlation": Column(
        pl.Int64(), "torch: correlation of the event record waited for; null if unknown (-1 or absent)."
    ),
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
    "external_id": Column(
        pl.Int64(), "torch `External id`: ties a kernel row to its host row within (source, process); null if absent."
    ),
    "op": Column(COMM_OP, "Operation; `wait` rows are not kept."),
    "group": Column(pl.String(), "Process group name; null if not recorded."),
    "group_ranks": Column(pl.String(), "Ranks of the group as recorded (JSON list text); null if not recorded."),
    "group_size": Column(pl.Int64(), "Number of ranks; null if not recorded."),
    "peer": Column(pl.Int64(), "Other rank of a send or receive; null for collectives or if not recorded."),
    "root": Column(
        pl.Int64(),
        "Root of a broadcast, scatter, reduce or gather, as its position in the group; host rows only, else null.",
    ),
    "seq": Column(pl.Int64(), "Sequence number within the group; null if the file has none."),
    "size_bytes": Column(
        pl.Int64(), "Bytes handed in (received, for recv), elements times the size of dtype; null if unknown."
    ),
    "dtype": Column(pl.String(), "Element type as recorded; null if not recorded."),
}

THREADS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": _THREAD,
    "name": Column(pl.String(), "Thread name; null if not recorded."),
    "autograd": Column(
        pl.Boolean(), "True if it is one of torch's backward threads, by name or by the operations it ran."
    ),
}

PROCESSES: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "pid": Column(pl.Int64(), "Operating system pid as recorded; null if only a label is known."),
    "label": Column(pl.String(), "Name or label of the process; null if not recorded."),
    "file_rank": Column(
        pl.Int32(), "Rank that the file itself states for the process (distributedInfo); null if it states none."
    ),
}

STREAMS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "context": _CONTEXT,
    "device": _DEVICE,
    "stream": _STREAM,
    "kind": Column(STREAM_KIND, "How it was made; null: not recorded. Tools that say nothing of streams have no rows."),
}

READER_TABLES: Mapping[str, Table] = {
    "ops": OPS,
    "calls": CALLS,
    "syncs": SYNCS,
    "ranges": RANGES,
    "comms": COMMS,
    "threads": THREADS,
    "processes": PROCESSES,
    "streams": STREAMS,
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


SOURCES: Table = {
    "source": Column(pl.Int32(), "Position of the file among the files of the run, ordered by path."),
    "path": Column(pl.String(), "The file as the user named it."),
    "format": Column(pl.String(), "Reader that read it."),
    "tool": Column(pl.String(), "Program that recorded: nsys, torch, or gapscope (the mark log)."),
    "version": Column(pl.String(), "Version of that program; null if the file does not say."),
    "schema": Column(pl.String(), "Version of the file's own format; null if the file does not say."),
    "host": Column(pl.String(), "Machine; null if neither the file nor a mark log of its processes says."),
    "boot_id": Column(
        pl.String(),
        "Boot of the machine: files of one host share a clock only if theirs are equal; null if the file does not say.",
    ),
    "ranks": Column(pl.List(pl.Int32()), "Ranks found in it."),
    "clock": Column(
        pl.String(), "`unix`: times are Unix nanoseconds by the file's own claim; `relative`: their zero is unknown."
    ),
    "clock_origin": Column(pl.String(), "How absolute time was had."),
    "epoch_ns": Column(
        pl.Int64(),
        "Unix time at the file's own zero by the file's own claim; the times of a `unix` file contain it. Null if the "
        "file does not say, says no plausible time, or writes times from 1970 on itself.",
    ),
    "system_clock_ns": Column(
        pl.Int64(), "Reading of the host's monotonic clock at the file's own zero; null if the file does not say."
    ),
    "counter_ns": Column(
        pl.Int64(), "Reading of the processor's counter at the file's own zero; null if the file does not say."
    ),
    "shift_ns": Column(
        pl.Int64(), "Recorded times were moved by this at export, and are so in all tables; 0 if not or not readable."
    ),
    "claim_error_ns": Column(
        pl.Int64(),
        "How far the file's absolute time may be off from its host's clock by its own word; null if it does not say.",
    ),
    "resolution_ns": Column(pl.Int64(), "Smallest step of the recorded times."),
    "window_start_ns": Column(pl.Int64(), "First time of any kept operation, call or range; null if there is none."),
    "window_end_ns": Column(pl.Int64(), "Last time of any kept operation, call or range; null if there is none."),
    "cpu_only": Column(pl.Boolean(), "The file says that the job had no GPU."),
    "gpu_traced": Column(pl.Boolean(), "GPU activity was asked for; null if the file does not tell."),
    "cpu_traced": Column(
        pl.Boolean(),
        "The torch file has operators, annotations or Python calls of the host; null if it has nothing at all, is cut "
        "before one was seen, or is of nsys.",
    ),
    "truncated": Column(pl.Boolean(), "The file ends before its own end."),
    "calls_in_order": Column(pl.Boolean(), "The API calls of each thread stand in the file in order of time."),
    "gpu_device": Column(pl.Int32(), "Mark log: GPU of the process as it numbers it; null if the file does not say."),
    "marks_cost": Column(
        pl.String(),
        "Mark log: what marks cost, a JSON object with `brackets` (timed), `begin_ns` and `end_ns` (medians); null if "
        "the file does not say.",
    ),
    "events": Column(pl.Int64(), "Records seen, kept or not."),
    "dropped": Column(pl.String(), "Records lost or left out, a JSON object from reason to count."),
}

MARKS: Table = {
    "source": _SOURCE,
    "process": _PROCESS,
    "rank": _RANK,
    "thread": _THREAD,
    "mark": Column(pl.String(), "Name of the mark (`gapscope_instrumentation.contract.MARKS`)."),
    "job": Column(pl.String(), "Job the key belongs to; null: the default job."),
    "src": Column(pl.Int64(), "Source rank of the key; host memory n is -1-n; null for groups and units."),
    "dst": Column(pl.Int64(), "Destination rank of the key; host memory n is -1-n; null for groups and units."),
    "channel": Column(pl.Int64(), "Channel of the key; 0 if not said."),
    "seq": Column(pl.Int64(), "Sequence number of the key, unwrapped; null for units."),
    "group": Column(pl.String(), "Communicator of a collective; null for pairs."),
    "slot": Column(pl.Int64(), "Tensor of the handoff; 0 if not said."),
    "step": Column(pl.Int64(), "Step; null if not said."),
    "mb": Column(pl.Int64(), "Microbatch; null if not said."),
    "size_bytes": Column(pl.Int64(), "Bytes of this message; null if not said."),
    "dir": Column(pl.String(), "`fwd` or `bwd`; null if not said."),
    "src_stage": Column(pl.Int64(), "Source stage; null if not said."),
    "dst_stage": Column(pl.Int64(), "Destination stage; null if not said."),
    "kind": Column(pl.String(), "`pp`, `tp`, `kv`, ...; null if not said."),
    "transport": Column(pl.String(), "Transport; null if not said."),
    "device": Column(pl.String(), "`cpu` if the mark says that its work is on the host; null if not said."),
    "name": Column(pl.String(), "Name of the handoff (`name=`); null if not said."),
    "stated_rank": Column(pl.Int64(), "`rank=` of the mark; null if not said."),
    "fields": Column(
        pl.String(), "All that follows the mark's name, as written; null in compact and log form, unless a log has it."
    ),
    "start_ns": _START,
    "end_ns": Column(pl.Int64(), "End; null: never closed within the capture. Equal to `start_ns` for instants."),
    "error_ns": Column(
        pl.Int64(),
        "Of a time that the device gave: its error to either side, against the host's clock; null: a mark of the host.",
    ),
    "asked_ns": Column(
        pl.Int64(), "Of a time that the device gave: when the host asked for it; null if unknown, and for all else."
    ),
    "form": Column(pl.String(), "`text`, `compact` or `log`."),
    "text": Column(pl.String(), "Text of the range; in compact and log form the name of the mark alone."),
}

EVENTS = ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start")
"""The five events of a handoff and ``receive_post``, the twin of ``submit`` on the destination."""

QUALITIES = ("same_clock", "bounded", "half_bounded", "wall_only", "unaligned")
"""How well a clock is placed, best first."""

EVENT_SOURCE = pl.Enum(["emitted", "derived", "recorded", "estimated", "missing", "not_applicable"])
STATUS = pl.Enum(
    [
        "complete",
        "edge_of_window",
        "unmatched_send",
        "unmatched_receive",
        "never_available",
        "incomplete",
        "ambiguous",
        "unaligned",
    ]
)
ORDER = pl.Enum(["ok", "violation", "cannot_tell"])
_EVENT_DOCS = {
    "producer_finish": "Last GPU operation launched in `produce` ended (source rank).",
    "submit": "The send call began (source host).",
    "receive_post": "The first `receive` began (destination host).",
    "movement_start": "First GPU operation launched in `submit` started.",
    "available": "Last GPU operation launched in `receive` ended (destination rank).",
    "consumer_start": "First GPU operation launched in `consume` started (destination rank).",
}

HANDOFFS: Table = {
    "handoff_id": Column(pl.String(), "Unique text, the same in every run of the program on the same recording."),
    "kind": Column(pl.String(), "`p2p`, `collective` or `local`."),
    "origin": Column(
        pl.String(),
        "How it is known: by `marks`; without any by `metadata` (the recordings name peer or group) or by `order`.",
    ),
    "job": Column(pl.String(), "Job of the key; null: the default job."),
    "src_rank": Column(pl.Int64(), "Source rank; of a collective the last rank to arrive; host memory n is -1-n."),
    "dst_rank": Column(pl.Int64(), "Destination rank; of a collective the one that waited; host memory n is -1-n."),
    "channel": Column(pl.Int64(), "Channel of the key."),
    "seq": Column(pl.Int64(), "Sequence number within (src, dst, channel) or (group, channel)."),
    "group": Column(pl.String(), "Communicator of a collective; null for pairs."),
    "step": Column(pl.Int64(), "Step; null if no mark says it."),
    "microbatch": Column(pl.Int64(), "Microbatch; null if no mark says it."),
    "direction": Column(pl.String(), "`fwd` or `bwd`; null if no mark says it."),
    "src_stage": Column(pl.Int64(), "Source stage; null if no mark says it."),
    "dst_stage": Column(pl.Int64(), "Destination stage; null if no mark says it."),
    "transport": Column(
        pl.String(), "`nccl`, `gloo`, `copy_engine`, `mailbox`, `symmetric`, `local`, `unknown`: said or inferred."
    ),
    "size_bytes": Column(pl.Int64(), "Bytes over all messages; null if a message's size is not known."),
    "messages": Column(pl.Int64(), "Number of messages (slots)."),
    **{
        f"{e}_ns": Column(pl.Int64(), f"{_EVENT_DOCS[e]} Unix ns on the common timebase; null: see `{e}_source`.")
        for e in EVENTS
    },
    **{f"{e}_source": Column(EVENT_SOURCE, f"How `{e}_ns` was had.") for e in EVENTS},
    "arrival_ns": Column(
        pl.Int64(),
        "Collectives: when `dst_rank` had arrived itself; from here to `movement_start_ns` it waited for `src_rank`. "
        "Unix ns on the common timebase; null for pairs, or if it is not known.",
    ),
    "transfer_ns": Column(
        pl.Int64(),
        "Collectives: the shortest time that any rank's communication took, each on its own clock; what `dst_rank` "
        "took beyond it was waiting (`available_ns - arrival_ns - transfer_ns`), whatever the clocks. Null for pairs, "
        "or if a rank's is not known.",
    ),
    "shortest_rank": Column(pl.Int64(), "Collectives: rank that took that long: the last to arrive by lengths alone."),
    "gap_ns": Column(pl.Int64(), "consumer_start - producer_finish; null if either is, or if the ranks are unaligned."),
    "uncertainty_ns": Column(
        pl.Int64(),
        "Bound of the clock error between its times, the largest over the clocks they are of, those of hosts and of "
        "devices: the larger distance of `offset_ns` to `lo_ns` and `hi_ns` of that pair in table `alignment`, plus "
        "both resolutions (`sources.resolution_ns`; 32 ns at least for a device). Null: no bound is known.",
    ),
    **{
        f"{part}_uncertainty_ns": Column(
            pl.Int64(), f"The same for the {part.replace('_', ' ')} alone: 0 if both its ends are of one clock."
        )
        for part in ("gap", "submission", "start_wait", "movement", "consumer_wait")
    },
    "status": Column(STATUS, "What became of the handoff within the capture."),
    "order": Column(ORDER, "`violation`: an event came before the one that it needs, beyond the clock uncertainty."),
    "steady": Column(
        pl.Boolean(), "False for the start-up of the capture (`gapscope.handoffs.steady` states the rule)."
    ),
    "dominant_cause": Column(pl.String(), "Cause with the most time of the gap; null: causes were not computed."),
    "dominant_ns": Column(pl.Int64(), "Time of the dominant cause; null as above."),
    "removable_ns": Column(pl.Int64(), "How much sooner the consumer would have started without it; null as above."),
    "next_cause": Column(pl.String(), "What would hold the gap then; null as above."),
    "consumer_bound": Column(
        pl.Boolean(), "The chain never touches the source rank; null as above, or if nothing explains a part of it."
    ),
    "slack_ns": Column(pl.Int64(), "How much later the data could have come; null as above."),
}

TILES: Table = {
    "handoff_id": Column(pl.String(), "Handoff whose gap it is part of."),
    "src_rank": Column(pl.Int64(), "Source rank of the handoff."),
    "dst_rank": Column(pl.Int64(), "Destination rank of the handoff."),
    "channel": Column(pl.Int64(), "Channel of the handoff's key."),
    "seq": Column(pl.Int64(), "Sequence number of the handoff's key."),
    "start_ns": Column(pl.Int64(), "Start, Unix ns on the common timebase."),
    "end_ns": Column(pl.Int64(), "End, not included; the tiles of a handoff are contiguous and sum to its gap."),
    "duration_ns": Column(pl.Int64(), "end_ns - start_ns."),
    "phase": Column(pl.String(), "Phase of the gap that it lies in; null: an event of the handoff is missing."),
    "cause": Column(pl.String(), "What held the gap (`gapscope.cause_names.CAUSES`)."),
    "rank": Column(pl.Int64(), "Rank on which it was held; null: unknown."),
    "lane": Column(pl.String(), "`host:<thread>` or `gpu<device>:stream<n>`; null: unknown."),
    "op": Column(pl.String(), "Operation or host call that the chain passes through; null: unknown."),
    "detail": Column(pl.String(), "What is known beside; null: nothing."),
    "evidence": Column(
        pl.String(),
        "How the dependency and its cause are known, the weaker of both: `recorded`, `structural`, `declared`, "
        "`inferred`, `assumed`, `unknown`.",
    ),
    "runner_up": Column(
        pl.String(), "What the clocks cannot tell from the binding dependency; null: the choice is certain."
    ),
    "uncertainty_ns": Column(pl.Int64(), "Clock error of the handoff, see `handoffs`."),
}

UNITS: Table = {
    "unit": Column(pl.String(), "`step` or `request`."),
    "id": Column(pl.String(), "Number of the step, or id of the request, as its mark says."),
    "job": Column(pl.String(), "Job of the mark; null: the default job."),
    "rank": Column(pl.Int64(), "Rank that ended it; null: unknown."),
    "start_ns": Column(
        pl.Int64(),
        "When it began, on the earliest rank that did not begin it by waiting for a handoff. Unix ns on the common "
        "timebase; null: a mark of it has no place there, or a rank recorded only earlier or later steps.",
    ),
    "end_ns": Column(
        pl.Int64(),
        "When its last mark had closed and the GPU operations launched inside the step's marks had ended. Null as "
        "above, or if a mark never closed.",
    ),
    "steps": Column(pl.List(pl.Int64()), "Steps: its own number, or those whose marks name the request."),
    "steady": Column(pl.Boolean(), "False for the start-up of the capture: a handoff in it is."),
}

EXPOSURE: Table = {
    "unit": Column(pl.String(), "`step` or `request`."),
    "id": Column(pl.String(), "The unit, see `units`."),
    "job": Column(pl.String(), "Its job."),
    "part": Column(
        pl.String(),
        "`gap`: the unit's path passes a gap here; else what it passes outside all gaps: `compute`, `transfer`, "
        "`host`, `latency`, `unknown` (`gapscope.cause_names.OUTSIDE`).",
    ),
    "kind": Column(pl.String(), "Kind of the edge; null outside gaps, like all that follows but `rank`."),
    "group": Column(pl.String(), "Communicator of the edge; null for pairs."),
    "src_rank": Column(pl.Int64(), "Source rank of the edge."),
    "dst_rank": Column(pl.Int64(), "Destination rank of the edge."),
    "channel": Column(pl.Int64(), "Channel of the edge."),
    "direction": Column(pl.String(), "Direction of the edge; null if no mark says it."),
    "cause": Column(pl.String(), "What held the gap (`gapscope.cause_names.CAUSES`)."),
    "rank": Column(pl.Int64(), "Rank on which the path passes; null: unknown."),
    "exposure_ns": Column(pl.Int64(), "Length of the path there. The rows of a unit sum to its length exactly."),
}

MESSAGES: Table = {
    "handoff_id": Column(pl.String(), "Handoff between two ranks whose bytes moved in two messages or more."),
    "src_rank": Column(pl.Int64(), "Source rank."),
    "dst_rank": Column(pl.Int64(), "Destination rank."),
    "channel": Column(pl.Int64(), "Channel of the key."),
    "direction": Column(pl.String(), "`fwd` or `bwd`; null if no mark says it."),
    "transport": Column(pl.String(), "Transport of the handoff."),
    "messages": Column(pl.Int64(), "Copies or sends launched inside its submit marks (else inside receive)."),
    "size_bytes": Column(pl.Int64(), "Bytes of all of them, as recorded, else as the marks say; null: unknown."),
    "first_ns": Column(pl.Int64(), "First movement, Unix ns on the common timebase."),
    "span_ns": Column(pl.Int64(), "From the first movement to the end of the last, on both ranks."),
    "moving_ns": Column(pl.Int64(), "Of it, any byte was moving: the union of the movements."),
    "holes": Column(pl.Int64(), "Number of stretches in which none was."),
    "unlaunched_ns": Column(pl.Int64(), "Time in holes before the call that launched the next message had returned."),
    "queued_ns": Column(pl.Int64(), "Time in holes in which it was launched and sat behind other work of its stream."),
    "latency_ns": Column(pl.Int64(), "Time in holes in which it was launched and its stream free."),
    "unknown_ns": Column(pl.Int64(), "Time in holes whose next message's launch was not recorded."),
    "launch_span_ns": Column(
        pl.Int64(),
        "From the end of the first launch call to that of the last, on the host's clock; null: not recorded.",
    ),
    "launch_uncertainty_ns": Column(pl.Int64(), "Clock error between launch calls and movements; null: no bound."),
    "hole_cause": Column(
        pl.String(), "Cause of most of the tiles in holes that the handoff's chain passes; null: it passes none."
    ),
    "hole_cause_ns": Column(pl.Int64(), "Time of those tiles."),
    "verdict": Column(
        pl.String(),
        "`bandwidth-bound`, `submission-bound`, `queue-bound`, `latency-bound`, `mixed`; "
        "`gapscope.causes.messages.verdict` states the rule.",
    ),
}

_HUMP = pl.List(pl.Struct({"n": pl.Int64, "p50_ns": pl.Int64}))

INTERFERENCE: Table = {
    "what": Column(pl.String(), "`transfer` (beside other GPU work), `kernel` or `step` (beside a transfer)."),
    "name": Column(pl.String(), "Kernel, or steps of how many kernels; null for transfers."),
    "edge": Column(pl.String(), "Ranks of a transfer; null for the others, as the next three."),
    "transport": Column(pl.String(), "Transport of the handoff."),
    "hop": Column(pl.String(), "Copy kind, `nccl`, or `kernel`."),
    "size_class": Column(pl.Int64(), "Bytes of a message, rounded down to a power of two; null: unknown."),
    "rank": Column(pl.Int64(), "Rank that ran it."),
    "device": Column(pl.Int64(), "Device that it ran on, as that process numbers it."),
    **{
        f"{side}_{column}": Column(dtype, doc.format(words))
        for side, words in (("alone", "with nothing beside them"), ("overlapped", "with something beside them"))
        for column, dtype, doc in (
            ("n", pl.Int64(), "How many ran {}."),
            ("p10_ns", pl.Int64(), "Their length {}, tenth percentile: of communication what followed the last start."),
            ("p50_ns", pl.Int64(), "Median; says nothing where there are two humps."),
            ("p90_ns", pl.Int64(), "Ninetieth percentile."),
            ("humps", _HUMP, "If the lengths {} have two humps: size and median of each."),
        )
    },
    "partly_n": Column(pl.Int64(), "How many had something beside them, but for less than half of the window."),
    "shift_ns": Column(pl.Int64(), "Hodges-Lehmann shift of the overlapped against the lonely; null: too few."),
    "shift_lo_ns": Column(pl.Int64(), "Its interval of 95 %, lower end."),
    "shift_hi_ns": Column(pl.Int64(), "Its interval of 95 %, upper end."),
    "verdict": Column(pl.String(), "`slower`, `faster`, `no difference`, or `too few` (`gapscope.causes.groups`)."),
}

WAITING: Table = {
    "rank": Column(pl.Int64(), "Rank whose communication kernels waited."),
    "for_rank": Column(pl.Int64(), "Rank whose kernel started last."),
    "kernels": Column(pl.Int64(), "Kernels that waited for it."),
    "waited_ns": Column(pl.Int64(), "How long past start-up, each moment once; no part of any one gap."),
    "recorded_ns": Column(pl.Int64(), "How long operations of `rank` were recorded past start-up."),
    "uncertainty_ns": Column(pl.Int64(), "Clock error of one wait; null: no bound is known."),
}

FIXES: Table = {
    "unit": Column(pl.String(), "`request` where any is marked, else `step`."),
    "cause": Column(pl.String(), "Cause that is replayed as gone; null: all listed ones at once, which is no sum."),
    "rank": Column(pl.Int64(), "Rank that it lies on; null: unknown, or all listed ones at once."),
    "to": Column(
        pl.String(),
        "What is left of it: `0`, or `p10`: what the best tenth of the handoffs of the same edge spends on it there.",
    ),
    "units": Column(pl.Int64(), "Steps or requests past start-up that the medians are over."),
    "before_p50_ns": Column(pl.Int64(), "Median of their lengths, as recorded."),
    "sooner_low_p50_ns": Column(
        pl.Int64(),
        "Median of how much less each would have taken, at least: what passes between something and the last of what "
        "it waited for stays as measured, whatever that is then. Null: no recorded end hangs on what is gone.",
    ),
    "sooner_high_p50_ns": Column(
        pl.Int64(), "The same at most: where something else comes last, the least that usually passes after such."
    ),
    "is_sensitive": Column(pl.Boolean(), "Both differ by more than a fifth: it hangs on how long launches take."),
    "handoffs": Column(pl.Int64(), "Counted handoffs that the cause is in."),
    "handoff_ns": Column(pl.Int64(), "Its time in their gaps: handoff time, no share of latency."),
    "not_replayed_ns": Column(pl.Int64(), "Of it what lies before nothing that is recorded, and changes nothing."),
    "uncertainty_ns": Column(
        pl.Int64(),
        "Clock error of what is gained: the largest of the counted handoffs that lose time, 0 on one clock; null: of "
        "one no bound is known. Gains below it are not told from none.",
    ),
}

SLACK: Table = {
    "handoff_id": Column(pl.String(), "Handoff whose gap is explained."),
    "unit_slack_ns": Column(
        pl.Int64(),
        "How much later its consumer could have started with every step and request ending when it did; null: no "
        "recorded end hangs on it.",
    ),
    "absorbed_rank": Column(pl.Int64(), "Rank of what is named next; null as that."),
    "absorbed_by": Column(
        pl.String(),
        "What the first thing behind the consumer that has slack waited for instead; null: the slack is 0 or unknown.",
    ),
}

ALIGNMENT: Table = {
    "source": _SOURCE,
    "path": Column(pl.String(), "Path of that file."),
    "rank": _RANK,
    "domain": Column(pl.String(), "`host`, or `gpu:<n>` for a device clock as seen in that file."),
    "reference": Column(pl.String(), "Clock that the offset is against: `<path>:<domain>`, or `anchors`."),
    "window_start_ns": Column(pl.Int64(), "Start of the time that the row is valid for, on the common timebase."),
    "window_end_ns": Column(pl.Int64(), "End of the time that the row is valid for."),
    "offset_ns": Column(pl.Int64(), "Added to the file's times to reach the common timebase; null: cannot be aligned."),
    "lo_ns": Column(pl.Int64(), "Lower bound of the offset throughout the window; null: none."),
    "hi_ns": Column(pl.Int64(), "Upper bound of the offset throughout the window; null: none."),
    "drift_ppm": Column(
        pl.Float64(), "By how much the file's clock runs fast against the reference; null: the bounds leave it open."
    ),
    "n_hard": Column(
        pl.Int64(), "Number of hard constraints used: those between this file and others, or this device and its host."
    ),
    "n_soft": Column(pl.Int64(), "Number of soft observations used."),
    "method": Column(pl.String(), "How the offset was had: what the constraints are of, or the file's own claim."),
    "quality": Column(
        pl.String(),
        "`same_clock`; `bounded`: by cause and effect on both sides; `half_bounded`: on one; `wall_only`: only by the "
        "file's own claim and what is assumed; `unaligned`.",
    ),
    "assumed": Column(pl.String(), "Assumptions that make the interval narrower than what is proven; null: none."),
}

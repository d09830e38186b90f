"""What of a torch.profiler file is read: categories, names and arguments, and the columns and classes they become."""

from __future__ import annotations

import functools
from enum import IntEnum

import numpy as np

from gapscope.readers.json_events import FIRST_ARG, INT, META_GROUP, TEXT, Spec


class Row(IntEnum):
    """Classes of rows that the scanner writes."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    CALL = 3
    SYNC = 4
    EVENT = 5  # category cuda_event: an event record with its stream
    ANNOTATION = 6
    GPU_SPAN = 7
    OP = 8  # a mark that an older torch wrote as cpu_op
    COMM = 9
    AUTOGRAD = 10  # says only that a thread is one of autograd's
    OVERHEAD = 11
    THREAD_NAME = 12
    PROCESS_NAME = 13


GPU_OPS = (Row.KERNEL, Row.MEMCPY, Row.MEMSET)
HOST = (Row.CALL, Row.ANNOTATION, Row.OP, Row.COMM, Row.AUTOGRAD)
"""Rows whose pid is that of a process of the host; the pid of GPU rows is a device, that of overhead is -1."""


class Arg(IntEnum):
    """Columns of the wanted arguments."""

    EXTERNAL = FIRST_ARG
    CORRELATION = FIRST_ARG + 1
    STREAM = FIRST_ARG + 2
    DEVICE = FIRST_ARG + 3
    CONTEXT = FIRST_ARG + 4
    BYTES = FIRST_ARG + 5
    GRAPH_NODE = FIRST_ARG + 6
    SYNC_KIND = FIRST_ARG + 7
    EVENT_ID = FIRST_ARG + 8
    RECORD_CORRELATION = FIRST_ARG + 9
    WAIT_ON_STREAM = FIRST_ARG + 10
    COLLECTIVE = FIRST_ARG + 11
    IN_ELEMENTS = FIRST_ARG + 12
    OUT_ELEMENTS = FIRST_ARG + 13
    GROUP_SIZE = FIRST_ARG + 14
    DTYPE = FIRST_ARG + 15
    GROUP = FIRST_ARG + 16
    GROUP_RANKS = FIRST_ARG + 17
    SRC_RANK = FIRST_ARG + 18
    DST_RANK = FIRST_ARG + 19
    RANK = FIRST_ARG + 20
    SEQ = FIRST_ARG + 21
    KIND = FIRST_ARG + 22  # ROCm: direction of a copy
    TITLE = FIRST_ARG + 23  # name that a metadata event gives
    FROM_DEVICE = FIRST_ARG + 24
    TO_DEVICE = FIRST_ARG + 25


COLUMNS = FIRST_ARG + len(Arg)

ARGS = (
    ("External id", Arg.EXTERNAL, INT),
    ("external id", Arg.EXTERNAL, INT),
    ("correlation", Arg.CORRELATION, INT),
    ("stream", Arg.STREAM, INT),
    ("device", Arg.DEVICE, INT),
    ("context", Arg.CONTEXT, INT),
    ("bytes", Arg.BYTES, INT),
    ("fromDevice", Arg.FROM_DEVICE, INT),
    ("toDevice", Arg.TO_DEVICE, INT),
    ("graph node id", Arg.GRAPH_NODE, INT),
    ("cuda_sync_kind", Arg.SYNC_KIND, TEXT),
    ("event_id", Arg.EVENT_ID, INT),
    ("wait_on_cuda_event_id", Arg.EVENT_ID, INT),
    ("wait_on_cuda_event_record_corr_id", Arg.RECORD_CORRELATION, INT),
    ("wait_on_stream", Arg.WAIT_ON_STREAM, INT),
    ("Collective name", Arg.COLLECTIVE, TEXT),
    ("In msg nelems", Arg.IN_ELEMENTS, INT),
    ("Out msg nelems", Arg.OUT_ELEMENTS, INT),
    ("Group size", Arg.GROUP_SIZE, INT),
    ("dtype", Arg.DTYPE, TEXT),
    ("Process Group Name", Arg.GROUP, TEXT),
    ("Process Group Ranks", Arg.GROUP_RANKS, TEXT),
    ("Src Rank", Arg.SRC_RANK, INT),
    ("Dst Rank", Arg.DST_RANK, INT),
    ("Rank", Arg.RANK, INT),
    ("Seq", Arg.SEQ, INT),
    ("kind", Arg.KIND, TEXT),
    ("name", Arg.TITLE, TEXT),
)

_CPU_OPS, _UNCATEGORIZED = -3, -4  # groups of names that decide; META_GROUP is -2
_DROP = -1

CATEGORIES = (
    # Name in lower case, action, name under which dropped events are counted. The first two are those without a
    # category and with an unknown one.
    ("", _UNCATEGORIZED, "uncategorized"),
    ("", _DROP, "foreign"),
    ("cpu_op", _CPU_OPS, "cpu_op"),
    ("ac2g", _DROP, "ac2g"),
    ("kernel", Row.KERNEL, "kernel"),
    ("cuda_runtime", Row.CALL, "cuda_runtime"),
    ("python_function", _DROP, "python_function"),
    ("cuda_driver", Row.CALL, "cuda_driver"),
    ("cuda_sync", Row.SYNC, "cuda_sync"),
    ("fwdbwd", _DROP, "fwdbwd"),
    ("user_annotation", Row.ANNOTATION, "user_annotation"),
    ("gpu_user_annotation", Row.GPU_SPAN, "gpu_user_annotation"),
    ("gpu_memcpy", Row.MEMCPY, "gpu_memcpy"),
    ("gpu_memset", Row.MEMSET, "gpu_memset"),
    ("cuda_event", Row.EVENT, "cuda_event"),
    ("overhead", Row.OVERHEAD, "overhead"),
    ("trace", _DROP, "trace"),
    ("cpu_instant_event", _DROP, "cpu_instant_event"),
    ("cuda_profiler_range", _DROP, "cuda_profiler_range"),
    ("external_correlation", _DROP, "external_correlation"),
    ("collective_comm", _DROP, "collective_comm"),
    ("privateuse1_runtime", Row.CALL, "privateuse1_runtime"),
    ("privateuse1_driver", Row.CALL, "privateuse1_driver"),
    ("xpu_runtime", Row.CALL, "xpu_runtime"),
    ("xpu_driver", Row.CALL, "xpu_driver"),
    ("mtia_runtime", Row.CALL, "mtia_runtime"),
    ("hip_runtime", Row.CALL, "hip_runtime"),
    ("hip_driver", Row.CALL, "hip_driver"),
    # The names of 2021.
    ("operator", _CPU_OPS, "cpu_op"),
    ("runtime", Row.CALL, "cuda_runtime"),
    ("memcpy", Row.MEMCPY, "gpu_memcpy"),
    ("memset", Row.MEMSET, "gpu_memset"),
    ("async", _DROP, "ac2g"),
)

_NAMES = (
    # Text, 1 if a prefix is enough, group, class.
    ("gapscope::", 1, _CPU_OPS, Row.OP),
    ("record_param_comms", 0, _CPU_OPS, Row.COMM),
    ("c10d::send", 0, _CPU_OPS, Row.OP),  # encloses what gloo annotates only after it has sent
    ("autograd::engine::evaluate_function", 1, _CPU_OPS, Row.AUTOGRAD),
    ("gapscope::", 1, _UNCATEGORIZED, Row.ANNOTATION),
    ("thread_name", 0, META_GROUP, Row.THREAD_NAME),
    ("process_name", 0, META_GROUP, Row.PROCESS_NAME),
)

OUTER_WANTED = (
    "baseTimeNanoseconds",
    "schemaVersion",
    "distributedInfo",
    "deviceProperties",
    "computeProperties",
    "torch_version",
    "pytorch_version",
)
"""Keys beside the list of events whose values are used."""

EVENTS_KEY = "traceEvents"

_OUTER = (*OUTER_WANTED, EVENTS_KEY, "traceName", "displayTimeUnit", "trace_id", "INFO", "WARNING", "ERROR")

PHASES = {ord("M"): "metadata", ord("i"): "instant", ord("I"): "instant", ord("C"): "counter"}
"""Types of events that are counted by type; all others are counted by category."""


@functools.cache
def spec() -> Spec:
    """Return what the scanner has to look for."""
    text = bytearray()

    def add(word: str) -> tuple[int, int]:
        start = len(text)
        text.extend(word.encode())
        return start, len(word)

    slots = {column: slot for slot, column in enumerate((c for _, c, kind in ARGS if kind == TEXT), start=3)}
    args = sorted(ARGS, key=lambda arg: len(arg[0]))
    keys = [(*add(word), column, kind, slots.get(column, 0)) for word, column, kind in args]
    lengths = np.array([len(word) for word, _, _ in args])
    table = {
        "keys": keys,
        "key_from": np.searchsorted(lengths, np.arange(lengths[-1] + 2)),
        "categories": [(*add(word), action) for word, action, _ in CATEGORIES],
        "names": [(*add(word), prefix, group, row) for word, prefix, group, row in _NAMES],
        "outer": [add(word) for word in _OUTER],
    }
    arrays = {name: np.array(value, dtype=np.int64) for name, value in table.items()}
    return Spec(text=np.array(text, dtype=np.uint8), distinct=int(Row.AUTOGRAD), **arrays)

"""Rows of the scanner, kept in groups that become tables."""

from __future__ import annotations

import numpy as np
import polars as pl

from gapscope.readers import json_events as scanner
from gapscope.readers.base import FIRST_UNIX_NS
from gapscope.readers.json_events import NULL, PID, START, TEXTS, TID, Ints
from gapscope.readers.kineto_fields import GPU_OPS, Arg, Row

TEXT_KEY = -(2**40)
"""Pids and tids that are texts are kept as TEXT_KEY minus the number of the string."""

EPOCH_NS = FIRST_UNIX_NS
"""The year 2000: times from here on count from 1970."""

_WHERE: dict[str, int] = {
    "row": scanner.CLASS,
    "name": scanner.NAME,
    "pid": PID,
    "tid": TID,
    "start": START,
    "duration": scanner.DURATION,
}
_COMM: dict[str, int] = {
    "correlation": Arg.CORRELATION,
    "external": Arg.EXTERNAL,
    "collective": Arg.COLLECTIVE,
    "in_elements": Arg.IN_ELEMENTS,
    "out_elements": Arg.OUT_ELEMENTS,
    "group_size": Arg.GROUP_SIZE,
    "dtype": Arg.DTYPE,
    "group": Arg.GROUP,
    "group_ranks": Arg.GROUP_RANKS,
    "src_rank": Arg.SRC_RANK,
    "dst_rank": Arg.DST_RANK,
    "peer_rank": Arg.RANK,
    "seq": Arg.SEQ,
}
_ON_DEVICE: dict[str, int] = {
    "correlation": Arg.CORRELATION,
    "stream": Arg.STREAM,
    "device": Arg.DEVICE,
    "context": Arg.CONTEXT,
}
GROUPS: dict[str, tuple[tuple[Row, ...], dict[str, int]]] = {
    "ops": (
        GPU_OPS,
        _ON_DEVICE
        | {
            "bytes": Arg.BYTES,
            "graph_node": Arg.GRAPH_NODE,
            "kind": Arg.KIND,
            "from": Arg.FROM_DEVICE,
            "to": Arg.TO_DEVICE,
        },
    ),
    "calls": ((Row.CALL,), {"correlation": Arg.CORRELATION}),
    "syncs": (
        (Row.SYNC, Row.EVENT),
        _ON_DEVICE
        | {
            "sync_kind": Arg.SYNC_KIND,
            "event": Arg.EVENT_ID,
            "record_correlation": Arg.RECORD_CORRELATION,
            "wait_on_stream": Arg.WAIT_ON_STREAM,
        },
    ),
    "ranges": ((Row.ANNOTATION, Row.OP, Row.GPU_SPAN, Row.OVERHEAD), {}),
    "comms": ((Row.COMM,), _COMM),
    "comm_kernels": ((Row.KERNEL,), _COMM),  # those with metadata
    "autograd": ((Row.AUTOGRAD,), {}),
    "names": ((Row.THREAD_NAME, Row.PROCESS_NAME), {"title": Arg.TITLE}),
}


class RowStore:
    """Takes the scanner's rows and gives them back as one frame a group.

    Attributes:
        epoch: Rows whose start counts from 1970.
        relative: Rows whose start does not; those at exactly zero are in neither count.
        count: Rows taken that are operations, calls or ranges: all that have a time.
        whole_microseconds: True if no start and no duration has a part of a microsecond.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[Ints]] = {group: [] for group in GROUPS}
        self.epoch = 0
        self.relative = 0
        self.whole_microseconds = True
        self.count = 0

    def take(self, rows: Ints) -> None:
        """Copy what the tables need of these rows; they are changed, too."""
        for column, bit in ((PID, scanner.PID_IS_TEXT), (TID, scanner.TID_IS_TEXT)):
            is_text = rows[:, TEXTS] & bit != 0
            rows[~is_text & (rows[:, column] <= TEXT_KEY), column] = NULL  # no number of a process or thread
            rows[is_text, column] = TEXT_KEY - rows[is_text, column]
        self._look_at_times(rows)
        for group, (classes, extra) in GROUPS.items():
            wanted = np.isin(rows[:, scanner.CLASS], classes)
            if group == "comm_kernels":
                wanted &= rows[:, Arg.COLLECTIVE] != NULL
            if wanted.any():
                self._parts[group].append(rows[wanted][:, [*_WHERE.values(), *extra.values()]])

    def _look_at_times(self, rows: Ints) -> None:
        start, duration = rows[:, START], rows[:, scanner.DURATION]
        used = (rows[:, scanner.CLASS] < Row.THREAD_NAME) & (rows[:, scanner.CLASS] != Row.AUTOGRAD)
        self.count += int(np.count_nonzero(used))
        timed = used & (start != 0)
        epoch = int(np.count_nonzero(timed & (start >= EPOCH_NS)))
        self.epoch += epoch
        self.relative += int(np.count_nonzero(timed)) - epoch
        if self.whole_microseconds:
            parts = (start % 1000 != 0) | ((duration % 1000 != 0) & (duration != NULL))
            self.whole_microseconds = not bool((used & parts).any())

    def frame(self, group: str) -> pl.DataFrame:
        """Return the rows of one group, all columns Int64, and forget them."""
        names = [*_WHERE, *GROUPS[group][1]]
        parts, self._parts[group] = self._parts[group], []
        values = np.concatenate(parts) if parts else np.empty((0, len(names)), dtype=np.int64)
        del parts
        columns = {name: np.ascontiguousarray(values[:, k]) for k, name in enumerate(names)}
        del values
        return pl.DataFrame(columns).with_columns(pl.when(pl.all() != NULL).then(pl.all()))

"""Host calls that waited for the GPU, and the operation that each waited for.

Which operation that was is known without guessing: correlation ids count calls, so on one stream (for a device sync:
on all) the operation with the largest id below that of the sync was enqueued last before it. Its own call must have
returned before the sync began. Event queries are left out: nothing tells which of them succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gapscope.comms.calls_by_id import CallsById
from gapscope.correlation import NONE, Indices, Ints, expand, greatest, groups, places
from gapscope.trace import Trace

_CORRELATION = ["source", "process", "correlation"]
_BLOCKING = r"^(cuda|cu|hip)Memcpy"
_NOT_BLOCKING = r"Async|Peer|Prefetch|Batch"
_SCHEMA = {
    "source": pl.Int32,
    "process": pl.Int64,
    "correlation": pl.Int64,
    "call": pl.String,
    "later_ns": pl.Int64,
    "op": pl.Int64,
    "device": pl.Int32,
    "name": pl.String,
    "earlier_ns": pl.Int64,
}


def numbered_ops(trace: Trace) -> pl.LazyFrame:
    """Return the timed operations that have a correlation id: mostly all, and then none is copied."""
    ops, needed = trace.scan("ops"), ("start_ns", "correlation")
    if not any(ops.select(pl.col(needed).null_count()).collect().row(0)):
        return ops
    return ops.filter(pl.all_horizontal(pl.col(needed).is_not_null()))


def host_waits(trace: Trace, by_id: CallsById | None = None) -> pl.DataFrame:
    """Return stream and device synchronizations with the last operation that each waited for.

    Args:
        trace: The recordings.
        by_id: Its calls by id, if somebody looks up more of them; None: they are looked up here.

    Returns:
        ``source, process, correlation, call`` (of the synchronizing call), ``later_ns`` (its return), ``op``
        (correlation of the operation), ``device``, ``name``, ``earlier_ns`` (its end).
    """
    return trace.once("host_waits", lambda: _host_waits(trace, by_id))


def _host_waits(trace: Trace, by_id: CallsById | None) -> pl.DataFrame:
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(["stream_sync", "device_sync"]) & pl.col("correlation").is_not_null())
        .select(*_CORRELATION, "family", call="name", sync_start="start_ns", later_ns="end_ns")
        .collect()
    )
    if not calls.height:
        return pl.DataFrame(schema=_SCHEMA)
    rows = trace.scan("syncs").filter(pl.col("kind") == "stream_sync").select(*_CORRELATION, "stream").collect()
    waits = calls.join(rows.drop_nulls().unique(_CORRELATION), on=_CORRELATION, how="left")
    numbered = numbered_ops(trace)
    ops = numbered.select("correlation", "device", "stream", "name", earlier_ns="end_ns").collect()
    # The same stream number may be another stream on another device: only processes with one device are sure.
    processes = {k: rows for k, rows in places(numbered, ops.height).items() if ops["device"][rows].n_unique() == 1}
    ids, ends = ops["correlation"].to_numpy(), ops["earlier_ns"].to_numpy()
    device = waits.filter(pl.col("family") == "device_sync").drop("stream")
    stream = waits.filter((pl.col("family") == "stream_sync") & pl.col("stream").is_not_null())
    last = np.concatenate(
        [
            _last_before(processes, ids, ends, None, device, np.zeros(device.height, np.int64)),
            _last_before(processes, ids, ends, ops["stream"], stream, stream["stream"].to_numpy()),
        ]
    )
    there = np.flatnonzero(last != NONE)
    found = pl.concat([device, stream.drop("stream")])[there]
    found = found.hstack(ops[last[there]].select("device", "name", "earlier_ns", op="correlation"))
    by_id = by_id or CallsById(trace)
    low, high = by_id.spans(found, "op")
    at, row = expand(low, high)
    returned = by_id.column("end_ns", by_id.at(at))
    found = found[row].with_columns(op_call_end=returned).filter(pl.col("op_call_end") <= pl.col("sync_start"))
    return found.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


def _last_before(  # noqa: PLR0917 - columns
    processes: Mapping[tuple[int, int], slice | Indices],
    ids: Ints,
    ends: Ints,
    streams: pl.Series | None,
    waits: pl.DataFrame,
    lanes: Ints,
) -> Indices:
    """Return the operation that was enqueued last before each wait; -1: there is none, or nobody knows.

    Of operations of one call (a replayed graph) it is the one that ended last.

    Args:
        processes: Where the operations of each process stand.
        ids: Correlation id of each operation.
        ends: End of each operation.
        streams: Stream of each operation; None: the waits are for all.
        waits: ``source, process, correlation``.
        lanes: The stream that each waited for.
    """
    found, numbers = np.full(waits.height, NONE, np.int32), waits["correlation"].to_numpy()
    for key, where in groups(waits).items():
        of_process = processes.get(key)
        if of_process is None:
            continue
        position, numbered = np.arange(waits.height)[where], _numbers(of_process)
        for lane in np.unique(lanes[position]):
            mine = position[lanes[position] == lane]
            keys, at = ids[of_process], numbered
            if streams is not None:
                chosen = (streams[of_process] == lane).fill_null(value=False).to_numpy()
                keys, at = keys[chosen], at[chosen]
            if not (keys[1:] >= keys[:-1]).all():
                order = np.argsort(keys, kind="stable")
                keys, at = keys[order], at[order]
            high = np.searchsorted(keys, numbers[mine], side="right")
            mine, high = mine[high > 0], high[high > 0]
            low = np.searchsorted(keys, keys[high - 1], side="left")
            several = (high - low > 1).any()
            found[mine] = at[greatest(low, high, ends[at]) if several else high - 1]
    return found


def _numbers(rows: slice | Indices) -> Indices:
    return np.arange(rows.start, rows.stop, dtype=np.int32) if isinstance(rows, slice) else rows


def blocking_copies(trace: Trace) -> pl.DataFrame:
    """Return blocking copies from device to host, in the columns of `host_waits`.

    They return after the copy has ended, from pageable and pinned memory alike (CUDA driver API, "API synchronization
    behavior"). A blocking copy to the device may return while the transfer still runs, and is not here.
    """
    return trace.once("blocking_copies", lambda: _blocking_copies(trace))


def _blocking_copies(trace: Trace) -> pl.DataFrame:
    ops = (
        trace.scan("ops")
        .filter((pl.col("copy_kind") == "DtoH").fill_null(value=False) & pl.col("end_ns").is_not_null())
        .select(*_CORRELATION, "device", earlier_ns="end_ns")
    )
    name = pl.col("name").cast(pl.String)
    calls = (
        trace.scan("calls").filter(pl.col("family") == "memcpy").select(*_CORRELATION, call="name", later_ns="end_ns")
    )
    found = calls.join(ops, on=_CORRELATION).with_columns(name=pl.col("call")).collect()
    found = found.filter(name.str.contains(_BLOCKING) & ~name.str.contains(_NOT_BLOCKING))
    return found.with_columns(op="correlation", name=pl.lit("copy")).select(
        pl.col(n).cast(t) for n, t in _SCHEMA.items()
    )

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
from gapscope.correlation import NONE, Indices, expand, greatest, groups, places
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
    processes = places(numbered, ops.height)
    device = waits.filter(pl.col("family") == "device_sync").drop("stream")
    stream = waits.filter((pl.col("family") == "stream_sync") & pl.col("stream").is_not_null())
    found = pl.concat(
        [_last_before(ops, processes, device, None), _last_before(ops, processes, stream, "stream").drop("stream")]
    )
    by_id = by_id or CallsById(trace)
    low, high = by_id.spans(found, "op")
    at, row = expand(low, high)
    returned = by_id.column("end_ns", by_id.at(at))
    found = found[row].with_columns(op_call_end=returned).filter(pl.col("op_call_end") <= pl.col("sync_start"))
    return found.select(pl.col(n).cast(t) for n, t in _SCHEMA.items())


def _last_before(
    ops: pl.DataFrame, processes: Mapping[tuple[int, int], slice | Indices], waits: pl.DataFrame, stream: str | None
) -> pl.DataFrame:
    """Return the waits with the operation that was enqueued last before each: ``op, device, name, earlier_ns``.

    Of operations of one call (a replayed graph) it is the one that ended last. The same stream number may be another
    stream on another device: only processes with one device are sure, and only their waits are returned.

    Args:
        ops: ``correlation, device, stream, name, earlier_ns``.
        processes: Where the operations of each process stand.
        waits: ``source, process, correlation``.
        stream: Column with the stream that each waited for; None: for all.
    """
    rows = np.full(waits.height, NONE, np.int64)
    numbers = waits["correlation"].to_numpy()
    lanes = waits[stream].to_numpy() if stream else np.zeros(waits.height, np.int64)
    ids, ends = ops["correlation"].to_numpy(), ops["earlier_ns"].to_numpy()
    for key, where in groups(waits).items():
        of_process = processes.get(key)
        if of_process is None or ops["device"][of_process].n_unique() > 1:
            continue
        position = np.arange(waits.height)[where]
        own, own_ends, streams = ids[of_process], ends[of_process], ops["stream"][of_process]
        numbered = np.arange(ops.height, dtype=np.int32)[of_process]
        for lane in np.unique(lanes[position]):
            mine = position[lanes[position] == lane]
            chosen = (streams == lane).fill_null(value=False).to_numpy() if stream else slice(None)
            keys, late, at = own[chosen], own_ends[chosen], numbered[chosen]
            if not (keys[1:] >= keys[:-1]).all():
                order = np.argsort(keys, kind="stable")
                keys, late, at = keys[order], late[order], at[order]
            high = np.searchsorted(keys, numbers[mine], side="right")
            mine, high = mine[high > 0], high[high > 0]
            low = np.searchsorted(keys, keys[high - 1], side="left")
            rows[mine] = at[greatest(low, high, late)]
    there = np.flatnonzero(rows >= 0)
    last = ops[rows[there]].select("device", "name", "earlier_ns", op="correlation")
    return waits[there].hstack(last)


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

"""The legacy default stream: it waits for all blocking streams of its context, and they for it.

An operation in it begins when all that was enqueued before in blocking streams has ended; one in a blocking stream,
when all that was enqueued before in the legacy default stream has (CUDA runtime API, "stream synchronization
behavior"). Streams made non-blocking, as torch and NCCL make theirs, take no part. So there are edges only where the
recording says how both streams were made (nsys); a stream of which that is not known is taken to be non-blocking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.context import Context
from gapscope.graph.edges import EDGE, edges
from gapscope.graph.kernels import NONE

_DEVICE = ["source", "process", "device"]
_STREAM = [*_DEVICE, "stream"]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Enqueued:
    """Operations in the order in which they were enqueued.

    Attributes:
        item: Number of each.
        correlation: Its correlation id; ids count calls, so that they tell the order.
    """

    item: Ints
    correlation: Ints


_MADE = ("legacy_default", "blocking")


def default_stream(context: Context) -> pl.DataFrame:
    """Return edges between operations of the legacy default stream and of blocking streams, either way."""
    parts = [pl.DataFrame(schema=EDGE)]
    streams = _taking_part(context)
    for _, of_process in streams.group_by(["source", "process"], maintain_order=True):
        ops = _operations(context, of_process)
        for _, of_device in of_process.group_by("device", maintain_order=True):
            default, blocking = ([ops[k] for k in of_device.filter(pl.col("made") == m)["lane"]] for m in _MADE)
            if default:
                every = _together(default)
                parts += [_last_before(context, later, every) for later in blocking]
            # Of each blocking stream the last operation counts.
            parts += [_last_before(context, later, earlier) for later in default for earlier in blocking]
    return pl.concat(parts)


def _taking_part(context: Context) -> pl.DataFrame:
    """Return the streams that take part: `_STREAM`, ``made``, ``lane``, and ``first, until`` of their operations."""
    streams = context.trace.scan("streams").filter(pl.col("kind").is_not_null() & pl.col("device").is_not_null())
    made = streams.select("source", "process", "context", "device", "stream", made=pl.col("kind").cast(pl.String))
    known = made.collect()
    # Streams of two contexts on one device may have the same number.
    single = known.group_by(_DEVICE).agg(pl.col("context").n_unique()).filter(pl.col("context") == 1)
    known = known.join(single.select(_DEVICE), on=_DEVICE, how="semi").filter(pl.col("made").is_in(_MADE))
    known = known.filter(pl.col("made").n_unique().over(_DEVICE) > 1)
    lanes = context.items.stream_table.with_row_index("lane")
    return lanes.join(known.select(*_STREAM, "made"), on=_STREAM, maintain_order="left")


def _operations(context: Context, streams: pl.DataFrame) -> dict[int, _Enqueued]:
    """Return by stream the operations of one process of which it is known when they were enqueued."""
    items, found = context.items, {}
    ids, declared = items.streams.correlation, items.ops["is_declared"]
    for lane, first, until in streams.select("lane", "first", "until").iter_rows():
        own = ids[first:until]
        # What stands for calls that are not recorded is no order.
        known = (own.is_not_null() & ~declared[first:until]).to_numpy() & (items.call[first:until] != NONE)
        found[lane] = _in_order(np.flatnonzero(known) + first, own.fill_null(0).to_numpy()[known])
    # All that a replayed graph launches has one id.
    every = np.sort(np.concatenate([ops.correlation for ops in found.values()]), kind="stable")
    several = np.unique(every[1:][every[1:] == every[:-1]])
    if not len(several):
        return found
    alone = {lane: ~np.isin(ops.correlation, several) for lane, ops in found.items()}
    return {lane: _Enqueued(ops.item[alone[lane]], ops.correlation[alone[lane]]) for lane, ops in found.items()}


def _in_order(item: Ints, correlation: Ints) -> _Enqueued:
    if (correlation[1:] >= correlation[:-1]).all():
        return _Enqueued(item, correlation)
    order = np.argsort(correlation, kind="stable")
    return _Enqueued(item[order], correlation[order])


def _together(streams: list[_Enqueued]) -> _Enqueued:
    if len(streams) == 1:
        return streams[0]
    return _in_order(*(np.concatenate([getattr(ops, c) for ops in streams]) for c in ("item", "correlation")))


def _last_before(context: Context, later: _Enqueued, earlier: _Enqueued) -> pl.DataFrame:
    """Return edges from what was enqueued last before operations of a stream, unless the stream carries it on.

    It does to all but the first that follows an earlier one, so only these are looked for: streams may differ in
    length by a hundred times.
    """
    items = context.items
    behind = np.unique(np.searchsorted(later.correlation, earlier.correlation, side="right"))
    behind = behind[behind < len(later.item)]
    at = np.searchsorted(earlier.correlation, later.correlation[behind], side="left") - 1
    to, source = later.item[behind], earlier.item[at]
    # Calls of two threads at once: the ids do not tell which of them enqueued first.
    call, other = items.call[to], items.call[source]
    in_order = (items.lane[call] == items.lane[other]) | (items.end[other] <= items.start[call])
    to, source = to[in_order], source[in_order]
    frame = pl.DataFrame({"to": to * 2, "from": source * 2 + 1, "ready_ns": items.end[source]})
    return edges(frame, "default_stream", "structural")

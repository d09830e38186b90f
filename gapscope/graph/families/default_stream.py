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
from gapscope.graph.items import NONE

_DEVICE = ["source", "process", "device"]
_STREAM = [*_DEVICE, "stream"]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Enqueued:
    """Operations of some streams, in the order in which they were enqueued.

    Attributes:
        item: Number of each.
        correlation: Its correlation id; ids count calls, so that they tell the order.
        before: Id of the operation before it on its own stream; -1: there is none.
        lane: Its stream.
    """

    item: Ints
    correlation: Ints
    before: Ints
    lane: npt.NDArray[np.int32]

    def where(self, chosen: npt.NDArray[np.bool_]) -> _Enqueued:
        """Return some of them."""
        return _Enqueued(self.item[chosen], self.correlation[chosen], self.before[chosen], self.lane[chosen])


def default_stream(context: Context) -> pl.DataFrame:
    """Return edges between operations of the legacy default stream and of blocking streams, either way."""
    parts = [pl.DataFrame(schema=EDGE)]
    streams = _taking_part(context)
    for _, of_process in streams.group_by(["source", "process"], maintain_order=True):
        ops = _operations(context, of_process)
        for _, of_device in of_process.group_by("device", maintain_order=True):
            lanes = {made: of_device.filter(pl.col("made") == made)["lane"].to_numpy() for made in _MADE}
            default, blocking = (ops.where(np.isin(ops.lane, lanes[made])) for made in _MADE)
            parts.append(_last_before(context, blocking, default))
            # Of each blocking stream the last operation counts.
            parts += [_last_before(context, default, ops.where(ops.lane == lane)) for lane in lanes["blocking"]]
    return pl.concat(parts)


_MADE = ("legacy_default", "blocking")


def _taking_part(context: Context) -> pl.DataFrame:
    """Return the streams that take part: `_STREAM`, ``made``, ``lane``, and ``first, until`` of their operations."""
    streams = context.trace.scan("streams").filter(pl.col("kind").is_not_null() & pl.col("device").is_not_null())
    made = streams.select("source", "process", "context", "device", "stream", made=pl.col("kind").cast(pl.String))
    known = made.collect()
    # Streams of two contexts on one device may have the same number.
    single = known.group_by(_DEVICE).agg(pl.col("context").n_unique()).filter(pl.col("context") == 1)
    known = known.join(single.select(_DEVICE), on=_DEVICE, how="semi").filter(pl.col("made").is_in(_MADE))
    known = known.filter(pl.col("made").n_unique().over(_DEVICE) > 1)
    lanes = context.items.streams.table.with_row_index("lane")
    return lanes.join(known.select(*_STREAM, "made"), on=_STREAM, maintain_order="left")


def _operations(context: Context, streams: pl.DataFrame) -> _Enqueued:
    """Return the operations of streams of one process of which it is known when they were enqueued."""
    items = context.items
    spans = streams.select("first", "until").rows()
    item = np.concatenate([np.arange(*span) for span in spans])
    lane = np.repeat(streams["lane"].to_numpy(), [until - first for first, until in spans])
    ids, declared = items.streams.correlation.gather(item), items.ops["is_declared"].gather(item)
    # All that a replayed graph launches has one id, and what stands for calls that are not recorded is no order.
    known = (ids.is_not_null() & ~declared).to_numpy() & (items.call[item] != NONE)
    item, lane, correlation = item[known], lane[known], ids.fill_null(0).to_numpy()[known]
    order = np.argsort(correlation, kind="stable")
    item, lane, correlation = item[order], lane[order], correlation[order]
    same = correlation[1:] == correlation[:-1]
    single = ~(np.append(same, np.False_) | np.insert(same, 0, np.False_))[: len(item)]
    item, lane, correlation = item[single], lane[single], correlation[single]
    by_lane = np.argsort(lane, kind="stable")
    previous = np.full(len(item), -1, np.int64)
    follows = lane[by_lane][1:] == lane[by_lane][:-1]
    previous[by_lane[1:][follows]] = correlation[by_lane[:-1][follows]]
    return _Enqueued(item, correlation, previous, lane.astype(np.int32))


def _last_before(context: Context, later: _Enqueued, earlier: _Enqueued) -> pl.DataFrame:
    """Return edges from the end of what was enqueued last before each operation, unless its stream carries it on."""
    items = context.items
    at = np.searchsorted(earlier.correlation, later.correlation, side="left") - 1
    there = at >= 0
    there[there] = earlier.correlation[at[there]] > later.before[there]
    to, source = later.item[there], earlier.item[at[there]]
    # Calls of two threads at once: the ids do not tell which of them enqueued first.
    call, other = items.call[to], items.call[source]
    in_order = (items.lane[call] == items.lane[other]) | (items.end[other] <= items.start[call])
    to, source = to[in_order], source[in_order]
    frame = pl.DataFrame({"to": to * 2, "from": source * 2 + 1, "ready_ns": items.end[source]})
    return edges(frame, "default_stream", "structural")

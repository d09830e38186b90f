"""From the steps of the walks to causes, in one place.

A step is cut where the meaning of its time changes: at the events of the handoff (so that phases and causes are two
views of the same tiles), at the send call's beginning, at the end of the receiving operation's launch, where
another process's operation left the device, where the profiler's own activity begins and ends, where a communication
kernel whose peer is not known can have begun to move bytes, and where the schedule put another stage first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.cause_names import CAUSE
from gapscope.causes.all_ranks import Transfers
from gapscope.causes.cutting import Spans, cut_at
from gapscope.causes.facts import graph_lanes, item_names
from gapscope.causes.membership import Membership, with_membership
from gapscope.causes.overhead import Profiling, activity_of, with_overhead
from gapscope.causes.peers import lonely_of, with_unknown_peers
from gapscope.causes.schedule import stages_of, with_schedule
from gapscope.causes.sharing import sharers_of, with_device_sharing
from gapscope.graph import Graph
from gapscope.graph.context import matching
from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import ACK, BODY, HOST_GAP, LEAD, NONE, RESIDUAL, UNKNOWN, VIA_ACK, fixed, leaf, part

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Codes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

UNEXPLAINED_NS = 50_000
"""A residual longer than this hides a dependency that was not recorded (algorithms.md 2.2)."""

SIDE = pl.Enum(["src", "dst", "other"])
_SRC, _DST, _OTHER = range(3)

_CUTS = ("submit_ns", "movement_start_ns", "available_ns", "receive_launched_ns")
_NEVER = 2**62
_RESIDUALS = {
    "launch": "launch_latency", "stream": "stream_turnaround", "event": "event_release", "flag": "flag_wait",
    "ack": "slot_wait", "default_stream": "stream_turnaround",
}  # fmt: skip

_NAMES = (
    "unexplained", "profiler_overhead", "slot_wait", "device_sharing", "metadata_wait", "peer_wait", "upstream_compute",
    "movement", "submit_call", "late_submission", "schedule", "late_launch", "late_receive", "head_of_line",
    "consumer_busy", "stream_queueing", *sorted({*_RESIDUALS.values()} - {"slot_wait"}),
)  # fmt: skip
"""Causes by the numbers that they have here, the first of them as follows: what is compiled is not compiled anew when
another file changes."""
(
    _UNEXPLAINED, _PROFILER_OVERHEAD, _SLOT_WAIT, _DEVICE_SHARING, _METADATA_WAIT, _PEER_WAIT, _UPSTREAM_COMPUTE,
    _MOVEMENT, _SUBMIT_CALL, _LATE_SUBMISSION, _SCHEDULE, _LATE_LAUNCH, _LATE_RECEIVE, _HEAD_OF_LINE, _CONSUMER_BUSY,
    _STREAM_QUEUEING,
) = range(16)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What causes are named by, looked up once: for the chains as recorded, and for those that would hold then.

    Attributes:
        graph: The graph.
        facts: Result of `gapscope.causes.facts.handoff_facts`; position is the number of the walk.
        lanes: Result of `gapscope.causes.facts.graph_lanes`.
        sharers: Result of `gapscope.causes.sharing.sharers_of`.
        stages: Result of `gapscope.causes.schedule.stages_of`.
        activity: Result of `gapscope.causes.overhead.activity_of`.
        profiling: What the profiler did beside.
        membership: What handoffs operations belong to.
        lonely: Result of `gapscope.causes.peers.lonely_of`.
        together: What moves the same bytes on several ranks.
    """

    graph: Graph
    facts: pl.DataFrame
    lanes: pl.DataFrame
    sharers: pl.DataFrame
    stages: Spans
    activity: Spans
    profiling: Profiling
    membership: Membership
    lonely: pl.DataFrame
    together: Transfers

    @classmethod
    def of(cls, graph: Graph, facts: pl.DataFrame) -> Known:
        """Return what is known of a graph and the handoffs that are walked."""
        lanes = graph_lanes(graph)
        return cls(
            graph, facts, lanes, sharers_of(graph), stages_of(graph, lanes), activity_of(graph, lanes),
            Profiling.of(graph, lanes), Membership.of(graph), lonely_of(graph), Transfers.of(graph),
        )  # fmt: skip

    def part(self, rows: slice) -> Known:
        """Return the same for some of the walks, which are numbered anew."""
        facts = self.facts[rows].with_columns(walk=pl.int_range(pl.len(), dtype=pl.Int64))
        return replace(self, facts=facts)


def named(known: Known, steps: pl.DataFrame) -> pl.DataFrame:
    """Return steps, cut where their meaning changes, with ``cause`` and what it was told by.

    Args:
        known: What causes are named by.
        steps: ``walk, start_ns, end_ns, what, item, edge, passed``, and what else there is; by walk, in order of time.

    Returns:
        The steps, and ``lane`` (its number), ``item_rank, is_host, name, side, sharer, put_first, overhead, unpaired,
        moves, other, stage_of, passes_own, cause``.
    """
    facts = known.facts
    steps = steps.with_columns(is_long=pl.col("end_ns") - pl.col("start_ns") > UNEXPLAINED_NS)
    steps = _with_items(known, _cut(facts, steps))
    steps = with_device_sharing(known.sharers, steps)
    steps = with_schedule(known.stages, facts, steps)
    steps = with_overhead(known.activity, steps)
    steps = with_unknown_peers(known.lonely, steps)
    steps = with_membership(known.graph, known.membership, facts, steps)
    return steps.with_columns(cause=_causes(known, steps))


def _cut(facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Cut steps at the moments at which their meaning changes."""
    moments = np.stack([facts[c].fill_null(_NEVER).to_numpy() for c in _CUTS])
    walk, start, end = (fixed(steps[c].to_numpy()) for c in ("walk", "start_ns", "end_ns"))
    step, at_ns = np.empty((2, len(_CUTS) * steps.height), np.int64)
    n = _find_cuts(walk, start, end, fixed(moments), step, at_ns)
    return cut_at(steps, step[:n], at_ns[:n])[0]


@leaf
def _find_cuts(  # noqa: PLR0917 - steps, moments and room for the answer
    walk: Ints, start: Ints, end: Ints, moments: Ints, step: Ints, at_ns: Ints
) -> int:
    """Write down the moments inside each step, in their order and each once; return how many there are."""
    n = 0
    for s in range(len(walk)):
        reached = start[s]
        while reached < end[s]:
            following = end[s]
            for k in range(len(moments)):
                if reached < moments[k, walk[s]] < following:
                    following = moments[k, walk[s]]
            if following < end[s]:
                step[n], at_ns[n] = s, following
                n += 1
            reached = following
    return n


def _with_items(known: Known, steps: pl.DataFrame) -> pl.DataFrame:
    """Add what is known of the item of each step: ``lane, item_rank, is_host, name, side``; and ``is_slot``."""
    item, lanes = steps["item"], known.lanes
    ranks = (
        values.cast(pl.Int64).fill_null(nothing).to_numpy()
        for values, nothing in ((lanes["rank"], -1), (known.facts["src_rank"], -2), (known.facts["dst_rank"], -2))
    )
    lane, side = np.empty(steps.height, np.int32), np.empty(steps.height, np.uint8)
    given = (item.fill_null(NONE).to_numpy(), steps["walk"].to_numpy(), known.graph.items.lane, *ranks)
    _locate(*(fixed(values) for values in given), lane, side)
    lanes_of = pl.Series(lane).set(item.is_null(), None) if item.null_count() else pl.Series(lane)
    is_ack = (pl.col("what") == RESIDUAL) & (pl.col("edge") == ACK).fill_null(value=False)
    return steps.with_columns(
        lane=lanes_of, item_rank=lanes["rank"].gather(lanes_of), is_host=lanes["is_host"].gather(lanes_of),
        name=item_names(known.graph, item), side=pl.Series(SIDE.categories, dtype=SIDE).gather(side),
        is_slot=is_ack | ((pl.col("passed") & VIA_ACK) != 0),
    )  # fmt: skip


@leaf
def _locate(  # noqa: PLR0917 - steps, what is known, and room for the answer
    item: Indices, walk: Ints, lane_of: Indices, rank: Ints, src: Ints, dst: Ints, lane: Indices, side: Codes
) -> None:
    """Write down the lane of each step's item (any: it has none), and the position of its side in `SIDE`."""
    for s in range(len(item)):
        lane[s], side[s] = 0, _OTHER
        if item[s] == NONE:
            continue
        lane[s] = lane_of[item[s]]
        here = rank[lane[s]]
        if here == src[walk[s]]:
            side[s] = _SRC
        elif here == dst[walk[s]]:
            side[s] = _DST


def _causes(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return the cause of each step."""
    facts, flags = known.facts, ("is_host", "is_long", "moves", "passes_own")
    by_hosts = facts["transport"].is_in(["gloo", "unknown"]).fill_null(value=True)
    of_walks = _Facts._make([
        *(fixed(facts[c].fill_null(_NEVER).to_numpy()) for c in ("submit_ns", "bracket_ns")),
        *(fixed(facts[c].fill_null(-_NEVER).to_numpy()) for c in ("receive_launched_ns", "bracket_end_ns")),
        fixed(by_hosts.to_numpy()),
    ])  # fmt: skip
    given = _Steps._make([
        *(fixed(steps[c].fill_null(NONE).to_numpy()) for c in ("walk", "start_ns", "item", "what", "edge", "passed")),
        fixed(steps["side"].to_physical().to_numpy()),
        *(fixed(steps[c].fill_null(value=False).to_numpy()) for c in flags),
        fixed(matching(steps["name"], "^gloo:", but="gloo:send").to_numpy()),
        *(fixed(steps[c].is_not_null().to_numpy()) for c in ("overhead", "sharer", "put_first")),
        fixed(steps["unpaired"].is_in(["waiting", "not split"]).fill_null(value=False).to_numpy()),
        fixed((steps["other"] != NONE).to_numpy()),
    ])  # fmt: skip
    residual = fixed(np.array([_NAMES.index(_RESIDUALS.get(name, "unexplained")) for name in TYPES], np.uint8))
    found = np.empty(steps.height, np.uint8)
    _name(given, of_walks, known.graph.items.start, residual, found)
    return pl.Series(_NAMES, dtype=CAUSE).gather(found)


class _Steps(NamedTuple):
    """Steps as the loop takes them; what is null in them is `NONE` or false."""

    walk: Ints
    start: Ints
    item: Indices
    what: Bytes
    edge: Bytes
    passed: Bytes
    side: Codes
    is_host: Bools
    is_long: Bools
    moves: Bools
    passes_own: Bools
    is_message: Bools
    is_overhead: Bools
    is_shared: Bools
    is_put_first: Bools
    is_waiting: Bools
    is_of_other: Bools


class _Facts(NamedTuple):
    """What is known of each handoff, as the loop takes it."""

    submit: Ints
    bracket: Ints
    receive_launched: Ints
    bracket_end: Ints
    by_hosts: Bools


@leaf
def _name(steps: _Steps, facts: _Facts, item_start: Ints, residual: Codes, found: Codes) -> None:
    """Write down the cause of each step, a position in `_NAMES`.

    Args:
        steps: The steps.
        facts: What is known of their handoffs.
        item_start: Start of each item.
        residual: Cause of what is left behind each type of edge.
        found: Room for the answer.
    """
    for s in range(len(found)):
        found[s] = _cause(steps, facts, item_start, residual, s)


@part
def _cause(  # noqa: C901, PLR0911, PLR0912 - one rule after the other
    steps: _Steps, facts: _Facts, item_start: Ints, residual: Codes, s: int
) -> int:
    """Return the cause of a step from what it is of, where, and when."""
    what, edge, w = steps.what[s], steps.edge[s], steps.walk[s]
    if steps.is_overhead[s]:
        return _PROFILER_OVERHEAD
    if what == UNKNOWN:
        return _UNEXPLAINED
    if steps.passed[s] & VIA_ACK != 0:
        return _SLOT_WAIT
    if steps.is_shared[s]:
        return _DEVICE_SHARING
    # Releases of slots are inferred from such residuals in the first place.
    if what == RESIDUAL and edge != ACK and steps.is_long[s]:
        return _UNEXPLAINED
    if what == RESIDUAL and not steps.is_host[s]:
        return _UNEXPLAINED if edge == NONE else residual[edge]
    is_data = False
    if steps.is_host[s] and what == BODY and steps.is_message[s]:
        # What a host receives within the receive is this handoff's data if hosts move it; all else is about other data.
        is_inside = facts.bracket[w] <= item_start[steps.item[s]] <= facts.bracket_end[w]
        is_data = steps.side[s] == _DST and is_inside and facts.by_hosts[w]
        if not is_data and steps.side[s] != _OTHER:
            return _METADATA_WAIT
    if steps.is_waiting[s]:
        return _PEER_WAIT
    if steps.side[s] == _OTHER:
        return _UPSTREAM_COMPUTE
    if is_data:
        return _MOVEMENT
    if what in (HOST_GAP, LEAD) or steps.is_host[s]:
        if steps.side[s] == _SRC:
            return _SUBMIT_CALL if steps.start[s] >= facts.submit[w] else _LATE_SUBMISSION
        if steps.is_put_first[s]:
            return _SCHEDULE
        return _LATE_LAUNCH if steps.start[s] >= facts.receive_launched[w] else _LATE_RECEIVE
    if steps.moves[s]:
        return _MOVEMENT
    if steps.is_of_other[s]:
        return _HEAD_OF_LINE
    if steps.side[s] == _DST:
        return _CONSUMER_BUSY
    return _STREAM_QUEUEING if steps.passes_own[s] else _UPSTREAM_COMPUTE

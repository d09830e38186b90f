"""From the steps of the walks to causes, in one place.

A step is cut where the meaning of its time changes: at the events of the handoff (so that phases and causes are two
views of the same tiles), at the send call's beginning, at the end of the receiving operation's launch, where
another process's operation left the device, where the profiler's own activity begins and ends, where a communication
kernel whose peer is not known can have begun to move bytes, and where the schedule put another stage first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.cause_names import CAUSE
from gapscope.causes.all_ranks import Transfers
from gapscope.causes.cutting import Spans, cut_at
from gapscope.causes.facts import graph_lanes, item_names, matching
from gapscope.causes.membership import transfers_of, with_membership
from gapscope.causes.overhead import Profiling, activity_of, with_overhead
from gapscope.causes.peers import lonely_of, with_unknown_peers
from gapscope.causes.schedule import stages_of, with_schedule
from gapscope.causes.sharing import sharers_of, with_device_sharing
from gapscope.graph import Graph
from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import BODY, HOST_GAP, LEAD, RESIDUAL, UNKNOWN, VIA_ACK, fixed, leaf

Ints = npt.NDArray[np.int64]

UNEXPLAINED_NS = 50_000
"""A residual longer than this hides a dependency that was not recorded (algorithms.md 2.2)."""

SIDE = pl.Enum(["src", "dst", "other"])

_CUTS = ("submit_ns", "movement_start_ns", "available_ns", "receive_launched_ns")
_NEVER = 2**62
_RESIDUALS = {
    "launch": "launch_latency", "stream": "stream_turnaround", "event": "event_release", "flag": "flag_wait",
    "ack": "slot_wait", "default_stream": "stream_turnaround",
}  # fmt: skip


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
        transfers: Result of `gapscope.causes.membership.transfers_of`.
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
    transfers: pl.DataFrame
    lonely: pl.DataFrame
    together: Transfers

    @classmethod
    def of(cls, graph: Graph, facts: pl.DataFrame) -> Known:
        """Return what is known of a graph and the handoffs that are walked."""
        lanes = graph_lanes(graph)
        return cls(
            graph, facts, lanes, sharers_of(graph), stages_of(graph, lanes), activity_of(graph, lanes),
            Profiling.of(graph, lanes), transfers_of(graph), lonely_of(graph), Transfers.of(graph),
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
        The steps, and ``lane`` (its number), ``item_rank, is_host, name, side, sharer, put_first, overhead,
        overhead_level, unpaired, moves, other_handoff, stage_of, passes_own, cause``.
    """
    facts = known.facts
    steps = steps.with_columns(whole_ns=pl.col("end_ns") - pl.col("start_ns"))
    steps = _with_items(known, _cut(facts, steps))
    steps = with_device_sharing(known.sharers, steps)
    steps = with_schedule(known.stages, facts, steps)
    steps = with_overhead(known.activity, steps)
    steps = with_unknown_peers(known.lonely, steps)
    steps = with_membership(known.graph, known.transfers, facts, steps)
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
    item, lanes, walk = steps["item"], known.lanes, steps["walk"]
    lane = pl.Series(known.graph.items.lane).gather(item)
    rank = lanes["rank"].gather(lane)
    side = (
        pl.when(rank == known.facts["src_rank"].gather(walk))
        .then(pl.lit("src", dtype=SIDE))
        .when(rank == known.facts["dst_rank"].gather(walk))
        .then(pl.lit("dst", dtype=SIDE))
        .otherwise(pl.lit("other", dtype=SIDE))
    )
    is_ack = (pl.col("what") == RESIDUAL) & (pl.col("edge") == TYPES.index("ack")).fill_null(value=False)
    return steps.with_columns(
        lane=lane, item_rank=rank, is_host=lanes["is_host"].gather(lane), name=item_names(known.graph, item), side=side,
        is_slot=is_ack | ((pl.col("passed") & VIA_ACK) != 0),
    )  # fmt: skip


def _causes(known: Known, steps: pl.DataFrame) -> pl.Series:
    """Return the cause of each step."""
    facts, walk, items = known.facts, steps["walk"], known.graph.items
    of_walks = facts.select(
        "submit_ns", "receive_launched_ns", "bracket_ns", "bracket_end_ns",
        by_hosts=pl.col("transport").is_in(["gloo", "unknown"]).fill_null(value=True),
    )  # fmt: skip
    return (
        steps.hstack(of_walks[walk])
        .with_columns(
            item_start_ns=pl.Series(items.start).gather(steps["item"]),
            is_message=matching(steps["name"], "^gloo:") & ~matching(steps["name"], "^gloo:send$"),
        )
        .select(cause=_cause())
        .to_series()
    )


def _is(cause: str) -> pl.Expr:
    return pl.lit(cause, dtype=CAUSE)


def _cause() -> pl.Expr:
    """Return the cause of each step from what it is of, where, and when."""
    what, at_source, at_destination = pl.col("what"), pl.col("side") == "src", pl.col("side") == "dst"
    on_host = pl.col("is_host")
    edge = pl.col("edge")
    # Releases of slots are inferred from such residuals in the first place.
    is_price = (what == RESIDUAL) & (edge != TYPES.index("ack")).fill_null(value=True)
    too_long = is_price & (pl.col("whole_ns") > UNEXPLAINED_NS)
    residual = _is("unexplained")
    for number, name in enumerate(TYPES):
        if name in _RESIDUALS:
            residual = pl.when(edge == number).then(_is(_RESIDUALS[name])).otherwise(residual)
    in_submit = pl.col("start_ns") >= pl.col("submit_ns")
    host_at_source = pl.when(in_submit).then(_is("submit_call")).otherwise(_is("late_submission"))
    launched = pl.col("start_ns") >= pl.col("receive_launched_ns")
    host_at_destination = (
        pl.when(pl.col("put_first").is_not_null())
        .then(_is("schedule"))
        .when(launched.fill_null(value=True))
        .then(_is("late_launch"))
        .otherwise(_is("late_receive"))
    )
    # What a host receives within the receive is this handoff's data if hosts move it; all else is about other data.
    message = on_host & (what == BODY) & pl.col("is_message")
    inside = at_destination & pl.col("item_start_ns").is_between(pl.col("bracket_ns"), pl.col("bracket_end_ns"))
    data = message & inside.fill_null(value=False) & pl.col("by_hosts")
    host = pl.when(at_source).then(host_at_source).otherwise(host_at_destination)
    body = (
        pl.when("moves")
        .then(_is("movement"))
        .when(at_destination & pl.col("other_handoff").is_not_null())
        .then(_is("head_of_line"))
        .when(at_destination)
        .then(_is("consumer_busy"))
        .when(pl.col("other_handoff").is_not_null())
        .then(_is("head_of_line"))
        .when(~pl.col("passes_own"))
        .then(_is("upstream_compute"))
        .otherwise(_is("stream_queueing"))
    )
    elsewhere = pl.col("side") == "other"
    via_ack = (pl.col("passed") & VIA_ACK) != 0
    return (
        pl.when(pl.col("overhead").is_not_null())
        .then(_is("profiler_overhead"))
        .when(what == UNKNOWN)
        .then(_is("unexplained"))
        .when(via_ack)
        .then(_is("slot_wait"))
        .when(pl.col("sharer").is_not_null())
        .then(_is("device_sharing"))
        .when(too_long)
        .then(_is("unexplained"))
        .when((what == RESIDUAL) & ~on_host)
        .then(residual)
        .when(message & ~data & ~elsewhere)
        .then(_is("metadata_wait"))
        .when(pl.col("unpaired").is_in(["waiting", "not split"]))
        .then(_is("peer_wait"))
        .when(elsewhere)
        .then(_is("upstream_compute"))
        .when(data)
        .then(_is("movement"))
        .when(what.is_in([HOST_GAP, LEAD]) | on_host)
        .then(host)
        .otherwise(body)
    )

"""From the steps of the walks to causes, in one place.

A step is cut where the meaning of its time changes: at the events of the handoff (so that phases and causes are two
views of the same tiles), at the send call's beginning, at the end of the receiving operation's launch, where
another process's operation left the device, where the profiler's own activity begins and ends, where a communication
kernel whose peer is not known can have begun to move bytes, and where the schedule put another stage first.
"""

from __future__ import annotations

import polars as pl

from gapscope.causes.facts import handoff_name, item_facts
from gapscope.causes.names import CAUSE
from gapscope.causes.overhead import with_overhead
from gapscope.causes.peers import with_unknown_peers
from gapscope.causes.schedule import with_schedule
from gapscope.causes.sharing import with_device_sharing
from gapscope.graph import Graph
from gapscope.graph.edges import TYPES
from gapscope.graph.kernels import BODY, HOST_GAP, LEAD, RESIDUAL, UNKNOWN, VIA_ACK

UNEXPLAINED_NS = 50_000
"""A residual longer than this hides a dependency that was not recorded (algorithms.md 2.2)."""

_CUTS = ("submit_ns", "movement_start_ns", "available_ns", "receive_launched_ns")
_RESIDUALS = {
    "launch": "launch_latency", "stream": "stream_turnaround", "event": "event_release", "flag": "flag_wait",
    "ack": "slot_wait", "default_stream": "stream_turnaround",
}  # fmt: skip


def named(graph: Graph, facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return steps, cut where their meaning changes, with ``cause`` and what it was told by.

    Args:
        graph: The graph.
        facts: Result of `gapscope.causes.facts.handoff_facts`.
        steps: ``walk, start_ns, end_ns, what, item, edge, passed``, and what else there is.
    """
    steps = steps.with_columns(whole_ns=pl.col("end_ns") - pl.col("start_ns"))
    steps = _cut(steps.join(facts, on="walk", how="left", maintain_order="left"))
    steps = steps.join(item_facts(graph, steps["item"]), on="item", how="left", maintain_order="left")
    side = (
        pl.when(pl.col("item_rank") == pl.col("src_rank"))
        .then(pl.lit("src"))
        .when(pl.col("item_rank") == pl.col("dst_rank"))
        .then(pl.lit("dst"))
        .otherwise(pl.lit("other"))
    )
    steps = with_device_sharing(graph, steps.with_columns(side=side))
    steps = with_unknown_peers(graph, with_overhead(graph, with_schedule(graph, steps)))
    steps = _with_membership(graph, steps)
    return steps.with_columns(cause=_cause())


def _cut(steps: pl.DataFrame) -> pl.DataFrame:
    """Cut steps at the moments at which their meaning changes."""
    for column in _CUTS:
        inside = ((steps[column] > steps["start_ns"]) & (steps[column] < steps["end_ns"])).fill_null(value=False)
        if inside.any():
            cut = steps.filter(inside)
            steps = pl.concat(
                [
                    steps.filter(~inside),
                    cut.with_columns(end_ns=pl.col(column)),
                    cut.with_columns(start_ns=pl.col(column)),
                ]
            )
    return steps.sort("walk", "start_ns")


def _with_membership(graph: Graph, steps: pl.DataFrame) -> pl.DataFrame:
    """Add what handoffs the operations of the steps belong to.

    That is ``own_mark`` (this handoff's bracket that launched it), ``other_handoff`` (whose transfer it is),
    ``stage_of`` (of which handoff it is the consuming stage) and ``passes_own`` (seen from the consumer, the chain
    passes the handoff's own transfer before).

    Args:
        graph: The graph.
        steps: By walk, in order of time.
    """
    ops = graph.context.brackets_of(steps["item"])
    if not ops.height:
        nothing = pl.lit(None, dtype=pl.String)
        return steps.with_columns(
            own_mark=nothing, other_handoff=nothing, stage_of=nothing, passes_own=pl.lit(value=False)
        )
    moves = pl.col("own_mark").is_in(["submit", "receive"])
    stages = ops.filter((pl.col("mark") == "consume") & pl.col("group").is_null()).with_columns(stage_of=handoff_name())
    stages = stages.unique("item", keep="first", maintain_order=True).select(pl.col("item").cast(pl.Int64), "stage_of")
    named = ops.with_columns(handoff=handoff_name()).select("item", "mark", "handoff", "src", "dst")
    own = named.select("item", key_text="handoff", own_mark="mark").unique(["item", "key_text"], keep="first")
    other = named.filter(pl.col("mark").is_in(["submit", "receive"])).unique("item", keep="first", maintain_order=True)
    steps = steps.with_columns(pl.col("item").cast(pl.Int64)).join(
        own.with_columns(pl.col("item").cast(pl.Int64)), on=["item", "key_text"], how="left", maintain_order="left"
    )
    steps = steps.join(stages, on="item", how="left", maintain_order="left")
    return steps.join(
        other.select(pl.col("item").cast(pl.Int64), other_handoff="handoff"),
        on="item",
        how="left",
        maintain_order="left",
    ).with_columns(
        # One kernel may carry the messages of several handoffs; of this one's own transfer no other is named.
        other_handoff=pl.when(
            (pl.col("other_handoff") != pl.col("key_text"))
            & ~pl.col("own_mark").is_in(["submit", "receive"]).fill_null(value=False)
        ).then("other_handoff"),
        # The source's work is ahead of this transfer only if the chain passes the transfer on its way to it; else the
        # consumer needed the result of that work as well.
        passes_own=moves.fill_null(value=False).cum_max(reverse=True).over("walk"),
    )


def _cause() -> pl.Expr:
    """Return the cause of each step from what it is of, where, and when."""
    what, at_source, at_destination = pl.col("what"), pl.col("side") == "src", pl.col("side") == "dst"
    on_host = pl.col("is_host")
    edge = pl.col("edge")
    # Releases of slots are inferred from such residuals in the first place.
    is_price = (what == RESIDUAL) & (edge != TYPES.index("ack")).fill_null(value=True)
    too_long = is_price & (pl.col("whole_ns") > UNEXPLAINED_NS)
    residual = pl.lit("unexplained")
    for number, name in enumerate(TYPES):
        if name in _RESIDUALS:
            residual = pl.when(edge == number).then(pl.lit(_RESIDUALS[name])).otherwise(residual)
    in_submit = pl.col("start_ns") >= pl.col("submit_ns")
    host_at_source = pl.when(in_submit).then(pl.lit("submit_call")).otherwise(pl.lit("late_submission"))
    launched = pl.col("start_ns") >= pl.col("receive_launched_ns")
    host_at_destination = (
        pl.when(pl.col("put_first").is_not_null())
        .then(pl.lit("schedule"))
        .when(launched.fill_null(value=True))
        .then(pl.lit("late_launch"))
        .otherwise(pl.lit("late_receive"))
    )
    # What a host receives within the receive is this handoff's data if hosts move it; all else is about other data.
    message = on_host & (what == BODY) & pl.col("name").str.starts_with("gloo:") & (pl.col("name") != "gloo:send")
    inside = at_destination & pl.col("item_start_ns").is_between(pl.col("bracket_ns"), pl.col("bracket_end_ns"))
    by_hosts = pl.col("transport").is_in(["gloo", "unknown"]).fill_null(value=True)
    data = message & inside.fill_null(value=False) & by_hosts
    host = pl.when(at_source).then(host_at_source).otherwise(host_at_destination)
    moving = pl.col("own_mark").is_in(["submit", "receive"])
    body = (
        pl.when(moving)
        .then(pl.lit("movement"))
        .when(at_destination & pl.col("other_handoff").is_not_null())
        .then(pl.lit("head_of_line"))
        .when(at_destination)
        .then(pl.lit("consumer_busy"))
        .when(pl.col("other_handoff").is_not_null())
        .then(pl.lit("head_of_line"))
        .when(~pl.col("passes_own"))
        .then(pl.lit("upstream_compute"))
        .otherwise(pl.lit("stream_queueing"))
    )
    elsewhere = pl.col("side") == "other"
    via_ack = (pl.col("passed").cast(pl.Int64) & VIA_ACK) != 0
    return (
        pl.when(pl.col("overhead").is_not_null())
        .then(pl.lit("profiler_overhead"))
        .when(what == UNKNOWN)
        .then(pl.lit("unexplained"))
        .when(via_ack)
        .then(pl.lit("slot_wait"))
        .when(pl.col("sharer").is_not_null())
        .then(pl.lit("device_sharing"))
        .when(too_long)
        .then(pl.lit("unexplained"))
        .when((what == RESIDUAL) & ~on_host)
        .then(residual)
        .when(message & ~data & ~elsewhere)
        .then(pl.lit("metadata_wait"))
        .when(pl.col("unpaired").is_in(["waiting", "not split"]))
        .then(pl.lit("peer_wait"))
        .when(elsewhere)
        .then(pl.lit("upstream_compute"))
        .when(data)
        .then(pl.lit("movement"))
        .when(what.is_in([HOST_GAP, LEAD]) | on_host)
        .then(host)
        .otherwise(body)
        .cast(CAUSE)
    )

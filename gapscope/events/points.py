"""Point marks: one event of a handoff, at the stream position where the mark was set."""

from __future__ import annotations

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_POINTS

from gapscope.events.losses import with_lost_points
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
SETTLED_NS = 30_000
"""An event on an idle stream is done this soon after the call that recorded it: 7 to 25 µs were seen on an H200."""
_ENDS = ("producer_finish", "available")  # the end of what was launched last before the mark


def point_times(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return point marks with the time they give.

    ``producer_finish`` and ``available`` give the end of the operation launched last before the mark on its thread,
    ``movement_start`` and ``consumer_start`` the start of the one launched first after it. Where the work is on the
    host, they give the mark's own time. So do times of the device (``error_ns``), which stand in the place of the
    mark that asked for them.

    Args:
        trace: The recordings.
        marks: Table ``marks``, with ``mark_id``.

    Returns:
        The point marks with ``point_ns`` (null: the operation or its time is not there), ``point_device`` (whose
        clock it is of; null: the host's), ``point_reason`` (a key of
        `gapscope.events.times.REASONS` where the time is null) and ``time_source``: ``recorded`` for times of the
        device; ``estimated`` for their ``consumer_start`` (the stream was free for it then, and its work began no
        earlier), and for ends that the device gave within `SETTLED_NS` of being asked (the stream may have been idle,
        and the work before have ended earlier).
    """
    points = marks.filter(pl.col("mark").is_in(HANDOFF_POINTS)).join(
        trace.sources.select("source", "cpu_only", "gpu_device", is_log=pl.col("tool") == "gapscope"),
        on="source",
        how="left",
    )
    if not points.height:
        nothing = {"point_ns": pl.Int64, "point_device": pl.Int32, "point_reason": pl.String}
        empty = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items()]
        return points.with_columns(*empty, time_source=pl.lit("missing")).drop("gpu_device", "is_log")
    points = _without_asked(points)
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .join(points.lazy().select(_LANE).unique(), on=_LANE, how="semi")
        .select(*_LANE, "correlation", call_ns="start_ns")
        .sort("call_ns")
        .collect()
    )
    ops = trace.scan("ops").select(*_CORRELATION, op_start="start_ns", op_end="end_ns", op_device="device")
    is_end = pl.col("mark").is_in(_ENDS)
    parts = []
    for chosen, backward in ((points.filter(is_end), True), (points.filter(~is_end), False)):
        found = chosen.sort("start_ns").join_asof(
            calls,
            left_on="start_ns",
            right_on="call_ns",
            by=_LANE,
            strategy="backward" if backward else "forward",
            check_sortedness=False,
        )
        times = (
            found.lazy()
            .join(ops, on=_CORRELATION, how="left")
            .group_by("mark_id")
            .agg(
                point_ns=pl.col("op_end").max() if backward else pl.col("op_start").min(),
                point_device=(
                    pl.col("op_device").sort_by("op_end").last()
                    if backward
                    else pl.col("op_device").sort_by("op_start").first()
                ),
                n_operations=pl.col("op_end").count().cast(pl.Int64),
            )
            .collect()
        )
        parts.append(chosen.join(times, on="mark_id", how="left"))
    host = (pl.col("device") == "cpu").fill_null(value=False) | pl.col("cpu_only")
    given = with_lost_points(trace, pl.concat(parts).with_columns(pl.col("n_operations").fill_null(0)))
    recorded, is_start = pl.col("error_ns").is_not_null(), pl.col("mark") == "consumer_start"
    soon = pl.col("start_ns") - pl.col("asked_ns") < SETTLED_NS + pl.col("error_ns")
    may_be_idle = recorded & soon.fill_null(value=False)
    early = recorded & is_start & pl.col("mark_id").is_in(_before_receive(marks).implode())
    reason = (
        pl.when(early).then(pl.lit("before_receive"))
        .when(host | recorded).then(None)
        .when("is_log").then(pl.lit("log_alone"))
        .when("lost").then(pl.lit("lost"))
        .when(pl.col("point_ns").is_null()).then(pl.lit("nothing_launched"))
    )  # fmt: skip
    return given.with_columns(
        point_ns=pl.when(~early & (host | recorded))
        .then("start_ns")
        .when(~pl.col("lost") & ~recorded)
        .then("point_ns"),
        point_device=pl.when(recorded).then(pl.col("gpu_device").fill_null(0)).when(~host).then("point_device"),
        point_reason=reason,
        time_source=pl.when(recorded)
        .then(pl.when(is_start | may_be_idle).then(pl.lit("estimated")).otherwise(pl.lit("recorded")))
        .when(host)
        .then(pl.lit("emitted"))
        .otherwise(pl.lit("derived")),
    ).drop("lost", "n_operations", "gpu_device", "is_log")


def _without_asked(points: pl.DataFrame) -> pl.DataFrame:
    """Leave out marks of the host for which the device gave the time."""
    same = ["source", "process", "mark", "job", "src", "dst", "group", "channel", "seq", "slot"]
    given = points.filter(pl.col("error_ns").is_not_null()).select(same).unique()
    asked = points.filter(pl.col("error_ns").is_null()).join(given, on=same, how="semi", nulls_equal=True)["mark_id"]
    return points.filter(~pl.col("mark_id").is_in(asked.implode()))


def _before_receive(marks: pl.DataFrame) -> pl.Series:
    """Return ``mark_id`` of times of the device that were taken where a ``consume`` with a nested receive began."""
    key = ["source", "process", "job", "src", "dst", "group", "channel", "seq"]
    timed = marks.filter(pl.col("error_ns").is_not_null() & (pl.col("mark") == "consumer_start"))
    if not timed.height:
        return timed["mark_id"]
    consume = marks.filter(pl.col("mark") == "consume").select(*key, "thread", begin="start_ns", until="end_ns")
    receive = marks.filter(pl.col("mark") == "receive").select(*key, "thread", at="start_ns")
    nested = consume.join(receive, on=[*key, "thread"], nulls_equal=True)
    nested = nested.filter((pl.col("at") >= pl.col("begin")) & (pl.col("at") <= pl.col("until")).fill_null(value=True))
    return timed.join(nested, on=key, how="semi", nulls_equal=True)["mark_id"]

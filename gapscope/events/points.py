"""Point marks: one event of a handoff, at the stream position where the mark was set."""

from __future__ import annotations

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_POINTS

from gapscope.events.losses import with_lost_points
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_CORRELATION = ["source", "process", "correlation"]
_ENDS = ("producer_finish", "available")  # the end of what was launched last before the mark


def point_times(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return point marks with the time they give.

    ``producer_finish`` and ``available`` give the end of the operation launched last before the mark on its thread,
    ``movement_start`` and ``consumer_start`` the start of the one launched first after it. Where the work is on the
    host, they give the mark's own time.

    Args:
        trace: The recordings.
        marks: Table ``marks``, with ``mark_id``.

    Returns:
        The point marks with ``point_ns`` (null: the operation or its time is not there), ``point_device`` (whose
        clock it is of; null: the host's), ``point_reason`` (a key of
        `gapscope.events.times.REASONS` where the time is null) and ``time_source``.
    """
    points = marks.filter(pl.col("mark").is_in(HANDOFF_POINTS)).join(
        trace.sources.select("source", "cpu_only"), on="source", how="left"
    )
    if not points.height:
        nothing = {"point_ns": pl.Int64, "point_device": pl.Int32, "point_reason": pl.String}
        empty = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in nothing.items()]
        return points.with_columns(*empty, time_source=pl.lit("missing"))
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
    reason = (
        pl.when(host).then(None)
        .when("lost").then(pl.lit("lost"))
        .when(pl.col("point_ns").is_null()).then(pl.lit("nothing_launched"))
    )  # fmt: skip
    return given.with_columns(
        point_ns=pl.when(host).then("start_ns").otherwise(pl.when(~pl.col("lost")).then("point_ns")),
        point_device=pl.when(~host).then("point_device"),
        point_reason=reason,
        time_source=pl.when(host).then(pl.lit("emitted")).otherwise(pl.lit("derived")),
    ).drop("lost", "n_operations")

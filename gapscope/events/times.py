"""The time that each mark gives, and why it gives none.

A time derived from GPU work needs every operation that could have decided it. Where one of them has no time
(untimed, damaged, dropped, beyond the end of a cut file), the mark gives null and a reason; the neighbor's
time is never taken in its place.
"""

from __future__ import annotations

import polars as pl

from gapscope.events.deciders import deciders
from gapscope.events.enclosing import BRACKETS
from gapscope.events.losses import with_losses
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]

REASONS = {
    "no_gpu_record": "GPU work of the process was not recorded",
    "log_alone": "nothing but the mark log was recorded of the process, and the log has no time of the device for it",
    "unseen": "times of the device in a mark log do not tell when a transfer began to move",
    "before_receive": "the log's time of the device was taken before the receive inside consume",
    "nothing_launched": "no GPU operation was launched inside the mark",
    "untimed": "an operation that could have decided the time has no recorded time",
    "no_record": "a launch that could have decided the time has no GPU record",
    "lost": "records were lost to damage where the time would have been decided",
    "cut": "the file ends before the time could be decided",
    "open": "the range was never closed",
    "nothing_before": "no recorded order or event wait tells what the communication had to wait for",
    "nothing_after": "no recorded order or event wait tells what had to wait for the communication",
    "no_call": "the call that asked for it is not recorded",
    "no_kernel": "the operation of the communication is not known",
}
"""Why a mark gives no time, in words."""


def mark_times(trace: Trace, marks: pl.DataFrame, nested: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return the marks with the times they give.

    Args:
        trace: The recordings.
        marks: Bracket marks, closed, with ``mark_id`` and ``open``.
        nested: Result of `gapscope.events.enclosing.nested_receives`.
        launched: Result of `gapscope.events.launched.launched_inside`.

    Returns:
        ``marks`` with ``first_ns``, ``last_ns`` (start of the first and end of the last operation launched inside, or
        the bracket's own start and end where the work is on the host; work of a consume starts there when the last
        receive of its key nested in it has ended), ``first_reason``, ``last_reason`` (a key of
        `REASONS`, null where the time is there), ``time_source`` (``derived``, ``estimated`` where an opaque graph
        gives its bounds, ``emitted``), ``first_device``, ``last_device`` (whose clock they are of; null: the host's),
        ``short`` (the handoff may have lost a mark of this kind) and, of ``submit`` and ``receive``, ``copy_kinds`` and
        ``kernels`` (what was launched, for the transport).
    """
    per_mark = deciders(launched, marks.filter(pl.col("mark").is_in(["submit", "receive"]))["mark_id"])
    frame = marks.join(per_mark, on="mark_id", how="left")
    frame = _with_cut(trace, frame)
    frame = frame.join(
        trace.processes.select("source", "process", "has_ops"), on=["source", "process"], how="left"
    ).join(
        trace.sources.select("source", "cpu_only", "truncated", is_log=pl.col("tool") == "gapscope"),
        on="source",
        how="left",
    )
    timed = trace.marks.filter(pl.col("error_ns").is_not_null()).select("source", "process").unique()
    frame = frame.join(timed.with_columns(has_device_times=True), on=["source", "process"], how="left")
    frame = with_losses(trace, frame, launched)
    received = nested.group_by("mark_id").agg(received_ns=pl.col("receive_end_ns").max())
    frame = frame.join(received, on="mark_id", how="left")
    host = (pl.col("device") == "cpu").fill_null(value=False) | pl.col("cpu_only")
    empty = pl.col("n_rows").is_null()
    is_log = pl.col("is_log")
    cut = pl.col("truncated") & ~is_log & (pl.col("cut_ns").is_null() | (pl.col("end_ns") >= pl.col("cut_ns")))

    def reason(untimed: str, missing: str, lost: str) -> pl.Expr:
        return (
            pl.when(host & pl.col("open"))
            .then(pl.lit("open"))
            .when(host & pl.col("short"))
            .then(pl.lit("lost"))
            .when(host)
            .then(pl.lit(None, dtype=pl.String))
            .when(cut)
            .then(pl.lit("cut"))
            .when(pl.col("open"))
            .then(pl.lit("open"))
            .when(is_log & (pl.col("mark") == "submit") & pl.col("has_device_times").fill_null(value=False))
            .then(pl.lit("unseen"))
            .when(is_log)
            .then(pl.lit("log_alone"))
            .when(empty & ~pl.col("has_ops"))
            .then(pl.lit("no_gpu_record"))
            .when(pl.col(lost))
            .then(pl.lit("lost"))
            .when(empty)
            .then(pl.lit("nothing_launched"))
            .when(pl.col(missing))
            .then(pl.lit("no_record"))
            .when(pl.col(untimed))
            .then(pl.lit("untimed"))
        )

    return (
        frame.with_columns(
            first_reason=reason("first_untimed", "first_missing", "first_lost"),
            last_reason=reason("last_untimed", "last_missing", "last_lost"),
        )
        .with_columns(
            first_ns=pl.when(pl.col("first_reason").is_null()).then(
                pl.when(host).then(pl.coalesce("received_ns", "start_ns")).otherwise("first_op_ns")
            ),
            last_ns=pl.when(pl.col("last_reason").is_null()).then(pl.when(host).then("end_ns").otherwise("last_op_ns")),
            first_device=pl.when(~host).then("first_device"),
            last_device=pl.when(~host).then("last_device"),
            time_source=pl.when(host)
            .then(pl.lit("emitted"))
            .when(pl.col("has_graph"))
            .then(pl.lit("estimated"))
            .otherwise(pl.lit("derived")),
        )
        .drop("is_log", "has_device_times", "received_ns")
    )


def _with_cut(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Add ``cut_ns``: in a truncated file, when the last call that is there began on the mark's thread.

    Tools write the calls of a thread in order of time, so all calls before the last one are there. A file in which
    they do not stand in order gets no ``cut_ns``, and none of its marks is trusted. A stage whose process has backward
    threads needs their calls as well.
    """
    cut = trace.sources.filter(pl.col("truncated") & pl.col("calls_in_order")).select("source")
    if not cut.height:
        return marks.with_columns(cut_ns=pl.lit(None, dtype=pl.Int64))
    calls = trace.scan("calls").join(cut.lazy(), on="source", how="semi")
    lanes = calls.group_by(_LANE).agg(cut_ns=pl.col("start_ns").max()).collect()
    backward = (
        trace.threads.filter("autograd")
        .join(lanes, on=_LANE, how="left")
        .group_by("source", "process")
        .agg(backward_ns=pl.col("cut_ns").min())
    )
    stage = pl.col("mark").is_in(["produce", "consume"])
    return (
        marks.join(lanes, on=_LANE, how="left")
        .join(backward, on=["source", "process"], how="left")
        .with_columns(cut_ns=pl.when(stage).then(pl.min_horizontal("cut_ns", "backward_ns")).otherwise("cut_ns"))
        .drop("backward_ns")
    )


def close_open_ranges(marks: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return bracket marks with ``open``, and an end for those that never closed.

    A range that never closes ends just before the next range of its kind on its thread begins, or at the end of
    its process's recording.
    """
    windows = trace.processes.select("source", "process", window_end="window_end_ns")
    following = pl.col("start_ns").shift(-1).over([*_LANE, "mark"], order_by="start_ns") - 1
    return (
        marks.filter(pl.col("mark").is_in(BRACKETS))
        .join(windows, on=["source", "process"], how="left")
        .with_columns(open=pl.col("end_ns").is_null())
        .with_columns(
            end_ns=pl.when("open")
            .then(pl.max_horizontal("start_ns", pl.coalesce(following, "window_end")))
            .otherwise("end_ns")
        )
        .drop("window_end")
    )

"""What a damaged or cut file may have lost of the work and the marks that decide a time.

Only files that say so are asked. Of a single launch the call or the operation is left over and tells that the other is
gone. Where nothing is left over, a mark is compared with its siblings (same kind, edge and rank): what they have and it
lacks may have been lost. That costs a time where siblings differ by nature, and never takes a neighbor's time.
"""

from __future__ import annotations

import polars as pl

from gapscope.events.pairing import SIDE
from gapscope.schema import LAUNCHING
from gapscope.trace import Trace

_LANE = ["source", "process", "thread"]
_PROCESS = ["source", "process"]
_CORRELATION = ["source", "process", "correlation"]
_GPU = ["source", "process", "device", "stream"]
_SIBLINGS = [*(column for column in SIDE if column != "seq"), "mark"]
_STAGE = pl.col("mark").is_in(["produce", "consume"])
_TRANSFER = pl.col("mark").is_in(["submit", "receive"])


def weak_sources(trace: Trace) -> list[int]:
    """Return the files of which something is lost."""
    sources = trace.sources
    return sources.filter(pl.col("truncated") | pl.col("dropped").str.contains('"damaged"'))["source"].to_list()


def with_losses(trace: Trace, marks: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return the marks with ``weak``, ``first_lost``, ``last_lost`` and ``short``.

    ``weak`` tells that its file has lost something, ``first_lost`` and ``last_lost`` that what was launched first or
    last inside may be gone, ``short`` that the handoff may have lost a mark of this kind.

    Args:
        trace: The recordings.
        marks: Bracket marks, closed, with ``first_correlation`` and ``last_correlation``.
        launched: Result of `gapscope.events.launched.launched_inside`.
    """
    weak = weak_sources(trace)
    if not weak:
        nothing = pl.lit(value=False)
        return marks.with_columns(weak=nothing, first_lost=nothing, last_lost=nothing, short=nothing)
    spanned = launched.filter(pl.col("by") == "span").join(marks.select("mark_id", *_PROCESS), on="mark_id")
    known = spanned.select(*_PROCESS, correlation="call_correlation").drop_nulls()
    marks = with_orphans(trace, marks, known)
    n = pl.len().over([*SIDE, "mark"])
    marks = (
        _inside(marks, marks.filter(_TRANSFER).select(*_LANE, at_ns="start_ns"), _LANE, "n_transfers")
        .join(_unnamed(trace, marks), on="mark_id", how="left")
        .join(_replayed(trace, marks, launched), on="mark_id", how="left")
        .join(_spans(trace, marks), on="mark_id", how="left")
        .with_columns(pl.col("n_replayed", "n_spans").fill_null(0))
    )
    by_span = pl.col("mark_id").is_in(spanned["mark_id"].implode()).any().over(_SIBLINGS)
    weak_mark = pl.col("source").is_in(weak)
    short = weak_mark & (n < n.max().over(_SIBLINGS))
    either = (
        short
        | (_STAGE & _fewer("n_transfers"))
        | (_STAGE & pl.col("unnamed").fill_null(value=False))
        | _fewer("n_replayed")
        | (by_span & _fewer("n_spans"))
    )
    return marks.with_columns(
        weak=weak_mark,
        short=short,
        first_lost=pl.col("first_lost") | (weak_mark & (either | (by_span & ~pl.col("starts").fill_null(value=True)))),
        last_lost=pl.col("last_lost")
        | (weak_mark & (either | (by_span & ~pl.col("ends").fill_null(value=True))))
        | pl.col("unfollowed").fill_null(value=False),
    ).drop("n_transfers", "unnamed", "n_replayed", "unfollowed", "n_spans", "starts", "ends")


def with_lost_points(trace: Trace, points: pl.DataFrame) -> pl.DataFrame:
    """Return point marks with ``lost``: the operation next to the mark may be lost, and another stand in its place.

    Args:
        trace: The recordings.
        points: Point marks with ``n_operations`` of the call next to each.
    """
    weak = weak_sources(trace)
    if not weak:
        return points.with_columns(lost=pl.lit(value=False))
    alone = points.with_columns(first_correlation=pl.lit(None, pl.Int64), last_correlation=pl.lit(None, pl.Int64))
    points = with_orphans(trace, alone).drop("first_correlation", "last_correlation")
    cut = trace.sources.filter("truncated").select("source")
    last = (
        trace.scan("calls")
        .join(cut.lazy(), on="source", how="semi")
        .group_by(_LANE)
        .agg(cut_ns=pl.col("start_ns").max())
        .join(trace.sources.filter("calls_in_order").select("source").lazy(), on="source", how="semi")
        .collect()
    )
    points = points.join(last, on=_LANE, how="left")
    behind = pl.col("source").is_in(cut["source"].implode()) & (pl.col("start_ns") > pl.col("cut_ns")).fill_null(True)
    lost = pl.col("last_lost") | behind | (pl.col("source").is_in(weak) & _fewer("n_operations"))
    return points.with_columns(lost=lost).drop("first_lost", "last_lost", "cut_ns")


def with_orphans(trace: Trace, marks: pl.DataFrame, known: pl.DataFrame | None = None) -> pl.DataFrame:
    """Add ``first_lost`` and ``last_lost``: an operation whose call was lost may belong before or behind.

    Correlation ids grow with the calls of a process, so an operation without a call whose id lies between the last call
    before the mark and the operation that decides (or between that and the first call behind the mark) may have been
    launched inside it. A cut takes calls of other threads only, by which autograd launches kernels; copies without a
    call are normal there.

    Args:
        trace: The recordings.
        marks: Marks with ``first_correlation`` and ``last_correlation``, null where no call decides.
        known: ``source, process, correlation`` of operations of which the tool records no call, and that are placed.
    """
    weak = weak_sources(trace)
    if not weak:
        return marks.with_columns(first_lost=pl.lit(value=False), last_lost=pl.lit(value=False))
    damaged = trace.sources.filter(pl.col("dropped").str.contains('"damaged"'))["source"].to_list()
    calls = trace.scan("calls").filter(pl.col("source").is_in(weak) & pl.col("correlation").is_not_null())
    orphans = (
        trace.scan("ops")
        .filter(pl.col("source").is_in(weak) & pl.col("correlation").is_not_null())
        .filter(pl.col("source").is_in(damaged) | (pl.col("kind") == "kernel"))
        .join(calls, on=_CORRELATION, how="anti")
        .select(_CORRELATION)
        .unique()
        .collect()
    )
    if known is not None:
        orphans = orphans.join(known, on=_CORRELATION, how="anti")
    launching = (
        calls.filter(pl.col("family").is_in(LAUNCHING))
        .select(*_LANE, "correlation", call_ns="start_ns")
        .sort("call_ns")
        .collect()
    )
    before = _neighbor(marks, launching, "start_ns", "before")
    around = _neighbor(before, launching, "end_ns", "behind").with_columns(
        _first=pl.coalesce("first_correlation", "behind"), _last=pl.coalesce("last_correlation", "before")
    )
    for name, low, high in (("first_lost", "before", "_first"), ("last_lost", "_last", "behind")):
        hit = (
            around.select("mark_id", *_PROCESS, low=pl.col(low).fill_null(-1), high=pl.col(high).fill_null(2**62))
            .sort("low")
            .join_asof(
                orphans.select(*_PROCESS, orphan="correlation").sort("orphan"),
                left_on="low",
                right_on="orphan",
                by=_PROCESS,
                strategy="forward",
                allow_exact_matches=False,
                check_sortedness=False,
            )
            .filter(pl.col("orphan") < pl.col("high"))
        )
        around = around.with_columns(pl.col("mark_id").is_in(hit["mark_id"].implode()).alias(name))
    return around.drop("_first", "_last", "before", "behind")


def _neighbor(frame: pl.DataFrame, calls: pl.DataFrame, at: str, name: str) -> pl.DataFrame:
    """Add the correlation of the nearest launching call of the lane before ``start_ns`` or behind ``end_ns``."""
    return (
        frame.sort(at)
        .join_asof(
            calls.select(*_LANE, pl.col("correlation").alias(name), _call="call_ns"),
            left_on=at,
            right_on="_call",
            by=_LANE,
            strategy="backward" if at == "start_ns" else "forward",
            check_sortedness=False,
        )
        .drop("_call", strict=False)
    )


def _fewer(count: str) -> pl.Expr:
    return pl.col(count) < pl.col(count).max().over(_SIBLINGS)


def _inside(marks: pl.DataFrame, times: pl.DataFrame, lane: list[str], name: str) -> pl.DataFrame:
    """Add how many of the times ``at_ns`` of the same lane each mark encloses."""
    times = times.sort("at_ns").with_columns(_n=pl.col("at_ns").cum_count().over(lane))
    for bound, exact in (("end_ns", True), ("start_ns", False)):
        marks = marks.sort(bound).join_asof(
            times.select(*lane, "at_ns", pl.col("_n").cast(pl.Int64).alias(f"_{bound}")),
            left_on=bound,
            right_on="at_ns",
            by=lane,
            allow_exact_matches=exact,
            coalesce=False,
            check_sortedness=False,
        )
        marks = marks.drop("at_ns", *(f"{column}_right" for column in lane), strict=False)
    upto = pl.col("_end_ns").fill_null(0)
    return marks.with_columns((upto - pl.col("_start_ns").fill_null(0)).alias(name)).drop("_end_ns", "_start_ns")


def _unnamed(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, unnamed``: a thread that may have been autograd's, its name lost, launched work meanwhile."""
    named = trace.threads.filter(pl.col("name").is_not_null() | pl.col("autograd")).select(_LANE)
    calls = (
        trace.scan("calls")
        .filter(pl.col("family").is_in(LAUNCHING))
        .join(pl.concat([named, marks.select(_LANE)]).unique().lazy(), on=_LANE, how="anti")
        .select(*_PROCESS, at_ns="start_ns")
        .collect()
    )
    counted = _inside(marks.filter(_STAGE).select("mark_id", *_PROCESS, "start_ns", "end_ns"), calls, _PROCESS, "n")
    return counted.select("mark_id", unnamed=pl.col("n") > 0)


def _replayed(trace: Trace, marks: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, n_replayed, unfollowed``: operations whose call launched several, as replays of graphs do.

    ``unfollowed`` tells that they are the last ones on their stream in a truncated file: more may have followed.
    """
    cut = trace.sources.filter("truncated")["source"].to_list()
    last = (
        trace.scan("ops")
        .filter(pl.col("source").is_in(cut))
        .group_by(_GPU)
        .agg(_last=pl.col("start_ns").max())
        .collect()
    )
    size = pl.len().over("mark_id", "call_correlation")
    replayed = launched.filter((pl.col("by") != "span") & (size > 1)).join(
        marks.select("mark_id", *_PROCESS), on="mark_id"
    )
    ends = replayed.join(last, on=_GPU, how="left", nulls_equal=True)
    return ends.group_by("mark_id").agg(
        n_replayed=pl.len().cast(pl.Int64), unfollowed=(pl.col("start_ns") >= pl.col("_last")).any()
    )


def _spans(trace: Trace, marks: pl.DataFrame) -> pl.DataFrame:
    """Return ``mark_id, n_spans, starts, ends``: if an operation stands at both ends of each GPU span of the mark.

    torch.profiler makes a span from the first and last operation of an annotation on a stream, and widens it by the
    smallest step of its times.
    """
    spans = (
        trace.scan("ranges")
        .filter(pl.col("kind") == "gpu_span")
        .select(*_GPU, text="name", span_start="start_ns", span_end="end_ns")
        .join(marks.select(*_PROCESS, "text", "mark_id").lazy(), on=[*_PROCESS, "text"])
        .join(trace.sources.select("source", step="resolution_ns").lazy(), on="source")
        .collect()
    )
    ops = trace.scan("ops").filter(pl.col("start_ns").is_not_null()).select(*_GPU, "start_ns", "end_ns").collect()
    for bound, end, strategy in (("span_start", "start_ns", "forward"), ("span_end", "end_ns", "backward")):
        spans = spans.sort(bound).join_asof(
            ops.select(*_GPU, pl.col(end).alias(f"_{end}")).sort(f"_{end}"),
            left_on=bound,
            right_on=f"_{end}",
            by=_GPU,
            strategy="forward" if strategy == "forward" else "backward",
            coalesce=False,
            check_sortedness=False,
        )
        spans = spans.drop(*(f"{column}_right" for column in _GPU), strict=False)
    return spans.group_by("mark_id").agg(
        n_spans=pl.len().cast(pl.Int64),
        starts=((pl.col("_start_ns") - pl.col("span_start")) <= pl.col("step")).fill_null(value=False).all(),
        ends=((pl.col("span_end") - pl.col("_end_ns")) <= pl.col("step")).fill_null(value=False).all(),
    )

"""From marks and operations to one row per handoff."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from gapscope.clocks import Alignment
from gapscope.events import Ends
from gapscope.events.pairing import KEY, message_facts
from gapscope.findings import Finding
from gapscope.handoffs.collectives import waiting_ranks
from gapscope.handoffs.notes import note_on_no_marks, notes_on
from gapscope.handoffs.status import with_missing_marks, with_status
from gapscope.handoffs.steady import with_steady
from gapscope.handoffs.timebase import SPANS, on_common_timebase, spans_of
from gapscope.handoffs.transport import infer_transport
from gapscope.schema import EVENTS, HANDOFFS, dtypes
from gapscope.trace import Trace

_BETWEEN = ("submit", "movement_start", "available")


@dataclass(frozen=True)
class Handoffs:
    """All handoffs of a run.

    Attributes:
        table: Table ``handoffs`` of `gapscope.schema`, ordered by first known event.
        findings: What is missing, and why.
        spans: ``one, two, at_ns``: clocks between which times were compared, and when.
    """

    table: pl.DataFrame
    findings: list[Finding]
    spans: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SPANS))


def build_handoffs(trace: Trace, ends: Ends | None, alignment: Alignment, warmup: int = 1) -> Handoffs:
    """Return the handoffs of a trace.

    Args:
        trace: The recordings.
        ends: Their events, end by end; None: there are none.
        alignment: Where each clock stands.
        warmup: See `gapscope.handoffs.steady`.
    """
    if ends is None:
        return Handoffs(pl.DataFrame(schema=dtypes(HANDOFFS)), [note_on_no_marks(trace)])
    sides = ends.table
    groups = sides.filter(pl.col("group").is_not_null())
    frame = pl.concat([_pairs(sides), waiting_ranks(groups, alignment)], how="diagonal")
    frame = frame.join(message_facts(ends.marks), on=KEY, how="left", nulls_equal=True)
    frame = frame.join(ends.origins, on=KEY, how="left", nulls_equal=True)
    inferred = infer_transport(trace.scan("ranges"), ends.brackets)
    frame = frame.join(inferred, on=KEY, how="left", nulls_equal=True)
    frame = _with_kind(frame, ends.brackets)
    frame = on_common_timebase(frame, trace, alignment)
    frame = with_steady(with_status(with_missing_marks(frame)), warmup)
    return Handoffs(_finish(frame), notes_on(_recorded(frame, trace), trace), spans_of(frame))


def _recorded(frame: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return the handoffs of which everything was read: what is missing of the others says nothing."""
    if trace.read_steps is None:
        return frame
    return frame.filter(pl.col("step").is_between(*trace.read_steps))


def _pairs(sides: pl.DataFrame) -> pl.DataFrame:
    pairs = sides.filter(pl.col("group").is_null())
    return pairs.drop("side_rank").with_columns(src_rank="src", dst_rank="dst")


def _with_kind(frame: pl.DataFrame, brackets: pl.DataFrame) -> pl.DataFrame:
    """Add ``kind``, ``transport`` and ``open_any``; what does not apply to a local handoff is null and says so."""
    opened = brackets.filter("open").select(KEY).unique().with_columns(open_any=pl.lit(True))
    local = (pl.col("transport") == "local").fill_null(value=False) | (pl.col("src") == pl.col("dst")).fill_null(
        value=False
    )
    frame = frame.join(opened, on=KEY, how="left", nulls_equal=True).with_columns(
        pl.col("open_any").fill_null(value=False),
        kind=pl.when(pl.col("group").is_not_null())
        .then(pl.lit("collective"))
        .when(local)
        .then(pl.lit("local"))
        .otherwise(pl.lit("p2p")),
    )
    is_local = pl.col("kind") == "local"
    return frame.with_columns(
        transport=pl.when(is_local)
        .then(pl.lit("local"))
        .otherwise(pl.coalesce("transport", "inferred", pl.lit("unknown"))),
        **{f"{e}_ns": pl.when(~is_local).then(f"{e}_ns") for e in (*_BETWEEN, "receive_post")},
    )


def _finish(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of the table, ordered."""
    local = pl.col("kind") == "local"
    sources = {}
    for event in EVENTS:
        missing = pl.lit("not_applicable") if event in (*_BETWEEN, "receive_post") else pl.lit("missing")
        sources[f"{event}_source"] = (
            pl.when(pl.col(f"{event}_ns").is_not_null())
            .then(f"{event}_source")
            .when(local)
            .then(missing)
            .otherwise(pl.lit("missing"))
        )
    gap = pl.when("aligned").then(pl.col("consumer_start_ns") - pl.col("producer_finish_ns"))
    one, two = (pl.col(c).cast(pl.String).fill_null("?") for c in ("src_rank", "dst_rank"))
    pair = pl.format("{}>{}/{}/{}", one, two, "channel", "seq")
    group = pl.format("{}/{}/{}@{}", "group", "channel", "seq", "dst_rank")
    name = pl.when(pl.col("group").is_null()).then(pair).otherwise(group)
    table = frame.with_columns(
        **sources,
        gap_ns=gap,
        handoff_id=pl.when(pl.col("job").is_null()).then(name).otherwise(pl.format("{}:{}", "job", name)),
        origin=pl.col("origin").fill_null("marks"),
        microbatch="mb",
        direction="dir",
    )
    # Names of jobs and groups are the user's own, and two keys may come out as one text.
    nth = pl.int_range(pl.len()).over("handoff_id") + 1
    table = table.with_columns(
        handoff_id=pl.when(nth > 1).then(pl.format("{}#{}", "handoff_id", nth)).otherwise("handoff_id")
    )
    empty = [pl.lit(None).alias(n) for n in HANDOFFS if n not in table.columns]
    first = pl.min_horizontal(f"{e}_ns" for e in EVENTS)
    return (
        table.with_columns(empty)
        .sort(first, "src_rank", "dst_rank", "channel", "group", "seq", nulls_last=True)
        .select(pl.col(n).cast(t) for n, t in dtypes(HANDOFFS).items())
    )

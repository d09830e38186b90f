"""From communication without marks to the same tables that marks give."""

from __future__ import annotations

import polars as pl

from gapscope.events import Ends
from gapscope.events.pairing import KEY, event_times
from gapscope.events.points import point_times
from gapscope.trace import Trace

SIDE = {
    # The key.
    "job": pl.String,
    "src": pl.Int64,
    "dst": pl.Int64,
    "channel": pl.Int64,
    "group": pl.String,
    "seq": pl.Int64,
    "side_rank": pl.Int64,
    # Which end, and who recorded it.
    "end": pl.String,
    "source": pl.Int32,
    "process": pl.Int64,
    "rank": pl.Int32,
    "thread": pl.Int64,
    # The host asked for it.
    "host_ns": pl.Int64,
    "host_end": pl.Int64,
    # Its operation, and the producer's and the consumer's.
    "correlation": pl.Int64,
    "device": pl.Int32,
    "stream": pl.Int64,
    "op_start": pl.Int64,
    "op_end": pl.Int64,
    **{
        f"{side}_{what}": dtype
        for side in ("before", "after")
        for what, dtype in {
            "ns": pl.Int64,
            "end_ns": pl.Int64,
            "device": pl.Int32,
            "stream": pl.Int64,
            "correlation": pl.Int64,
        }.items()
    },
    # How its times were had: `derived` from operations, `emitted` or `estimated` on the host.
    "before_source": pl.String,
    "after_source": pl.String,
    "time_source": pl.String,
    # About the handoff.
    "size_bytes": pl.Int64,
    "step": pl.Int64,
    "mb": pl.Int64,
    "dir": pl.String,
    "src_stage": pl.Int64,
    "dst_stage": pl.Int64,
    "transport": pl.String,
    "origin": pl.String,
    "evidence": pl.String,
    "is_ambiguous": pl.Boolean,
    "is_partial": pl.Boolean,
}
"""One end of a handoff as the finders deliver it: ``end`` is ``src``, ``dst``, or ``both`` for a member of a group;
``is_partial``: the group has members that are not recorded. Times are on the file's clock."""

_MARKS = {
    "produce": ("src", "before"),
    "submit": ("src", "own"),
    "receive": ("dst", "own"),
    "consume": ("dst", "after"),
}
_OWN = {"ns": "op_start", "end_ns": "op_end", "device": "device", "stream": "stream", "correlation": "correlation"}
_NO_DEPENDENCY = {"before": "nothing_before", "own": "no_kernel", "after": "nothing_after"}


def ends_of(trace: Trace, sides: pl.DataFrame, first_id: int) -> Ends:
    """Return what marks around this communication would have given.

    Args:
        trace: The recordings.
        sides: Columns `SIDE`.
        first_id: First number that is free for a mark.
    """
    parts = []
    for mark, (end, which) in _MARKS.items():
        rows = sides.filter(pl.col("end").is_in([end, "both"]))
        place = _OWN if which == "own" else {k: f"{which}_{k}" for k in _OWN}
        source = "time_source" if which == "own" else f"{which}_source"
        missing = pl.when(pl.col(place["ns"]).is_null()).then(pl.lit(_NO_DEPENDENCY[which]))
        parts.append(
            rows.with_columns(
                mark=pl.lit(mark),
                slot=pl.lit(0, dtype=pl.Int64),
                start_ns="host_ns",
                end_ns="host_end",
                first_ns=place["ns"],
                last_ns=place["end_ns"],
                first_reason=missing,
                last_reason=missing,
                first_device=place["device"],
                last_device=place["device"],
                op_stream=place["stream"],
                op_correlation=place["correlation"],
                time_source=source,
                kernels=pl.lit([], dtype=pl.List(pl.String)),
                copy_kinds=pl.lit([], dtype=pl.List(pl.String)),
                **{flag: pl.lit(value=False) for flag in ("open", "short", "weak")},
            )
        )
    brackets = pl.concat(parts).with_row_index("mark_id", offset=first_id)
    timed = brackets.filter(pl.col("op_correlation").is_not_null() & pl.col("first_ns").is_not_null())
    launched = timed.select(
        "mark_id", start_ns="first_ns", end_ns="last_ns", device="first_device", stream="op_stream",
        by=pl.lit("call"), decides=pl.lit(value=True),
    )  # fmt: skip
    table = event_times(brackets, point_times(trace, brackets.clear()))
    doubts = sides.group_by(KEY).agg(_doubtful=pl.col("is_ambiguous").any(), is_partial=pl.col("is_partial").any())
    table = table.join(doubts, on=KEY, how="left", nulls_equal=True)
    table = table.with_columns(repeated=pl.col("repeated") | pl.col("_doubtful").fill_null(value=False))
    origins = brackets.select(*KEY, "origin").unique(KEY, keep="first", maintain_order=True)
    uncalled = [
        pl.when(pl.col(f"{e}_ns").is_null() & pl.col(f"has_{mark}")).then(pl.lit("no_call")).alias(f"{e}_reason")
        for e, mark in (("submit", "submit"), ("receive_post", "receive"))
    ]
    return Ends(brackets, brackets, launched, table.with_columns(uncalled).drop("_doubtful"), origins)


def both(marked: Ends | None, found: Ends | None) -> Ends | None:
    """Return the ends that marks name and those found without, together."""
    if marked is None or found is None:
        return marked if found is None else found
    tables = ("marks", "brackets", "launched", "table", "origins")
    return Ends(*(pl.concat([getattr(marked, t), getattr(found, t)], how="diagonal_relaxed") for t in tables))

"""What became of each handoff within the capture: its status, the order of its events, and why times are missing."""

from __future__ import annotations

import polars as pl

from gapscope.handoffs.timebase import BETWEEN_RANKS, ORDERED

_EDGE = ["job", "src", "dst", "channel", "group"]
SIDES = {"produce": "src", "submit": "src", "receive": "dst", "consume": "dst"}
FIVE = ("producer_finish", "submit", "movement_start", "available", "consumer_start")
_MARK_OF = {
    "producer_finish": "produce",
    "submit": "submit",
    "movement_start": "submit",
    "available": "receive",
    "consumer_start": "consume",
}


def with_missing_marks(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``beyond_<mark>`` and ``never_<mark>``: how a mark that a handoff lacks is missing.

    ``beyond``: the edge (src, dst, channel) has such marks, and the handoff's seq lies before the first or after the
    last of them: outside what that rank recorded. ``never``: no handoff of the edge has such a mark.
    """
    columns = []
    for mark in SIDES:
        seq = pl.col("seq").filter(pl.col(f"has_{mark}"))
        low, high = seq.min().over(_EDGE), seq.max().over(_EDGE)
        lacks = ~pl.col(f"has_{mark}")
        columns += [
            (lacks & ((pl.col("seq") < low) | (pl.col("seq") > high)).fill_null(value=False)).alias(f"beyond_{mark}"),
            (lacks & low.is_null()).alias(f"never_{mark}"),
        ]
    return frame.with_columns(columns)


def with_status(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``status`` and ``order`` (`gapscope.schema.STATUS`, `ORDER`).

    Args:
        frame: One row per handoff with the events, ``has_*``, ``beyond_*``, ``open_receive``, ``repeated``,
            ``aligned``, ``<part>_uncertainty_ns`` (`gapscope.handoffs.timebase`), ``src_source``, ``dst_source`` and
            ``kind``.
    """
    has_src = pl.col("has_produce") | pl.col("has_submit") | pl.col("producer_finish_ns").is_not_null()
    has_dst = pl.col("has_receive") | pl.col("has_consume") | pl.col("consumer_start_ns").is_not_null()
    beyond = pl.any_horizontal(f"beyond_{mark}" for mark in SIDES)
    local = pl.col("kind") == "local"
    unmoved = pl.col("movement_start_ns").is_null() & ~_unseen()
    between = pl.col("submit_ns").is_null() | unmoved | pl.col("available_ns").is_null()
    ends = pl.col("producer_finish_ns").is_null() | pl.col("consumer_start_ns").is_null()
    never = pl.col("open_receive") & pl.col("available_ns").is_null()
    status = (
        pl.when("repeated")
        .then(pl.lit("ambiguous"))
        .when(never)
        .then(pl.lit("never_available"))
        .when(beyond)
        .then(pl.lit("edge_of_window"))
        .when(has_src & ~has_dst)
        .then(pl.lit("unmatched_send"))
        .when(has_dst & ~has_src)
        .then(pl.lit("unmatched_receive"))
        .when(ends | (between & ~local) | pl.col("open_any"))
        .then(pl.lit("incomplete"))
        .when(~pl.col("aligned"))
        .then(pl.lit("unaligned"))
        .otherwise(pl.lit("complete"))
    )
    return frame.with_columns(status=status, order=_order())


def _unseen() -> pl.Expr:
    """Return whether only times of the device tell about the source: they never tell when a transfer began to move."""
    by_device = pl.col("producer_finish_source").is_in(["recorded", "estimated"])
    return ((pl.col("movement_start_reason") == "unseen") & by_device).fill_null(value=False)


def _order() -> pl.Expr:
    """Return whether each event came after the one that it needs, as far as the clocks can tell."""
    beyond, backward, between_files = [], [], []
    for name, (first, second) in ORDERED.items():
        passed, bound = pl.col(f"{second}_ns") - pl.col(f"{first}_ns"), pl.col(f"{name}_uncertainty_ns")
        # Near a step of its clock a time stands nowhere, and can only be compared with another such time.
        comparable = pl.col(f"{first}_nowhere") == pl.col(f"{second}_nowhere")
        if name in BETWEEN_RANKS:
            comparable = pl.col("aligned")
        beyond.append(((passed < -bound) & comparable).fill_null(value=False))
        back = ((passed < 0) & comparable).fill_null(value=False)
        backward.append(back)
        if name in BETWEEN_RANKS:
            between_files.append(back)
    # Without a bound, one event that went backward makes every comparison between these two files worthless.
    files = ["src_source", "dst_source"]
    open_ended = pl.col("gap_uncertainty_ns").is_null() & (pl.col("src_source") != pl.col("dst_source"))
    open_ended = open_ended.fill_null(value=False)
    worthless = (pl.any_horizontal(between_files) & open_ended).any().over(files) & open_ended
    own = [f"{e}_ns" for e in ("producer_finish", "available", "consumer_start")]
    unmoved = pl.col("movement_start_ns").is_null() & ~_unseen()
    unknown = (pl.any_horizontal(pl.col(e).is_null() for e in own) | unmoved) & (pl.col("kind") != "local")
    return (
        pl.when(pl.any_horizontal(beyond))
        .then(pl.lit("violation"))
        .when(pl.any_horizontal(backward) | worthless | unknown | ~pl.col("aligned"))
        .then(pl.lit("cannot_tell"))
        .otherwise(pl.lit("ok"))
    )


def missing_reasons(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per missing event of handoffs that are neither complete nor ambiguous: ``event, reason, rank``.

    ``handoff`` numbers the handoffs. ``reason`` is a key of `gapscope.events.times.REASONS`, or ``no_mark``,
    ``no_mark_on_edge``, ``beyond_window``.
    """
    frame = frame.with_row_index("handoff")
    rows = []
    for event in FIVE:
        mark = _MARK_OF[event]
        reason = (
            pl.when(pl.col(f"beyond_{mark}"))
            .then(pl.lit("beyond_window"))
            .when(pl.col(f"never_{mark}"))
            .then(pl.lit("no_mark_on_edge"))
            .when(~pl.col(f"has_{mark}"))
            .then(pl.lit("no_mark"))
            .otherwise(pl.coalesce(f"{event}_reason", pl.lit("nothing_launched")))
        )
        missing = frame.filter(
            pl.col(f"{event}_ns").is_null()
            & ~pl.col("status").is_in(["ambiguous", "unaligned"])
            & ~((pl.col("kind") == "local") & pl.lit(event in ("submit", "movement_start", "available")))
        )
        rank = pl.col("src_rank" if SIDES[mark] == "src" else "dst_rank")
        rows.append(missing.select("handoff", event=pl.lit(event), mark=pl.lit(mark), reason=reason, rank=rank))
    return pl.concat(rows)

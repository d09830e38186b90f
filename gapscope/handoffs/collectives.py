"""Handoffs within a group of ranks: one row per rank that waited for the last to arrive."""

from __future__ import annotations

import polars as pl

from gapscope.clocks import Alignment
from gapscope.events.pairing import KEY


def waiting_ranks(sides: pl.DataFrame, alignment: Alignment) -> pl.DataFrame:
    """Return one row per (collective, rank that waited), in the columns that pairs of ranks have.

    The last rank to arrive is the one whose communication started last (``movement_start``, or the submit call
    where that is missing). It is the source; every other rank is a destination. Where the time of a rank's
    arrival is not known, no rank can be called the last: the row keeps its destination and has no source.

    Args:
        sides: Result of `gapscope.events.pairing.event_times` for groups, ``side_rank`` set.
        alignment: Where each clock stands: who was last can only be seen on one timebase.

    Returns:
        Beside the events ``arrival_ns``: when the rank that waited had arrived itself, on the common timebase;
        ``transfer_ns``: the shortest that any rank's communication took, each on its own clock (null: one is not
        known); ``shortest_rank``: whose that is.
    """
    arrived = _arrived(sides, alignment)
    # Without all members nobody can say who was the last.
    whole = ~pl.col("is_partial").fill_null(value=False) if "is_partial" in sides.columns else pl.lit(value=True)
    took = pl.col("available_ns") - pl.col("movement_start_ns")
    arrived = arrived.with_columns(_known=pl.col("_arrival").is_not_null().all().over(KEY) & whole, _took=took)
    arrived = arrived.with_columns(
        transfer_ns=pl.when(pl.col("_took").is_not_null().all().over(KEY) & whole).then(
            pl.col("_took").min().over(KEY)
        ),
        shortest_rank=pl.col("side_rank").sort_by("_took", nulls_last=True).first().over(KEY),
    )
    last = (
        arrived.filter("_known")
        .sort("_arrival", "side_rank")
        .group_by(KEY)
        .last()
        .select(
            *KEY,
            "producer_finish_ns",
            "producer_finish_source",
            "producer_finish_device",
            "producer_finish_reason",
            "submit_ns",
            "submit_source",
            "submit_device",
            "submit_reason",
            "movement_start_ns",
            "movement_start_source",
            "movement_start_device",
            "movement_start_reason",
            "has_produce",
            "has_submit",
            "repeated",
            src_rank="side_rank",
            src_first_mark_ns=pl.lit(None, dtype=pl.Int64),
            src_source=pl.coalesce("src_source", "dst_source"),
            src_process=pl.coalesce("src_process", "dst_process"),
        )
    )
    own = arrived.select(
        *KEY,
        pl.col("_arrival").alias("arrival_ns"),
        "transfer_ns",
        pl.when(pl.col("transfer_ns").is_not_null()).then("shortest_rank").alias("shortest_rank"),
        "receive_post_ns",
        "receive_post_source",
        "receive_post_device",
        "receive_post_reason",
        "available_ns",
        "available_source",
        "available_device",
        "available_reason",
        "consumer_start_ns",
        "consumer_start_source",
        "consumer_start_device",
        "consumer_start_reason",
        "has_receive",
        "has_consume",
        "open_receive",
        own_repeated="repeated",
        dst_first_mark_ns=pl.min_horizontal("src_first_mark_ns", "dst_first_mark_ns"),
        dst_rank="side_rank",
        dst_source=pl.coalesce("dst_source", "src_source"),
        dst_process=pl.coalesce("dst_process", "src_process"),
    )
    rows = own.join(last, on=KEY, how="left", nulls_equal=True)
    waited = rows.filter(pl.col("src_rank").is_null() | (pl.col("src_rank") != pl.col("dst_rank")))
    return waited.with_columns(
        repeated=pl.col("repeated").fill_null(value=False) | pl.col("own_repeated"),
        has_produce=pl.col("has_produce").fill_null(value=False),
        has_submit=pl.col("has_submit").fill_null(value=False),
    ).drop("own_repeated")


def _arrived(sides: pl.DataFrame, alignment: Alignment) -> pl.DataFrame:
    """Add ``_arrival``: when a rank's communication began, on the common timebase; null: not known."""
    place = sides.select(
        source=pl.coalesce("src_source", "dst_source"),
        process=pl.coalesce("src_process", "dst_process"),
        device=pl.when(pl.col("movement_start_ns").is_not_null()).then("movement_start_device"),
        arrival=pl.coalesce("movement_start_ns", "submit_ns"),
    )
    clocks = alignment.domains.with_domain(place, "device", "", "clock")
    shift = alignment.offsets(clocks["clock"], clocks["arrival"])
    return sides.with_columns((clocks["arrival"] + shift).alias("_arrival"))

"""From each file's own clocks to the common timebase, and what the clocks can tell about a handoff."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from gapscope.clocks import Alignment
from gapscope.schema import EVENTS
from gapscope.trace import Trace

AT_SOURCE = ("producer_finish", "submit", "movement_start")
PARTS = {
    "gap": ("producer_finish", "consumer_start"),
    "submission": ("producer_finish", "submit"),
    "start_wait": ("submit", "movement_start"),
    "movement": ("movement_start", "available"),
    "consumer_wait": ("available", "consumer_start"),
}
"""The gap and its phases: between which events they lie."""

ORDERED = {
    "gap": PARTS["gap"],
    "movement": PARTS["movement"],
    "consumer_wait": PARTS["consumer_wait"],
    "start": ("producer_finish", "movement_start"),
}
"""Pairs of events of which the first has to come before the second."""

BETWEEN_RANKS = ("gap", "movement")
"""Those whose events are of two ranks."""


def on_common_timebase(frame: pl.DataFrame, trace: Trace, alignment: Alignment) -> pl.DataFrame:
    """Move the events of each handoff by the offsets of their clocks.

    Args:
        frame: One row per handoff: ``<event>_ns``, ``<event>_device``, ``src_source``, ``src_process``,
            ``dst_source``, ``dst_process``, ``src_first_mark_ns``, ``dst_first_mark_ns``.
        trace: The recordings.
        alignment: Where their clocks stand.

    Returns:
        The frame with times moved, ``aligned``, ``apart``, ``uncertainty_ns`` (the largest over the clocks that the
        times span; null: no bound is known), ``<part>_uncertainty_ns`` for each of `PARTS` and `ORDERED`, and
        ``both_record_ns``.
        ``apart``: the two ranks were never recorded at the same time, by their clocks. So either the clocks are far
        apart or the files are of different runs, and no duration between them means anything.
    """
    domains = alignment.domains
    for side in ("src", "dst"):
        frame = domains.with_domain(frame, None, f"{side}_", f"{side}_clock")
    for event in EVENTS:
        side = "src" if event in AT_SOURCE else "dst"
        device = f"{side}_event_device"
        frame = domains.with_domain(
            frame.with_columns(pl.col(f"{event}_device").alias(device)), device, f"{side}_", f"{event}_clock"
        ).drop(device)
        shift = alignment.offsets(frame[f"{event}_clock"], frame[f"{event}_ns"])
        nowhere = shift.is_null() & frame[f"{event}_ns"].is_not_null()
        frame = frame.with_columns(
            (pl.col(f"{event}_ns") + shift.fill_null(0)).alias(f"{event}_ns"), nowhere.alias(f"{event}_nowhere")
        )
    for side in ("src", "dst"):
        first = f"{side}_first_mark_ns"
        shift = alignment.offsets(frame[f"{side}_clock"], frame[first])
        frame = frame.with_columns((pl.col(first) + shift.fill_null(0)).alias(first))
    frame = frame.with_columns(first_mark_ns=pl.min_horizontal("src_first_mark_ns", "dst_first_mark_ns"))
    frame = _with_windows(frame, trace, alignment)
    return _with_bounds(frame, alignment)


SPANS = {"one": pl.Int32, "two": pl.Int32, "at_ns": pl.Int64}


def spans_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs of clocks that the times of handoffs span: ``one, two, at_ns``; rows may repeat.

    Args:
        frame: Result of `on_common_timebase`.
    """
    parts = [
        frame.filter(
            pl.col(f"{one}_ns").is_not_null()
            & pl.col(f"{two}_ns").is_not_null()
            & pl.col("at_ns").is_not_null()
            & (pl.col(f"{one}_clock") != pl.col(f"{two}_clock"))
        ).select(one=f"{one}_clock", two=f"{two}_clock", at_ns="at_ns")
        for one, two in combinations(EVENTS, 2)
    ]
    return pl.concat(parts).select(pl.col(n).cast(t) for n, t in SPANS.items())


def _with_windows(frame: pl.DataFrame, trace: Trace, alignment: Alignment) -> pl.DataFrame:
    """Add ``aligned``, ``apart`` and ``both_record_ns``."""
    windows = alignment.domains.with_domain(
        trace.processes.select("source", "process", "window_start_ns", "window_end_ns"), None, "", "clock"
    )
    shift = alignment.offsets(windows["clock"], windows["window_start_ns"])
    windows = windows.select(
        "source",
        "process",
        began=pl.col("window_start_ns") + shift.fill_null(0),
        ended=pl.col("window_end_ns") + shift.fill_null(0),
    )
    placed = pl.Series("placed", alignment.placed)
    frame = frame.join(windows.rename(lambda c: f"src_{c}"), on=["src_source", "src_process"], how="left").join(
        windows.rename(lambda c: f"dst_{c}"), on=["dst_source", "dst_process"], how="left"
    )
    one_clock = pl.col("src_clock") == pl.col("dst_clock")
    both = pl.Series(
        [
            True if s is None or d is None else bool(placed[s] and placed[d])
            for s, d in frame.select("src_clock", "dst_clock").unique(maintain_order=True).iter_rows()
        ],
        dtype=pl.Boolean,
    )
    pairs = frame.select("src_clock", "dst_clock").unique(maintain_order=True).with_columns(_placed=both)
    frame = frame.join(pairs, on=["src_clock", "dst_clock"], how="left", nulls_equal=True, maintain_order="left")
    # A time near a step of its clock stands nowhere on the common timebase.
    nowhere = pl.any_horizontal(f"{event}_nowhere" for event in EVENTS)
    together = (one_clock | pl.col("_placed")).fill_null(value=True)
    apart = (pl.col("src_ended") < pl.col("dst_began")) | (pl.col("dst_ended") < pl.col("src_began"))
    return (
        frame.with_columns(apart=(apart & ~one_clock & together).fill_null(value=False))
        .with_columns(aligned=(together & ~pl.col("apart") & ~nowhere) | one_clock.fill_null(value=False))
        .with_columns(both_record_ns=pl.when("aligned").then(pl.max_horizontal("src_began", "dst_began")))
        .drop("_placed")
    )


def _with_bounds(frame: pl.DataFrame, alignment: Alignment) -> pl.DataFrame:
    """Add ``uncertainty_ns`` and ``<part>_uncertainty_ns``."""
    at = frame.select(pl.coalesce(*(f"{e}_ns" for e in reversed(EVENTS)), "first_mark_ns")).to_series()
    clocks = {e: frame.select(pl.when(pl.col(f"{e}_ns").is_not_null()).then(f"{e}_clock")).to_series() for e in EVENTS}
    bounds, known, of_pair = [], [], {}
    for number, (one, two) in enumerate(combinations(EVENTS, 2)):
        bound = of_pair[one, two] = alignment.uncertainty(clocks[one], clocks[two], at)
        spanned = clocks[one].is_not_null() & clocks[two].is_not_null()
        bounds.append(bound.alias(f"_u{number}"))
        known.append((~spanned | bound.is_not_null()).alias(f"_k{number}"))
    all_known = pl.all_horizontal(k.name for k in known)
    # Ends without any time still belong to two clocks.
    ends = alignment.uncertainty(frame["src_clock"], frame["dst_clock"], at).alias("_ends")
    nothing = pl.all_horizontal(pl.col(b.name).is_null() for b in bounds)
    named = [of_pair[pair].alias(f"{name}_uncertainty_ns") for name, pair in {**PARTS, **ORDERED}.items()]
    frame = frame.with_columns(*bounds, *known, ends, *named, at.alias("at_ns"))
    largest = pl.max_horizontal(*(b.name for b in bounds))
    frame = frame.with_columns(uncertainty_ns=pl.when(nothing).then("_ends").when(all_known).then(largest))
    return frame.drop("_ends", *(b.name for b in bounds), *(k.name for k in known))

"""What a page holds as data: handoffs, tiles, and what was recorded around them, as far as there is room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.cause_names import CAUSES
from gapscope.figures import Results
from gapscope.page.edges import Edges, is_counted
from gapscope.page.payload import frame_columns, pack
from gapscope.plots.style import KIND_LOOKS, axis, cause_look, fill, ink, layout
from gapscope.plots.timeline import MOST_ARROWS
from gapscope.schema import EVENTS
from gapscope.views import place, windows_of
from gapscope.views.timeline import MOST_BARS
from gapscope.wording import in_words, without_arguments

CONTEXT_BUDGET = 8_000_000
"""Characters of the page for what was recorded around handoffs. Handoffs and tiles are all there, whatever they take;
those of 20,000 handoffs and plotly.js take 13 MB of the 25 MB that such a page may have."""

_EVENT_TIMES = [*(f"{event}_ns" for event in EVENTS), "arrival_ns"]
_HANDOFF = [
    "handoff_id", "kind", "origin", "src_rank", "dst_rank", "seq", "step", "microbatch", "transport", "size_bytes",
    "messages", *_EVENT_TIMES, *(f"{event}_source" for event in EVENTS), "gap_ns", "uncertainty_ns",
    "gap_uncertainty_ns", "submission_uncertainty_ns", "status", "order", "steady", "dominant_cause", "dominant_ns",
    "removable_ns", "next_cause", "consumer_bound", "slack_ns",
]  # fmt: skip
_TILE = ["duration_ns", "phase", "cause", "rank", "lane", "op", "what", "evidence", "runner_up"]
_FEWER = 0.85


def zero_of(handoffs: pl.DataFrame) -> int:
    """Return the time that all of the page count from: the first event of any handoff."""
    first = handoffs.select(pl.min_horizontal(*(pl.col(c).min() for c in _EVENT_TIMES))).to_series()
    return int(first.fill_null(0).sum())


def core(analysis: Results, edges: Edges, zero_ns: int, shown: pl.Series) -> dict[str, Any]:
    """Return what the page needs from the start: all handoffs, and how things look.

    Args:
        analysis: What is reported.
        edges: The edges of the page.
        zero_ns: What times are relative to.
        shown: Of which handoffs there is context.
    """
    handoffs, tiles = analysis.handoffs, analysis.tiles
    counts = tiles.group_by("handoff_id").agg(tiles=pl.len().cast(pl.Int64), first_tile_ns=pl.col("start_ns").min())
    frame = (
        handoffs.select(*_HANDOFF)
        .with_columns(edges.numbers(handoffs), is_counted().alias("counted"), shown.alias("context"))
        .join(counts, on="handoff_id", how="left", maintain_order="left")
        .with_columns(pl.col("tiles").fill_null(0))
    )
    return {
        "zero_ns": str(zero_ns),
        "edges": edges.names,
        "handoffs": frame_columns(frame, zero_ns, [*_EVENT_TIMES, "first_tile_ns"]),
        "causes": {
            cause: {"meaning": words, "marker": fill(cause_look(cause)), "ink": ink(cause_look(cause))}
            for cause, words in CAUSES.items()
        },
        "kinds": {kind: fill(look) for kind, look in KIND_LOOKS.items()},
        "axis": axis(),
        "layout": layout("", ""),
        "most": {"bars": MOST_BARS, "arrows": MOST_ARROWS},
    }


def tiles_of(handoffs: pl.DataFrame, tiles: pl.DataFrame) -> dict[str, Any]:
    """Return all tiles, those of a handoff in the order of time, handoffs as in their table.

    The tiles of a handoff are contiguous, so that the time of the first and their lengths say where each is.
    """
    place_of = handoffs.select("handoff_id").with_row_index("_handoff")
    rows = tiles.join(place_of, on="handoff_id").sort("_handoff", "start_ns")
    said = rows.select("op", "detail").unique()
    words = said.with_columns(what=pl.Series([in_words(*row) or None for row in said.iter_rows()], dtype=pl.String))
    others = rows.select("runner_up").drop_nulls().unique()
    short = others.with_columns(_short=pl.Series([without_arguments(o) for o in others["runner_up"]], dtype=pl.String))
    rows = rows.join(words, on=["op", "detail"], how="left", nulls_equal=True, maintain_order="left")
    rows = rows.join(short, on="runner_up", how="left", maintain_order="left")
    return frame_columns(rows.with_columns(runner_up="_short").select(_TILE))


def context(analysis: Results, zero_ns: int, budget: int = CONTEXT_BUDGET) -> tuple[str, pl.Series]:
    """Return what was recorded around handoffs, packed, and of which handoffs it is there.

    All, if they fit; else those with the longest gaps of each edge.

    Args:
        analysis: What is reported.
        zero_ns: What times are relative to.
        budget: Characters that it may take.
    """
    wanted = _by_importance(analysis.handoffs)
    while True:
        chosen = analysis.handoffs.select(pl.col("handoff_id").is_in(wanted.implode())).to_series()
        packed = pack(_placed(analysis, chosen, zero_ns))
        if len(packed) <= budget or wanted.is_empty():
            return packed, chosen
        wanted = wanted.head(int(len(wanted) * _FEWER * budget / len(packed)))


def _by_importance(handoffs: pl.DataFrame) -> pl.Series:
    """Return handoffs, the longest gap of each edge first, then the second of each, and so on."""
    edge = ["kind", "group", "src_rank", "dst_rank", "channel", "direction"]
    by_gap = handoffs.sort("gap_ns", "handoff_id", descending=[True, False], nulls_last=True)
    return by_gap.with_columns(_nth=pl.int_range(pl.len()).over(edge)).sort("_nth", maintain_order=True)["handoff_id"]


def _placed(analysis: Results, chosen: pl.Series, zero_ns: int) -> dict[str, Any]:
    placed = place(analysis.trace, analysis.timebase, windows=_windows(analysis, chosen))
    items = placed.items.with_columns(
        length_ns=pl.col("end_ns") - pl.col("start_ns"), name=pl.col("name").cast(pl.String)
    )
    names = items["name"].unique(maintain_order=True)
    short = pl.Series([None if name is None else without_arguments(name) for name in names], dtype=pl.String)
    items = items.with_columns(name=pl.col("name").replace_strict(names, short, return_dtype=pl.String))
    return {
        "lanes": frame_columns(placed.lanes.select("rank", "lane", "name")),
        "items": frame_columns(items.select("lane", "start_ns", "length_ns", "kind", "name"), zero_ns, ["start_ns"]),
    }


def _windows(analysis: Results, chosen: pl.Series) -> Mapping[int, pl.DataFrame]:
    """Return for each rank the windows of the handoffs that it is a part of."""
    handoffs = analysis.handoffs.filter(chosen)
    spans = handoffs.select("handoff_id", "src_rank", "dst_rank").hstack(windows_of(handoffs))
    passed = analysis.tiles.select("handoff_id", "rank").drop_nulls().unique()
    of_rank = [
        *(spans.select("start_ns", "end_ns", rank=end) for end in ("src_rank", "dst_rank")),
        spans.join(passed, on="handoff_id").select("start_ns", "end_ns", "rank"),
    ]
    both = pl.concat(of_rank).drop_nulls().unique()
    return {int(rank): rows.select("start_ns", "end_ns") for (rank,), rows in both.group_by("rank") if rank >= 0}

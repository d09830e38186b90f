"""The tracks of handoffs: their gaps and what held them by edge, and their events by rank."""

from __future__ import annotations

import polars as pl

from gapscope.exports.arrows import event_flows
from gapscope.exports.packets import Packets, Track, flows_of
from gapscope.exports.ranks import PLACED, Ranks
from gapscope.exports.stacking import stack_up
from gapscope.schema import EVENTS, HANDOFFS
from gapscope.views.gaps import with_edge_names

_AT_SOURCE = ("producer_finish", "submit", "movement_start")
_TOLD = list(HANDOFFS)
"""Columns of table ``handoffs`` that a gap is annotated with."""

_OF_TILE = ["handoff_id", "cause", "phase", "evidence", "runner_up", "op", "detail", "rank", "lane", "uncertainty_ns"]
"""Columns of table ``tiles`` that a tile is annotated with."""

_ABOUT_GAPS = (
    "A row per edge with the gap of each handoff, from producer_finish to consumer_start, and beneath it what held it. "
    "A moment stands for a handoff without a gap: an event is missing, out of order, or on a clock without a place."
)
_ABOUT_EVENTS = "The events of handoffs on this rank. Arrows lead from the producer's to the consumer's."


def add_handoffs(packets: Packets, ranks: Ranks, handoffs: pl.DataFrame, tiles: pl.DataFrame) -> None:
    """Add the gaps of handoffs, what held them, their events, and the arrows between these.

    Args:
        packets: Takes them.
        ranks: Who is who.
        handoffs: Table ``handoffs``, with `gapscope.exports.ranks.Ranks.owners`.
        tiles: Table ``tiles``.
    """
    if handoffs.height:
        drawn = _drawn(handoffs)
        _add_gaps(packets, drawn, tiles)
        _add_events(packets, ranks, drawn)


def _drawn(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Add ``<event>_at``, the time at which each event is drawn (null: it is not), and ``together``."""
    unaligned = pl.col("status").cast(pl.String) == "unaligned"
    for event in EVENTS:
        side = "src" if event in _AT_SOURCE else "dst"
        nowhere = unaligned & (pl.col(f"{side}_apart_at") < PLACED)
        at = pl.when(~nowhere).then(pl.col(f"{event}_ns") + pl.col(f"{side}_shift_at"))
        handoffs = handoffs.with_columns(at.alias(f"{event}_at"))
    return handoffs.with_columns(together=~unaligned & (pl.col("src_apart_at") == pl.col("dst_apart_at")))


def _add_gaps(packets: Packets, drawn: pl.DataFrame, tiles: pl.DataFrame) -> None:
    """Add a track per edge, beneath it the gaps and their tiles."""
    drawn = with_edge_names(drawn).with_columns(
        first_at=pl.min_horizontal(f"{e}_at" for e in EVENTS),
        has_gap=((pl.col("gap_ns") >= 0) & pl.col("together")).fill_null(value=False),
        apart=pl.when("together").then(pl.col("src_apart_at") > PLACED).otherwise(pl.lit(value=False)),
    )
    drawn = drawn.filter(pl.col("first_at").is_not_null())
    key = ["apart", "job", "edge"]
    edges = drawn.group_by(key).agg(pl.col("src_rank", "dst_rank", "channel").min()).sort(
        "apart", "job", "src_rank", "dst_rank", "channel", "edge", nulls_last=False
    ).with_row_index("on")  # fmt: skip
    groups: dict[bool, int] = {}
    of_edge = []
    for order, (apart, job, name) in enumerate(edges.select(key).iter_rows()):
        if apart not in groups:
            title = "Handoffs of clocks not aligned" if apart else "Handoffs"
            groups[apart] = packets.track(Track(title, order=10 + apart, about=_ABOUT_GAPS))
        of_edge.append(packets.track(Track(f"{job}, {name}" if job else name, groups[apart], order=order)))
    drawn = drawn.join(
        edges.select(*key, pl.col("on").cast(pl.Int32)), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    gaps = drawn.filter("has_gap").with_columns(
        start_ns="producer_finish_at", end_ns="consumer_start_at", name="handoff_id", category=pl.lit("handoff")
    )
    gaps = gaps.sort("on", "start_ns", pl.col("end_ns") * -1, "handoff_id")
    _add_slices(packets, of_edge, gaps, tiles)
    outcome = (
        pl.when(pl.col("gap_ns") < 0).then(pl.col("order").cast(pl.String)).otherwise(pl.col("status").cast(pl.String))
    )
    without = drawn.filter(~pl.col("has_gap")).with_columns(
        start_ns="first_at", name=pl.format("{} ({})", "handoff_id", outcome), category=pl.lit("handoff without gap")
    )
    packets.instants(_plain(without.sort("start_ns", "handoff_id")), of_edge, _TOLD)


def _add_slices(packets: Packets, of_edge: list[int], gaps: pl.DataFrame, tiles: pl.DataFrame) -> None:
    """Add gaps, those at the same time on tracks side by side, and on the track of each its tiles."""
    lane, start, end = (gaps[c].to_numpy() for c in ("on", "start_ns", "end_ns"))
    split, _ = stack_up(lane, start, end, nested=False)
    of_gap = packets.beside(lane, of_edge, split)
    gaps = gaps.with_columns(track=pl.Series(of_gap, dtype=pl.Int64), level=pl.lit(0, pl.Int8))
    tracks = gaps["track"].unique().sort()
    gaps = gaps.with_columns(on=tracks.search_sorted(gaps["track"]).cast(pl.Int32))
    held = tiles.join(
        gaps.select("handoff_id", "on", shift="src_shift_at"), on="handoff_id", how="inner", maintain_order="left"
    ).with_columns(
        pl.col("start_ns", "end_ns") + pl.col("shift"), name=pl.col("cause").cast(pl.String),
        category=pl.col("cause").cast(pl.String), level=pl.lit(1, pl.Int8),
    )  # fmt: skip
    common = ["on", "start_ns", "end_ns", "name", "category", "level"]
    rows = pl.concat(
        [
            _plain(gaps).select(*common, *_TOLD),
            _plain(held).select(*common, *_OF_TILE),
        ],
        how="diagonal_relaxed",
    ).sort("on", "start_ns", pl.col("end_ns") * -1, "level", maintain_order=True)
    annotations = [c for c in rows.columns if c not in common]
    packets.slices(rows, tracks.to_list(), annotations)


def _add_events(packets: Packets, ranks: Ranks, drawn: pl.DataFrame) -> None:
    """Add the events of handoffs, on a track of the rank that each is of, and the arrows between them."""
    parts = []
    for number, event in enumerate(EVENTS):
        side = "src" if event in _AT_SOURCE else "dst"
        rows = drawn.select(
            "handoff_id", "uncertainty_ns", start_ns=f"{event}_at", recorded_ns=f"{event}_ns",
            source=pl.col(f"{event}_source").cast(pl.String), name=pl.lit(event), event=pl.lit(number, pl.Int64),
            job=f"{side}_job_at", rank=f"{side}_rank_at", apart=pl.max_horizontal(f"{side}_apart_at", PLACED),
        )  # fmt: skip
        parts.append(rows.with_row_index("row").filter(pl.col("start_ns").is_not_null() & pl.col("rank").is_not_null()))
    events = pl.concat(parts).with_columns(pl.col("row").cast(pl.Int64), category=pl.lit("event"))
    whose = events.select("job", "rank", "apart").unique().sort("job", "rank", "apart", nulls_last=False)
    tracks = [
        packets.track(Track("handoff events", ranks.process(packets, (job, rank), apart), about=_ABOUT_EVENTS))
        for job, rank, apart in whose.iter_rows()
    ]
    whose = whose.with_row_index("on").with_columns(pl.col("on").cast(pl.Int32))
    events = events.join(whose, on=["job", "rank", "apart"], how="left", nulls_equal=True)
    # Moments of one time stay in this order, and so a flow passes them in it.
    events = events.sort("start_ns", "event", "row").with_row_index("position")
    flows = event_flows({e: drawn[f"{e}_at"] for e in EVENTS}, drawn["together"])
    flows = flows.join(events.select("row", "event", "position"), on=["row", "event"])
    passing = flows_of(events.height, flows["position"].cast(pl.Int64).to_numpy(), flows["flow"].to_numpy())
    packets.instants(events, tracks, ["handoff_id", "recorded_ns", "source", "uncertainty_ns"], passing)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with texts instead of enumerations."""
    return frame.with_columns(pl.col(pl.Enum).cast(pl.String)) if _enums(frame) else frame


def _enums(frame: pl.DataFrame) -> bool:
    return any(isinstance(dtype, pl.Enum) for dtype in frame.dtypes)

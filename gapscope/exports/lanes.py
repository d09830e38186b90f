"""The tracks of host threads and of streams, and what was recorded on them."""

from __future__ import annotations

import polars as pl

from gapscope.exports.arrows import operation_flows
from gapscope.exports.packets import Packets, Track
from gapscope.exports.ranks import Ranks
from gapscope.views import Placed

_FIRST_TID = 10_000_000


def add_lanes(packets: Packets, placed: Placed, ranks: Ranks, handoffs: pl.DataFrame) -> None:
    """Add the tracks of threads and streams, what was recorded on them, and arrows between operations.

    Args:
        packets: Takes them.
        placed: What was recorded.
        ranks: Whose it is.
        handoffs: Table ``handoffs``, with `gapscope.exports.ranks.Ranks.owners`.
    """
    same = _same_lanes(ranks.lanes)
    tracks = _add_tracks(packets, ranks, same)
    category = pl.col("kind").cast(pl.String).cast(pl.Categorical)
    shift = ranks.lanes["shift_ns"].gather(placed.items["lane"])
    items = placed.items.with_columns(pl.col("start_ns", "end_ns") + shift, category=category)
    items = items.with_columns(on=same.gather(items["lane"]))
    if same.n_unique() < len(same):
        items = items.sort("on", "start_ns", pl.col("end_ns") * -1, maintain_order=True)
    closed = items["end_ns"].is_not_null()
    rows = items.filter(closed)
    packets.slices(rows, tracks, flows=operation_flows(rows, ranks, handoffs))
    if not closed.all():
        endless = items.filter(~closed)
        beneath = {n: packets.track(_never_closed(packets, tracks[n])) for n in endless["on"].unique().sort()}
        packets.slices(endless, [beneath.get(n, 0) for n in range(len(tracks))])


def _same_lanes(lanes: pl.DataFrame) -> pl.Series:
    """Return for each lane the first that is the same: files of a rank one after the other go on one thread's track."""
    process = pl.coalesce("pid", -1 - pl.col("process"))
    first = pl.col("number").min().over("job", "rank", "apart", process, "lane")
    return lanes.with_row_index("number").with_columns(first.cast(pl.Int32))["number"]


def _add_tracks(packets: Packets, ranks: Ranks, same: pl.Series) -> list[int]:
    """Return the track of each lane."""
    tracks: list[int] = []
    taken: set[int] = set()
    for number, lane in enumerate(ranks.lanes.iter_rows(named=True)):
        if same[number] != number:
            tracks.append(tracks[same[number]])
            continue
        process = ranks.process(packets, (lane["job"], lane["rank"]), lane["apart"])
        name = f"{lane['lane']} {lane['name']}" if lane["name"] else lane["lane"]
        tid = None
        if lane["thread"] is not None:
            main = lane["thread"] == lane["pid"] and process not in taken
            tid = packets.tracks[process].pid if main else _FIRST_TID + number  # pid: shown as the main thread
            taken |= {process} if main else set()
        tracks.append(packets.track(Track(name, process, tid=tid, order=10 + number)))
    return tracks


def _never_closed(packets: Packets, number: int) -> Track:
    track = packets.tracks[number]
    parent = number if track.tid is not None else track.parent
    about = "What has no end in the recording; it is drawn to the end of the trace."
    return Track(f"{track.name} (never closed)", parent, order=track.order, about=about)

"""The tracks around the ranks: what the trace is, its steps and requests, and where each clock stands."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import polars as pl

from gapscope.exports.packets import Packets, Track
from gapscope.wording import duration, signed

_ABOUT_UNITS = "Steps and requests, from the first rank's beginning to the last rank's end (table units)."
_ABOUT_CLOCKS = (
    "Where each clock stands against its reference, over the time for which that holds (table alignment). Times of "
    "two clocks can be compared to the error given here and no better."
)
_OF_UNIT = ["unit", "id", "job", "rank", "steps", "steady"]
_OF_SOURCE = ["tool", "version", "host", "clock", "resolution_ns"]


def add_self(packets: Packets, facts: dict[str, Any], begin_ns: int, end_ns: int) -> None:
    """Add the track that says what wrote the trace, and of what."""
    about = "What this trace is of. Times are in ns on the common timebase, as in gapscope's own tables."
    if facts.get("shown_later_ns"):
        later = f"all are shown {facts['shown_later_ns']} ns later"
        about += f" They begin below zero there, which a trace cannot show: {later}."
    track = packets.track(Track("gapscope", order=0, about=about))
    row = {
        "on": 0,
        "start_ns": begin_ns,
        "end_ns": end_ns,
        "name": f"gapscope {facts['version']}".strip(),
        "category": "about",
    }
    packets.slices(pl.DataFrame([row | facts], infer_schema_length=None), [track], list(facts))


def add_units(packets: Packets, units: pl.DataFrame) -> None:
    """Add a track each for steps and requests; those at the same time stand side by side."""
    units = units.filter(pl.col("start_ns").is_not_null() & (pl.col("end_ns") >= pl.col("start_ns")))
    if not units.height:
        return
    group = packets.track(Track("Steps and requests", order=1, about=_ABOUT_UNITS))
    kinds = units.select("job", "unit").unique().sort("job", "unit", descending=[False, True], nulls_last=False)
    tracks = [packets.track(Track(f"{job}, {unit}s" if job else f"{unit}s", group)) for job, unit in kinds.iter_rows()]
    kinds = kinds.with_row_index("on").with_columns(pl.col("on").cast(pl.Int32))
    rows = units.join(kinds, on=["job", "unit"], how="left", nulls_equal=True).with_columns(
        name=pl.format("{} {}", "unit", "id"), category="unit",
        steps=pl.col("steps").cast(pl.List(pl.String)).list.join(", "),
    )  # fmt: skip
    packets.slices(rows.sort("on", "start_ns", pl.col("end_ns") * -1), tracks, _OF_UNIT, nested=False)


def add_clocks(packets: Packets, alignment: pl.DataFrame, sources: pl.DataFrame, begin_ns: int, end_ns: int) -> None:
    """Add a track per clock and reference, and what is known of its offset there.

    Args:
        packets: Takes them.
        alignment: Table ``alignment``.
        sources: Table ``sources``.
        begin_ns: What the trace shows begins.
        end_ns: What it shows ends.
    """
    within = (pl.col("window_start_ns") <= end_ns) & (pl.col("window_end_ns") >= begin_ns)
    rows = alignment.filter(within).join(sources.select("source", *_OF_SOURCE), on="source", how="left")
    if not rows.height:
        return
    group = packets.track(Track("Clocks", order=99, about=_ABOUT_CLOCKS))
    key = ["source", "rank", "domain", "reference"]
    clocks = rows.select(*key, "path").unique(maintain_order=True)
    tracks = [
        packets.track(Track(_clock_name(row), group, order=order))
        for order, row in enumerate(clocks.iter_rows(named=True))
    ]
    numbered = clocks.with_row_index("on").select(*key, pl.col("on").cast(pl.Int32))
    far = pl.max_horizontal(pl.col("hi_ns") - pl.col("offset_ns"), pl.col("offset_ns") - pl.col("lo_ns"))
    bounded = pl.all_horizontal(pl.col("offset_ns", "lo_ns", "hi_ns").is_not_null())
    rows = rows.join(numbered, on=key, how="left", nulls_equal=True).with_columns(
        error_ns=pl.when(bounded).then(far), category=pl.lit("clock"),
        start_ns=pl.col("window_start_ns").clip(lower_bound=begin_ns),
        end_ns=pl.col("window_end_ns").clip(upper_bound=end_ns),
    )  # fmt: skip
    rows = rows.with_columns(name=pl.Series([_offset_name(row) for row in rows.iter_rows(named=True)]))
    told = [*(c for c in alignment.columns if c != "source"), "error_ns", *_OF_SOURCE]
    packets.slices(rows.sort("on", "start_ns", pl.col("end_ns") * -1), tracks, told, nested=False)


def _clock_name(row: dict[str, Any]) -> str:
    file = PurePath(row["path"]).name
    whose = f"rank {row['rank']} {row['domain']}" if row["rank"] is not None else row["domain"]
    path, _, domain = row["reference"].rpartition(":") if ":" in row["reference"] else ("", "", row["reference"])
    if domain.isdigit():  # gpu:0
        path, _, kind = path.rpartition(":")
        domain = f"{kind}:{domain}"
    of = f"{PurePath(path).name} " if path and path != row["path"] else ""
    return f"{whose} of {file}, against {of}{domain}"


def _offset_name(row: dict[str, Any]) -> str:
    if row["offset_ns"] is None:
        return str(row["quality"])
    error = f"± {duration(row['error_ns'])}" if row["error_ns"] is not None else "error not bounded"
    return f"{row['quality']}: offset {signed(row['offset_ns'])}, {error}"

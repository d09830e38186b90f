"""One Perfetto trace of all ranks, on the common timebase."""

from __future__ import annotations

import gzip
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from gapscope.clocks import Alignment
from gapscope.errors import UsageError
from gapscope.exports.context import add_clocks, add_self, add_units
from gapscope.exports.handoffs import add_handoffs
from gapscope.exports.lanes import add_lanes
from gapscope.exports.packets import Packets
from gapscope.exports.ranks import PLACED, Ranks, find_ranks
from gapscope.exports.window import Window
from gapscope.schema import EVENTS, SCHEMA_VERSION
from gapscope.trace import Trace
from gapscope.views import Placed, place
from gapscope.writing import replacing

_LEVEL = 6  # of gzip: a tenth larger than the highest, in a seventh of the time


class Analyzed(Protocol):
    """What is exported: `gapscope.analysis.Analysis`."""

    @property
    def trace(self) -> Trace: ...  # noqa: D102
    @property
    def timebase(self) -> Alignment | None: ...  # noqa: D102
    @property
    def handoffs(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def tiles(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def units(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def alignment(self) -> pl.DataFrame: ...  # noqa: D102


@dataclass(frozen=True)
class Written:
    """What an export holds.

    Attributes:
        path: The file.
        size_bytes: Its size.
        slices: Number of its slices.
        instants: Number of its moments.
        handoffs: Number of handoffs in it.
        ranks: Ranks of which anything recorded is in it.
        left_out: Ranks that are not, because their clock has no place on the common timebase and a window was asked
            for.
        shift_ns: By how much later than in the tables times are shown, since they begin below zero there; else 0.
    """

    path: Path
    size_bytes: int
    slices: int
    instants: int
    handoffs: int
    ranks: list[int]
    left_out: list[int]
    shift_ns: int = 0


def write_perfetto(
    analysis: Analyzed,
    out: str | PathLike[str],
    *,
    ranks: Collection[int] | None = None,
    window: Window = (None, None),
    calls: bool = True,
    version: str = "",
) -> Written:
    """Write what was recorded, handoffs, tiles, units and clocks as a trace for Perfetto.

    Times are those of the tables, in whole nanoseconds. What stands on a clock without a place on the common timebase
    is in a group of its own, moved to begin with the trace, and no arrow leads there.

    Args:
        analysis: Result of `gapscope.analyze`.
        out: The file; compressed with gzip if its name ends in ``.gz``.
        ranks: Ranks of which to show what was recorded, and handoffs with an end there; None: all.
        window: Keep what lies in or reaches into this time.
        calls: Keep API calls of the host.
        version: Version of gapscope, for the trace to say.

    Raises:
        UsageError: Nothing is left to show, a rank is not there, or the file cannot be written.
    """
    low, high = window
    if low is not None and high is not None and low > high:
        raise UsageError("The window ends before it begins.")
    if ranks is not None:
        _check_ranks(analysis, ranks)
    placed, who, left_out = _recorded(analysis, ranks, window, calls)
    handoffs = who.owners(_within(analysis.handoffs, ranks, window))
    units = _overlapping(analysis.units, window)
    if not placed.items.height and not handoffs.height:
        raise UsageError(_nothing(analysis))
    packets = Packets()
    begin, end = _extent(placed, who, handoffs)
    reference = _reference(analysis.timebase)
    facts: dict[str, Any] = {
        "version": version,
        "schema_version": SCHEMA_VERSION,
        "files": analysis.trace.sources.height,
        "ranks": ", ".join(map(str, sorted(who.lanes["rank"].unique()))),
        "handoffs": handoffs.height,
        "timebase": reference,
        "window_start_ns": low,
        "window_end_ns": high,
        "calls_kept": calls,
    }
    add_units(packets, units)
    add_lanes(packets, placed, who, handoffs)
    add_handoffs(packets, who, handoffs, analysis.tiles)
    add_clocks(packets, analysis.alignment, analysis.trace.sources, begin, end)
    # A trace has no times below zero. Files without absolute times may: torch.profiler counts from where it began.
    shift_ns = max(0, -min(begin, packets.begin_ns))
    facts["shown_later_ns"] = shift_ns or None
    add_self(packets, {k: v for k, v in facts.items() if v is not None}, begin, end)
    path = Path(out)
    _write(packets, path, unix=_is_unix(analysis), shift_ns=shift_ns)
    slices, instants = packets.counts
    there = sorted(who.lanes["rank"].unique().to_list())
    return Written(path, path.stat().st_size, slices, instants, handoffs.height, there, left_out, shift_ns)


def _check_ranks(analysis: Analyzed, ranks: Collection[int]) -> None:
    """Refuse ranks of which there is neither a recording nor a handoff.

    Raises:
        UsageError: There is one.
    """
    recorded = analysis.trace.processes["rank"].drop_nulls().cast(pl.Int64)
    ends = pl.concat([analysis.handoffs[c].drop_nulls().cast(pl.Int64) for c in ("src_rank", "dst_rank")])
    there = pl.concat([recorded, ends.filter(ends >= 0)]).unique().sort().to_list()
    missing = sorted(set(ranks) - set(there))
    if not there:
        raise UsageError(_nothing(analysis))
    if missing:
        raise UsageError(
            f"No recording is of rank {', '.join(map(str, missing))}. There are ranks {', '.join(map(str, there))}."
        )


def _nothing(analysis: Analyzed) -> str:
    """Return why nothing is left to export."""
    unknown = analysis.trace.processes.filter(pl.col("rank").is_null())
    if unknown.height < analysis.trace.processes.height:
        return "Nothing is left to export: no record of these ranks lies in the window."
    if not unknown.height:
        return "Nothing is left to export: the recordings hold no process."
    pids = unknown["pid"].drop_nulls().unique(maintain_order=True).head(8).to_list() or ["PID"]
    options = " ".join(f"--rank-of {pid}=RANK" for pid in pids)
    return f"Nothing can be exported: no recording tells which rank it is of. Say it with {options}."


def _recorded(
    analysis: Analyzed, ranks: Collection[int] | None, window: Window, calls: bool
) -> tuple[Placed, Ranks, list[int]]:
    """Return what was recorded of the ranks in the window, whose it is, and which ranks a window cannot be cut of."""
    windows = None
    if window != (None, None):
        everything = pl.DataFrame({"start_ns": [window[0]], "end_ns": [window[1]]}, schema=dict.fromkeys(
            ("start_ns", "end_ns"), pl.Int64)).with_columns(
            pl.col("start_ns").fill_null(-(2**62)), pl.col("end_ns").fill_null(2**62))  # fmt: skip
        windows = dict.fromkeys(analysis.trace.processes["rank"].drop_nulls().unique().to_list(), everything)
    placed = place(analysis.trace, analysis.timebase, ranks=ranks, windows=windows, unclosed=True)
    items = placed.items if calls else placed.items.filter(pl.col("kind") != "call")
    who = find_ranks(analysis.trace, analysis.timebase, placed)
    if windows is not None:
        aligned = who.lanes["apart"] == PLACED
        items = items.filter(aligned.gather(items["lane"]))
    apart = [of[1] for of, clock in who.hosts.items() if clock > PLACED and (ranks is None or of[1] in ranks)]
    used = items["lane"].unique().sort()
    placed = Placed(placed.lanes[used], items.with_columns(lane=used.search_sorted(items["lane"]).cast(pl.Int32)))
    who = find_ranks(analysis.trace, analysis.timebase, placed)
    return placed, who, sorted(apart) if windows is not None else []


def _within(handoffs: pl.DataFrame, ranks: Collection[int] | None, window: Window) -> pl.DataFrame:
    """Return the handoffs with an end on one of the ranks, and a part in the window."""
    if ranks is not None:
        wanted = list(ranks)
        handoffs = handoffs.filter(pl.col("src_rank").is_in(wanted) | pl.col("dst_rank").is_in(wanted))
    columns = [f"{event}_ns" for event in EVENTS]
    return _reaching(handoffs, pl.min_horizontal(columns), pl.max_horizontal(columns), window)


def _overlapping(units: pl.DataFrame, window: Window) -> pl.DataFrame:
    return _reaching(units, pl.col("start_ns"), pl.col("end_ns"), window)


def _reaching(rows: pl.DataFrame, first: pl.Expr, last: pl.Expr, window: Window) -> pl.DataFrame:
    """Return the rows that reach into the window; without one, all."""
    low, high = window
    asked = ([] if low is None else [last >= low]) + ([] if high is None else [first <= high])
    return rows.filter(*asked) if asked else rows


def _extent(placed: Placed, who: Ranks, handoffs: pl.DataFrame) -> tuple[int, int]:
    """Return when what was recorded begins and ends; if nothing was, when the handoffs do."""
    items = placed.items.with_columns(
        pl.col("start_ns", "end_ns") + who.lanes["shift_ns"].gather(placed.items["lane"])
    ).select(begin=pl.col("start_ns").min(), end=pl.max_horizontal(pl.col("start_ns", "end_ns").max()))
    events = [f"{event}_ns" for event in EVENTS]
    ends = handoffs.select(begin=pl.min_horizontal(pl.col(events).min()), end=pl.max_horizontal(pl.col(events).max()))
    begin, end = (items if placed.items.height else ends).row(0)
    return begin or 0, end or 0


def _reference(timebase: Alignment | None) -> str | None:
    if timebase is None:
        return None
    row = timebase.domains.table.row(timebase.domains.reference, named=True)
    return "anchors" if row["source"] is None else f"{row['path']}:{row['name']}"


def _is_unix(analysis: Analyzed) -> bool:
    """Tell whether the common timebase is Unix time, by the claim of the file that it follows."""
    timebase = analysis.timebase
    if timebase is None:
        return bool((analysis.trace.sources["clock"] == "unix").all())
    return bool(timebase.domains.table["claims"][timebase.domains.reference])


def _write(packets: Packets, path: Path, *, unix: bool, shift_ns: int) -> None:
    try:
        with replacing(path) as beside, beside.open("wb") as raw:
            zipped = gzip.GzipFile(path, "wb", _LEVEL, raw) if path.name.endswith(".gz") else None
            with zipped or nullcontext(raw) as file:
                for piece in packets.written(unix=unix, shift_ns=shift_ns):
                    file.write(piece)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error}). Name another file.") from error

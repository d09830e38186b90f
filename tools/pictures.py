"""Make the pictures of the cause catalogue, and what stands beneath them, from recordings in `tests/data`.

    python -m tools.pictures [CAUSE...]

draws `docs/pictures/<cause>.svg`; it needs the extra ``docs`` and a Chromium. What stands beneath a picture is a
generated part of the page (`tools.write_docs`), recomputed by a test.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

import gapscope
from gapscope.graph.edges import EVIDENCE
from gapscope.plots.timeline import timeline_figure
from gapscope.views import Timeline, timeline_of
from gapscope.wording import duration, in_words, without_arguments
from tools.interference_picture import interference_figure, interference_numbers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY / "tests" / "data"
PICTURES = REPOSITORY / "docs" / "pictures"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH_PX = 1000
SHORTEST_SHARE = 1 / 500
"""Bars shorter than this share of a picture's width are left out of it: they would be specks."""


class Choice(NamedTuple):
    """What a picture shows.

    Attributes:
        run: Files of the recording, within `tests/data`.
        handoff_id: The handoff.
    """

    run: tuple[str, ...]
    handoff_id: str


def _ranks(name: str, *, logs: bool = False) -> tuple[str, ...]:
    traces = tuple(f"{name}_rank{rank}.json.gz" for rank in (0, 1))
    return (*traces, *(f"{name}_rank{rank}.gslog" for rank in (0, 1))) if logs else traces


def _nsys(name: str) -> tuple[str, ...]:
    return (f"examples/{name}_nsys.sqlite.gz", *(f"examples/{name}_nsys_rank{rank}.gslog" for rank in (0, 1)))


CHOICES: Mapping[str, Choice] = {
    "late_submission": Choice(("two-gpus/mailbox_late_submit_nsys.sqlite.gz",), "0>1/0/22"),
    "submit_call": Choice(_ranks("examples/pp_1f1b_torch", logs=True), "1>0/1/57"),
    "stream_queueing": Choice(_ranks("causes/behind_kernel_nccl"), "0>1/0/10"),
    "head_of_line": Choice(_ranks("causes/behind_handoff_copy_engine"), "0>1/0/20"),
    "slot_wait": Choice(("two-gpus/copy_engine_slot_hold_nsys.sqlite.gz",), "0>1/0/48"),
    "late_receive": Choice(_ranks("causes/late_receive_nccl"), "0>1/0/8"),
    "movement": Choice(_ranks("causes/large_nccl"), "0>1/0/12"),
    "late_launch": Choice(_nsys("mailbox_late_launch"), "0>1/0/23"),
    "consumer_busy": Choice(_ranks("causes/second_close_nccl"), "0>1/0/15"),
    "launch_latency": Choice(_ranks("two-gpus/copy_engine_none_torch"), "0>1/0/10"),
    "event_release": Choice(("mailbox_graph_nsys.sqlite.gz",), "0>1/0/20"),
    "stream_turnaround": Choice(_ranks("examples/pp_zb_torch", logs=True), "0>1/0/70"),
    "flag_wait": Choice(("two-gpus/mailbox_late_submit_nsys.sqlite.gz",), "0>1/0/19"),
    "device_sharing": Choice(("mailbox_graph_nsys.sqlite.gz",), "0>1/0/14"),
    "schedule": Choice(_ranks("examples/pp_zb_torch", logs=True), "1>0/0/93"),
    "upstream_compute": Choice(_ranks("causes/interference_nccl"), "0>1/1/14"),
    "profiler_overhead": Choice(_ranks("examples/pp_1f1b_torch", logs=True), "0>1/0/24"),
    "unexplained": Choice(_nsys("gloo_none"), "0>1/0/14"),
}
"""Cause to the handoff whose picture shows it. Causes that no recording shows are not here, and their pages say so."""

INTERFERENCE = _ranks("causes/interference_nccl")


@cache
def analyzed(run: tuple[str, ...]) -> gapscope.Analysis:
    """Return the analysis of a recording, made once."""
    return gapscope.analyze([DATA / name for name in run])


def handoff(choice: Choice) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the chosen handoff, one row, and its tiles in order of time."""
    analysis = analyzed(choice.run)
    tiles = analysis.tiles.filter(pl.col("handoff_id") == choice.handoff_id).sort("start_ns")
    return analysis.handoffs.filter(pl.col("handoff_id") == choice.handoff_id), tiles


# What stands beneath -----------------------------------------------------------------------------------------------


def caption(cause: str) -> str:
    """Return the picture's recording, handoff, gap, and what each stretch of one cause holds, as Markdown."""
    choice = CHOICES[cause]
    table, tiles = handoff(choice)
    row = table.row(0, named=True)
    stretches = _stretches(tiles, row["uncertainty_ns"])
    mine = [s for s in stretches if s.tiles[0]["cause"] == cause]
    held = duration(sum(s.length_ns for s in mine), max(s.floor_ns for s in mine))
    files = ", ".join(f"`tests/data/{name}`" for name in choice.run)
    picture = f"![Timeline of handoff {choice.handoff_id}: {cause}](../pictures/{cause}.svg)"
    start_up = "" if row["steady"] else " It is part of the start-up, which no percentile counts."
    told = (
        f"Recording: {files}. Handoff `{choice.handoff_id}`: gap {duration(row['gap_ns'])} "
        f"({_bound(row['gap_uncertainty_ns'])}), of which `{cause}` holds {held}.{start_up} {_headroom(row)}"
    )
    lines = [picture, "", told.rstrip(), "", "| after producer finish | length | held by | where | what | known by |"]
    lines += ["|---:|---:|---|---|---|---|", *_rows(stretches, row["producer_finish_ns"])]
    if any(s.floor_ns for s in stretches):
        lines += ["", _CROSSING.format(duration(row["uncertainty_ns"]))]
    return "\n".join(lines)


_CROSSING = (
    "A stretch that follows one of another rank begins by that rank's clock: its length is good to {}, and what is "
    "shorter is not given as a number."
)


def _bound(error_ns: int | None) -> str:
    if error_ns is None:
        return "its clocks have no proven bound"
    return f"± {duration(error_ns)}" if error_ns else "one clock"


def _headroom(row: Mapping[str, Any]) -> str:
    if row["dominant_cause"] == "unexplained":
        return ""
    then = f", and then `{row['next_cause']}` would hold it" if row["next_cause"] else ""
    sooner = duration(row["removable_ns"])
    return f"Without `{row['dominant_cause']}` the consumer would have started {sooner} sooner{then}."


class Stretch(NamedTuple):
    """Neighboring tiles of one cause on one lane.

    Attributes:
        tiles: The tiles, in order of time.
        length_ns: How long it is.
        floor_ns: What the clocks cannot tell of it: where another rank held the gap before, it begins by that rank's
            clock; else 0.
    """

    tiles: list[dict[str, Any]]
    length_ns: int
    floor_ns: int


def _stretches(tiles: pl.DataFrame, uncertainty_ns: int | None) -> list[Stretch]:
    """Return the stretches of a gap, in order of time."""
    found: list[Stretch] = []
    for _, run in groupby(tiles.to_dicts(), key=lambda tile: (tile["cause"], tile["rank"], tile["lane"])):
        group = list(run)
        crosses = bool(found) and found[-1].tiles[0]["rank"] != group[0]["rank"]
        length_ns = sum(tile["duration_ns"] for tile in group)
        found.append(Stretch(group, length_ns, (uncertainty_ns or 0) if crosses else 0))
    return found


MOST_STRETCHES = 14


def _rows(stretches: Sequence[Stretch], zero_ns: int) -> list[str]:
    """Return one line per stretch; of many the longest, and what the others sum to."""
    longest = sorted(range(len(stretches)), key=lambda i: -stretches[i].length_ns)[:MOST_STRETCHES]
    rows = []
    for i in sorted(longest):
        group, length_ns, floor_ns = stretches[i]
        first, most = group[0], max(group, key=lambda tile: tile["duration_ns"])
        where = " ".join(([] if first["rank"] is None else [f"rank {first['rank']}"]) + [f"{first['lane'] or ''}"])
        evidence = max((tile["evidence"] for tile in group), key=EVIDENCE.index)
        cells = [
            duration(first["start_ns"] - zero_ns), duration(length_ns, floor_ns), f"`{first['cause']}`", where,
            _cell(in_words(most["op"], most["detail"])), evidence,
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    rest = [s.length_ns for i, s in enumerate(stretches) if i not in longest]
    return [*rows, f"| | {duration(sum(rest))} | {len(rest)} shorter stretches | | | |"] if rest else rows


def _cell(text: str) -> str:
    return without_arguments(text).replace("|", "\\|").replace("<", "&lt;")


def interference_caption() -> str:
    """Return what stands beneath the picture of interference."""
    return interference_numbers(analyzed(INTERFERENCE).interference, INTERFERENCE)


PARTS: Mapping[str, Callable[[], str]] = {
    **{f"picture {cause}": partial(caption, cause) for cause in CHOICES},
    "picture interference": interference_caption,
}
"""Generated parts of pages, see `tools.write_docs`."""


# The pictures ------------------------------------------------------------------------------------------------------


def timeline(choice: Choice) -> Timeline:
    """Return the timeline of the chosen handoff, as a picture of its size can show it.

    Bars that nobody could see are left out, and neighboring tiles of one cause on one lane are drawn as one.
    """
    analysis = analyzed(choice.run)
    found = timeline_of(analysis.trace, analysis.timebase, *handoff(choice))
    least = (found.end_ns - found.start_ns) * SHORTEST_SHARE
    seen = found.bars.filter((pl.col("end_ns") - pl.col("start_ns") >= least) | (pl.col("kind") == "mark"))
    stretch = pl.struct("cause", "rank", "lane").rle_id().alias("stretch")
    first = pl.exclude("start_ns", "end_ns", "duration_ns").first()
    drawn = found.tiles.group_by(stretch, maintain_order=True).agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("duration_ns").sum(), first
    )
    return replace(found, bars=seen, tiles=drawn.select(found.tiles.columns))


def figure(cause: str) -> Figure:
    """Return the picture of a cause, on white paper."""
    if cause == "interference":
        drawn = interference_figure(analyzed(INTERFERENCE).interference)
    else:
        drawn = timeline_figure(timeline(CHOICES[cause]))
    drawn.update_layout(paper_bgcolor="#ffffff", plot_bgcolor="#ffffff", font_color="#404040", width=WIDTH_PX)
    return drawn


def draw(cause: str) -> Path:
    """Draw the picture of a cause; return its file."""
    os.environ.setdefault("BROWSER_PATH", next(filter(None, map(shutil.which, BROWSERS)), ""))
    path = PICTURES / f"{cause}.svg"
    svg = figure(cause).to_image(format="svg", width=WIDTH_PX).decode()
    # Plotly names its parts anew each time; with a name of ours, equal pictures are equal files.
    for made in re.findall(r'id="defs-(\w+)"', svg):
        svg = svg.replace(made, cause)
    path.write_text(svg + "\n")
    return path


def main(causes: Sequence[str]) -> None:
    """Draw the pictures of some causes, or of all."""
    for cause in causes or [*CHOICES, "interference"]:
        path = draw(cause)
        print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

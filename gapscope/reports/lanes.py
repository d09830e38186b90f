"""One handoff over time, as text: what held its gap, and what the lanes of its ranks did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_letters

import numpy as np
import numpy.typing as npt
import polars as pl
from rich.text import Text

from gapscope.views import Timeline
from gapscope.views.looks import cause_look
from gapscope.wording import EVENT_WORDS, duration

WIDTH = 84
"""Columns that the window is cut into."""

_PART_WORDS = {"ranges": "marks", "calls": "calls", "ops": ""}
_MOST_EVENT_LINES = 6
_MARK, _MUCH, _SOME = "─", "▆", "▂"
_SHORT_MARKS = ("produce", "submit", "receive", "consume")

Floats = npt.NDArray[np.float64]


def render_timeline(timeline: Timeline) -> Text:
    """Return one handoff over time, for a rich console: `WIDTH` columns, each one piece of the window.

    The first line is the gap; a letter stands for the cause that holds most of a column, in the color of that cause.
    Below it is a line per thread and stream: letters where a tile lies on it, bars where operations or calls were
    recorded (low bars: for less than half of the column), and the marks by their names.

    Args:
        timeline: See `gapscope.views.timeline_of`.
    """
    held = dict(timeline.tiles.group_by("cause", maintain_order=True).agg(pl.col("duration_ns").sum()).iter_rows())
    letters = {cause: ascii_letters[i % len(ascii_letters)] for i, cause in enumerate(held)}
    names = ["held by", *_names(timeline)]
    lines = [_letters(timeline, timeline.tiles, letters)]
    lines += [_row(timeline, row, letters) for row in range(timeline.rows.height)]
    margin = max(len(name) for name in names) + 2
    text = Text(no_wrap=True, overflow="crop")
    for line in _events(timeline):
        text.append(" " * margin + line.rstrip() + "\n", style="dim")
    for name, cells in zip(names, lines, strict=True):
        _append(text, name, margin, cells)
    text.append_text(_scale(timeline, margin))
    drawn = {cell for line in lines for cell in line}
    for cause, letter in letters.items():
        text.append(f"\n{' ' * margin}").append(letter, style=_style(cause))
        text.append(f" {cause} {duration(held[cause])}")
        text.append("" if (letter, _style(cause)) in drawn else " (too short to be drawn)", style="dim")
    return text


def _names(timeline: Timeline) -> list[str]:
    return [
        f"rank {row['rank']} {row['lane']} {_PART_WORDS[row['part']]}".rstrip()
        for row in timeline.rows.iter_rows(named=True)
    ]


def _style(cause: str) -> str:
    return f"bold {cause_look(cause).color}"


Cell = tuple[str, str]


def _append(text: Text, name: str, margin: int, cells: Iterable[Cell]) -> None:
    text.append(name.ljust(margin))
    for sign, style in cells:
        text.append(sign, style=style or None)
    text.append("\n")


def _covered(timeline: Timeline, start_ns: pl.Series, end_ns: pl.Series) -> Floats:
    """Return which share of each column (second axis) each span (first axis) covers."""
    edges = np.linspace(0, timeline.end_ns - timeline.start_ns, WIDTH + 1)  # Unix ns are too large for floats
    start, end = ((times - timeline.start_ns).to_numpy().astype(np.float64)[:, None] for times in (start_ns, end_ns))
    width = max(edges[1] - edges[0], 1.0)
    shared: Floats = np.minimum(end, edges[None, 1:]) - np.maximum(start, edges[None, :-1])
    return np.asarray(np.maximum(shared, 0) / width)


def _letters(timeline: Timeline, tiles: pl.DataFrame, letters: dict[str, str]) -> list[Cell]:
    """Return the cause that holds most of each column; blank where tiles cover none of it."""
    if not tiles.height:
        return [(" ", "")] * WIDTH
    covered = _covered(timeline, tiles["start_ns"], tiles["end_ns"])
    causes = list(letters)
    by_cause = np.array([covered[(tiles["cause"] == cause).to_numpy()].sum(axis=0) for cause in causes])
    most = by_cause.argmax(axis=0)
    return [
        (letters[causes[i]], _style(causes[i])) if by_cause[i, column] > 0 else (" ", "")
        for column, i in enumerate(most)
    ]


def _row(timeline: Timeline, row: int, letters: dict[str, str]) -> list[Cell]:
    """Return one row: its bars, under them its tiles."""
    bars = timeline.bars.filter(pl.col("row") == row)
    if timeline.rows["part"][row] == "ranges":
        return _marks(timeline, bars)
    tiles = _letters(timeline, timeline.tiles.filter(pl.col("row") == row), letters)
    busy = _covered(timeline, bars["start_ns"], bars["end_ns"]).sum(axis=0)
    return [
        tile if tile[0] != " " else (_MUCH if share >= 0.5 else _SOME if share > 0 else " ", "dim")
        for tile, share in zip(tiles, busy, strict=True)
    ]


def _marks(timeline: Timeline, bars: pl.DataFrame) -> list[Cell]:
    """Return marks by name, inner ones over outer ones; those of handoffs over steps and ranges."""
    cells: list[Cell] = [(" ", "")] * WIDTH
    for bar in bars.sort("depth", "start_ns").iter_rows(named=True):
        word = bar["name"].split(" ")[0]
        if word not in _SHORT_MARKS:
            continue
        low, high = (max(_column(timeline, bar[end]), 0) for end in ("start_ns", "end_ns"))
        room = high - low + 1
        body = f"{word[:room]}{_MARK * (room - len(word))}" if room > 1 else "│"
        for i, sign in enumerate(body):
            cells[low + i] = (sign, "")
    return cells


def _column(timeline: Timeline, at_ns: int) -> int:
    span = max(timeline.end_ns - timeline.start_ns, 1)
    return min((at_ns - timeline.start_ns) * WIDTH // span, WIDTH - 1)


def _events(timeline: Timeline) -> list[str]:
    """Return lines with the names of the events above their columns, each name where there is room."""
    seen = timeline.events.filter(pl.col("at_ns").is_between(timeline.start_ns, timeline.end_ns))
    places = [(_column(timeline, e["at_ns"]), EVENT_WORDS[e["event"]]) for e in seen.iter_rows(named=True)]
    lines: list[list[str]] = []
    pointers = [" "] * WIDTH
    for column, word in places:
        pointers[column] = "▼"
        begin = min(max(column - len(word) // 2, 0), WIDTH - len(word))
        free = (line for line in lines if all(sign == " " for sign in line[max(begin - 1, 0) : begin + len(word) + 1]))
        line = next(free, None)
        if line is None:
            if len(lines) == _MOST_EVENT_LINES:
                continue
            line = [" "] * WIDTH
            lines.append(line)
        line[begin : begin + len(word)] = list(word)
    return ["".join(line) for line in [*reversed(lines), pointers]] if places else []


def _scale(timeline: Timeline, margin: int) -> Text:
    """Return the times at the window's ends and at its zero."""
    first, last = (f"{duration(at - timeline.zero_ns)}" for at in (timeline.start_ns, timeline.end_ns))
    line = [" "] * WIDTH
    line[: len(first)] = list(first)
    line[WIDTH - len(last) :] = list(last)
    zero = _column(timeline, timeline.zero_ns)
    if len(first) < zero < WIDTH - len(last) - 1:
        line[zero] = "0"
    return Text(" " * margin + "".join(line), style="dim")

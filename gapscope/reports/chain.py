"""The chain of one handoff as text: every tile from the consumer back to the producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gapscope.cause_names import CAUSES
from gapscope.graph.edges import EVIDENCE
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, in_words, without_arguments

_EVENTS = ("producer_finish", "submit", "receive_post", "movement_start", "available", "consumer_start")


def render_chain(
    handoff: Mapping[str, Any], tiles: Sequence[Mapping[str, Any]], *, every: bool = False
) -> RenderableType:
    """Return the chain of one handoff, for a rich console.

    Args:
        handoff: Row of table ``handoffs``.
        tiles: Its rows of table ``tiles``, from the consumer back.
        every: One line per tile; else neighbors of one cause on one lane share a line.
    """
    parts: list[RenderableType] = [_headline(handoff), Text(""), _events(handoff)]
    if tiles:
        parts += [Text(""), _tiles(handoff, tiles, every=every), Text(""), *_sums(handoff, tiles)]
    else:
        parts += [Text(""), Text(_why_not(handoff))]
    return Group(*parts)


def _headline(handoff: Mapping[str, Any]) -> Text:
    text = Text(f"handoff {handoff['handoff_id']}", style="bold")
    gap = "no gap is known" if handoff["gap_ns"] is None else f"gap {duration(handoff['gap_ns'])}"
    said = [gap, str(handoff["status"]).replace("_", " ")]
    if handoff["order"] != "ok":
        said.append(f"order: {str(handoff['order']).replace('_', ' ')}")
    if handoff["step"] is not None:
        said.append(f"step {handoff['step']}")
    if not handoff["steady"]:
        said.append("start-up")
    said.append(f"transport {handoff['transport']}")
    return text.append(": " + ", ".join(said), style="not bold")


def _events(handoff: Mapping[str, Any]) -> RenderableType:
    """Return the events, relative to the producer's finish."""
    table = plain_table("event", ">after producer_finish, µs", "source", ">absolute")
    zero = handoff["producer_finish_ns"]
    for event in _EVENTS:
        at = handoff[f"{event}_ns"]
        after = "-" if at is None or zero is None else f"{(at - zero) / 1000:,.1f}"
        table.add_row(event, after, str(handoff[f"{event}_source"]), "-" if at is None else str(at))
    return table


def _tiles(handoff: Mapping[str, Any], tiles: Sequence[Mapping[str, Any]], *, every: bool) -> RenderableType:
    """Return one line per tile, or per stretch of one cause on one lane, from the consumer back."""
    zero = handoff["producer_finish_ns"]
    table = plain_table(">from, µs", ">to, µs", ">length", "held by", "where", "what", "known by")
    for stretch in [[tile] for tile in tiles] if every else _stretches(tiles):
        first, longest = stretch[-1], max(stretch, key=lambda tile: tile["duration_ns"])
        rank = "" if first["rank"] is None else f"rank {first['rank']} "
        more = f", {len(stretch) - 1} more" if len(stretch) > 1 else ""
        evidence = max((tile["evidence"] for tile in stretch), key=EVIDENCE.index)
        others = dict.fromkeys(without_arguments(tile["runner_up"]) for tile in stretch if tile["runner_up"])
        table.add_row(
            f"{(first['start_ns'] - zero) / 1000:,.1f}",
            f"{(stretch[0]['end_ns'] - zero) / 1000:,.1f}",
            duration(sum(tile["duration_ns"] for tile in stretch)),
            first["cause"],
            f"{rank}{first['lane'] or ''}",
            in_words(longest["op"], longest["detail"]) + more,
            "; or ".join([evidence, *others]),
        )
    return table


def _stretches(tiles: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return neighbors of one cause on one lane together."""
    return [list(run) for _, run in groupby(tiles, key=lambda t: (t["cause"], t["rank"], t["lane"]))]


def _sums(handoff: Mapping[str, Any], tiles: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return what the tiles sum to, and what it would bring to fix the longest cause."""
    sums: dict[str, int] = {}
    for tile in tiles:
        sums[tile["cause"]] = sums.get(tile["cause"], 0) + tile["duration_ns"]
    table = plain_table("cause", ">in all", "meaning")
    for cause, ns in sorted(sums.items(), key=lambda item: -item[1]):
        table.add_row(cause, duration(ns), Text(CAUSES[cause], style="dim"))
    lines: list[RenderableType] = [table, Text("")]
    sooner, then = duration(handoff["removable_ns"]), handoff["next_cause"]
    text = f"Without {handoff['dominant_cause']} the consumer would have started {sooner} sooner"
    if handoff["dominant_cause"] == "unexplained":
        text, then = "Most of it is unexplained: nothing can be said about what would bring it down", None
    lines.append(Text(text + (f"; then {then} holds it." if then else ".")))
    if handoff["consumer_bound"]:
        slack = ""
        if handoff["slack_ns"] is not None:
            slack = f" The data could have come {duration(handoff['slack_ns'])} later."
        lines.append(Text(f"No change on the source side could have started the consumer sooner.{slack}"))
    if handoff["uncertainty_ns"] is None:
        lines.append(Text("The clocks of the two ranks have no proven bound.", style="dim"))
    else:
        lines.append(Text(f"Times of different clocks are good to {duration(handoff['uncertainty_ns'])}.", style="dim"))
    return lines


def _why_not(handoff: Mapping[str, Any]) -> str:
    if handoff["gap_ns"] is None:
        return (
            "It has no gap: an event is missing, or the clocks of its ranks cannot be aligned (see gapscope analyze)."
        )
    if handoff["order"] != "ok":
        return "Its events are out of order, or their order cannot be told: nothing is explained."
    return "Its gap is not positive: the consumer did not wait for the producer."

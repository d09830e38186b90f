"""What fixes would bring, as text: one cause at a time, up to the end of steps or requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gapscope.findings import plural
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, percent

_MOST = 8
_LEAST_SHARE = 0.002


def render_fixes(fixes: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return what steps or requests would have gained with each cause gone, and at its best tenth; the most first.

    Args:
        fixes: ``fixes`` of ``summary.json``.
    """
    gone = [f for f in fixes if f["to"] == "0" and f["sooner_high_p50_ns"] is not None]
    best = {(f["cause"], f["rank"]): f for f in fixes if f["to"] != "0"}
    if not gone:
        return _unknown(fixes)
    unit, before = gone[0]["unit"], gone[0]["before_p50_ns"]
    shown = [f for f in gone if f["sooner_high_p50_ns"] >= before * _LEAST_SHARE][:_MOST]
    rest = len([f for f in gone if f["cause"] is not None]) - len([f for f in shown if f["cause"] is not None])
    table = plain_table(f"if it were gone, each {unit}", ">less by, p50", f">of {unit} p50", ">at its best tenth", "")
    for fix in shown:
        name = "all of them at once" if fix["cause"] is None else fix["cause"]
        name += "" if fix["rank"] is None else f" @ rank {fix['rank']}"
        tenth = best.get((fix["cause"], fix["rank"]))
        words = "hangs on how long launches take" if fix["is_sensitive"] else ""
        table.add_row(
            name,
            between(fix["sooner_low_p50_ns"], fix["sooner_high_p50_ns"], fix["uncertainty_ns"]),
            share(fix["sooner_high_p50_ns"], before, fix["uncertainty_ns"]),
            "-"
            if tenth is None
            else between(tenth["sooner_low_p50_ns"], tenth["sooner_high_p50_ns"], tenth["uncertainty_ns"]),
            Text(words, style="dim"),
        )
    note = (
        f"Medians over {gone[0]['units']:,} {unit}s of {duration(before)}, the whole graph replayed: waits move, all "
        "else takes as long as it took, in the same order and with the same contention. Bounds, no forecast, and no "
        "sum: one takes the place of another. At its best tenth: if each handoff spent on it what the best tenth does."
    )
    if rest:
        which, each = plural(rest, "other cause" if shown else "cause"), " each" if rest > 1 else ""
        note += (
            f" {which} would bring less than {_LEAST_SHARE:.1%} of a {unit}{each}, by what is recorded: a wait that no "
            "record ties to another rank or thread stays as long as it was."
        )
    return [*([table] if shown else []), Text(note, style="dim"), *_unknown(fixes)]


def _unknown(fixes: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Return the causes on which no recorded end hangs: what they would bring is not nothing, it is not known."""
    names = [
        f["cause"] + ("" if f["rank"] is None else f" @ rank {f['rank']}")
        for f in fixes
        if f["to"] == "0" and f["cause"] is not None and f["sooner_high_p50_ns"] is None
    ]
    if not names:
        return []
    words = f"No recorded end of a {fixes[0]['unit']} hangs on {', '.join(names)}: what they would bring is not known."
    return [Text(words, style="dim")]


def between(low_ns: int, high_ns: int, floor_ns: int | None = None) -> str:
    """Return two bounds, as one number where they read the same.

    Args:
        low_ns: The low bound.
        high_ns: The high bound.
        floor_ns: What the clocks cannot resolve; None: no such bound is known.

    >>> between(2_100_000, 2_100_400), between(0, 12_000)
    ('2.10 ms', '0 ns … 12.0 µs')
    >>> between(900, 2_800, 2_900), between(900, 12_000, 2_900)
    ('< 2.90 µs', '< 2.90 µs … 12.0 µs')
    """
    low, high = duration(low_ns, floor_ns or 0), duration(high_ns, floor_ns or 0)
    return high if low == high else f"{low} … {high}"


def share(ns: int, of_ns: int, floor_ns: int | None = None) -> str:
    """Return how much of a length is gained, in percent.

    Args:
        ns: What is gained; less than nothing is shown as nothing.
        of_ns: The length; 0: a dash is shown.
        floor_ns: What the clocks cannot resolve; None: no such bound is known.

    >>> share(500, 2_000), share(500, 2_000, 600), share(0, 2_000, 1), share(5, 0)
    ('25%', '< 30%', '< 1%', '-')
    """
    if not of_ns:
        return "-"
    if abs(ns) >= (floor_ns or 0):
        return percent(max(ns, 0) / of_ns)
    least = percent((floor_ns or 0) / of_ns)
    return least if least.startswith("<") else f"< {least}"

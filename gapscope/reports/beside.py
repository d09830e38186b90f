"""What ran slower beside other work, as text: two distributions side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gapscope.findings import plural
from gapscope.reports.tables import plain_table
from gapscope.wording import duration, signed, size, without_arguments

_MOST = 6
_LONGEST_NAME = 40
_SHOWN = ("slower", "faster")


def render_interference(interference: Mapping[str, Any], verbose: bool = False) -> list[RenderableType]:
    """Return the kinds that ran slower or faster beside other work, and how many were compared.

    Args:
        interference: ``interference`` of ``summary.json``.
        verbose: Show all kinds.
    """
    counts = interference["verdicts"]
    if not counts:
        return []
    # That steps ran alike is an answer; that one of a hundred kernels did is not worth a line.
    shown = [
        k
        for k in interference["kinds"]
        if k["verdict"] in _SHOWN or (k["what"] == "step" and k["shift_ns"] is not None)
    ]
    shown = interference["kinds"] if verbose else shown[:_MOST]
    parts: list[RenderableType] = []
    if shown:
        table = plain_table(
            "beside other work", "alone: p10 p50 p90", "overlapped: p10 p50 p90", ">shift", "(95 %)", ""
        )
        for kind in shown:
            between = (
                "" if kind["shift_ns"] is None else f"{signed(kind['shift_lo_ns'])} … {signed(kind['shift_hi_ns'])}"
            )
            table.add_row(
                _name(kind), _spread(kind, "alone"), _spread(kind, "overlapped"), signed(kind["shift_ns"], ""), between,
                _verdict(kind),
            )  # fmt: skip
        parts.append(table)
    compared = sum(n for verdict, n in counts.items() if verdict != "too few")
    alike = f", {counts.get('no difference', 0):,} of them alike" if compared else ""
    few = f"; {counts['too few']:,} more had too few on a side" if counts.get("too few") else ""
    note = (
        f"Beside other work of the same process on the device: {plural(compared, 'kind')} of steps, transfers and "
        f"kernels compared{alike}{few}. Context, no cause of a gap; waiting for a peer is left out."
    )
    return [*parts, Text(note, style="dim")]


def _name(kind: Mapping[str, Any]) -> str:
    where = f" @ rank {kind['rank']}"
    if kind["what"] != "transfer":
        name = without_arguments(str(kind["name"]))
        return (name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…") + where
    return f"{kind['edge']} {kind['transport']} {kind['hop']} {size(kind['size_class'])}" + where


def _spread(kind: Mapping[str, Any], side: str) -> str:
    """Return a group in words; of one with two humps its humps, for its median is the length of nothing."""
    n = kind[f"{side}_n"]
    if kind[f"{side}_humps"]:
        humps = " and ".join(f"{duration(h['p50_ns'])} ({h['n']:,})" for h in kind[f"{side}_humps"])
        return f"two humps: {humps}"
    return " ".join(duration(kind[f"{side}_{q}_ns"]) for q in ("p10", "p50", "p90")) + f" ({n:,})"


def _verdict(kind: Mapping[str, Any]) -> str:
    if kind["verdict"] != "too few":
        return str(kind["verdict"])
    return f"too few: {kind['alone_n']:,} alone, {kind['overlapped_n']:,} overlapped"

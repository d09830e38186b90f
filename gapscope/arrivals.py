"""Collectives: how long ranks waited for the last to arrive, apart from the transfer.

Two forms of one split. By arrival: until the last rank's start a rank waits, from then on it transfers; exact as far as
the clocks of the two ranks are. By length: what a rank's communication took beyond the shortest of all ranks'; needs no
second clock, and takes the shortest for free of waiting. They agree where all ranks leave together. The first is used
where the clocks are off by no more than a tenth of what is measured.
"""

from __future__ import annotations

from typing import Any

import polars as pl

_INSTANCE = ["job", "group", "channel", "seq"]
_LEAST_TIMES = 10
_QUANTILES = {"p50": 0.5, "p90": 0.9, "max": 1.0}


def summarize_groups(handoffs: pl.DataFrame, counted: pl.Expr) -> list[dict[str, Any]]:
    """Return one entry per group of ranks.

    Args:
        handoffs: Table ``handoffs``.
        counted: Which of them count.

    Returns:
        ``job``, ``group``, ``channel``, ``collectives`` (how many), ``last``: per rank ``rank``, ``times`` (how often
        it arrived last), ``agreed`` (of these, how often it also took the shortest); ``wait`` (of the others) and
        ``transfer``: ``by`` (``arrival`` or ``length``), ``n``, ``p50_ns``, ``p90_ns``, ``max_ns``; ``uncertainty_ns``
        (of the first form).
    """
    rows = handoffs.filter((pl.col("kind") == "collective") & pl.col("src_rank").is_not_null() & counted)
    if not rows.height:
        return []
    rows = rows.with_columns(
        wait_by_arrival=pl.max_horizontal(pl.col("movement_start_ns") - pl.col("arrival_ns"), 0),
        transfer_by_arrival=pl.col("available_ns") - pl.max_horizontal("movement_start_ns", "arrival_ns"),
        transfer_by_length="transfer_ns",
        wait_by_length=pl.col("available_ns") - pl.col("arrival_ns") - pl.col("transfer_ns"),
    )
    entries = []
    for (job, group, channel), part in rows.group_by("job", "group", "channel", maintain_order=True):
        bound: Any = (
            part["movement_uncertainty_ns"].max() if part["movement_uncertainty_ns"].null_count() == 0 else None
        )
        by = {w: _form(part, w, bound) for w in ("wait", "transfer")}
        once = part.unique(_INSTANCE, keep="first", maintain_order=True)
        last = once.group_by(rank="src_rank").agg(
            times=pl.len(), agreed=(pl.col("src_rank") == pl.col("shortest_rank")).sum()
        )
        entries.append(
            {
                "job": job,
                "group": group,
                "channel": channel,
                "collectives": once.height,
                "last": last.sort("times", "rank", descending=[True, False]).to_dicts(),
                "uncertainty_ns": bound,
                **{w: {"by": form, **_spread(part[f"{w}_by_{form}"])} for w, form in by.items()},
            }
        )
    return sorted(entries, key=lambda e: (-e["collectives"], e["group"]))


def _spread(values: pl.Series) -> dict[str, Any]:
    known = values.drop_nulls()
    found: dict[str, Any] = {"n": len(known)}
    for name, q in _QUANTILES.items():
        value = known.quantile(q, interpolation="linear")
        if value is not None:
            found[f"{name}_ns"] = round(value)
    return found


def _form(rows: pl.DataFrame, what: str, bound: float | None) -> str:
    """Return which form of the split to use for the wait or the transfer."""
    typical: Any = rows[f"{what}_by_arrival"].median()
    sure = bound is not None and typical is not None and _LEAST_TIMES * bound <= typical
    return "arrival" if sure or rows["transfer_ns"].null_count() else "length"

"""Causes over many handoffs: sums that are never mixed, and the worst handoffs."""

from __future__ import annotations

from typing import Any

import polars as pl

from gapscope.cause_names import CAUSE

COUNTED = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")
"""Which handoffs the sums are over, as for percentiles."""

EDGE = ["kind", "group", "src_rank", "dst_rank", "channel", "direction"]
WORST = 10
_SUMMED = ["start_ns", "end_ns", "duration_ns", "rank", "evidence"]
_PLACE = ["cause", "rank"]
_NUMBER = "_handoff"  # its number stands for ``handoff_id``: a text is slow to compare
_EDGE_NUMBER = "_edge"


def summarize_causes(
    handoffs: pl.DataFrame, tiles: pl.DataFrame, units: pl.DataFrame, exposure: pl.DataFrame
) -> dict[str, Any]:
    """Return what held the counted handoffs, and the counted requests or steps.

    There are three totals, which must not be mixed: handoffs that wait at the same time add up in handoff time and
    count once in wall time; exposure is the time of the requests (without marks of any: of the steps) along one path
    each. Only exposure is a share of latency.

    Args:
        handoffs: Table ``handoffs``.
        tiles: Table ``tiles``.
        units: Table ``units``.
        exposure: Table ``exposure``.

    Returns:
        ``units``: what exposure is over (see `_counted_units`). ``edges``: per edge ``handoffs``, ``gap_ns`` (their
        sum), ``consumer_bound`` (of how many no change on the source side could have started the consumer sooner),
        ``uncertain_ns`` (of that, what lies before a choice that the clocks cannot tell from its runner-up) and
        ``causes``, those with the most exposure first, else the longest: ``cause, rank``, ``exposure_ns`` (sum over
        counted units; null: there are none), ``handoff_ns`` (sum over handoffs), ``wall_ns`` (union over time),
        ``handoffs`` (in how many), ``dominant`` (of how many the cause, on all ranks together, is the longest: the same
        on each of its ranks), ``removable_p50_ns`` (median over those). ``total``: the three totals per ``cause,
        rank`` over all edges. ``outside``: ``part, rank, exposure_ns`` of what the units pass outside all gaps.
        ``evidence``: share of handoff time per level. ``worst``: the handoffs with the longest gaps.
    """
    about_units, of_units = _counted_units(units, exposure)
    in_gaps = of_units.filter(pl.col("part") == "gap") if about_units["n"] else None
    counted = handoffs.filter(COUNTED).with_row_index(_NUMBER)
    edges = counted.select(EDGE).unique(maintain_order=True).with_row_index(_EDGE_NUMBER)
    numbers = _numbers(tiles, counted)
    counted = counted.join(edges, on=EDGE, how="left", nulls_equal=True, maintain_order="left")
    counted = counted.join(_uncertain(tiles, numbers), on=_NUMBER, how="left", maintain_order="left")
    of_counted = tiles.select(*_SUMMED, pl.col("cause").cast(CAUSE), numbers).filter(pl.col(_NUMBER).is_not_null())
    of_counted = of_counted.with_columns(counted[_EDGE_NUMBER].gather(of_counted[_NUMBER])).sort("start_ns")
    total = of_counted["duration_ns"].sum()
    levels = of_counted.group_by("evidence").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    worst = counted.sort("gap_ns", "handoff_id", descending=[True, False]).head(WORST)
    of_worst = tiles.with_columns(numbers).filter(numbers.is_in(worst[_NUMBER].implode()))
    outside = of_units.filter(pl.col("part") != "gap").group_by("part", "rank").agg(pl.col("exposure_ns").sum())
    return {
        "units": about_units,
        "total": _totals(of_counted, in_gaps, _PLACE).to_dicts(),
        "outside": outside.sort("exposure_ns", "part", "rank", descending=[True, False, False]).to_dicts(),
        "edges": _edges(counted, of_counted, edges, in_gaps),
        "evidence": {name: ns / total for name, ns in levels.iter_rows()} if total else {},
        "worst": [
            {
                "handoff_id": row["handoff_id"],
                "gap_ns": row["gap_ns"],
                "dominant_cause": row["dominant_cause"],
                "dominant_ns": row["dominant_ns"],
                "removable_ns": row["removable_ns"],
                "next_cause": row["next_cause"],
                "chain": chain(of_worst.filter(pl.col(_NUMBER) == row[_NUMBER])),
            }
            for row in worst.iter_rows(named=True)
        ],
    }


def _numbers(tiles: pl.DataFrame, handoffs: pl.DataFrame) -> pl.Series:
    """Return the number of the handoff that each tile is of; null: of none of these."""
    ids = tiles["handoff_id"]
    run = ids.rle_id()
    first = ids.filter(run.diff().fill_null(1) > 0)  # those of one handoff stand together: one look-up is enough
    numbers = first.to_frame().join(
        handoffs.select("handoff_id", _NUMBER), on="handoff_id", how="left", maintain_order="left"
    )  # fmt: skip
    return numbers[_NUMBER].gather(run)


def _uncertain(tiles: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    """Return how much of its time the walk of a handoff reached only over a choice that the clocks leave open.

    The choice is made where a stretch with a runner-up begins; what came before it might be another chain's.

    Args:
        tiles: Table ``tiles``.
        numbers: Result of `_numbers`.

    Returns:
        The number of the handoff, ``uncertain_ns``; no row of handoffs without a choice.
    """
    chosen = numbers.filter(tiles["runner_up"].is_not_null()).drop_nulls().unique()
    rows = tiles.select("start_ns", "lane", "op", "runner_up", numbers).filter(numbers.is_in(chosen.implode()))
    rows = rows.sort(_NUMBER, "start_ns")
    is_new = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in (_NUMBER, "lane", "op", "runner_up"))
    since = pl.col("start_ns") - pl.col("start_ns").min().over(_NUMBER)
    choices = rows.select(_NUMBER, since=since, is_choice=is_new & pl.col("runner_up").is_not_null())
    return choices.filter("is_choice").group_by(_NUMBER).agg(uncertain_ns=pl.col("since").max())


def _edges(
    counted: pl.DataFrame, tiles: pl.DataFrame, edges: pl.DataFrame, exposure: pl.DataFrame | None
) -> list[dict[str, Any]]:
    """Return what held the handoffs of each edge, the edge with most time first.

    Args:
        counted: The handoffs, with the number of their edge and ``uncertain_ns``.
        tiles: Their tiles, with the number of the edge.
        edges: `EDGE` and number.
        exposure: Exposure in gaps; None: there are no units.
    """
    if exposure is not None:
        exposure = exposure.join(edges, on=EDGE, nulls_equal=True)
    dominant = counted.group_by(_EDGE_NUMBER, cause="dominant_cause").agg(
        dominant=pl.len(), removable_p50_ns=pl.col("removable_ns").median().round().cast(pl.Int64)
    )
    held = _totals(tiles, exposure, [_EDGE_NUMBER, *_PLACE])
    held = held.join(dominant, on=[_EDGE_NUMBER, "cause"], how="left", maintain_order="left")
    held = held.with_columns(pl.col("dominant").fill_null(0))
    causes = held.partition_by(_EDGE_NUMBER, maintain_order=True, include_key=False, as_dict=True)
    nothing = held.clear()
    sums = counted.group_by(_EDGE_NUMBER).agg(
        pl.len().alias("handoffs"), *(pl.col(c).sum() for c in ("gap_ns", "consumer_bound", "uncertain_ns"))
    )
    rows = edges.join(sums, on=_EDGE_NUMBER).sort("gap_ns", _EDGE_NUMBER, descending=[True, False])
    return [
        {**about, "causes": causes.get((number,), nothing).to_dicts()}
        for number, about in zip(rows[_EDGE_NUMBER], rows.drop(_EDGE_NUMBER).to_dicts(), strict=True)
    ]


def _counted_units(units: pl.DataFrame, exposure: pl.DataFrame) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return what exposure is over, and its rows of these units.

    Returns:
        ``unit`` (``request`` if any has marks, else ``step``; null: neither has), ``total``, ``start_up``, ``n``
        (counted: past start-up, with both ends), ``time_ns`` (the sum of their times), ``wall_ns``
        (their union: less where one begins before the one before has ended on every rank).
    """
    kinds = units["unit"].unique().to_list()
    unit = "request" if "request" in kinds else "step" if "step" in kinds else None
    mine = units.filter(pl.col("unit") == unit) if unit else units.clear()
    length = pl.col("end_ns") - pl.col("start_ns")
    counted = mine.filter(pl.col("steady") & (length > 0))
    about = {
        "unit": unit,
        "total": mine.height,
        "start_up": mine.filter(~pl.col("steady")).height,
        "n": counted.height,
        "time_ns": counted.select(length.sum()).item(),
        "wall_ns": counted.sort("start_ns").select(_union()).item(),
    }
    key = ["unit", "id", "job"]
    return about, exposure.join(counted.select(key), on=key, how="semi", nulls_equal=True)


def _totals(tiles: pl.DataFrame, exposure: pl.DataFrame | None, by: list[str]) -> pl.DataFrame:
    """Return the three totals per ``cause, rank``, by exposure (null: no units), then by handoff time.

    A cause can hold a unit without holding a counted handoff; its other totals are then 0.

    Args:
        tiles: The tiles, in the order of their starts.
        exposure: Exposure in gaps; None: there are no units.
        by: ``cause, rank``, and the number of the edge before them if each is for itself.
    """
    sums = tiles.group_by(by).agg(
        handoff_ns=pl.col("duration_ns").sum(), wall_ns=_union(), handoffs=pl.col(_NUMBER).n_unique()
    )
    sums = sums.with_columns(pl.col("cause").cast(pl.String))
    if exposure is None:
        sums = sums.with_columns(exposure_ns=pl.lit(None, dtype=pl.Int64))
    else:
        held = exposure.group_by(by).agg(pl.col("exposure_ns").sum())
        sums = sums.join(held, on=by, how="full", coalesce=True, nulls_equal=True).with_columns(
            pl.col("exposure_ns", "handoff_ns", "wall_ns", "handoffs").fill_null(0)
        )
    order = ["exposure_ns", "handoff_ns", *by]
    return sums.select(*by, "exposure_ns", "handoff_ns", "wall_ns", "handoffs").sort(
        order, descending=[True, True, *(False for _ in by)], nulls_last=True
    )


def _union() -> pl.Expr:
    """Return the length of the union of stretches, which are in the order of their starts."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    reached = end.cum_max().shift(fill_value=0)
    return pl.max_horizontal(end - pl.max_horizontal(start, reached), pl.lit(0)).sum()


def chain(tiles: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the tiles of one handoff from the consumer back, neighbors of one cause and rank as one link.

    Each has ``cause, rank, lane, duration_ns, op`` (the longest part's), ``detail``, ``evidence`` (the weakest).
    """
    order = ("recorded", "structural", "declared", "inferred", "assumed", "unknown")
    weak = pl.col("evidence").replace_strict({e: n for n, e in enumerate(order)}, return_dtype=pl.Int8)
    rows = tiles.sort("start_ns", descending=True).with_columns(_run=pl.struct("cause", "rank").rle_id())
    longest = pl.col("duration_ns").arg_max()
    links = rows.group_by("_run", maintain_order=True).agg(
        pl.col("cause", "rank").first(),
        pl.col("lane").get(longest),
        pl.col("duration_ns").sum(),
        pl.col("op").get(longest),
        pl.col("detail").get(longest),
        pl.col("evidence").sort_by(weak).last(),
        pl.len().alias("parts"),
    )
    return links.drop("_run").to_dicts()

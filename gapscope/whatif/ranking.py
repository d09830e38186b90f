"""Which fix could reach the end of steps or requests, and how far: one cause at a time, never summed."""

from __future__ import annotations

import polars as pl

from gapscope.schema import FIXES, dtypes
from gapscope.whatif.effects import SENSITIVE, replayed
from gapscope.whatif.model import Model
from gapscope.whatif.scenario import P10, Scenario, chosen, gone_before

MOST = 10
_LEAST_SHARE = 0.005


def ranked(model: Model) -> pl.DataFrame:
    """Return one row per cause and rank that hold a share of the gaps, at 0 and at their best tenth; the best first.

    A last row of each (``cause`` null) is all of them at once: it is no sum, for one may take the place of another.

    Args:
        model: The model.

    Returns:
        Table ``fixes`` of `gapscope.schema`.

    Raises:
        ReplayError: See `Model.forward`.
    """
    units = model.units.table.filter("steady")
    unit = "request" if (units["unit"] == "request").any() else "step"
    parts = model.parts.filter("counted")
    if not parts.height or not units.filter(pl.col("unit") == unit).height:
        return pl.DataFrame(schema=dtypes(FIXES))
    length = pl.col("end_ns") - pl.col("start_ns")
    sums = parts.group_by("cause", "rank").agg(handoff_ns=length.sum(), handoffs=pl.col("handoff_id").n_unique())
    total = int(sums["handoff_ns"].sum())
    sums = sums.filter((pl.col("handoff_ns") >= total * _LEAST_SHARE) & (pl.col("cause") != "unexplained"))
    sums = sums.sort("handoff_ns", "cause", descending=[True, False]).head(MOST)
    listed_ns = sums["handoff_ns"].sum()
    rows = []
    for to in ("0", P10):
        every = []
        for cause, rank, handoff_ns, handoffs in sums.iter_rows():
            scenario = Scenario(cause=cause, to=to)
            tiles = chosen(model, scenario).filter(pl.col("rank").eq_missing(rank))
            every.append(tiles)
            rows.append(_row(model, tiles, unit) | {"cause": cause, "rank": rank, "to": to,
                                                   "handoff_ns": handoff_ns, "handoffs": handoffs})  # fmt: skip
        if len(every) > 1:
            of_any = parts.join(sums, on=["cause", "rank"], how="semi", nulls_equal=True)["handoff_id"].n_unique()
            both = {"cause": None, "rank": None, "to": to, "handoff_ns": int(listed_ns), "handoffs": of_any}
            rows.append(_row(model, pl.concat(every), unit) | both)
    table = pl.DataFrame(rows, schema=dtypes(FIXES))
    return table.sort(
        pl.col("to") != "0", pl.col("cause").is_null(), -pl.col("sooner_high_p50_ns"), "cause", "rank", nulls_last=True
    )


def _row(model: Model, tiles: pl.DataFrame, unit: str) -> dict[str, object]:
    effect = replayed(model, gone_before(model, tiles))
    mine = effect.filter((pl.col("unit") == unit) & pl.col("steady"))
    low, high, before = (
        mine[c].quantile(0.5, interpolation="linear") for c in ("sooner_low_ns", "sooner_high_ns", "before_ns")
    )
    row = {"unit": unit, "units": mine.height, "before_p50_ns": None if before is None else round(before)}
    if low is None or high is None:
        return row
    return row | {
        "sooner_low_p50_ns": round(low),
        "sooner_high_p50_ns": round(high),
        "is_sensitive": bool(high > 0 and (high - low) > SENSITIVE * high),
        "not_replayed_ns": int(tiles.filter("counted", pl.col("node").is_null())["gone_ns"].sum()),
    }

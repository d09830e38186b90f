"""Which fix could reach the end of steps or requests, and how far: one cause at a time, never summed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.schema import FIXES, dtypes
from gapscope.whatif.effects import SENSITIVE, sooner
from gapscope.whatif.losses import clock_error, gone_before
from gapscope.whatif.model import Model
from gapscope.whatif.scenario import P10, Scenario, shrunk

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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
    parts, classes = model.parts, model.classes
    counted = parts["counted"]
    if not counted.any() or not units.filter(pl.col("unit") == unit).height:
        return pl.DataFrame(schema=dtypes(FIXES))
    tiles = parts.select("counted", "length_ns", number=pl.Series(classes.number), is_first=pl.Series(classes.is_first))
    spent = tiles.filter("counted").group_by("number").agg(
        handoff_ns=pl.col("length_ns").sum(), handoffs=pl.col("is_first").sum()
    )  # fmt: skip
    sums = spent.hstack(classes.table[spent["number"]]).with_columns(pl.col("cause").cast(pl.String))
    total = int(sums["handoff_ns"].sum())
    sums = sums.filter((pl.col("handoff_ns") >= total * _LEAST_SHARE) & (pl.col("cause") != "unexplained"))
    sums = sums.sort("handoff_ns", "cause", "rank", descending=[True, False, False], nulls_last=True).head(MOST)
    # Which of the listed each tile is of.
    listed = np.full(classes.table.height, -1, np.int8)
    listed[sums["number"].to_numpy()] = np.arange(sums.height)
    number = listed[classes.number]
    by_node = number[model.by_node[0]]
    listed_ns, of_any = int(sums["handoff_ns"].sum()), parts["handoff"].filter(pl.Series(number >= 0) & counted)
    rows = []
    for to in ("0", P10):
        gone = shrunk(model, Scenario(to=to)).to_numpy()
        for i, (_, handoff_ns, handoffs, cause, rank) in enumerate(sums.iter_rows()):
            one = {"cause": cause, "rank": rank, "to": to, "handoff_ns": handoff_ns, "handoffs": handoffs}
            rows.append(_row(model, gone, number == i, by_node == i, unit) | one)
        if sums.height > 1:
            both = {"cause": None, "rank": None, "to": to, "handoff_ns": listed_ns, "handoffs": of_any.n_unique()}
            rows.append(_row(model, gone, number >= 0, by_node >= 0, unit) | both)
    table = pl.DataFrame(rows, schema=dtypes(FIXES))
    return table.sort(
        pl.col("to") != "0", pl.col("cause").is_null(), -pl.col("sooner_high_p50_ns"), "cause", "rank", nulls_last=True
    )


def _row(model: Model, gone: Ints, chosen: Bools, by_node: Bools, unit: str) -> dict[str, object]:
    effect = sooner(model, gone_before(model, gone, by_node))
    table = model.timeline.table
    mine = table.select((pl.col("unit") == unit) & pl.col("steady")).to_series()
    before = table["before_ns"].filter(mine).quantile(0.5, interpolation="linear")
    row: dict[str, object] = {
        "unit": unit,
        "units": int(mine.sum()),
        "before_p50_ns": None if before is None else round(before),
        "uncertainty_ns": clock_error(model, gone, chosen),
    }
    low, high = (_median(effect[name], mine) for name in ("sooner_low_ns", "sooner_high_ns"))
    if low is None or high is None:
        return row
    no_node = chosen & model.parts.select(pl.col("counted") & pl.col("node").is_null()).to_series().to_numpy()
    return row | {
        "sooner_low_p50_ns": round(low),
        "sooner_high_p50_ns": round(high),
        "is_sensitive": bool(high > 0 and (high - low) > SENSITIVE * high),
        "not_replayed_ns": int(gone[no_node].sum()),
    }


def _median(values: Ints | None, mine: pl.Series) -> float | None:
    return None if values is None else pl.Series(values).filter(mine).quantile(0.5, interpolation="linear")

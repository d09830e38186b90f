"""What becomes of steps and requests when some time is gone: a low and a high bound of how much sooner they end.

The bounds are those of one assumption: what passes between something and the last of what it waited for, when
something else becomes the last (`gapscope.graph.forward`). Both hold for the same schedule and the same contention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.units import NO_NODE, Units
from gapscope.graph.forward import FLOOR, STICKY
from gapscope.whatif.model import Model
from gapscope.whatif.scenario import Scenario, chosen, gone_before

Ints = npt.NDArray[np.int64]

SENSITIVE = 0.2
"""Bounds that differ by more than this share hang on how long launches take: it is said."""

UNIT_EFFECT = {
    "unit": pl.String,
    "id": pl.String,
    "job": pl.String,
    "steady": pl.Boolean,
    "before_ns": pl.Int64,
    "sooner_low_ns": pl.Int64,
    "sooner_high_ns": pl.Int64,
    "end_sooner_low_ns": pl.Int64,
    "end_sooner_high_ns": pl.Int64,
}


@dataclass(frozen=True)
class Effects:
    """What a scenario would have changed.

    Attributes:
        scenario: What is gone.
        units: One row per step or request that has both ends: ``unit, id, job, steady, before_ns`` (its length),
            ``sooner_low_ns, sooner_high_ns`` (by how much less it would have taken: a step counts from the end of the
            step before it, a request from its own begin), ``end_sooner_low_ns, end_sooner_high_ns`` (by how much
            earlier it would have ended: what earlier units gained included). In order of their ends. All but the
            first five are null where no recorded end hangs on what is gone: then nobody knows.
        tiles: Number of tiles that shrink.
        gone_ns: Their time that is gone; tiles of several handoffs may be the same time.
        not_replayed_ns: Of it the time of tiles that are not in the graph, so that nothing is known of what they held.
    """

    scenario: Scenario
    units: pl.DataFrame
    tiles: int
    gone_ns: int
    not_replayed_ns: int

    def over(self, unit: str) -> dict[str, int | None]:
        """Return what the steady units of one kind took and would have taken.

        Returns:
            ``n``; medians ``before_p50_ns, sooner_low_p50_ns, sooner_high_p50_ns, after_low_p50_ns,
            after_high_p50_ns``; and ``after_p10_ns, after_p90_ns``: between them lie four fifths of the units at both
            bounds. Null where n is 0.
        """
        mine = self.units.filter((pl.col("unit") == unit) & pl.col("steady")).with_columns(
            after_low_ns=pl.col("before_ns") - pl.col("sooner_high_ns"),
            after_high_ns=pl.col("before_ns") - pl.col("sooner_low_ns"),
        )
        columns = ("before", "sooner_low", "sooner_high", "after_low", "after_high")
        found = {f"{c}_p50_ns": _quantile(mine[f"{c}_ns"], 0.5) for c in columns}
        ends = {
            "after_p10_ns": _quantile(mine["after_low_ns"], 0.1),
            "after_p90_ns": _quantile(mine["after_high_ns"], 0.9),
        }
        return {"n": mine.height, **found, **ends}


def _quantile(values: pl.Series, share: float) -> int | None:
    found = values.quantile(share, interpolation="linear")
    return None if found is None else round(found)


def effects(model: Model, scenario: Scenario) -> Effects:
    """Return what a scenario would have changed.

    Raises:
        UsageError: No tile fits the scenario.
        ReplayError: The replay does not give back the recorded times (see `Model.forward`).
    """
    tiles = chosen(model, scenario)
    removed = gone_before(model, tiles)
    lost = tiles.filter(pl.col("node").is_null())["gone_ns"].sum()
    return Effects(scenario, replayed(model, removed), tiles.height, int(tiles["gone_ns"].sum()), int(lost))


def replayed(model: Model, removed: pl.DataFrame) -> pl.DataFrame:
    """Return `Effects.units` with time gone.

    Args:
        model: The model.
        removed: Result of `gapscope.whatif.scenario.gone_before`.
    """
    forward, units = model.forward, model.units
    known = pl.Series(units.last != NO_NODE, dtype=pl.Boolean)
    table = units.table.with_columns(
        position=pl.int_range(pl.len(), dtype=pl.Int64),
        first=pl.Series(units.first),
        before_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    table = table.filter(pl.col("before_ns").is_not_null() & known).sort("unit", "end_ns", "id", maintain_order=True)
    gone = (removed["node"].to_numpy(), removed["duration_ns"].to_numpy())
    for name, residuals in (("sticky", STICKY), ("floor", FLOOR)):
        earlier = forward.time - forward.replay(gone, residuals)
        began = _of_nodes(earlier, table["first"].to_numpy())
        table = table.join(_ended(units, earlier).rename({"earlier_ns": f"{name}_end"}), on="position", how="left",
                           maintain_order="left")  # fmt: skip
        table = table.with_columns(pl.col(f"{name}_end").fill_null(0), pl.Series(f"{name}_begin", began))
        # A step begins when the one before it is over, whichever rank opens it first: hosts run ahead of their GPUs.
        before = pl.col(f"{name}_end").shift(1, fill_value=0).over("unit", "job")
        begin = pl.when(pl.col("unit") == "step").then(before).otherwise(f"{name}_begin")
        table = table.with_columns((pl.col(f"{name}_end") - begin).alias(name))
    both, ends = ("sticky", "floor"), ("sticky_end", "floor_end")
    table = table.with_columns(
        sooner_low_ns=pl.min_horizontal(both), sooner_high_ns=pl.max_horizontal(both),
        end_sooner_low_ns=pl.min_horizontal(ends), end_sooner_high_ns=pl.max_horizontal(ends),
    ).select(pl.col(n).cast(t) for n, t in UNIT_EFFECT.items())  # fmt: skip
    if not removed.height or model.reaches_an_end(gone[0]):
        return table
    # What brings them on their way is not recorded: that no end moves says nothing.
    return table.with_columns(pl.lit(None, pl.Int64).alias(n) for n in UNIT_EFFECT if "sooner" in n)


def _ended(units: Units, earlier: Ints) -> pl.DataFrame:
    """Return ``position, earlier_ns``: by how much units end earlier; another rank may be the last of them then."""
    moved = units.ends.with_columns(
        now_ns=pl.col("end_ns") - pl.Series(_of_nodes(earlier, units.ends["node"].to_numpy()))
    )
    both = moved.group_by("position").agg(pl.col("end_ns", "now_ns").max())
    return both.select("position", earlier_ns=pl.col("end_ns") - pl.col("now_ns"))


def _of_nodes(shift: Ints, nodes: Ints) -> Ints:
    """Return by how much nodes shift; 0 where none is known."""
    return np.asarray(np.where(nodes == NO_NODE, 0, shift[np.maximum(nodes, 0)] if len(shift) else 0))

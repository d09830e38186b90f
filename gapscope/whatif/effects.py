"""What becomes of steps and requests when some time is gone: a low and a high bound of how much sooner they end.

The bounds are those of one assumption: what passes between something and the last of what it waited for, when
something else becomes the last (`gapscope.graph.forward`). Both hold for the same schedule and the same contention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.graph.forward import FLOOR, STICKY
from gapscope.whatif.losses import clock_error, gone_before
from gapscope.whatif.model import Model
from gapscope.whatif.scenario import Scenario, fitting, shrunk

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
        uncertainty_ns: Clock error of what is gained (`gapscope.whatif.losses.clock_error`): less is not told from
            nothing; None: no bound is known.
    """

    scenario: Scenario
    units: pl.DataFrame
    tiles: int
    gone_ns: int
    not_replayed_ns: int
    uncertainty_ns: int | None

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
    fits, gone = fitting(model, scenario), shrunk(model, scenario)
    lost = gone.filter(fits & model.parts["node"].is_null()).sum()
    chosen, gone_ns = fits.to_numpy(), gone.to_numpy()
    found = sooner(model, gone_before(model, gone_ns, chosen[model.by_node[0]]))
    units = model.timeline.table.with_columns(
        pl.lit(None, pl.Int64).alias(n) if v is None else pl.Series(n, v, pl.Int64) for n, v in found.items()
    )
    return Effects(scenario, units.select(UNIT_EFFECT.keys()), int(fits.sum()), int(gone.filter(fits).sum()), int(lost),
                   clock_error(model, gone_ns, chosen))  # fmt: skip


def sooner(model: Model, removed: tuple[Ints, Ints]) -> dict[str, Ints | None]:
    """Return by how much sooner each row of `gapscope.whatif.timeline.Timeline` would have ended, with time gone.

    Args:
        model: The model.
        removed: Result of `gapscope.whatif.losses.gone_before`.

    Returns:
        The last four columns of `Effects.units`; None where nobody knows.
    """
    if len(removed[0]) and not model.reaches_an_end(removed[0]):
        # What brings them on their way is not recorded: that no end moves says nothing.
        return dict.fromkeys(n for n in UNIT_EFFECT if "sooner" in n)
    of_begin, of_end = [], []
    found = model.forward.sooner(removed)
    for residuals in (STICKY, FLOOR):
        begin, end = model.timeline.earlier(found[:, residuals])
        of_begin.append(end - begin)
        of_end.append(end)
    return {
        "sooner_low_ns": np.minimum(*of_begin), "sooner_high_ns": np.maximum(*of_begin),
        "end_sooner_low_ns": np.minimum(*of_end), "end_sooner_high_ns": np.maximum(*of_end),
    }  # fmt: skip

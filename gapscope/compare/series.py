"""What is compared: gaps, phases, causes, steps and requests of a run, each a series of values with keys.

A value is of one handoff, step or request; its key is what names the same thing in another run. Values of one cluster
(a step, or a request) hang together and are resampled together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from gapscope.compare.runs import Run
from gapscope.phases import PHASES, with_phases
from gapscope.summary import COUNTED
from gapscope.views.gaps import EDGE, with_edge_names

VALUES = {"key": pl.String, "cluster": pl.String, "at_ns": pl.Int64, "value_ns": pl.Int64, "resolution_ns": pl.Int64}
"""Columns of a series: key, cluster, when it was (Unix ns), value, and what the clocks cannot resolve in it (null: no
bound is known)."""


@dataclass(frozen=True, order=True)
class Metric:
    """What a series is of.

    Attributes:
        family: ``request``, ``latency``, ``step``, ``gap``, ``phase`` or ``cause``.
        edge: Edge as reports write it; empty for steps, requests and latencies.
        part: Phase, or cause and rank, or which latency; empty for the others.
    """

    family: str
    edge: str = ""
    part: str = ""

    def words(self) -> str:
        """Return it as reports write it: ``gap 0 → 1``, ``late_submission @ rank 0 of 0 → 1``, ``step``."""
        if self.family == "latency":
            return f"latency {self.part}"
        if self.part:
            return f"{self.part.replace('_', ' ') if self.family == 'phase' else self.part} of {self.edge}"
        return f"{self.family} {self.edge}".strip()


Series = Mapping[Metric, pl.DataFrame]
"""All series of a run."""


def has(run: Series, metric: Metric) -> bool:
    """Tell whether a run has values of a metric; of a cause it has where gaps of the edge are known."""
    return metric in run or (metric.family == "cause" and Metric("gap", metric.edge) in run)


def values_of(run: Series, metric: Metric) -> pl.DataFrame:
    """Return a series; of a cause that a run has nowhere, zeros for all handoffs that are explained there."""
    if metric in run:
        return run[metric]
    explained = [m for m in run if m.family == "cause" and m.edge == metric.edge]
    of_edge = run[explained[0]] if explained else run[Metric("gap", metric.edge)]
    return of_edge.with_columns(value_ns=pl.lit(0, pl.Int64))


def series_of(run: Run) -> dict[Metric, pl.DataFrame]:
    """Return all series of a run: frames of `VALUES`, in order of time.

    Handoffs are those that percentiles are over (complete, in order, past start-up), of causes those that are
    explained; a cause that a handoff lacks is 0 there, not missing. Steps and requests are those past start-up.
    Latencies are of all requests of the load generator; of one without a value it is null.
    """
    found = _of_units(run) | _of_latencies(run)
    handoffs = with_edge_names(run.handoffs.filter(COUNTED & pl.col("gap_ns").is_not_null()))
    handoffs = with_phases(handoffs).with_columns(
        key=_key(), cluster=pl.coalesce(pl.col("step").cast(pl.String), _key()), at_ns="consumer_start_ns"
    )
    for (edge,), mine in handoffs.group_by("edge", maintain_order=True):
        name = str(edge)
        found[Metric("gap", name)] = _series(mine, "gap_ns", "gap_uncertainty_ns")
        for phase in PHASES:
            values = mine.filter(pl.col(f"{phase}_ns").is_not_null())
            if values.height:
                found[Metric("phase", name, phase)] = _series(values, f"{phase}_ns", f"{phase}_uncertainty_ns")
        found |= _of_causes(run, mine, name)
    return found


def _key() -> pl.Expr:
    """Return what names the same handoff in another run; of a collective the rank that waited is part of it."""
    pair = pl.format("{}/{}", "channel", "seq")
    group = pl.format("{}/{}/{}/{}", "group", "channel", "seq", "dst_rank")
    key = pl.when(pl.col("group").is_null()).then(pair).otherwise(group)
    return pl.when(pl.col("job").is_null()).then(key).otherwise(pl.format("{}:{}", "job", key))


def _series(frame: pl.DataFrame, value: str, resolution: str | None) -> pl.DataFrame:
    bound = pl.lit(0, pl.Int64) if resolution is None else pl.col(resolution)
    table = frame.select("key", "cluster", "at_ns", value_ns=pl.col(value), resolution_ns=bound)
    return table.select(pl.col(n).cast(t) for n, t in VALUES.items()).sort("at_ns", "key")


def _of_units(run: Run) -> dict[Metric, pl.DataFrame]:
    units = run.units.filter(pl.col("steady") & pl.col("start_ns").is_not_null() & pl.col("end_ns").is_not_null())
    job = pl.when(pl.col("job").is_null()).then("id").otherwise(pl.format("{}:{}", "job", "id"))
    units = units.with_columns(key=job, cluster=job, at_ns="start_ns", value_ns=pl.col("end_ns") - pl.col("start_ns"))
    bound = run.handoffs["uncertainty_ns"].max()
    units = units.with_columns(resolution_ns=pl.lit(bound, pl.Int64))
    return {
        Metric(str(unit)): _series(mine, "value_ns", "resolution_ns")
        for (unit,), mine in units.group_by("unit", maintain_order=True)
    }


def _of_latencies(run: Run) -> dict[Metric, pl.DataFrame]:
    if run.latencies is None:
        return {}
    rows = run.latencies.with_columns(cluster="key", resolution_ns=pl.lit(0, pl.Int64))
    kinds = [column.removesuffix("_ns") for column in rows.columns if column in {"e2e_ns", "ttft_ns", "tpot_ns"}]
    return {
        Metric("latency", part=kind): _series(rows, f"{kind}_ns", "resolution_ns")
        for kind in kinds
        if rows[f"{kind}_ns"].count()
    }


def _of_causes(run: Run, handoffs: pl.DataFrame, edge: str) -> dict[Metric, pl.DataFrame]:
    tiles = run.tiles.join(handoffs.select("handoff_id"), on="handoff_id", how="semi")
    explained = handoffs.join(tiles.select("handoff_id").unique(), on="handoff_id", how="semi", maintain_order="left")
    name = pl.when(pl.col("rank").is_null()).then("cause").otherwise(pl.format("{} @ rank {}", "cause", "rank"))
    sums = tiles.with_columns(part=name).group_by("handoff_id", "part").agg(pl.col("duration_ns").sum())
    found = {}
    for part in sums["part"].unique().sort():
        mine = explained.join(sums.filter(pl.col("part") == part), on="handoff_id", how="left", maintain_order="left")
        values = mine.with_columns(pl.col("duration_ns").fill_null(0))
        found[Metric("cause", edge, str(part))] = _series(values, "duration_ns", "uncertainty_ns")
    return found


__all__ = ["EDGE", "VALUES", "Metric", "Series", "has", "series_of", "values_of"]

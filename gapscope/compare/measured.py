"""One metric of one pair of restarts: the difference, and how well this pair alone knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from gapscope.statistics.arrays import Floats
from gapscope.statistics.counted import median
from gapscope.statistics.estimators import differences, hodges_lehmann_shift, locate, quantile_difference
from gapscope.statistics.pairing import pair
from gapscope.statistics.resampling import Resampling, bootstrap_series, bootstrap_unpaired

TAILS = {"p90": 0.9, "p99": 0.99}

PAIR = {
    "metric": pl.String,
    "run_a": pl.String,
    "run_b": pl.String,
    "paired": pl.Boolean,
    "n": pl.Int64,
    "n_eff": pl.Float64,
    "a_mean_ns": pl.Float64,
    "b_mean_ns": pl.Float64,
    "a_p50_ns": pl.Float64,
    "b_p50_ns": pl.Float64,
    "difference_ns": pl.Float64,
    "low_ns": pl.Float64,
    "high_ns": pl.Float64,
    "at_least": pl.Boolean,
    "no_interval": pl.String,
    "hodges_lehmann_ns": pl.Float64,
    "shape_change": pl.Boolean,
    **{f"{side}{q}_ns": pl.Float64 for q in TAILS for side in ("a_", "b_", "difference_")},
    "s_within_ns": pl.Float64,
    "clock_ns": pl.Int64,
    "a_clock_ns": pl.Int64,
    "b_clock_ns": pl.Int64,
    "missing_in_a": pl.Int64,
    "missing_in_b": pl.Int64,
    "note": pl.String,
}
"""One row per metric and pair of restarts. ``difference_ns`` is the median of the differences of what has one key, B
minus A (``paired``), else the difference of the medians; ``low_ns`` and ``high_ns`` its interval within this pair
(block bootstrap over clusters), which supports no claim; ``no_interval`` says why there is none. ``clock_ns``: how far
clocks alone can have moved it (null: no bound is known): the sum of how far they can have moved values of each arm."""


OF_REQUESTS = ("request", "latency")
"""Families of which many are in flight at once."""


def measure(a: pl.DataFrame, b: pl.DataFrame, how: Resampling, family: str = "gap") -> dict[str, Any]:
    """Return what one pair of restarts says about one metric: the columns of `PAIR` from ``paired`` on.

    Args:
        a: Series of arm A (`gapscope.compare.series.VALUES`).
        b: Series of arm B.
        how: How to resample.
        family: Of the metric: blocks of requests are no shorter than what is in flight at once.

    Raises:
        UsageError: A key occurs twice in one run.
    """
    if family in OF_REQUESTS:
        how = replace(how, concurrency=max(how.concurrency, in_flight(a), in_flight(b)))
    found = pair(a, b, ["key"], "value_ns")
    first, second = found.series()
    clocks = _clock(a), _clock(b)  # each run aligns its clocks anew, so both bounds add
    row: dict[str, Any] = {
        "paired": found.paired,
        "n": min(len(first), len(second)),
        "a_mean_ns": _mean(first),
        "b_mean_ns": _mean(second),
        "clock_ns": None if None in clocks else sum(bound for bound in clocks if bound is not None),
        "a_clock_ns": clocks[0],
        "b_clock_ns": clocks[1],
        "missing_in_a": found.missing_in_a.height,
        "missing_in_b": found.missing_in_b.height,
        "note": found.note,
        "shape_change": False,
    }
    clusters_a, clusters_b = dict(a.select("key", "cluster").iter_rows()), dict(b.select("key", "cluster").iter_rows())
    if found.paired:
        by_pair = differences(first, second)
        of = [clusters_a[key] for key in found.rows["key"]]
        interval, where = bootstrap_series(by_pair, median, of, how), locate(by_pair)
        row |= {"difference_ns": where.median_ns, "hodges_lehmann_ns": where.hodges_lehmann_ns,
                "shape_change": where.shape_change, "s_within_ns": _deviation(by_pair)}  # fmt: skip
    else:
        of_a, of_b = _clusters(found.a_values, clusters_a), _clusters(found.b_values, clusters_b)
        interval = bootstrap_unpaired(first, second, median, (of_a, of_b), how)
        row |= {"difference_ns": interval.estimate_ns, "hodges_lehmann_ns": hodges_lehmann_shift(first, second),
                "s_within_ns": None}  # fmt: skip
    row |= {"low_ns": interval.low_ns, "high_ns": interval.high_ns, "at_least": interval.at_least,
            "no_interval": interval.reason, "n_eff": interval.n_eff}  # fmt: skip
    for name, share in {"p50": 0.5, **TAILS}.items():
        tails = quantile_difference(first, second, share)
        row |= {f"a_{name}_ns": tails.a_ns, f"b_{name}_ns": tails.b_ns}
        if name != "p50":
            row[f"difference_{name}_ns"] = tails.difference_ns
    return row


def in_flight(series: pl.DataFrame) -> int:
    """Return how many of a series were under way when one began: 95 of 100 found no more; at least 1.

    Args:
        series: Columns ``at_ns`` (begin) and ``value_ns``.
    """
    known = series.select("at_ns", end_ns=pl.col("at_ns") + pl.col("value_ns")).drop_nulls().sort("at_ns")
    if not known.height:
        return 1
    over = known["end_ns"].sort().search_sorted(known["at_ns"], side="right")
    under_way = pl.Series(range(1, known.height + 1)) - over.cast(pl.Int64)
    return max(1, int(under_way.quantile(0.95, interpolation="higher") or 1))


def _clusters(values: pl.DataFrame, clusters: Mapping[str, str]) -> list[str]:
    return [clusters[key] for key in values["key"]]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _deviation(values: Floats) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _clock(series: pl.DataFrame) -> int | None:
    """Return how far the clocks can have moved a value; None: no bound is known of one."""
    bounds = series["resolution_ns"]
    return None if bounds.null_count() else int(bounds.max() or 0)  # type: ignore[arg-type]

"""Two arms compared: each metric of each pair of restarts, what the restarts say together, and what may be claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from gapscope.compare.closing import CLOSURE, closure
from gapscope.compare.measured import PAIR, measure
from gapscope.compare.noting import in_both_arms, notes_on, refuse_own_pair, refuse_repeated
from gapscope.compare.runs import Arm, Run
from gapscope.compare.series import Metric, Series, has, series_of, values_of
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.statistics.claims import Claim, Evidence, Verdict, holm, judge
from gapscope.statistics.exact import permutation_test, sign_flip_test
from gapscope.statistics.precision import minimum_detectable, noise_floor, spread
from gapscope.statistics.resampling import Resampling
from gapscope.statistics.restarts import across_arms, across_pairs, ratio

METRIC = {
    "metric": pl.String,
    "family": pl.String,
    "edge": pl.String,
    "part": pl.String,
    "is_primary": pl.Boolean,
    "restarts_a": pl.Int64,
    "restarts_b": pl.Int64,
    "paired_restarts": pl.Boolean,
    "paired": pl.Boolean,
    "n": pl.Int64,
    "n_eff": pl.Float64,
    "a_p50_ns": pl.Float64,
    "b_p50_ns": pl.Float64,
    "difference_ns": pl.Float64,
    "low_ns": pl.Float64,
    "high_ns": pl.Float64,
    "within_low_ns": pl.Float64,
    "within_high_ns": pl.Float64,
    "hodges_lehmann_ns": pl.Float64,
    "shape_change": pl.Boolean,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "difference_p90_ns": pl.Float64,
    "difference_p99_ns": pl.Float64,
    "s_between_ns": pl.Float64,
    "detectable_ns": pl.Float64,
    "noise_floor_ns": pl.Float64,
    "clock_ns": pl.Int64,
    "a_clock_ns": pl.Int64,
    "b_clock_ns": pl.Int64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "verdict": pl.String,
    "reason": pl.String,
    "advice": pl.String,
}
"""One row per metric. ``difference_ns``: B minus A, the mean over pairs of restarts of their medians of differences
(without pairs: of the medians of the arms); ``low_ns`` and ``high_ns`` its interval across restarts (null with one
restart), and ``within_low_ns``, ``within_high_ns`` that within the only pair there is. ``detectable_ns``: the smallest
true change that so many restarts find four times in five. ``p_value``: of the exact test where so many restarts can
reach the level, else of the t test; ``p_adjusted``: of the t test, by Holm over all but the primary metric."""

PAIRED = {
    "metric": pl.String,
    "pair": pl.Int64,
    "run_a": pl.String,
    "run_b": pl.String,
    "key": pl.String,
    "a_ns": pl.Int64,
    "b_ns": pl.Int64,
}
"""What figures draw of each value: one row per metric, pair of restarts (from 1) and key; null where
that run has none."""

_FAMILIES = ("request", "latency", "step", "gap", "cause", "phase")
_DRAWN = ("request", "latency", "step", "gap")


@dataclass(frozen=True)
class Settings:
    """What is decided before looking.

    Attributes:
        primary: Metric that the comparison is about, as reports write it; None: requests, else steps, else the gap
            with the most handoffs.
        margin_ns: Differences of the primary metric up to here do not matter.
        margin_share: The same as a share of arm A's own; None, as the other: 2 % or the noise floor, the larger.
        confidence: Of intervals and verdicts.
        seed: Of the random numbers.
    """

    primary: str | None = None
    margin_ns: float | None = None
    margin_share: float | None = None
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Comparison:
    """What changed from arm A to arm B.

    Attributes:
        a: Arm A.
        b: Arm B.
        metrics: One row per metric (`METRIC`), the primary one first.
        pairs: One row per metric and pair of restarts (`gapscope.compare.measured.PAIR`).
        closure: What the change of each edge's mean gap is made of (`gapscope.compare.closing.CLOSURE`).
        values: Requests, latencies, steps and gaps one by one (`PAIRED`).
        primary: Name of the primary metric; None: the arms have none in common.
        findings: What weakens the comparison.
        confidence: Of intervals and verdicts.
    """

    a: Arm
    b: Arm
    metrics: pl.DataFrame
    pairs: pl.DataFrame
    closure: pl.DataFrame
    values: pl.DataFrame
    primary: str | None
    findings: list[Finding]
    confidence: float


DEFAULT = Settings()


def compare(a: Arm, b: Arm, settings: Settings = DEFAULT, noise: Sequence[tuple[Run, Run]] = ()) -> Comparison:
    """Return what changed from one arm to the other.

    Restarts are paired by their order where both arms have as many; within a pair, handoffs, steps and requests by key
    where they match.

    Args:
        a: The arm that is compared with.
        b: The arm that is compared.
        settings: What is decided before looking.
        noise: Pairs of runs of arm A with itself, for the noise floor.

    Raises:
        UsageError: An arm has no run, or one twice, a pair of `noise` is one recording, or there is no metric of
            the primary's name.
    """
    refuse_own_pair(noise)
    study = _study(a, b)
    primary = _primary(study.shared, study.series_a[0], settings.primary)
    rows, pairs = _measured(study, study.shared, settings, noise)
    for row in rows:
        row["is_primary"] = primary is not None and row["metric"] == primary.words()
    return Comparison(
        a, b, _judged(rows, settings), pl.DataFrame(pairs, schema=PAIR, infer_schema_length=None),
        closure(a, b, CLOSURE), _drawn(study), None if primary is None else primary.words(),
        notes_on(a, b, study.series_a, study.series_b, pairs), settings.confidence,
    )  # fmt: skip


def compare_each(arms: Sequence[tuple[Arm, Arm, Metric]], settings: Settings = DEFAULT) -> pl.DataFrame:
    """Return one row of `METRIC` per comparison of one metric, judged together: each is one of many.

    Args:
        arms: Arms and the metric.
        settings: What is decided before looking; the margin is for all of them.
    """
    rows = []
    for a, b, metric in arms:
        (row,), _ = _measured(_study(a, b), [metric], settings, ())
        rows.append(row | {"is_primary": False})
    return _judged(rows, settings, has_margin=True)


def _study(a: Arm, b: Arm) -> _Study:
    if not a.runs or not b.runs:
        raise UsageError("Each arm needs one run at least.")
    for arm in (a, b):
        refuse_repeated(arm)
    series_a, series_b = [series_of(run) for run in a.runs], [series_of(run) for run in b.runs]
    both = in_both_arms(a, b)
    refused = f"both arms hold the same recording ({both[0]})" if both else None
    return _Study(a, b, series_a, series_b, _shared(series_a, series_b), refused)


def _measured(
    study: _Study, metrics: Sequence[Metric], settings: Settings, noise: Sequence[tuple[Run, Run]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows of `METRIC` without verdicts, and rows of `PAIR`."""
    how = Resampling(confidence=settings.confidence, seed=settings.seed)
    pairs = [row for metric in metrics for row in _pairs(study, metric, how)]
    noises = [(series_of(one), series_of(two)) for one, two in noise]
    return [_metric(m, pairs, study, noises, settings) for m in metrics], pairs


@dataclass(frozen=True)
class _Study:
    """Two arms, their series, the metrics that all runs have, and why nothing may be claimed of any (or None)."""

    a: Arm
    b: Arm
    series_a: Sequence[Series]
    series_b: Sequence[Series]
    shared: Sequence[Metric]
    refused: str | None


def _shared(a: Sequence[Series], b: Sequence[Series]) -> list[Metric]:
    """Return the metrics that all runs have; a cause that no handoff of a run has is 0 there."""
    everywhere = set(a[0]).intersection(*a[1:], *b)
    gaps = {m.edge for m in everywhere if m.family == "gap"}
    causes = {m for run in (*a, *b) for m in run if m.family == "cause" and m.edge in gaps}
    return sorted(everywhere | causes, key=lambda m: (_FAMILIES.index(m.family), m.edge, m.part))


def _primary(shared: Sequence[Metric], first: Series, wanted: str | None) -> Metric | None:
    if wanted is not None:
        found = next((m for m in shared if m.words() == wanted), None)
        if found is None:
            there = ", ".join(m.words() for m in shared if m.family != "cause")
            raise UsageError(f"There is no metric {wanted!r} in all runs: {there or 'they have none in common'}.")
        return found
    for family in _DRAWN:
        of_family = [m for m in shared if m.family == family]
        if of_family:
            return max(of_family, key=lambda m: first[m].height)
    return None


def _slots(study: _Study) -> list[tuple[int, int]]:
    """Return which run is set against which; where arms have not as many, the last of the shorter one stands in."""
    last_a, last_b = len(study.a.runs) - 1, len(study.b.runs) - 1
    return [(min(i, last_a), min(i, last_b)) for i in range(max(last_a, last_b) + 1)]


def _pairs(study: _Study, metric: Metric, how: Resampling) -> list[dict[str, Any]]:
    """Return one row of `PAIR` per pair of restarts."""
    rows = []
    for i, j in _slots(study):
        row = measure(values_of(study.series_a[i], metric), values_of(study.series_b[j], metric), how, metric.family)
        names = {"run_a": study.a.runs[i].name, "run_b": study.b.runs[j].name}
        rows.append({"metric": metric.words(), **names, **row})
    return rows


def _drawn(study: _Study) -> pl.DataFrame:
    """Return table `PAIRED`."""
    frames = [pl.DataFrame(schema=PAIRED)]
    for metric in study.shared:
        if metric.family not in _DRAWN:
            continue
        for nth, (i, j) in enumerate(_slots(study), 1):
            one, two = (
                values_of(series, metric).select("key", pl.col("value_ns").alias(name))
                for series, name in ((study.series_a[i], "a_ns"), (study.series_b[j], "b_ns"))
            )
            both = one.join(two, on="key", how="full", coalesce=True, maintain_order="left_right")
            names = {"metric": metric.words(), "run_a": study.a.runs[i].name, "run_b": study.b.runs[j].name}
            both = both.with_columns(pair=pl.lit(nth, pl.Int64), **{n: pl.lit(v) for n, v in names.items()})
            frames.append(both.select(pl.col(n).cast(t) for n, t in PAIRED.items()))
    return pl.concat(frames)


def _medians(runs: Sequence[Series], metric: Metric) -> list[float]:
    found = [values_of(run, metric)["value_ns"].quantile(0.5, interpolation="linear") for run in runs]
    return [float(value) for value in found if value is not None]


def _metric(
    metric: Metric,
    pairs: Sequence[Mapping[str, Any]],
    study: _Study,
    noises: Sequence[tuple[Series, Series]],
    settings: Settings,
) -> dict[str, Any]:
    """Return one row of `METRIC` without its verdict, and what the verdict is drawn from."""
    mine = [row for row in pairs if row["metric"] == metric.words()]
    restarts_a, restarts_b = len(study.series_a), len(study.series_b)
    medians = [_medians(arm, metric) for arm in (study.series_a, study.series_b)]
    estimates = [row["difference_ns"] for row in mine if row["difference_ns"] is not None]
    in_pairs = restarts_a == restarts_b
    row: dict[str, Any] = {
        "metric": metric.words(), "family": metric.family, "edge": metric.edge, "part": metric.part,
        "restarts_a": restarts_a, "restarts_b": restarts_b, "paired_restarts": in_pairs,
        "paired": all(row["paired"] for row in mine), "n": min(int(row["n"]) for row in mine),
        "n_eff": min(float(row["n_eff"]) for row in mine),
        "a_p50_ns": _average(medians[0]), "b_p50_ns": _average(medians[1]),
        "shape_change": any(row["shape_change"] for row in mine),
        **{name: _largest([r[name] for r in mine]) for name in ("clock_ns", "a_clock_ns", "b_clock_ns")},
    }  # fmt: skip
    for column in ("hodges_lehmann_ns", "difference_p90_ns", "difference_p99_ns"):
        row[column] = _average([r[column] for r in mine if r[column] is not None])
    refused = (run.refused.get(metric.family) for run in (*study.a.runs, *study.b.runs))
    row["refused"] = next((why for why in (study.refused, *refused) if why), None)
    if not estimates or not all(medians):
        return row
    across = across_pairs(estimates) if in_pairs else across_arms(*medians)
    exact = sign_flip_test(estimates) if in_pairs else permutation_test(*medians)
    can_tell = exact.p_value is not None and exact.floor <= 1 - settings.confidence
    interval = across.interval(settings.confidence)
    low, high = interval or (None, None)
    row |= {"difference_ns": across.estimate, "low_ns": low, "high_ns": high, "s_between_ns": across.s_between,
            "p_value": exact.p_value if can_tell else across.p_value(), "exact": exact.p_value if can_tell else None,
            "across": across, "baseline_ns": abs(row["a_p50_ns"])}  # fmt: skip
    if len(mine) == 1:
        row |= {"within_low_ns": mine[0]["low_ns"], "within_high_ns": mine[0]["high_ns"]}
    if all(value > 0 for value in (*medians[0], *medians[1])):
        logs = across_pairs(np.log(medians[1]) - np.log(medians[0])) if in_pairs else across_arms(*map(np.log, medians))
        row |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio(logs, settings.confidence), strict=True))
    if across.s_between is not None:
        others = None if in_pairs else restarts_b
        row["detectable_ns"] = minimum_detectable(across.s_between, restarts_a, others, confidence=settings.confidence)
        within, sizes = [r["s_within_ns"] for r in mine], [r["n_eff"] for r in mine]
        if in_pairs and None not in within and all(float(n) > 0 for n in sizes):
            row["advice"] = spread(estimates, within, sizes).advice
    medians_of_noise = [
        (_medians([one], metric), _medians([two], metric))
        for one, two in noises
        if has(one, metric) and has(two, metric)
    ]
    same = [two[0] - one[0] for one, two in medians_of_noise if one and two]
    row["noise_floor_ns"] = noise_floor(same).floor
    return row


def _judged(rows: Sequence[dict[str, Any]], settings: Settings, *, has_margin: bool = False) -> pl.DataFrame:
    """Return table `METRIC`, the primary metric first: it stands alone, all others are adjusted for being many.

    Args:
        rows: From `_metric`.
        settings: What was decided before looking.
        has_margin: Whether the margin is for all of them, not for the primary one alone.
    """
    tested = {
        str(i): row["across"].p_value() for i, row in enumerate(rows) if not row["is_primary"] and "across" in row
    }
    adjusted = holm(tested)
    judged = []
    for i, row in enumerate(rows):
        hidden = ("across", "exact", "baseline_ns", "refused")
        across, exact, baseline, refused = (row.pop(name, None) for name in hidden)
        p = exact if row["is_primary"] else adjusted.get(str(i))
        verdict, reason = Verdict.NO_CLAIM.value, "a run has no value of it"
        if refused is not None:
            reason = refused
        elif across is not None:
            claim = _claim(row, Evidence(across, baseline, p_value=p), settings, has_margin or row["is_primary"])
            verdict, reason = claim.label, claim.reason
        told = {"p_adjusted": None if row["is_primary"] else p, "verdict": verdict, "reason": reason}
        judged.append({**row, **told})
    table = pl.DataFrame(judged, schema=METRIC, infer_schema_length=None)
    return table.sort(~pl.col("is_primary"), maintain_order=True)


def _claim(row: Mapping[str, Any], known: Evidence, settings: Settings, has_margin: bool) -> Claim:
    margin = settings.margin_ns
    if margin is None and settings.margin_share is not None and known.baseline_ns is not None:
        margin = settings.margin_share * known.baseline_ns
    evidence = replace(
        known,
        margin_ns=margin if has_margin else None,
        noise_floor_ns=row.get("noise_floor_ns"),
        clock_ns=float(row["clock_ns"] or 0),
        quantile=0.5,
        n_eff=float(row["n_eff"]),
        shape_change=bool(row["shape_change"]),
    )
    claim = judge(evidence, settings.confidence)
    if row["clock_ns"] is None:
        return replace(claim, reason=f"{claim.reason}; the clocks have no proven bound")
    return claim


def _largest(bounds: Sequence[int | None]) -> int | None:
    """Return the largest bound; None where one is not known."""
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None


def _average(values: Sequence[object]) -> float | None:
    return float(np.mean(np.asarray(values, np.float64))) if len(values) else None

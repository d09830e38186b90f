"""Two arms compared: each metric of each pair of restarts, what the restarts say together, and what may be claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from gapscope.compare.closing import CLOSURE, closure
from gapscope.compare.measured import PAIR, measure
from gapscope.compare.runs import Arm, Run
from gapscope.compare.series import Metric, series_of
from gapscope.errors import UsageError
from gapscope.findings import Finding, plural
from gapscope.statistics.claims import Claim, Evidence, Verdict, holm, judge
from gapscope.statistics.exact import permutation_test, sign_flip_test
from gapscope.statistics.precision import minimum_detectable, noise_floor, spread
from gapscope.statistics.resampling import Resampling
from gapscope.statistics.restarts import Across, across_arms, across_pairs, ratio

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
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "verdict": pl.String,
    "reason": pl.String,
    "advice": pl.String,
}
"""One row per metric. ``difference_ns``: B minus A, the mean over pairs of restarts of their medians of differences
(without pairs: of the medians of the arms); ``low_ns`` and ``high_ns`` its interval across restarts (null with one
restart), and ``within_low_ns``, ``within_high_ns`` that within the only pair there is. ``detectable_ns``: the smallest
true change that so many restarts find four times in five. ``p_adjusted``: by Holm, for all but the primary metric."""

Series = Mapping[Metric, pl.DataFrame]
"""All series of a run."""

_FAMILIES = ("request", "step", "gap", "cause", "phase")


_NOTHING = Claim(Verdict.NO_CLAIM, "a run has no value of it")


@dataclass(frozen=True)
class Settings:
    """What is decided before looking.

    Attributes:
        primary: Metric that the comparison is about, as reports write it; None: requests, else steps, else the gap
            with the most handoffs.
        margin_ns: Differences of the primary metric up to here do not matter.
        margin_share: The same as a share of arm A's own; None, as the other: 2 % or the noise floor, the larger.
        confidence: Of intervals.
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
        primary: Name of the primary metric; None: the arms have none in common.
        findings: What weakens the comparison.
    """

    a: Arm
    b: Arm
    metrics: pl.DataFrame
    pairs: pl.DataFrame
    closure: pl.DataFrame
    primary: str | None
    findings: list[Finding]


DEFAULT = Settings()


def compare(a: Arm, b: Arm, settings: Settings = DEFAULT, noise: Sequence[tuple[Run, Run]] = ()) -> Comparison:
    """Return what changed from one arm to the other.

    Restarts are paired by their order where both arms have as many; within a pair, handoffs, steps and requests by key
    where they match.

    Args:
        a: The arm that is compared with.
        b: The arm that is compared.
        settings: What is decided before looking.
        noise: Pairs of runs of arm A with itself, for the noise floor, beside those that arm A gives.

    Raises:
        UsageError: An arm has no run, or there is no metric of the primary's name.
    """
    if not a.runs or not b.runs:
        raise UsageError("Each arm needs one run at least.")
    series_a, series_b = [series_of(run) for run in a.runs], [series_of(run) for run in b.runs]
    shared = _shared(series_a, series_b)
    primary = _primary(shared, series_a[0], settings.primary)
    how = Resampling(confidence=settings.confidence, seed=settings.seed)
    study = _Study(a, b, series_a, series_b, shared)
    pairs = _pairs(study, how)
    noises = [(series_of(one), series_of(two)) for one, two in noise]
    rows = [_metric(m, pairs, study, noises, settings) | {"is_primary": m == primary} for m in shared]
    table = _judged(rows, primary, settings)
    return Comparison(
        a, b, table, pl.DataFrame(pairs, schema=PAIR, infer_schema_length=None), closure(a, b, CLOSURE),
        None if primary is None else primary.words(), _findings(study, pairs),
    )  # fmt: skip


@dataclass(frozen=True)
class _Study:
    """Two arms, their series, and the metrics that all runs have."""

    a: Arm
    b: Arm
    series_a: Sequence[Series]
    series_b: Sequence[Series]
    shared: Sequence[Metric]


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
    for family in ("request", "step", "gap"):
        of_family = [m for m in shared if m.family == family]
        if of_family:
            return max(of_family, key=lambda m: first[m].height)
    return None


def _values(run: Series, metric: Metric) -> pl.DataFrame:
    """Return a series; of a cause that a run has nowhere, zeros for all handoffs that are explained there."""
    if metric in run:
        return run[metric]
    explained = [m for m in run if m.family == "cause" and m.edge == metric.edge]
    of_edge = run[explained[0]] if explained else run[Metric("gap", metric.edge)]
    return of_edge.with_columns(value_ns=pl.lit(0, pl.Int64))


def _pairs(study: _Study, how: Resampling) -> list[dict[str, Any]]:
    """Return one row per metric and pair; where arms have not as many runs, the last of the shorter one stands in."""
    rows = []
    a, b, series_a, series_b = study.a, study.b, study.series_a, study.series_b
    slots = list(zip_longest(range(len(a.runs)), range(len(b.runs))))
    for metric in study.shared:
        for i, j in slots:
            one, two = (len(a.runs) - 1 if i is None else i), (len(b.runs) - 1 if j is None else j)
            row = measure(_values(series_a[one], metric), _values(series_b[two], metric), how)
            rows.append({"metric": metric.words(), "run_a": a.runs[one].name, "run_b": b.runs[two].name, **row})
    return rows


def _medians(runs: Sequence[Series], metric: Metric) -> list[float]:
    found = [_values(run, metric)["value_ns"].quantile(0.5, interpolation="linear") for run in runs]
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
        "clock_ns": None if any(row["clock_ns"] is None for row in mine) else max(int(row["clock_ns"]) for row in mine),
    }  # fmt: skip
    for column in ("hodges_lehmann_ns", "difference_p90_ns", "difference_p99_ns"):
        row[column] = _average([r[column] for r in mine if r[column] is not None])
    if not estimates or not all(medians):
        return row
    across = across_pairs(estimates) if in_pairs else across_arms(*medians)
    exact = sign_flip_test(estimates) if in_pairs else permutation_test(*medians)
    interval = across.interval(settings.confidence)
    low, high = interval or (None, None)
    row |= {"difference_ns": across.estimate, "low_ns": low, "high_ns": high, "s_between_ns": across.s_between,
            "p_value": exact.p_value, "across": across, "baseline_ns": abs(row["a_p50_ns"])}  # fmt: skip
    if len(mine) == 1:
        row |= {"within_low_ns": mine[0]["low_ns"], "within_high_ns": mine[0]["high_ns"]}
    if all(value > 0 for value in (*medians[0], *medians[1])):
        logs = across_pairs(np.log(medians[1]) - np.log(medians[0])) if in_pairs else across_arms(*map(np.log, medians))
        row |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio(logs, settings.confidence), strict=True))
    if across.s_between is not None:
        row["detectable_ns"] = minimum_detectable(across.s_between, restarts_a, None if in_pairs else restarts_b)
        within, sizes = [r["s_within_ns"] for r in mine], [r["n_eff"] for r in mine]
        if in_pairs and None not in within and all(float(n) > 0 for n in sizes):
            row["advice"] = spread(estimates, within, sizes).advice
    same = [
        float(np.median(_values(two, metric)["value_ns"]) - np.median(_values(one, metric)["value_ns"]))
        for one, two in noises
        if _values(one, metric).height and _values(two, metric).height
    ]
    row["noise_floor_ns"] = noise_floor(same).floor
    return row


def _judged(rows: Sequence[dict[str, Any]], primary: Metric | None, settings: Settings) -> pl.DataFrame:
    """Return table `METRIC`, the primary metric first: it stands alone, all others are adjusted for being many."""
    others = {str(r["metric"]): r.get("p_value") for r in rows if not r["is_primary"]}
    adjusted = holm(others)
    judged = []
    for row in rows:
        p = row.get("p_value") if row["is_primary"] else adjusted[str(row["metric"])]
        across = row.pop("across", None)
        claim = _NOTHING if across is None else _claim(row, across, p, settings)
        row.pop("baseline_ns", None)
        judged.append(
            {**row, "p_adjusted": None if row["is_primary"] else p, "verdict": claim.label, "reason": claim.reason}
        )
    table = pl.DataFrame(judged, schema=METRIC, infer_schema_length=None)
    return table.sort(~pl.col("is_primary"), maintain_order=True)


def _claim(row: Mapping[str, Any], across: Across, p: float | None, settings: Settings) -> Claim:
    baseline = float(row["baseline_ns"])
    margin = settings.margin_ns
    if margin is None and settings.margin_share is not None:
        margin = settings.margin_share * baseline
    evidence = Evidence(
        across,
        baseline_ns=baseline,
        margin_ns=margin if row["is_primary"] else None,
        noise_floor_ns=row.get("noise_floor_ns"),
        clock_ns=float(row["clock_ns"] or 0),
        p_value=p,
        quantile=0.5,
        n_eff=float(row["n_eff"]),
        shape_change=bool(row["shape_change"]),
    )
    claim = judge(evidence, settings.confidence)
    if row["clock_ns"] is None and row["family"] not in ("step", "request"):
        return replace(claim, reason=f"{claim.reason}; the clocks have no proven bound")
    return claim


def _average(values: Sequence[object]) -> float | None:
    return float(np.mean(np.asarray(values, np.float64))) if len(values) else None


def _findings(study: _Study, pairs: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return what weakens the comparison."""
    a, b = study.a, study.b
    notes = []
    tools = {run.tools for run in (*a.runs, *b.runs) if run.tools}
    if len(tools) > 1:
        said = "; ".join(" and ".join(t) for t in sorted(tools))
        hint = "Compare runs of one tool with the same options: profilers slow calls down differently."
        notes.append(Finding("unlike_tools", "warning", f"The runs were recorded by different tools: {said}.", hint))
    if len(a.runs) != len(b.runs):
        notes.append(Finding("unequal_arms", "info",
                             f"Arm A has {plural(len(a.runs), 'run')}, arm B {len(b.runs)}: restarts are not paired.",
                             "With as many runs per arm, taken in turn, what drifts in time cancels."))  # fmt: skip
    unpaired = sorted({str(row["metric"]) for row in pairs if not row["paired"]})
    if unpaired:
        some = ", ".join(unpaired[:3]) + (f" and {len(unpaired) - 3} more" if len(unpaired) > 3 else "")
        why = next(str(row["note"]) for row in pairs if not row["paired"])
        notes.append(Finding("unpaired", "info", f"Compared without pairs: {some}.", why))
    names = {m.words() for m in study.shared}
    lost = sorted({m.words() for run in (*study.series_a, *study.series_b) for m in run if m.family != "cause"} - names)
    if lost:
        some = ", ".join(lost[:4]) + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
        notes.append(Finding("not_in_all_runs", "warning", f"Not in all runs, and not compared: {some}.",
                             "Mark and record the same edges and steps in all runs."))  # fmt: skip
    return notes

"""One metric over a parameter: per value the ratio of two arms, and where they change places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from gapscope.compare.comparing import DEFAULT, METRIC, Settings, compare_each
from gapscope.compare.crossing import Crossing, draws_across, draws_from_intervals, find_crossing
from gapscope.compare.runs import Arm, Run
from gapscope.compare.series import Metric, series_of, values_of
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.phases import PHASES
from gapscope.statistics.claims import ENOUGH, Verdict
from gapscope.statistics.counted import median
from gapscope.statistics.pairing import pair
from gapscope.statistics.resampling import Resampling, bootstrap_paired, bootstrap_unpaired
from gapscope.statistics.restarts import Across, across_arms, across_pairs
from gapscope.wording import duration, size

Floats = npt.NDArray[np.float64]

OF_HANDOFFS = "size_bytes"
"""A parameter that handoffs have themselves."""

SWEEP = {
    "value": pl.Float64,
    "base": pl.String,
    "arm": pl.String,
    **METRIC,
    "within_ratio_low": pl.Float64,
    "within_ratio_high": pl.Float64,
}
"""One row per value and arm: the metric of the arm against that of the base (`gapscope.compare.comparing.METRIC`, each
row one of many). ``ratio`` is arm over base; ``within_ratio_low`` and ``within_ratio_high`` are its interval within the
only pair of restarts there is, which supports no claim."""


_SAID = {
    "one": "crossover",
    "none": "no crossover seen",
    "several": "several crossovers",
    "cannot tell": "cannot tell",
    "too few values": "too few values",
}


@dataclass(frozen=True)
class Place:
    """Where an arm and the base change places.

    Attributes:
        base: Name of the base arm.
        arm: Name of the other.
        crossing: What is known of it.
        restarts: Restarts of the arm that has fewer, at the value that has fewest.
    """

    base: str
    arm: str
    crossing: Crossing
    restarts: int

    @property
    def claim(self) -> str:
        """What may be said of it, by the rule of all verdicts."""
        if self.restarts < 2:
            return "no claim (n=1 restart)"
        return Verdict.INDICATIVE.value if self.restarts < ENOUGH else _SAID[self.crossing.kind]


@dataclass(frozen=True)
class Sweep:
    """One metric over a parameter.

    Attributes:
        parameter: Its name.
        metric: The metric, as reports write it.
        within_runs: Whether each run has all values, told apart by handoff.
        rows: Table `SWEEP`, by arm and value.
        places: Where arms change places, one per arm beside the base.
        findings: What weakens it.
    """

    parameter: str
    metric: str
    within_runs: bool
    rows: pl.DataFrame
    places: tuple[Place, ...]
    findings: tuple[Finding, ...]


def sweep(
    arms: Sequence[Arm],
    parameter: str,
    parameters: Mapping[str, Sequence[float | None]],
    metric: str = "gap",
    settings: Settings = DEFAULT,
) -> Sweep:
    """Return one metric of two or more arms over a parameter.

    Args:
        arms: The base, and what is compared with it.
        parameter: Its name.
        parameters: By name of an arm, its value of each run; None where a run has none. Where no run has one, it is
            the handoffs' own ``size_bytes``.
        metric: ``gap``, a phase, ``step``, ``request``, a latency, or a metric as reports write it.
        settings: What was decided before looking.

    Raises:
        UsageError: No value is in two arms, some runs have none, or there is no such metric.
    """
    given = [value for values in parameters.values() for value in values]
    within = all(value is None for value in given)
    by_value = {arm.name: _within(arm) if within else _by_run(arm, parameter, parameters[arm.name]) for arm in arms}
    if within and parameter != OF_HANDOFFS:
        raise UsageError(f"No run has {parameter}. Give it with each run: {{ path = ..., {parameter} = 1 }}.")
    base, *others = arms
    both, places_of = [], []
    for other in others:
        shared = sorted(set(by_value[base.name]) & set(by_value[other.name]))
        for value in shared:
            one, two = by_value[base.name][value], by_value[other.name][value]
            both.append((Arm(base.name, one), Arm(other.name, two)))
            places_of.append((other.name, value))
    if not both:
        raise UsageError(f"No {parameter} is in two arms: {_listed(by_value, parameter)}.")
    wanted = _metric(metric, both, within)
    told = compare_each([(a, b, wanted) for a, b in both], settings)
    found = [_logs(a, b, wanted, settings) for a, b in both]
    rows = told.with_columns(
        value=pl.Series([value for _, value in places_of], dtype=pl.Float64),
        base=pl.lit(base.name),
        arm=pl.Series([name for name, _ in places_of], dtype=pl.String),
        within_ratio_low=pl.Series([_exp(f.within, 0) for f in found], dtype=pl.Float64),
        within_ratio_high=pl.Series([_exp(f.within, 1) for f in found], dtype=pl.Float64),
    ).select(pl.col(n).cast(t) for n, t in SWEEP.items())
    places = []
    for other in others:
        mine = [i for i, (name, _) in enumerate(places_of) if name == other.name and found[i].across is not None]
        at = [places_of[i][1] for i in mine]
        resolved = [
            _is_resolved(row) for row in told.select("difference_ns", "low_ns", "high_ns", "clock_ns")[mine].to_dicts()
        ]
        logs = [found[i] for i in mine]
        places.append(_place((base.name, other.name), list(zip(at, logs, resolved, strict=True)), within, settings))
    notes = _notes(by_value, base.name, parameter, rows)
    return Sweep(parameter, wanted.words(), within, rows, tuple(places), notes)


@dataclass(frozen=True)
class _Logs:
    """Log ratios of the medians of one value.

    Attributes:
        across: What restarts say; None where a median is not above zero, so that there is no ratio.
        pairs: One per pair of restarts; empty where they are not paired.
        within: Interval within the only pair; None: there are several, or too little.
    """

    across: Across | None
    pairs: Floats
    within: tuple[float, float] | None


def _by_run(arm: Arm, parameter: str, values: Sequence[float | None]) -> dict[float, list[Run]]:
    found: dict[float, list[Run]] = {}
    for run, value in zip(arm.runs, values, strict=True):
        if value is None:
            raise UsageError(f"Run {run.name} of {arm.name} has no {parameter}, others have. Give it with each run.")
        found.setdefault(value, []).append(run)
    return found


def _within(arm: Arm) -> dict[float, list[Run]]:
    """Return the runs of an arm by size of their handoffs: those sizes that all of its runs have."""
    sizes = [set(run.handoffs["size_bytes"].drop_nulls().unique()) for run in arm.runs]
    return {
        float(size): [_of_size(run, size) for run in arm.runs] for size in sorted(set.intersection(*sizes))
    }  # fmt: skip


def _of_size(run: Run, size_bytes: int) -> Run:
    """Return a run with the handoffs of one size; steps and requests have handoffs of all sizes and are left out."""
    handoffs = run.handoffs.filter(pl.col("size_bytes") == size_bytes)
    tiles = run.tiles.join(handoffs.select("handoff_id"), on="handoff_id", how="semi", maintain_order="left")
    return replace(run, handoffs=handoffs, tiles=tiles, units=run.units.clear(), latencies=None)


def _metric(wanted: str, arms: Sequence[tuple[Arm, Arm]], within: bool) -> Metric:
    """Return the metric of a name, on the edge that has most handoffs."""
    runs = [series_of(run) for pair_of in arms for arm in pair_of for run in arm.runs]
    shared = sorted(set(runs[0]).intersection(*runs[1:]))
    for metric in shared:
        if metric.words() == wanted:
            return metric
    fitting = [m for m in shared if _is_called(m, wanted)]
    if fitting:
        return max(fitting, key=lambda m: sum(run[m].height for run in runs))
    there = sorted({m.words() for m in shared if m.family != "cause"})
    why = " Steps and requests hold handoffs of all sizes: record a run per size for those." if within else ""
    raise UsageError(
        f"There is no metric {wanted!r} at every value of all runs: {', '.join(there) or 'they share none'}.{why}"
    )


def _is_called(metric: Metric, wanted: str) -> bool:
    if wanted in PHASES or metric.family == "latency":
        return metric.part == wanted and metric.family != "cause"
    return metric.family == wanted


def _logs(a: Arm, b: Arm, metric: Metric, settings: Settings) -> _Logs:
    """Return log ratios of medians; without an estimate where a median is not above zero."""
    series = [[values_of(series_of(run), metric) for run in arm.runs] for arm in (a, b)]
    medians = [[frame["value_ns"].quantile(0.5, interpolation="linear") or 0.0 for frame in arm] for arm in series]
    k = [len(arm.runs) for arm in (a, b)]
    if min(value for arm in medians for value in arm) <= 0:
        return _Logs(None, np.zeros(0), None)
    logs = [np.log(np.asarray(arm, np.float64)) for arm in medians]
    if k[0] == k[1]:
        pairs = np.asarray(logs[1] - logs[0])
        within = _within_pair(series[0][0], series[1][0], settings) if k[0] == 1 else None
        return _Logs(across_pairs(pairs), pairs, within)
    return _Logs(across_arms(*logs), np.zeros(0), None)


def _within_pair(a: pl.DataFrame, b: pl.DataFrame, settings: Settings) -> tuple[float, float] | None:
    """Return the interval of the log ratio of medians within one pair of restarts; None: there is too little."""
    how = Resampling(confidence=settings.confidence, seed=settings.seed)
    joined = pair(a, b, ["key"], "value_ns")
    first, second = joined.series()
    if not len(first) or not len(second) or min(first.min(), second.min()) <= 0:
        return None
    one, two = np.log(first), np.log(second)
    if joined.paired:
        names = dict(a.select("key", "cluster").iter_rows())
        found = bootstrap_paired(one, two, median, [names[key] for key in joined.rows["key"]], how)
    else:
        found = bootstrap_unpaired(one, two, median, how=how)
    return None if found.low_ns is None or found.high_ns is None else (found.low_ns, found.high_ns)


def _is_resolved(row: Mapping[str, float | None]) -> bool:
    """Tell whether the clocks cannot have made the sign of a difference."""
    clock, difference = row["clock_ns"] or 0.0, row["difference_ns"] or 0.0
    low, high = row["low_ns"], row["high_ns"]
    if low is None or high is None:
        return abs(difference) >= clock
    return low - clock > 0 or high + clock < 0


def _place(
    names: tuple[str, str], points: Sequence[tuple[float, _Logs, bool]], within: bool, settings: Settings
) -> Place:
    """Return where two arms change places.

    Args:
        names: Of the base and the arm.
        points: Each value with its log ratios, and whether the clocks resolve the difference.
        within: Whether each run has all values.
        settings: What was decided before looking.
    """
    at, found, resolved = [p[0] for p in points], [p[1] for p in points], [p[2] for p in points]
    across = [logs.across for logs in found if logs.across is not None]
    estimates, restarts = [one.estimate for one in across], min((one.fewest for one in across), default=1)
    if restarts > 1:
        draws = draws_across(across, [logs.pairs for logs in found], within, settings.seed)
    else:
        quantile = float(stats.norm.isf((1 - settings.confidence) / 2))
        draws = draws_from_intervals(estimates, [logs.within for logs in found], quantile, settings.seed)
    return Place(*names, find_crossing(at, estimates, draws, settings.confidence, resolved), restarts)


def _notes(
    by_value: Mapping[str, Mapping[float, Sequence[Run]]], base: str, parameter: str, rows: pl.DataFrame
) -> tuple[Finding, ...]:
    """Return what weakens a sweep."""
    notes = []
    for name, found in by_value.items():
        alone = sorted(set(found) ^ set(by_value[base]))
        if name != base and alone:
            some = ", ".join(value_words(parameter, value) for value in alone[:4])
            more = f" and {len(alone) - 4} more" if len(alone) > 4 else ""
            message = f"Not in both {base} and {name}, and not compared: {parameter} {some}{more}."
            notes.append(Finding("value_not_in_both", "warning", message, "Record every value with each arm."))
    without = rows.filter(pl.col("ratio").is_null())
    if without.height:
        some = ", ".join(value_words(parameter, value) for value in without["value"].unique().sort().head(4))
        message = f"No ratio at {some}: a median is not above zero there, or a run has none."
        notes.append(Finding("no_ratio", "info", message, "The difference stands in the table."))
    runs = {id(run): run for found in by_value.values() for mine in found.values() for run in mine}.values()
    tools = {run.tools for run in runs if run.tools}
    if len(tools) > 1:
        said = "; ".join(" and ".join(t) for t in sorted(tools))
        hint = "Compare runs of one tool with the same options: profilers slow calls down differently."
        notes.append(Finding("unlike_tools", "warning", f"The runs were recorded by different tools: {said}.", hint))
    return (*notes, *dict.fromkeys(note for run in runs for note in run.notes))


def value_words(parameter: str, value: float) -> str:
    """Return a value of a parameter with its unit, where its name tells one.

    >>> value_words("size_bytes", 65536.0), value_words("batch", 8.0)
    ('64.0 KiB', '8')
    """
    if parameter.endswith("_bytes"):
        return size(round(value))
    if parameter.endswith("_ns"):
        return duration(round(value))
    return f"{value:g}"


def _listed(by_value: Mapping[str, Mapping[float, object]], parameter: str) -> str:
    return "; ".join(
        f"{name} has {', '.join(value_words(parameter, value) for value in sorted(found)) or 'none'}"
        for name, found in by_value.items()
    )


def _exp(ends: tuple[float, float] | None, which: int) -> float | None:
    return None if ends is None else float(np.exp(ends[which]))

"""Comparisons and studies as plain data: what JSON holds, and what reports and pages are made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gapscope.compare.comparing import Comparison
from gapscope.compare.runs import Arm
from gapscope.compare.study import Study
from gapscope.compare.sweeping import Place, Sweep, value_words
from gapscope.schema import SCHEMA_VERSION


def comparison_told(found: Comparison) -> dict[str, Any]:
    """Return a comparison: ``a``, ``b``, ``primary``, ``confidence``, and its tables as lists of rows."""
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _arm(found.a),
        "b": _arm(found.b),
        "primary": found.primary,
        "confidence": found.confidence,
        "metrics": found.metrics.to_dicts(),
        "closure": found.closure.to_dicts(),
        "pairs": found.pairs.to_dicts(),
        "findings": [asdict(finding) for finding in found.findings],
    }


def study_told(found: Study) -> dict[str, Any]:
    """Return a study: what its file says, ``comparisons`` (one per arm beside the base) and ``sweep`` (or null)."""
    plan = found.plan
    return {
        "schema_version": SCHEMA_VERSION,
        "study": plan.path,
        "title": plan.title,
        "base": plan.arms[0].name,
        "arms": [{"name": a.name, "label": a.label, "runs": [run.name for run in a.runs]} for a in plan.arms],
        "order": list(plan.order),
        "confidence": found.confidence,
        "comparisons": [comparison_told(one) for one in found.comparisons],
        "sweep": None if found.sweep is None else sweep_told(found.sweep),
    }


def sweep_told(found: Sweep) -> dict[str, Any]:
    """Return a sweep: its rows, ``crossings`` (each in ``words``, too) and ``findings``."""
    rows = [{**row, "value_words": value_words(found.parameter, row["value"])} for row in found.rows.to_dicts()]
    return {
        "parameter": found.parameter,
        "metric": found.metric,
        "within_runs": found.within_runs,
        "rows": rows,
        "crossings": [
            {
                "base": place.base, "arm": place.arm, "claim": place.claim, "restarts": place.restarts,
                **asdict(place.crossing), "words": crossing_words(place, found, _values(found, place)),
            }
            for place in found.places
        ],
        "findings": [asdict(finding) for finding in found.findings],
    }  # fmt: skip


def crossing_words(place: Place, found: Sweep, values: Sequence[float]) -> str:
    """Return in a sentence where an arm and the base change places.

    Args:
        place: What is known of it.
        found: The sweep.
        values: Values that both have a ratio at, ascending.
    """
    crossing, name = place.crossing, found.parameter
    if crossing.kind == "too few values":
        return f"{place.arm} against {place.base}: a crossover takes two values, there is a ratio at {len(values)}"
    span = f"from {value_words(name, values[0])} to {value_words(name, values[-1])}"
    less, more = (place.arm, place.base) if crossing.first_sign < 0 else (place.base, place.arm)
    if crossing.kind == "none":
        said = f"no crossover seen {span}: {less} takes less at all of it"
    elif crossing.kind == "one" and crossing.low is not None and crossing.high is not None:
        low, high = crossing.between[0]
        said = (
            f"crossover between {value_words(name, low)} and {value_words(name, high)} ({less} takes less below, "
            f"{more} above); resampled {_between(name, crossing.low, crossing.high)}"
        )
    elif crossing.kind == "several":
        where = ", ".join(
            f"between {value_words(name, low)} and {value_words(name, high)}" for low, high in crossing.between
        )
        said = f"several crossovers {span}: {where}"
    else:
        said = f"whether there is a crossover {span} cannot be told"
        if crossing.at is not None:
            said += f"; the medians cross near {value_words(name, crossing.at)}"
    if place.restarts < 2:
        said = f"{place.claim}; in this pair of recordings {said}"
    elif place.claim == "indicative":
        said = f"indicative ({place.restarts} restarts per arm): {said}"
    return f"{place.arm} against {place.base}: {said}"


def _between(name: str, low: float, high: float) -> str:
    one, two = value_words(name, low), value_words(name, high)
    return f"at {one}" if one == two else f"{one} … {two}"


def _values(found: Sweep, place: Place) -> list[float]:
    rows = found.rows.filter(arm=place.arm).drop_nulls("ratio")
    return [float(value) for value in rows["value"] if math.isfinite(value)]


def _arm(arm: Arm) -> dict[str, Any]:
    return {"name": arm.name, "runs": [run.name for run in arm.runs]}

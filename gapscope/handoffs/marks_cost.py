"""What the marks themselves cost, beside the gaps that they measure: by the samples that mark logs hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
from gapscope_instrumentation.contract import HANDOFF_BRACKETS

from gapscope.findings import Finding
from gapscope.trace import Trace

_MOST_SHARE = 0.05
"""Part of the median gap from which on the cost of the marks is a warning."""


def marks_cost(trace: Trace, counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what marks cost on each rank whose log says it.

    Args:
        trace: The recordings.
        counted: Table ``handoffs``, those that count.

    Returns:
        One entry per rank: ``job``, ``rank``, ``brackets`` (how many were timed), ``begin_ns`` and ``end_ns``
        (medians of opening and closing one), ``bracket_ns`` (both), ``per_handoff`` (brackets of the rank per counted
        handoff; None: it takes part in none), ``handoff_ns`` (their product; host time, which lies in the gap at
        most) and ``gap_p50_ns`` (median gap of the counted handoffs that end on the rank; None: there are none).
    """
    told = trace.sources.filter(pl.col("marks_cost").is_not_null()).select("source", "marks_cost")
    rows = trace.processes.join(told, on="source").filter(pl.col("rank").is_not_null())
    samples: dict[tuple[str | None, int], list[dict[str, int]]] = {}
    for row in rows.sort("rank", "source").iter_rows(named=True):
        samples.setdefault((row["job"], row["rank"]), []).append(json.loads(row["marks_cost"]))
    if not samples:
        return []
    brackets = _brackets_per_handoff(trace, counted)
    return [_entry(job, rank, said, brackets, counted) for (job, rank), said in samples.items()]


def _entry(
    job: str | None,
    rank: int,
    said: Sequence[dict[str, int]],
    brackets: dict[tuple[str | None, int], float],
    counted: pl.DataFrame,
) -> dict[str, Any]:
    timed = sum(s["brackets"] for s in said)
    begin, end = (sum(s["brackets"] * s[c] for s in said) // timed for c in ("begin_ns", "end_ns"))
    each = brackets.get((job, rank))
    ends = (pl.col("src_rank") == rank) | (pl.col("dst_rank") == rank)
    gap = counted.filter(ends & pl.col("job").eq_missing(pl.lit(job, dtype=pl.String)))["gap_ns"].median()
    return {
        "job": job,
        "rank": rank,
        "brackets": timed,
        "begin_ns": begin,
        "end_ns": end,
        "bracket_ns": begin + end,
        "per_handoff": None if each is None else round(each, 2),
        "handoff_ns": None if each is None else round(each * (begin + end)),
        "gap_p50_ns": round(gap) if isinstance(gap, (int, float)) else None,
    }


def _brackets_per_handoff(trace: Trace, counted: pl.DataFrame) -> dict[tuple[str | None, int], float]:
    """Return how many brackets a rank has per counted handoff that it takes part in, by job and rank."""
    primary = trace.processes.filter("primary").select("source", "process")
    marks = trace.marks.filter(pl.col("mark").is_in(HANDOFF_BRACKETS) & pl.col("rank").is_not_null())
    marks = marks.join(primary, on=["source", "process"], how="semi")
    pair, group = ["job", "src", "dst", "channel", "seq"], ["job", "group", "channel", "seq"]
    pairs = counted.filter(pl.col("group").is_null()).rename({"src_rank": "src", "dst_rank": "dst"})
    groups = counted.filter(pl.col("group").is_not_null())
    of_pairs = marks.filter(pl.col("group").is_null()).join(pairs, on=pair, how="semi", nulls_equal=True)
    of_groups = marks.filter(pl.col("group").is_not_null()).join(groups, on=group, how="semi", nulls_equal=True)
    key = pl.struct("src", "dst", "group", "channel", "seq")
    both = pl.concat([of_pairs, of_groups]).group_by("job", "rank").agg(n=pl.len(), keys=key.n_unique())
    return {(job, rank): n / keys for job, rank, n, keys in both.iter_rows()}


def note_on_marks_cost(costs: Sequence[dict[str, Any]]) -> list[Finding]:
    """Return a warning for each rank whose marks cost more than a twentieth of its median gap.

    Args:
        costs: Result of `marks_cost`.
    """
    found = []
    for cost in costs:
        each, gap = cost["handoff_ns"], cost["gap_p50_ns"]
        if each is None or not gap or gap <= 0 or each <= _MOST_SHARE * gap:
            continue
        found.append(
            Finding(
                "marks_cost",
                "warning",
                f"The marks cost about {each:,} ns of host time per handoff on this rank ({cost['per_handoff']:g} "
                f"brackets of {cost['bracket_ns']:,} ns), {each / gap:.0%} of its median gap of {gap:,} ns: what of "
                "it lies in the gap is not the job's own.",
                "Mark fewer handoffs or fewer brackets of each. Code that runs rarely runs cold.",
                rank=cost["rank"],
            )
        )
    return found

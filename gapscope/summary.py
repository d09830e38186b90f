"""The numbers of the reports: what was recorded, what became of the handoffs, how long the gaps are.

Percentiles interpolate linearly between neighbors, as numpy's do, and are rounded to whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from gapscope.arrivals import summarize_groups
from gapscope.causes.interference import summarize_interference
from gapscope.causes.messages import summarize_messages
from gapscope.causes.summary import summarize_causes
from gapscope.findings import Finding
from gapscope.handoffs.marks_cost import marks_cost
from gapscope.handoffs.steady import start_up_rule
from gapscope.phases import PHASES, UNPOSTED, with_phases
from gapscope.schema import EVENTS, QUALITIES, SCHEMA_VERSION, STATUS
from gapscope.trace import Trace

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
EDGE = ["kind", "group", "src_rank", "dst_rank", "channel", "direction"]
COUNTED = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")
"""Which handoffs the percentiles are over."""


def summarize(
    trace: Trace,
    tables: Mapping[str, pl.DataFrame],
    findings: Sequence[Finding],
    selection: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of ``summary.json``: every number that the text report prints.

    Args:
        trace: The recordings.
        tables: Tables ``alignment``, ``handoffs``, ``tiles``, ``units``, ``exposure``, ``fixes``, ``messages``,
            ``waiting`` and ``interference``.
        findings: All findings.
        selection: What the user chose: ``steps``, ``ranks``, ``warmup``.
    """
    alignment, handoffs, tiles = (tables[name] for name in ("alignment", "handoffs", "tiles"))
    selection = selection or {"steps": None, "ranks": None, "warmup": 1}
    status = handoffs.group_by("status").len()
    by_status = dict(zip(status["status"].cast(pl.String), status["len"], strict=True))
    order = handoffs.group_by("order").len()
    levels = [f.level for f in findings]
    return {
        "schema_version": SCHEMA_VERSION,
        "recordings": _recordings(trace, alignment, handoffs),
        "clocks": summarize_clocks(trace.sources, alignment, handoffs),
        "handoffs": {
            "total": handoffs.height,
            "counted": handoffs.filter(COUNTED).height,
            "start_up": handoffs.filter(~pl.col("steady")).height,
            "status": {name: by_status[name] for name in STATUS.categories if name in by_status},
            "order": dict(sorted(zip(order["order"].cast(pl.String), order["len"], strict=True))),
            "origin": dict(sorted(handoffs.group_by("origin").len().iter_rows())),
        },
        "selection": selection,
        "start_up_rule": start_up_rule(selection["warmup"]),
        "edges": _edges(handoffs),
        "groups": summarize_groups(handoffs, COUNTED),
        "causes": summarize_causes(handoffs, tiles, tables["units"], tables["exposure"]),
        "fixes": tables["fixes"].to_dicts(),
        "waiting": tables["waiting"].to_dicts(),
        "interference": summarize_interference(tables["interference"]),
        "messages": summarize_messages(handoffs, tables["messages"]),
        "marks_cost": marks_cost(trace, handoffs.filter(COUNTED)),
        "findings": {level: levels.count(level) for level in ("error", "warning", "info")},
    }


def _recordings(trace: Trace, alignment: pl.DataFrame, handoffs: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one entry per process that has a rank, marks or GPU work."""
    hosts = (
        _over_windows(_against_reference(alignment), _spans(handoffs))
        .filter(pl.col("domain") == "host")
        .unique("source", maintain_order=True)
        .select("source", "quality")
    )
    shown = (
        trace.processes.filter(pl.col("has_ops") | (pl.col("n_marks") > 0))
        .join(trace.sources.drop("window_start_ns", "window_end_ns", "tool", "clock"), on="source", how="left")
        .join(trace.sources.select("source", "clock"), on="source", how="left")
        .join(hosts, on="source", how="left")
        .sort("rank", "source", "process", nulls_last=True)
    )
    return [
        {
            "rank": row["rank"],
            "rank_source": row["rank_source"],
            "job": row["job"],
            "path": row["path"],
            "pid": row["pid"],
            "tool": row["tool"],
            "version": row["version"],
            "host": row["host"],
            "window_ns": None if row["window_start_ns"] is None else row["window_end_ns"] - row["window_start_ns"],
            "ops": row["n_ops"],
            "marks": row["n_marks"],
            "used": row["primary"],
            "truncated": row["truncated"],
            "clock": row["clock"],
            "clock_origin": row["clock_origin"],
            "resolution_ns": row["resolution_ns"],
            "quality": row["quality"],
        }
        for row in shown.iter_rows(named=True)
    ]


def summarize_clocks(sources: pl.DataFrame, alignment: pl.DataFrame, handoffs: pl.DataFrame) -> dict[str, Any]:
    """Return where the clocks stand while handoffs went on (without handoffs: throughout).

    Args:
        sources: Table ``sources``.
        alignment: Table ``alignment``.
        handoffs: Table ``handoffs``; may be empty.

    Returns:
        ``reference``; ``hosts``: one entry per host clock against it; ``devices``: one per device clock against its own
        host. Each has ``offset_min_ns``, ``offset_max_ns``, ``lo_ns``, ``hi_ns`` (null: no bound), ``drift_ppm``,
        ``quality`` (the weakest), ``n_hard``, ``n_soft``, ``method`` and ``assumed``.
    """
    if not alignment.height:
        return {"reference": None, "hosts": [], "devices": []}
    paths = dict(sources.select("source", "path").iter_rows())
    own = pl.format("{}:host", pl.col("path"))
    reference = _against_reference(alignment)
    devices = alignment.filter((pl.col("domain") != "host") & (pl.col("reference") == own))
    spans = _spans(handoffs)
    return {
        "reference": alignment["reference"][0],
        "hosts": _clock_entries(_over_windows(reference.filter(pl.col("domain") == "host"), spans), paths),
        "devices": _clock_entries(_over_windows(devices, spans), paths),
    }


def _spans(handoffs: pl.DataFrame) -> pl.DataFrame:
    """Return from when to when each rank took part in handoffs past start-up: ``rank, first, last``."""
    events = [f"{e}_ns" for e in EVENTS]
    ends = pl.concat([handoffs.filter(pl.col("steady")).select(*events, rank=end) for end in ("src_rank", "dst_rank")])
    return ends.group_by(pl.col("rank").cast(pl.Int32)).agg(
        first=pl.min_horizontal(events).min(), last=pl.max_horizontal(events).max()
    )


def _against_reference(alignment: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are against the reference: the first row is."""
    return alignment.filter(pl.col("reference") == pl.col("reference").first())


def _over_windows(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return one row per pair of clocks with the widest bounds of the windows that handoffs of its rank touch."""
    rows = rows.join(spans, on="rank", how="left", maintain_order="left").with_columns(
        first=pl.coalesce("first", pl.lit(spans["first"].min(), dtype=pl.Int64)),
        last=pl.coalesce("last", pl.lit(spans["last"].max(), dtype=pl.Int64)),
    )
    near = (pl.col("window_start_ns") <= pl.col("last")) & (pl.col("window_end_ns") >= pl.col("first"))
    near = near.fill_null(value=False)
    rows = rows.filter(near | ~near.any().over("source", "rank", "domain", "reference"))
    rows = rows.sort("rank", "source", "domain", nulls_last=True, maintain_order=True)
    weakest = pl.col("quality").replace_strict({q: n for n, q in enumerate(QUALITIES)}, return_dtype=pl.Int8)
    return rows.group_by("source", "rank", "domain", "reference", maintain_order=True).agg(
        offset_min_ns=pl.col("offset_ns").min(),
        offset_max_ns=pl.col("offset_ns").max(),
        lo_ns=pl.when(pl.col("lo_ns").is_not_null().all()).then(pl.col("lo_ns").min()),
        hi_ns=pl.when(pl.col("hi_ns").is_not_null().all()).then(pl.col("hi_ns").max()),
        drift_ppm=pl.col("drift_ppm").first(),
        quality=pl.col("quality").sort_by(weakest).last(),
        n_hard=pl.col("n_hard").first(),
        n_soft=pl.col("n_soft").first(),
        method=pl.col("method").first(),
        assumed=pl.col("assumed").drop_nulls().first(),
    )


def _clock_entries(rows: pl.DataFrame, paths: dict[int, str]) -> list[dict[str, Any]]:
    return [{"path": paths[row["source"]], **row} for row in rows.iter_rows(named=True)]


def _edges(handoffs: pl.DataFrame) -> list[dict[str, Any]]:
    if not handoffs.height:
        return []
    durations = ["gap_ns", *(f"{p}_ns" for p in (*PHASES, UNPOSTED))]
    counted = [
        pl.col(d).filter(COUNTED).quantile(q, interpolation="linear").round().cast(pl.Int64).alias(f"{d}/{name}")
        for d in durations
        for name, q in QUANTILES.items()
    ]
    n = [pl.col(d).filter(COUNTED).count().alias(f"{d}/n") for d in durations]
    states = [(pl.col("status") == s).sum().alias(f"status/{s}") for s in STATUS.categories]
    edges = (
        with_phases(handoffs)
        .group_by(EDGE)
        .agg(
            pl.len().alias("handoffs"),
            COUNTED.sum().alias("counted"),
            (~pl.col("steady")).sum().alias("start_up"),
            (COUNTED & (pl.col("submit_ns") < pl.col("producer_finish_ns"))).sum().alias("submitted_early"),
            (pl.col("order") == "violation").sum().alias("violations"),
            (pl.col("order") == "cannot_tell").sum().alias("cannot_tell"),
            pl.col("transport").unique().sort().alias("transports"),
            pl.col("size_bytes")
            .filter(COUNTED | ~COUNTED.any())
            .quantile(0.5, interpolation="linear")
            .round()
            .cast(pl.Int64, strict=False)
            .alias("size_bytes_p50"),
            pl.col("messages").sum().alias("messages"),
            pl.col("uncertainty_ns").filter(COUNTED).max().alias("uncertainty_ns"),
            (pl.col("uncertainty_ns").is_null() & COUNTED).any().alias("unbounded"),
            *(pl.col(f"{part}_uncertainty_ns").filter(COUNTED).max() for part in ("gap", *PHASES)),
            *counted,
            *n,
            *states,
        )
        .sort(EDGE, nulls_last=True)
    )
    return [_edge(row) for row in edges.iter_rows(named=True)]


def _edge(row: dict[str, Any]) -> dict[str, Any]:
    """Return one edge with its distributions nested; a distribution over nothing has n 0 and no percentiles."""

    def spread(duration: str) -> dict[str, int]:
        n = row[f"{duration}/n"]
        return {"n": n} | ({f"{q}_ns": row[f"{duration}/{q}"] for q in QUANTILES} if n else {})

    plain = {k: v for k, v in row.items() if "/" not in k}
    return plain | {
        "status": {s: row[f"status/{s}"] for s in STATUS.categories if row[f"status/{s}"]},
        "gap": spread("gap_ns"),
        "phases": {phase: spread(f"{phase}_ns") for phase in (*PHASES, UNPOSTED)},
    }

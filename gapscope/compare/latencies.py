"""Latencies as a load generator saw them, ready to be compared: keys, censored times, and what its checks forbid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike

import polars as pl

from gapscope.compare.runs import Run
from gapscope.findings import Finding
from gapscope.loadgen import Latencies, check_load, join_requests, read_latencies, with_latency

KINDS = ("e2e", "ttft", "tpot")
"""End to end, to the first token, per output token after it."""


@dataclass(frozen=True)
class ClientSide:
    """One run of a load generator.

    Attributes:
        latencies: One row per request: ``key``, ``at_ns`` (on the client's clock; when it was to be sent, else sent,
            else its place), ``e2e_ns`` (of one that failed the longest that was answered: it took at least so long),
            ``ttft_ns``, ``tpot_ns`` (null: none).
        notes: What was found about the load.
        refused: As in `gapscope.compare.runs.Run`.
    """

    latencies: pl.DataFrame
    notes: tuple[Finding, ...]
    refused: Mapping[str, str]


def with_latencies(run: Run, path: str | PathLike[str]) -> Run:
    """Return a run with what a load generator recorded of it.

    Args:
        run: The run.
        path: File of the load generator.

    Raises:
        InputError: It cannot be read.
        UsageError: It holds several runs.
    """
    latencies = read_latencies(path)
    side = client_side(latencies, run.name)
    joined = join_requests(latencies, run.units).findings if (run.units["unit"] == "request").any() else ()
    notes = (*run.notes, *latencies.findings, *side.notes, *joined)
    return replace(run, latencies=side.latencies, notes=notes, refused={**run.refused, **side.refused})


def client_side(latencies: Latencies, name: str) -> ClientSide:
    """Return what is compared of one run of a load generator.

    Requests are named by their ids, without ids by their place: the same place is the same request only where all runs
    were given the same requests. Where too many failed they are named by the run, so that nothing is paired.

    Args:
        latencies: The run.
        name: Name of the run.
    """
    checks = check_load(latencies)
    table = with_latency(latencies)
    has_ids = table["request_id"].null_count() == 0 and table["request_id"].is_unique().all()
    key = pl.col("request_id") if has_ids else pl.format("#{}", "index")
    if checks.unpaired:
        key = pl.format("{}: {}", pl.lit(name), key)
    waited = (pl.col("sent_ns") - pl.col("scheduled_ns")).fill_null(0)
    notes = list(checks.findings)
    if not has_ids:
        message = "The load generator's file has no ids: requests are paired by their place in it."
        hint = "Give all runs the same requests in the same order (the same file and seed)."
        notes.append(Finding("load_paired_by_place", "info", message, hint, path=latencies.path))
    refused = {}
    if checks.comparison == "refused":
        why = next(f.message for f in checks.findings if f.message.endswith("refused for it."))
        refused["latency"] = why.removesuffix(" A comparison of latencies is refused for it.").rstrip(".")
    frame = table.select(
        key=key,
        at_ns=pl.coalesce("scheduled_ns", "sent_ns", "index"),
        e2e_ns="latency_ns",
        ttft_ns=pl.col("ttft_ns") + waited,
        tpot_ns="tpot_ns",
    )
    return ClientSide(frame, tuple(notes), refused)

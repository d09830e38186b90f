"""What is assumed about clocks, beside what the recordings prove. Each assumption has a size and a reason.

Sizes are those of algorithms.md 1.6. An assumption that the recordings refute is dropped and reported.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import polars as pl

from gapscope.clocks.domains import Domains
from gapscope.clocks.observations import Assumption
from gapscope.clocks.options import AlignOptions
from gapscope.schema import CLAIM_ERROR_NS, SYSTEM_CLOCK_NS
from gapscope.trace import Trace

GPU_MAPPING_NS = 10_000
"""How far a tool's mapping of device times may be off: 8.1 to 8.9 µs were seen (TileOPs#1838)."""

_ONE_BOOT_NS = 1_000_000_000


def assume(trace: Trace, domains: Domains, options: AlignOptions) -> tuple[Assumption, ...]:
    """Return all assumptions about the clocks of a trace."""
    return (
        *_gpu_mapping(domains),
        *_same_host(trace, domains, options),
        *_clock_bound(domains, options),
    )


def _both_ways(one: int, two: int, center_ns: int, bound_ns: int, *, kind: str, text: str) -> tuple[Assumption, ...]:
    """Return ``|offset[one] - offset[two] - center| <= bound``."""
    return (
        Assumption(one, two, bound_ns + center_ns, kind, text),
        Assumption(two, one, bound_ns - center_ns, kind, text),
    )


def _gpu_mapping(domains: Domains) -> list[Assumption]:
    found: list[Assumption] = []
    for row in domains.table.filter(pl.col("device").is_not_null()).iter_rows(named=True):
        bound = GPU_MAPPING_NS if row["mapping_ns"] is None else row["mapping_ns"]
        whose = "the tool's mapping" if row["mapping_ns"] is None else "the log's calibration"
        text = f"{whose} of {row['label']} onto the host's time is good to {bound:,} ns"
        found += _both_ways(row["domain"], row["clock"], 0, bound, kind="gpu_mapping", text=text)
    return found


def _same_host(trace: Trace, domains: Domains, options: AlignOptions) -> list[Assumption]:
    known = trace.sources.select(
        "source",
        "host",
        "boot_id",
        "tool",
        "claim_error_ns",
        "epoch_ns",
        "shift_ns",
        "system_clock_ns",
        "counter_ns",
        unix=pl.col("clock") == "unix",
    )
    hosts = domains.table.filter(pl.col("device").is_null() & pl.col("source").is_not_null())
    rows = hosts.join(known, on="source").sort("domain").to_dicts()
    for row in rows:
        row["seen"] = _processes(trace, row["source"])
    found: list[Assumption] = []
    for one, two in combinations(rows, 2):
        why = _one_host(one, two, options)
        if why is None:
            continue
        a, b = one["domain"], two["domain"]
        exact = _by_system_clock(one, two)
        if exact is not None:
            bound = SYSTEM_CLOCK_NS[one["tool"]] + SYSTEM_CLOCK_NS[two["tool"]]
            good = f"their readings of its monotonic clock are good to {bound:,} ns"
            text = f"{why}, and {good if bound else 'their times are of its monotonic clock'}"
            found += _both_ways(a, b, exact, bound, kind="system_clock", text=text)
        elif one["claims"] and two["claims"]:
            bound = _claim_error(one) + _claim_error(two)
            text = f"{why}, so that their clocks agree to {bound:,} ns"
            found += _both_ways(a, b, one["claim_ns"] - two["claim_ns"], bound, kind="same_host", text=text)
    return found


def _claim_error(row: dict[str, Any]) -> int:
    """Return how far a file's absolute time may be off from its host's clock."""
    said = row["claim_error_ns"]
    return CLAIM_ERROR_NS[row["tool"]] if said is None else int(said)


def _processes(trace: Trace, source: int) -> set[tuple[str | None, int, int]]:
    """Return job, rank and pid of the processes of one file."""
    known = trace.processes.filter(
        (pl.col("source") == source) & pl.col("rank").is_not_null() & pl.col("pid").is_not_null()
    )
    return set(known.select("job", "rank", "pid").iter_rows())


def _one_host(one: dict[str, Any], two: dict[str, Any], options: AlignOptions) -> str | None:
    """Return why two files are of one host; None if nothing says so."""
    labels = f"{one['label']} and {two['label']}"
    boots = one["boot_id"], two["boot_id"]
    if one["host"] is not None and one["host"] == two["host"] and (None in boots or boots[0] == boots[1]):
        return f"{labels} name the same host"
    if options.same_host:
        return f"{labels} are of one host (--same-host)"
    if one["seen"] & two["seen"]:
        return f"{labels} are of the same process"
    return None


def _by_system_clock(one: dict[str, object], two: dict[str, object]) -> int | None:
    """Return the difference of offsets by the monotonic clock of the host, if both files carry a reading of it."""
    for column in ("system_clock_ns", "counter_ns"):
        if all(isinstance(r[column], int) and (not r["unix"] or r["epoch_ns"] is not None) for r in (one, two)):
            difference = _monotonic_zero(one, column) - _monotonic_zero(two, column)
            if one["claims"] and two["claims"] and abs(difference) > _ONE_BOOT_NS:
                continue  # not since the same boot
            return difference
    return None


def _monotonic_zero(row: dict[str, object], column: str) -> int:
    """Return what has to be added to a file's times to get the reading of its host's monotonic clock."""
    reading, epoch, shift = row[column], row["epoch_ns"] if row["unix"] else 0, row["shift_ns"]
    assert isinstance(reading, int)
    return reading - (epoch if isinstance(epoch, int) else 0) - (shift if isinstance(shift, int) else 0)


def _clock_bound(domains: Domains, options: AlignOptions) -> list[Assumption]:
    if options.clock_bound_ns is None:
        return []
    hosts = domains.table.filter(pl.col("device").is_null() & pl.col("source").is_not_null() & pl.col("claims"))
    found: list[Assumption] = []
    for one, two in combinations(hosts.to_dicts(), 2):
        text = f"{one['label']} and {two['label']} agree to {options.clock_bound_ns:,} ns (--clock-bound)"
        center = one["claim_ns"] - two["claim_ns"]
        found += _both_ways(one["domain"], two["domain"], center, options.clock_bound_ns, kind="clock_bound", text=text)
    return found

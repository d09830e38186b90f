"""One timebase for all files: evidence in, offsets with bounds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from gapscope.clocks.alignment import Alignment, coarsen
from gapscope.clocks.assumptions import assume
from gapscope.clocks.conflicts import resolve
from gapscope.clocks.domains import Domains, find_domains
from gapscope.clocks.evidence import OF_CALLS, Context, gather
from gapscope.clocks.observations import Evidence, observations
from gapscope.clocks.options import AlignOptions
from gapscope.clocks.soft import soft_offsets
from gapscope.clocks.solve import Solution, pose, solve
from gapscope.errors import UsageError
from gapscope.events import Ends
from gapscope.findings import Finding, plural
from gapscope.trace import Trace

_SURPRISING_NS = 10_000_000
"""Hosts that NTP keeps agree to some milliseconds; a file that is farther off may be of another run."""

_IMPOSSIBLE_NS = 10**12
"""No launch, message or collective takes a thousand seconds backward: such times are damage, not clocks."""


@dataclass(frozen=True)
class Observed:
    """What is known of the clocks before anybody asks for marks.

    Attributes:
        domains: The clocks.
        of_calls: What calls say about them.
    """

    domains: Domains
    of_calls: Sequence[Evidence]


def observe(trace: Trace) -> Observed:
    """Return what the calls of a trace say about its clocks, which is most of the work of aligning them."""
    context = Context(trace, find_domains(trace))
    return Observed(context.domains, [family(context) for family in OF_CALLS])


def align(
    trace: Trace,
    ends: Ends | None = None,
    options: AlignOptions | None = None,
    observed: Observed | None = None,
) -> Alignment:
    """Return where each clock of a trace stands, with proven bounds.

    Args:
        trace: The recordings.
        ends: Events of the handoffs that marks name (`gapscope.events.find_ends`); None: they are not used.
        options: What the user states.
        observed: Result of `observe`, if it is there.

    Raises:
        UsageError: An option names a rank that is not there.
    """
    options, observed = options or AlignOptions(), observed or observe(trace)
    domains = _with_offsets(observed.domains, options)
    evidence = gather(Context(trace, domains, ends), observed.of_calls)
    domains, evidence = _with_anchors(domains, evidence, options)
    evidence, findings = _possible(domains, evidence)
    soft = soft_offsets(domains, evidence.soft)
    problem, settled, notes = resolve(pose(domains, evidence, assume(trace, domains, options)), soft)
    solution = _coarse(solve(problem, settled))
    alignment = Alignment(problem.domains, solution, soft, evidence.counts, [*findings, *notes])
    return replace(alignment, findings=[*alignment.findings, *_weak(alignment), *_moved(alignment)])


def _coarse(solution: Solution) -> Solution:
    """Return the solution with fewer windows."""
    domains = solution.problem.domains
    pairs = [(c, domains.reference if domains.is_host[c] else int(domains.clock[c])) for c in range(domains.n)]
    cuts = np.array([t + int(solution.near_ns[c]) for c, t in domains.step_times], np.int64)
    return coarsen(solution, pairs, cuts)


def _with_offsets(domains: Domains, options: AlignOptions) -> Domains:
    """Let the user's offsets stand for the claims of the files."""
    table = domains.table
    for rank, offset in options.offsets.items():
        if not (table["rank"] == rank).any():
            raise UsageError(f"--offset {rank}={offset}: no recording is of rank {rank} alone.")
        mine = (pl.col("rank") == rank).fill_null(value=False)
        clocks = table.filter(mine)["clock"].unique().implode()
        chosen = pl.col("clock").is_in(clocks)
        table = table.with_columns(
            claim_ns=pl.when(chosen).then(offset).otherwise("claim_ns"),
            claims=pl.col("claims") | chosen,
            claim_text=pl.when(chosen).then(pl.lit(f"--offset {rank}={offset}")).otherwise("claim_text"),
        )
    return replace(domains, table=table)


def _with_anchors(domains: Domains, evidence: Evidence, options: AlignOptions) -> tuple[Domains, Evidence]:
    """Add a clock that the user's anchors are against, and what they say."""
    if not options.anchors:
        return domains, evidence
    number = domains.n
    rows = []
    for anchor in options.anchors:
        clocks = domains.table.filter((pl.col("rank") == anchor.rank) & pl.col("device").is_null())["domain"]
        if not len(clocks):
            raise UsageError(f"--anchors: no recording is of rank {anchor.rank} alone.")
        base = {"kind": "anchor", "instance": f"rank {anchor.rank} at {anchor.file_ns}"}
        for clock in clocks:
            late, early = anchor.reference_ns + anchor.error_ns, anchor.reference_ns - anchor.error_ns
            texts = {"earlier_what": "anchor", "later_what": "anchor"}
            rows.append(
                {**base, **texts, "earlier": clock, "earlier_ns": anchor.file_ns, "later": number, "later_ns": late}
            )
            rows.append(
                {**base, **texts, "earlier": number, "earlier_ns": early, "later": clock, "later_ns": anchor.file_ns}
            )
    times = [a.reference_ns for a in options.anchors]
    table = domains.table.with_columns(domain=pl.col("domain"))
    own = {
        "domain": number, "clock": number, "name": "anchors", "label": "the anchors' clock", "zero_ns": min(times),
        "last_ns": max(times), "claims": True, "claim_ns": 0, "claim_text": "anchors", "rate_ppb": 0,
        "resolution_ns": 1,
    }  # fmt: skip
    table = pl.concat([table, pl.DataFrame([own], schema_overrides=table.schema)], how="diagonal_relaxed")
    table = table.select(pl.col(n).cast(t) for n, t in domains.table.schema.items())
    added = observations(pl.DataFrame(rows, infer_schema_length=None))
    counts = {**evidence.counts, "anchor": len(rows)}
    return replace(domains, table=table), replace(
        evidence, observations=pl.concat([evidence.observations, added]), counts=counts
    )


def _possible(domains: Domains, evidence: Evidence) -> tuple[Evidence, list[Finding]]:
    """Leave out facts within one file that no clock error explains."""
    rows = evidence.observations
    own = domains.clock[rows["earlier"].to_numpy()] == domains.clock[rows["later"].to_numpy()]
    backward = (rows["earlier_ns"] - rows["later_ns"]).to_numpy()
    impossible = own & (backward > _IMPOSSIBLE_NS)
    if not impossible.any():
        return evidence, []
    first = rows.row(int(np.flatnonzero(impossible)[0]), named=True)
    path = domains.table["path"][first["earlier"]]
    finding = Finding(
        "impossible_times",
        "warning",
        f"{plural(int(impossible.sum()), 'record')} with times that cannot be: {first['later_what']} is recorded "
        f"{(first['earlier_ns'] - first['later_ns']) / 1e9:,.0f} s before {first['earlier_what']}. Not used for "
        "aligning.",
        path=path,
        count=int(impossible.sum()),
    )
    return replace(evidence, observations=rows.filter(pl.Series(~impossible))), [finding]


def _weak(alignment: Alignment) -> list[Finding]:
    """Return findings about files that stand nowhere, or of which one side is open."""
    domains, table = alignment.domains, alignment.table
    found = []
    for clock in domains.hosts_in_order:
        row = domains.table.row(clock, named=True)
        mine = (
            table.filter((pl.col("path") == row["path"]) & (pl.col("domain") == "host")) if row["path"] else table[:0]
        )
        if not mine.height or clock in alignment.solution.problem.apart:
            continue
        open_ended = mine["lo_ns"].is_null().any() or mine["hi_ns"].is_null().any()
        tied = mine["n_hard"][0] > 0
        if not alignment.placed[clock]:
            why = "the file has no absolute time"
            if row["claims"]:
                why = f"the recordings refute its own absolute time ({row['claim_text']})"
            what = "only one side of its offset is known" if tied else "nothing in the recordings ties it to the others"
            found.append(
                Finding(
                    "unaligned_file",
                    "warning",
                    f"The clock of {row['label']} cannot be placed beside the others: {why}, and {what}.",
                    "Record communication in both directions, or state what you know: --offset, --same-host, "
                    "--clock-bound or --anchors. Alone, the file can be analyzed.",
                    path=row["path"],
                )
            )
        elif open_ended and tied:
            found.append(
                Finding(
                    "half_bounded_clock",
                    "info",
                    f"The recordings bound the clock of {row['label']} on one side only, since communication between "
                    "the files went one way: it stands where the file claims.",
                    "Traffic in the other direction, --same-host or --clock-bound gives a bound.",
                    path=row["path"],
                )
            )
    return found


def _moved(alignment: Alignment) -> list[Finding]:
    """Return findings about files that do not stand where they claim."""
    domains, solution = alignment.domains, alignment.solution
    found = []
    by_anchors = domains.table["source"][domains.reference] is None
    later = {step.after for step in domains.steps}
    for clock in domains.hosts_in_order:
        row = domains.table.row(clock, named=True)
        if row["source"] is None or not alignment.placed[clock] or not row["claims"] or clock in later:
            continue
        off = solution.offset_ns[:, clock] - (row["claim_ns"] - int(domains.claim_ns[domains.reference]))
        largest = int(off[np.abs(off).argmax()])
        if not largest:
            continue
        stated = str(row["claim_text"]).startswith("--offset")
        level: Literal["info", "warning"] = "warning" if stated or abs(largest) > _SURPRISING_NS else "info"
        why = f"its own absolute time ({row['claim_text']}) contradicts what the recordings prove"
        if stated:
            why = f"{row['claim_text']} contradicts what the recordings prove"
        if by_anchors:
            level, why = "info", "that is where the anchors place it"
        found.append(
            Finding(
                "clock_moved",
                level,
                f"The clock of {row['label']} was moved by {largest:+,} ns: {why}.",
                "" if level == "info" else "Check that the files are of one run, and how their hosts keep time.",
                path=row["path"],
            )
        )
    return found

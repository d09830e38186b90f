"""Runs whose clocks are known: written in true time, then shown on the clock of each host."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gapscope.clocks import AlignOptions, align
from gapscope.events import find_ends
from gapscope.handoffs import build_handoffs
from gapscope.testing import Recording, trace

BEGIN = 1_700_000_000_000_000_000
"""True time at which all runs begin."""

US, MS, S = 1_000, 1_000_000, 1_000_000_000
DAY = 86_400 * S


@dataclass(frozen=True)
class Clock:
    """A host's clock: behind true time by ``behind_ns``, fast by ``ppb``, set forward by each of ``steps``.

    ``device_ns`` is how much later than the host's clock the tool writes device times.
    """

    behind_ns: int = 0
    ppb: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    device_ns: int = 0

    def at(self, true_ns):
        """What the clock shows at a true time."""
        shown = true_ns - self.behind_ns + (true_ns - BEGIN) * self.ppb // 10**9
        return shown + sum(by for when, by in self.steps if true_ns >= when)

    def device_at(self, true_ns):
        """What the tool writes for a device event at a true time."""
        return self.at(true_ns) + self.device_ns

    def record(self, recording):
        """Let this clock have recorded what was written in true time."""
        return recording.on_clock(self.at, self.device_at)


def write_handoff(src, dst, source, destination, seq, at, latency=40 * US, gpu=True):
    """Add a handoff in true time: submitted at ``at``, available ``latency`` later; takes less than latency + 60 µs.

    With ``gpu`` all five events are those of operations (the submit call is a host's); else all are of the hosts.
    """
    key = f"src={src} dst={dst} seq={seq} step={seq}" + ("" if gpu else " device=cpu")
    done = at + latency
    source.mark(f"produce {key}", at - 30 * US, at - 20 * US)
    source.mark(f"submit {key}", at, at + 2 * US)
    destination.mark(f"receive {key}", at - 30 * US, at - 10 * US if gpu else done)
    destination.mark(f"consume {key}", done + 10 * US, done + 20 * US)
    if gpu:
        source.kernel(at - 29 * US, at - 28 * US, at - 10 * US)
        source.kernel(at, at + 1 * US, done - 1, stream=13)
        destination.kernel(at - 29 * US, at - 25 * US, done, stream=13)
        destination.kernel(done + 11 * US, done + 15 * US, done + 25 * US)


def files(clocks, tool="nsys", **info):
    """One empty recording per clock, rank by position."""
    return [Recording(f"rank{r}", pid=100 + r, tool=tool, **info) for r in range(len(clocks))]


def recorded(clocks, recordings):
    """Show each recording on its clock."""
    return [clock.record(r) for clock, r in zip(clocks, recordings, strict=True)]


def aligned(recordings, options=None):
    """Align the recordings of a run."""
    run = trace(*recordings)
    return align(run, find_ends(run), options or AlignOptions())


def aligned_with_handoffs(recordings):
    """Align the recordings of a run; return its handoffs as well, as an analysis has them, without their causes."""
    run = trace(*recordings)
    ends = find_ends(run)
    alignment = align(run, ends)
    return alignment, build_handoffs(run, ends, alignment).table


def codes(alignment):
    """Codes of all findings."""
    return sorted(f.code for f in alignment.findings)


def finding(alignment, code):
    """The one finding of that code."""
    [found] = [f for f in alignment.findings if f.code == code]
    return found


def rows(alignment, rank, domain="host"):
    """Rows of one rank's clock against the reference."""
    domains = alignment.domains
    clocks = domains.table.filter((pl.col("rank") == rank) & (pl.col("name") == domain))["domain"]
    return alignment.against([(clock, domains.reference) for clock in clocks]).to_dicts()


def row(alignment, rank, domain="host"):
    """The only row of one rank."""
    [found] = rows(alignment, rank, domain)
    return found


def row_at(alignment, rank, common_ns, domain="host"):
    """The row of one rank that is valid at a time; outside of all windows the nearest."""
    return row_among(rows(alignment, rank, domain), common_ns)


def row_among(there, common_ns):
    """The one of some rows that is valid at a time; outside of all windows the nearest."""
    before = [r for r in there if r["window_start_ns"] <= common_ns]
    return before[-1] if before else there[0]


def against_reference(analysis):
    """The alignment of an analysis without rows of other pairs of clocks than with the host of rank 0."""
    return analysis.alignment.filter(pl.col("reference") == "rank0:host")


def truths(alignment, clocks, rank, domain="host"):
    """``lo, true offset, hi, where`` at both limits and in the middle of every window of a rank.

    A limit is the last time within the window.
    """
    reference = clocks[alignment.domains.table["rank"][alignment.domains.reference]]
    mine = clocks[rank]
    shown = mine.device_at if domain != "host" else mine.at
    for r in rows(alignment, rank, domain):
        first, last = r["window_start_ns"], r["window_end_ns"] - 1
        for common in (first, (first + last) // 2, last):
            true_ns = true_time(reference, common)
            yield r["lo_ns"], reference.at(true_ns) - shown(true_ns), r["hi_ns"], common


def true_time(clock, shown_ns):
    """When a clock without steps showed that."""
    assert not clock.steps
    true_ns = shown_ns + clock.behind_ns
    for _ in range(4):
        true_ns -= clock.at(true_ns) - shown_ns
    return true_ns


def assert_truth_inside(alignment, clocks, slop_ns=2):
    """Every true offset lies within its bounds; ``slop_ns`` is for times rounded to integers."""
    for rank in range(len(clocks)):
        for domain in ("host", "gpu:0"):
            for low, true_ns, high, where in truths(alignment, clocks, rank, domain):
                assert low is None or low - slop_ns <= true_ns, (rank, domain, where, low, true_ns, high)
                assert high is None or true_ns <= high + slop_ns, (rank, domain, where, low, true_ns, high)


def assert_consistent(alignment):
    """Bounds are in order, offsets lie within them, and no observation goes backward after alignment."""
    for r in alignment.table.to_dicts():
        assert r["lo_ns"] is None or r["hi_ns"] is None or r["lo_ns"] <= r["hi_ns"], r
        if r["offset_ns"] is not None:
            assert r["lo_ns"] is None or r["lo_ns"] <= r["offset_ns"], r
            assert r["hi_ns"] is None or r["offset_ns"] <= r["hi_ns"], r
    solution = alignment.solution
    problem, rates = solution.problem, solution.problem.rates
    edges = solution.edges
    for number, o in enumerate(problem.observations.to_dicts()):
        u, v = o["earlier"], o["later"]
        if {u, v} & problem.apart:
            continue
        one, two = o["earlier_ns"] + int(solution.near_ns[u]), o["later_ns"] + int(solution.near_ns[v])
        for at in (one, two):
            w = min(max(int((edges <= at).sum()) - 1, 0), len(edges) - 2)
            distance = max(int(edges[w + 1]) - min(one, two), max(one, two) - int(edges[w]), 0)
            passed = int(((edges >= min(one, two)) & (edges <= max(one, two))).sum())
            part = int(rates.between(u, v)) * distance // 10**9 + 3 + passed  # each window that is passed rounds up
            backward = (o["earlier_ns"] + int(solution.offset_ns[w, u])) - (
                o["later_ns"] + int(solution.offset_ns[w, v])
            )
            assert backward <= part + int(problem.slack_ns[number]), (o, backward, part)

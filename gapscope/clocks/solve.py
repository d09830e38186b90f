"""From constraints to offsets: windows, closure, and a point inside every interval.

The unknown of each clock is the offset that moves its times onto the common timebase, that of the reference clock
being zero. A first pass without windows brings clocks near each other (files may be days apart), the next ones bound
the offsets window by window. Where all constraints of a window hold together, points are set one clock after the
other inside what the closed bounds leave, which always succeeds: a closed system of difference constraints has a
solution for every partial one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gapscope.clocks.closure import (
    FINITE,
    INFINITE,
    Bools,
    Bounds,
    Facts,
    Ints,
    Rates,
    close,
    contradicted,
    envelope,
)
from gapscope.clocks.domains import Domains
from gapscope.clocks.observations import Assumption, Evidence
from gapscope.clocks.soft import SoftOffsets

MOST_WINDOWS = 1024
MOST_ENTRIES = 4_000_000
"""Windows times clocks squared: bounds the memory (32 MB per array)."""

SHORTEST_WINDOW_NS = 1_000_000
_PASSES = 4
_WINDOWS_AT_FIRST = 32
_YEAR_NS = 366 * 86_400 * 10**9


@dataclass(frozen=True)
class Problem:
    """Constraints between clocks.

    Attributes:
        domains: The clocks.
        observations: Columns `gapscope.clocks.observations.OBSERVATION`; position is number.
        assumptions: What is assumed.
        rate_ppb: Bound of the rate error of each clock.
        slack_ns: How much each observation is loosened.
        apart: Clocks (numbers) that cannot be aligned: nothing connects them to the others.
        total: Facts found, before thinning.
        relaxed: How many records were loosened because they contradict others a little.
    """

    domains: Domains
    observations: pl.DataFrame
    assumptions: tuple[Assumption, ...]
    rate_ppb: Ints
    slack_ns: Ints
    apart: frozenset[int] = frozenset()
    total: int = 0
    relaxed: int = 0

    @property
    def rates(self) -> Rates:
        """How fast clocks may part."""
        return Rates(self.domains.clock, self.rate_ppb)

    def without(self, dropped: Bools) -> Problem:
        """Return the problem without some observations."""
        return replace(
            self, observations=self.observations.filter(pl.Series(~dropped)), slack_ns=self.slack_ns[~dropped]
        )

    def between(self, clocks: frozenset[int]) -> Problem:
        """Return what is known between some clocks (numbers of domains)."""
        inside = pl.col("earlier").is_in(list(clocks)) & pl.col("later").is_in(list(clocks))
        kept = self.observations.select(inside).to_series().to_numpy()
        chosen = tuple(a for a in self.assumptions if a.upper in clocks and a.lower in clocks)
        return replace(
            self,
            observations=self.observations.filter(pl.Series(kept)),
            slack_ns=self.slack_ns[kept],
            assumptions=chosen,
        )


def pose(domains: Domains, evidence: Evidence, assumptions: tuple[Assumption, ...]) -> Problem:
    """Return the problem that evidence and assumptions pose."""
    rows = evidence.observations
    rate = domains.table["rate_ppb"].to_numpy().astype(np.int64)
    # A time that was cut to whole microseconds may be that much too early: as a later moment, it would bind too much.
    coarse = domains.resolution_ns[rows["later"].to_numpy()] - 1
    return Problem(domains, rows, assumptions, rate, coarse.astype(np.int64), total=sum(evidence.counts.values()))


@dataclass(frozen=True)
class Solution:
    """Bounds and points over time.

    Attributes:
        problem: What was solved.
        near_ns: Offset of each clock by which windows are looked up: a time t of clock x lies at ``t + near_ns[x]``.
        edges: Limits of the windows on the common timebase.
        closed: ``[window, upper, lower]``: upper bound of ``offset[upper] - offset[lower]``.
        proven: The same from observations alone, without assumptions.
        caused: The same from observations and the tools' mapping of device times alone.
        offset_ns: ``[window, clock]``: the points.
        direct: Direct bounds, with the records they came from.
    """

    problem: Problem
    near_ns: Ints
    edges: Ints
    closed: Ints
    proven: Ints
    caused: Ints
    offset_ns: Ints
    direct: Bounds


@dataclass(frozen=True)
class Attempt:
    """Direct and closed bounds around some offsets, which may contradict each other."""

    near_ns: Ints
    edges: Ints
    direct: Bounds
    closed: Ints

    @property
    def bad(self) -> Bools:
        """Windows that contradict themselves."""
        return contradicted(self.closed)

    @property
    def violation_ns(self) -> int:
        """Sum of the contradictions over the windows, zero if there are none."""
        n = self.closed.shape[1]
        diagonal = self.closed[:, np.arange(n), np.arange(n)]
        return int(-np.clip(diagonal, -(2**50), 0).sum(dtype=np.float64))


def claimed(domains: Domains) -> tuple[Ints, Bools]:
    """Return the offset of each clock by its file's own claim, and whether it claims one.

    A file without a claim, or with one that is more than a year off, is taken to begin when the reference does.
    """
    stated = domains.zero_ns + domains.claim_ns
    begin = stated[domains.reference]
    claims = domains.table["claims"].to_numpy()
    if not claims[domains.reference]:  # nothing has absolute time
        claims = np.zeros(domains.n, np.bool_)
    believed = claims & (np.abs(stated - begin) < _YEAR_NS)
    mine = domains.claim_ns[domains.reference]  # offsets are against the reference, whatever is stated about it
    return np.where(believed, domains.claim_ns - mine, begin - domains.zero_ns - mine), believed


def facts_around(problem: Problem, near_ns: Ints) -> Facts:
    """Return the observations as constraints on what has to be added to ``near_ns``."""
    rows = problem.observations
    upper, lower = rows["earlier"].to_numpy().astype(np.int64), rows["later"].to_numpy().astype(np.int64)
    one = rows["earlier_ns"].to_numpy() + near_ns[upper]
    two = rows["later_ns"].to_numpy() + near_ns[lower]
    return Facts(upper, lower, two - one + problem.slack_ns, np.minimum(one, two), np.maximum(one, two))


def attempt(
    problem: Problem, near_ns: Ints, *, windowed: bool, assume: Collection[str] | None = None, most: int = MOST_WINDOWS
) -> Attempt:
    """Return the bounds around some offsets.

    Args:
        problem: The constraints.
        near_ns: Offsets that are taken for known when times are compared.
        windowed: False: one window over everything, bounds loosened by all the drift that the files have room for.
        assume: Kinds of assumptions that are made; None: all.
        most: Windows there may be.
    """
    facts = facts_around(problem, near_ns)
    if windowed:
        edges = window_edges(problem, near_ns, most)
        direct = envelope(facts, edges, problem.rates)
    else:
        span = problem.domains.table.select((pl.col("last_ns") - pl.col("zero_ns")).max()).item() or 0
        edges = np.array([0, max(1, span)], np.int64)
        always = np.zeros_like(facts.first), np.full_like(facts.last, span)
        whole = Facts(facts.upper, facts.lower, facts.weight, *always)
        direct = envelope(whole, edges, problem.rates)
    direct = _assumed(problem, direct, near_ns, assume)
    return Attempt(near_ns, edges, direct, close(direct.weight))


def _assumed(problem: Problem, direct: Bounds, near_ns: Ints, kinds: Collection[str] | None) -> Bounds:
    weight, record = direct.weight, direct.record
    for number, a in enumerate(problem.assumptions):
        if kinds is not None and a.kind not in kinds:
            continue
        bound = a.bound_ns - int(near_ns[a.upper]) + int(near_ns[a.lower])
        better = bound < weight[:, a.upper, a.lower]
        weight[better, a.upper, a.lower] = bound
        record[better, a.upper, a.lower] = -2 - number
    return Bounds(weight, record)


def window_edges(problem: Problem, near_ns: Ints, most: int = MOST_WINDOWS) -> Ints:
    """Return the limits of the windows: half of them evenly spread, half where the observations are, and at steps."""
    domains = problem.domains
    first = int((domains.zero_ns + near_ns).min())
    last = int((domains.last_ns + near_ns).max()) + 1
    most = int(min(most, max(1, MOST_ENTRIES // domains.n**2)))
    count = int(min(most, max(1, (last - first) // SHORTEST_WINDOW_NS)))
    whole, rest = divmod(last - first, -(-count // 2))
    even = first + whole * np.arange(-(-count // 2) + 1, dtype=np.int64)
    even[1:] += rest
    rows = problem.observations
    seen = np.sort(rows["earlier_ns"].to_numpy() + near_ns[rows["earlier"].to_numpy()])
    where = seen[np.linspace(0, len(seen) - 1, count // 2).astype(np.int64)] if len(seen) and count > 1 else seen[:0]
    steps = [t + int(near_ns[c]) for c, t in domains.step_times]
    edges = np.unique(np.concatenate([even, where]))
    _, apart = np.unique((edges - first) // (SHORTEST_WINDOW_NS // 4), return_index=True)
    edges = np.unique(np.concatenate([edges[apart], np.array(steps, np.int64)]))
    return np.concatenate([[first], edges[(edges > first) & (edges < last)], [last]])


@dataclass(frozen=True)
class Settled:
    """Offsets around which the bounds were computed, these bounds, and the points; or the contradiction met."""

    tried: Attempt
    offset_ns: Ints

    @property
    def is_feasible(self) -> bool:
        """Tell if nothing contradicts itself."""
        return not self.tried.bad.any()


def settle(problem: Problem, targets: SoftOffsets | None = None) -> Settled:
    """Return bounds and points, or the first bounds that contradict themselves.

    Args:
        problem: The constraints.
        targets: Where clocks stand whose own claim is not feasible; None: nothing tells.
    """
    near, _ = claimed(problem.domains)
    rough = attempt(problem, near, windowed=False)
    if rough.bad.any():
        return Settled(rough, near[None, :])
    near = near + _points(problem, rough, None)[0]
    for most in (*[_WINDOWS_AT_FIRST] * _PASSES, MOST_WINDOWS):
        tried = attempt(problem, near, windowed=True, most=most)
        if tried.bad.any():
            return Settled(tried, near[None, :])
        offset = near + _points(problem, tried, targets)
        if most == MOST_WINDOWS:
            break
        near = np.sort(offset, axis=0)[len(offset) // 2]
    return Settled(tried, offset)


def solve(problem: Problem, settled: Settled) -> Solution:
    """Return the solution, with the bounds that hold without assumptions.

    Args:
        problem: Constraints that hold together (`gapscope.clocks.conflicts` sees to that).
        settled: Their bounds and points.
    """
    tried = settled.tried
    kinds = {a.kind for a in problem.assumptions}
    proven = attempt(problem, tried.near_ns, windowed=True, assume=()).closed if kinds else tried.closed
    caused = tried.closed
    if kinds - {"gpu_mapping"}:
        caused = attempt(problem, tried.near_ns, windowed=True, assume=("gpu_mapping",)).closed
    return Solution(problem, tried.near_ns, tried.edges, tried.closed, proven, caused, settled.offset_ns, tried.direct)


def _points(problem: Problem, tried: Attempt, targets: SoftOffsets | None) -> Ints:
    """Return ``[window, clock]``: what to add to the offsets, feasible in each window.

    A host clock stands where its file claims if that is feasible, else where ``targets`` say, else as near to the
    claim as it can. Without a claim, or with one that misses the interval by more than the interval is wide (and so
    says nothing), it stands in the middle. A device clock stands where its host does, if it can.
    """
    domains, closed = problem.domains, tried.closed
    claim, believed = claimed(domains)
    point = np.zeros((closed.shape[0], domains.n), np.int64)
    done = [domains.reference]
    hosts = [c for c in domains.hosts_in_order if c != domains.reference]
    for clock in hosts + [int(c) for c in np.flatnonzero(~domains.is_host)]:
        high = (closed[:, clock, done] + point[:, done]).min(axis=1)
        low = (point[:, done] - closed[:, done, clock]).max(axis=1)
        if domains.is_host[clock]:
            wish = np.full(len(point), claim[clock] - tried.near_ns[clock])
            feasible = believed[clock] and bool(((low <= wish) & (wish <= high)).all())
            soft = None if targets is None or feasible else targets.at(tried.edges, tried.near_ns).get(clock)
            wish = wish if soft is None else soft - tried.near_ns[clock]
            point[:, clock] = _hold(wish, low, high, centered=not believed[clock] and soft is None)
        else:
            point[:, clock] = _hold(point[:, domains.clock[clock]], low, high, centered=False)
        done.append(clock)
    return point


def _hold(wish: Ints, low: Ints, high: Ints, *, centered: bool) -> Ints:
    """Return points within bounds, at one distance from the wish if any fits all windows, else moved when due."""
    least, most = int((low - wish).max()), int((high - wish).min())
    if least <= most:
        outside = max(least, -most)
        if (centered or outside > most - least) and least > -FINITE // 2 and most < FINITE // 2:
            return np.asarray(wish + least + (most - least) // 2)
        return np.asarray(wish + min(max(0, least), most))
    shift = np.empty(len(wish), np.int64)
    now = 0
    for w, (lowest, highest) in enumerate(zip((low - wish).tolist(), (high - wish).tolist(), strict=True)):
        now = min(max(now, lowest), highest)
        shift[w] = now
    return np.asarray(wish + shift)


def uncertainty(solution: Solution, one: Ints, two: Ints, window: Ints) -> Ints:
    """Return the bound of the error of time differences between two clocks; `INFINITE` where there is none.

    The larger distance from the points to an end of the interval, plus both resolutions; 0 within one clock.
    """
    between = solution.offset_ns[window, one] - solution.offset_ns[window, two]
    near = solution.near_ns[one] - solution.near_ns[two]
    high = solution.closed[window, one, two] + near - between
    low = between - near + solution.closed[window, two, one]
    widest = np.maximum(high, low)
    resolution = solution.problem.domains.resolution_ns
    bound = np.where(widest >= FINITE // 2, INFINITE, widest + resolution[one] + resolution[two])
    return np.where(one == two, 0, bound)

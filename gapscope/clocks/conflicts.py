"""Constraints that contradict each other: which records, why, and what to do without them.

A system of difference constraints has no solution exactly if its graph has a negative cycle. The records on that cycle
are the shortest explanation there is. What follows is decided in this order (algorithms.md 1.5): an assumption that
the recordings refute is dropped; device times that tools interpolated a little wrong get that much more uncertainty; a
record that alone contradicts the others is dropped; clocks that part steadily get a wider bound of their drift; a
clock that jumped is split in time; a few small contradictions are relaxed. What then still contradicts is not aligned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gapscope.clocks.closure import Bools, Ints, negative_cycle
from gapscope.clocks.observations import KINDS
from gapscope.clocks.solve import Attempt, Problem, attempt, claimed, facts_around, rough_offsets
from gapscope.findings import Finding

NOISE_NS = 50_000
"""Device times may be interpolated this far off; the same amount is the most that a single record is relaxed by."""

MOST_DROPPED = 3
"""Records that may be dropped or relaxed, one by one, between the same clocks."""

MOST_STEPS = 5
"""Steps that one clock may have."""

FEWEST_BESIDE_STEP = 4
"""Observations there have to be before a step and after it."""

RATES_PPB = (60_000, 100_000, 200_000)
"""Wider bounds of the drift that are tried: up to what a clock slewed by NTP shows."""

OWN_KINDS = ("launch", "sync", "copy")
"""Kinds of observation that tie a device clock to the host clock of its own file."""

_MOST_ROUNDS = 200


@dataclass(frozen=True)
class Cycle:
    """A contradiction: records and assumptions that cannot all be true.

    Attributes:
        clocks: The clocks it passes, numbers of `gapscope.clocks.domains`.
        rows: Positions of its observations.
        assumptions: Positions of its assumptions.
        by_ns: By how much they contradict each other.
    """

    clocks: frozenset[int]
    rows: tuple[int, ...]
    assumptions: tuple[int, ...]
    by_ns: int


def resolve(problem: Problem) -> tuple[Problem, list[Finding]]:
    """Return a problem without contradictions, and what had to give way."""
    findings: list[Finding] = []
    for _ in range(_MOST_ROUNDS):
        cycle = find_cycle(problem)
        if cycle is None:
            return problem, findings
        problem, finding = _give_way(problem, cycle)
        findings.append(finding)
    raise AssertionError("contradictions do not end")


def find_cycle(problem: Problem) -> Cycle | None:
    """Return the worst contradiction; None if there is none."""
    rough = _without_time(problem)
    if rough.bad.any():
        return _worst(problem, rough)
    return _worst(problem, attempt(problem, rough_offsets(problem), windowed=True))


def _without_time(problem: Problem) -> Attempt:
    """Return bounds that hold at all times; where clocks stepped there are none."""
    if problem.zones:
        problem = problem.without(np.ones(problem.observations.height, np.bool_))
    return attempt(problem, claimed(problem.domains)[0], windowed=False)


def _worst(problem: Problem, tried: Attempt) -> Cycle | None:
    bad = np.flatnonzero(tried.bad)
    if not len(bad):
        return None
    n = problem.domains.n
    worst = bad[tried.closed[bad][:, np.arange(n), np.arange(n)].min(axis=1).argmin()]
    weight = tried.direct.weight[worst]
    edges = negative_cycle(weight)
    records = [int(tried.direct.record[worst, u, v]) for u, v in edges]
    return Cycle(
        frozenset(u for u, _ in edges),
        tuple(r for r in records if r >= 0),
        tuple(-2 - r for r in records if r <= -2),
        -sum(int(weight[u, v]) for u, v in edges),
    )


def _give_way(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding]:
    """Return the problem with one contradiction less."""
    for remedy in (_drop_record, _drop_assumption, _allow_noise, _widen_drift, _split, _relax):
        result = remedy(problem, cycle)
        if result is not None:
            return result
    return _set_apart(problem, cycle)


def feasible(problem: Problem, clocks: frozenset[int]) -> bool:
    """Tell if what is known between some clocks holds together."""
    return violation(problem, clocks) == 0


def violation(problem: Problem, clocks: frozenset[int]) -> int:
    """Return by how much the constraints between some clocks contradict each other, summed over windows."""
    part = problem.between(clocks)
    rough = _without_time(part)
    if rough.bad.any():
        return rough.violation_ns
    return attempt(part, rough_offsets(part), windowed=True).violation_ns


def _drop_record(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Drop the one record that contradicts the others.

    It is told from those that it contradicts: without it they hold together, without one of them they do not. Where
    two records contradict only each other, nobody can tell which is wrong.
    """
    culprits = [row for row in cycle.rows if feasible(problem.without(_instance(problem, row)), cycle.clocks)]
    budget = MOST_DROPPED
    chosen = np.zeros(problem.observations.height, np.bool_)
    if len(culprits) == 1:
        chosen = _instance(problem, culprits[0])
    elif not culprits:
        chosen = _few_instances(problem, cycle, budget)
    if not chosen.any() or not _few(problem, chosen, cycle.clocks):
        return None
    names = problem.observations.filter(pl.Series(chosen)).select("kind", "instance").unique().rows()
    what = "; ".join(f"{kind} {instance}" for kind, instance in names[:MOST_DROPPED])
    finding = Finding(
        "clock_record_dropped",
        "warning",
        f"A record contradicts the others about the clocks and is not used for aligning ({what}). "
        f"{_story(problem, cycle)}",
        "The record is damaged, or it was paired wrongly; its times are suspect everywhere.",
        count=len(names),
    )
    return problem.without(chosen), finding


def _instance(problem: Problem, row: int) -> Bools:
    """Return the observations of the same launch, message or collective."""
    rows = problem.observations
    same = (pl.col("kind") == rows["kind"][row]) & (pl.col("instance") == rows["instance"][row])
    return rows.select(same).to_series().to_numpy()


def _few_instances(problem: Problem, cycle: Cycle, budget: int) -> Bools:
    """Return the observations of up to ``budget`` instances without which the rest holds together; none if none do."""
    dropped = np.zeros(problem.observations.height, np.bool_)
    current: Cycle | None = cycle
    for _ in range(budget):
        if current is None or not current.rows:
            break
        options = [dropped | _instance(problem, row) for row in current.rows]
        left = [violation(problem.without(o), cycle.clocks) for o in options]
        best = int(np.argmin(left))
        if left.count(left[best]) > 1:
            break  # two explain it equally well
        dropped = options[best]
        if left[best] == 0:
            return dropped
        kept = np.flatnonzero(~dropped)
        rest = _cycle_between(problem.without(dropped), cycle.clocks)
        current = None if rest is None else replace(rest, rows=tuple(int(kept[r]) for r in rest.rows))
    return np.zeros(problem.observations.height, np.bool_)


def _cycle_between(problem: Problem, clocks: frozenset[int]) -> Cycle | None:
    inside = pl.col("earlier").is_in(list(clocks)) & pl.col("later").is_in(list(clocks))
    kept = np.flatnonzero(problem.observations.select(inside).to_series().to_numpy())
    cycle = find_cycle(problem.between(clocks))
    return None if cycle is None else replace(cycle, rows=tuple(int(kept[r]) for r in cycle.rows), assumptions=())


def _few(problem: Problem, chosen: Bools, clocks: frozenset[int]) -> bool:
    """Tell if what is to be dropped is little beside what is known between these clocks."""
    inside = pl.col("earlier").is_in(list(clocks)) & pl.col("later").is_in(list(clocks))
    rows = problem.observations.with_columns(chosen=pl.Series(chosen)).filter(inside)
    counts = rows.group_by("kind").agg(
        dropped=pl.col("instance").filter("chosen").n_unique(), all=pl.col("instance").n_unique()
    )
    hit = counts.filter(pl.col("dropped") > 0)
    return bool(hit["dropped"].sum() <= MOST_DROPPED) and bool((hit["dropped"] * 4 <= hit["all"]).all())


def _drop_assumption(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Drop an assumption that the recordings refute."""
    if not cycle.assumptions:
        return None
    refuted = {problem.assumptions[a].kind for a in cycle.assumptions}
    pairs = {frozenset((problem.assumptions[a].upper, problem.assumptions[a].lower)) for a in cycle.assumptions}
    left = tuple(a for a in problem.assumptions if not (a.kind in refuted and frozenset((a.upper, a.lower)) in pairs))
    text = problem.assumptions[cycle.assumptions[0]].text
    finding = Finding(
        "clock_assumption_refuted",
        "warning",
        f"The recordings refute that {text}. {_story(problem, cycle)}",
        "A wrong start time in a file, an unreported shift (--ts-shift), or not the same host or run.",
    )
    return replace(problem, assumptions=left), finding


def _allow_noise(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Loosen what ties a device clock to its own host by the amount of a small contradiction that it is part of."""
    domains = problem.domains
    gpus = [c for c in sorted(cycle.clocks) if not domains.is_host[c]]
    kinds = problem.observations["kind"].gather(list(cycle.rows))
    if not gpus or not kinds.is_in(OWN_KINDS).any():
        return None
    own = pl.col("kind").is_in(OWN_KINDS) & (pl.col("earlier").is_in(gpus) | pl.col("later").is_in(gpus))
    touched = problem.observations.select(own).to_series().to_numpy()
    by_ns = cycle.by_ns
    while by_ns <= NOISE_NS:
        loosened = replace(problem, slack_ns=problem.slack_ns + np.where(touched, by_ns, 0))
        if feasible(loosened, cycle.clocks):
            label = ", ".join(domains.table["label"][c] for c in gpus)
            finding = Finding(
                "device_clock_noise",
                "info",
                f"Device times of {label} contradict host times by up to {by_ns:,} ns; that much was added to their "
                f"uncertainty. {_story(problem, cycle)}",
            )
            return loosened, finding
        by_ns *= 2
    return None


def _widen_drift(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Allow these clocks to part faster."""
    clocks = sorted(cycle.clocks)
    for rate in RATES_PPB:
        rates = problem.rate_ppb.copy()
        rates[clocks] = np.maximum(rates[clocks], rate)
        if (rates == problem.rate_ppb).all():
            continue
        wider = replace(problem, rate_ppb=rates)
        if feasible(wider, cycle.clocks):
            finding = Finding(
                "clock_drift",
                "warning",
                f"The clocks of {_labels(problem, cycle)} part faster than assumed; a rate error of up to "
                f"{rate // 1000} ppm each is allowed for. {_story(problem, cycle)}",
                "A clock that NTP is slewing; PTP or chrony with a settled clock keeps bounds narrow.",
            )
            return wider, finding
    return None


def _split(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Split a clock in time where it jumped: what is before holds together, and what follows too.

    Between the last record that must be before the jump and the first that must be after it, either may be true.
    """
    domains = problem.domains
    hosts = sorted({int(domains.clock[c]) for c in cycle.clocks}, key=lambda c: c == domains.reference)
    if len(hosts) != 2 or len(problem.zones) >= MOST_STEPS * 2:
        return None
    part = problem.between(cycle.clocks)
    near = _near_at_first(part, hosts)
    facts = facts_around(part, near)
    order = np.argsort(facts.first, kind="stable")
    until = _longest(part, near, order)
    if until == len(order):
        return None
    since = until - _longest(part, near, order[: until + 1][::-1]) + 1
    if since < FEWEST_BESIDE_STEP or len(order) - until < FEWEST_BESIDE_STEP:
        return None
    begin = int(facts.last[order[:since]].max())
    end = max(int(facts.first[order[until:]].min()), begin + 1)
    before = violation(problem, cycle.clocks)
    for host in hosts:
        clocks = [int(c) for c in np.flatnonzero(domains.clock == host)]
        zones = tuple((c, begin - int(near[host]), end - int(near[host])) for c in clocks)
        split = replace(problem, zones=(*problem.zones, *zones))
        if violation(split, cycle.clocks) < before:
            finding = Finding(
                "clock_step",
                "warning",
                f"The clock of {domains.table['label'][host]} stepped, some time within {end - begin:,} ns. "
                f"{_story(problem, cycle)}",
                "Time was set during the capture; what lies near the step has a wide uncertainty.",
                path=domains.table["path"][host],
            )
            return split, finding
    return None


def _near_at_first(problem: Problem, hosts: list[int]) -> Ints:
    """Return offsets by the first observations between two files: a jump later on must not confuse them."""
    clock = problem.domains.clock
    rows = problem.observations
    upper, lower = clock[rows["earlier"].to_numpy()], clock[rows["later"].to_numpy()]
    local = np.where(upper == hosts[0], rows["earlier_ns"].to_numpy(), rows["later_ns"].to_numpy())
    crossing = np.flatnonzero(upper != lower)
    first = crossing[np.argsort(local[crossing], kind="stable")[: 2 * FEWEST_BESIDE_STEP]]
    left_out = np.ones(rows.height, np.bool_)
    left_out[first] = False
    return rough_offsets(problem.without(left_out))


def _longest(problem: Problem, near: Ints, order: Ints) -> int:
    """Return how many observations in that order hold together, by bisection: fewer always do if more do."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        chosen = np.ones(problem.observations.height, np.bool_)
        chosen[order[:middle]] = False
        part = problem.without(chosen)
        if attempt(part, near, windowed=True).bad.any():
            high = middle - 1
        else:
            low = middle
    return low


def _relax(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding] | None:
    """Loosen one record by as much as the contradiction, if that is little and seldom.

    Any record of the cycle will do: the sum of what is relaxed is the least possible for this cycle.
    """
    allowed = min(MOST_DROPPED, problem.total // 1000)
    if not cycle.rows or cycle.by_ns > NOISE_NS or problem.relaxed >= allowed:
        return None
    slack = problem.slack_ns.copy()
    slack[cycle.rows[0]] += cycle.by_ns
    finding = Finding(
        "clock_record_relaxed",
        "warning",
        f"Records contradict each other by {cycle.by_ns:,} ns, which was allowed for. {_story(problem, cycle)}",
    )
    return replace(problem, slack_ns=slack, relaxed=problem.relaxed + 1), finding


def _set_apart(problem: Problem, cycle: Cycle) -> tuple[Problem, Finding]:
    """Give up on aligning one file: the one without which most of the rest holds together."""
    domains = problem.domains
    hosts = sorted({int(domains.clock[c]) for c in cycle.clocks})
    options = [h for h in hosts if h != domains.reference] or hosts
    if len(hosts) == 1:  # a device clock that contradicts its own host
        gpu = next(c for c in sorted(cycle.clocks) if not domains.is_host[c])
        apart = _without_clocks(problem, frozenset([gpu]))
        finding = Finding(
            "device_clock_unaligned",
            "warning",
            f"Device times of {domains.table['label'][gpu]} contradict host times of the same file. "
            f"{_story(problem, cycle)}",
            "No time between host and device of that file is given.",
            path=domains.table["path"][gpu],
        )
        return replace(apart, apart=problem.apart | {gpu}), finding
    everything = frozenset(range(domains.n))
    left = [violation(_without_file(problem, host), everything) for host in options]
    host = options[len(left) - 1 - int(np.argmin(left[::-1]))]
    finding = Finding(
        "unaligned_clock",
        "warning",
        f"The clock of {domains.table['label'][host]} cannot be aligned: its records and those of the other files "
        f"contradict each other. {_story(problem, cycle)}",
        "No duration between this file and others is given. Check that all files are of one run.",
        path=domains.table["path"][host],
    )
    return replace(_without_file(problem, host), apart=problem.apart | {host}), finding


def _without_file(problem: Problem, host: int) -> Problem:
    """Return the problem without what connects one file to others."""
    clock = pl.Series(problem.domains.clock)
    rows = problem.observations.select(
        one=pl.col("earlier").replace_strict(pl.int_range(problem.domains.n, eager=True), clock),
        two=pl.col("later").replace_strict(pl.int_range(problem.domains.n, eager=True), clock),
    )
    crossing = ((rows["one"] == host) != (rows["two"] == host)).to_numpy()
    numbers = problem.domains.clock
    kept = tuple(a for a in problem.assumptions if (numbers[a.upper] == host) == (numbers[a.lower] == host))
    return replace(problem.without(crossing), assumptions=kept)


def _without_clocks(problem: Problem, clocks: frozenset[int]) -> Problem:
    touched = problem.observations.select(
        pl.col("earlier").is_in(list(clocks)) | pl.col("later").is_in(list(clocks))
    ).to_series()
    kept = tuple(a for a in problem.assumptions if a.upper not in clocks and a.lower not in clocks)
    return replace(problem.without(touched.to_numpy()), assumptions=kept)


def _labels(problem: Problem, cycle: Cycle) -> str:
    names = [problem.domains.table["label"][c] for c in sorted(cycle.clocks)]
    return " and ".join(names) if len(names) < 3 else ", ".join(names)


def _story(problem: Problem, cycle: Cycle) -> str:
    """Return the contradiction in words: the few records that cannot all be true."""
    domains = problem.domains
    lines = []
    for row in cycle.rows:
        r = problem.observations.row(row, named=True)
        one, two = domains.table["label"][r["earlier"]], domains.table["label"][r["later"]]
        lines.append(
            f"{r['earlier_what']} at {r['earlier_ns']} ({one}) is not after {r['later_what']} at {r['later_ns']} "
            f"({two}): {KINDS[r['kind']]}"
        )
    lines += [problem.assumptions[a].text for a in cycle.assumptions]
    return f"These cannot all be true, by {cycle.by_ns:,} ns: " + "; ".join(lines) + "."

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
from gapscope.clocks.domains import with_step
from gapscope.clocks.observations import KINDS
from gapscope.clocks.soft import SoftOffsets
from gapscope.clocks.solve import Attempt, Problem, Settled, settle
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


def resolve(problem: Problem, targets: SoftOffsets | None = None) -> tuple[Problem, Settled, list[Finding]]:
    """Return a problem without contradictions, its bounds and points, and what had to give way.

    Args:
        problem: The constraints.
        targets: See `gapscope.clocks.solve.settle`.
    """
    findings: list[Finding] = []
    for _ in range(_MOST_ROUNDS):
        settled = settle(problem, targets)
        cycle = _worst(problem, settled.tried)
        if cycle is None:
            return problem, settled, findings
        problem, finding = _give_way(problem, cycle)
        findings.append(finding)
    raise AssertionError("contradictions do not end")


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
    return settle(problem.between(clocks)).tried.violation_ns


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
    names = problem.observations.filter(pl.Series(chosen)).unique("instance", keep="first", maintain_order=True)
    what = "; ".join(f"{kind} {name}" for kind, name in names.select("kind", "instance").head(MOST_DROPPED).iter_rows())
    finding = Finding(
        "clock_record_dropped",
        "warning",
        f"A record contradicts the others about the clocks and is not used for aligning ({what}). "
        f"{_story(problem, cycle)}",
        "The record is damaged, or it was paired wrongly; its times are suspect everywhere.",
        count=names.height,
    )
    return problem.without(chosen), finding


def _instance(problem: Problem, row: int) -> Bools:
    """Return the observations of the same launch, message or collective, of whatever kind."""
    rows = problem.observations
    return rows.select(pl.col("instance") == rows["instance"][row]).to_series().to_numpy()


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
    part = problem.between(clocks)
    cycle = _worst(part, settle(part).tried)
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
    hosts = {int(problem.domains.clock[c]) for c in cycle.clocks}
    about = {problem.assumptions[a].kind for a in cycle.assumptions}
    if about == {"gpu_mapping"} and len(hosts) > 1:
        return None  # records of two files contradict each other; how a tool maps device times is not to blame
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

    The other file's clock tells what came first. Between the last record that must be before the jump and the first
    that must be after it, either may be true.
    """
    domains = problem.domains
    hosts = sorted({int(domains.clock[c]) for c in cycle.clocks}, key=lambda c: c == domains.reference)
    if len(hosts) != 2 or len(domains.steps) >= MOST_STEPS * 2:
        return None
    part = problem.between(cycle.clocks)
    found: tuple[Problem, Finding] | None = None
    for host, other in (hosts, hosts[::-1]):
        rows = part.observations
        one, two = domains.clock[rows["earlier"].to_numpy()], domains.clock[rows["later"].to_numpy()]
        crossing = np.flatnonzero(one != two)
        early, late = rows["earlier_ns"].to_numpy(), rows["later_ns"].to_numpy()
        on_other, on_host = np.where(one == other, early, late), np.where(one == host, early, late)
        order = crossing[np.argsort(on_other[crossing], kind="stable")]
        until = _longest(part, order)
        if until == len(order):
            return None
        since = until - _longest(part, order[: until + 1][::-1]) + 1
        if since < FEWEST_BESIDE_STEP or len(order) - until < FEWEST_BESIDE_STEP:
            continue
        before, after = int(on_host[order[:since]].max()), int(on_host[order[until:]].min())
        # A clock set back shows some times twice: count what it may have shown before, at the latest, and after, at the
        # earliest.
        open_ns = int(on_other[order[until]] - on_other[order[since - 1]]) + 1
        begin, end = min(before, after - open_ns), max(after, before + open_ns)
        split = _cut(problem, host, begin, end)
        label = domains.table["label"][host]
        finding = Finding(
            "clock_step",
            "warning",
            f"The clock of {label} stepped, between {begin} and {end} of its own times. {_story(problem, cycle)}",
            "Time was set during the capture; what lies near the step has no time on the common timebase.",
            path=domains.table["path"][host],
        )
        # Where the other clock is the one that jumped back, its times do not tell what came first, and this shows.
        later = {s.after for s in split.domains.steps if s.before in cycle.clocks}
        if feasible(split, cycle.clocks | later):
            return split, finding
        found = found or (split, finding)
    return found


def _cut(problem: Problem, host: int, begin_ns: int, end_ns: int) -> Problem:
    """Return the problem with one host clock, and the device clocks of its file, cut in two."""
    domains, after = with_step(problem.domains, host, begin_ns, end_ns)
    rows = problem.observations
    kept = np.ones(rows.height, np.bool_)
    columns = {}
    for clock_column, time_column in (("earlier", "earlier_ns"), ("later", "later_ns")):
        clock, local = rows[clock_column].to_numpy().astype(np.int64), rows[time_column].to_numpy()
        moved = domains.at(clock, local)
        kept &= moved >= 0
        columns[clock_column] = pl.Series(clock_column, np.maximum(moved, 0), dtype=pl.Int32)
    cut = replace(problem, domains=domains, observations=rows.with_columns(**columns)).without(~kept)
    again = tuple(
        replace(a, upper=after[a.upper], lower=after[a.lower])
        for a in problem.assumptions
        if a.upper in after and a.lower in after
    )
    rates = np.concatenate([problem.rate_ppb, problem.rate_ppb[list(after)]])
    return replace(cut, assumptions=(*problem.assumptions, *again), rate_ppb=rates)


def _longest(problem: Problem, order: Ints) -> int:
    """Return how many of some observations hold together with all others of their files, by bisection.

    Fewer always do if more do.
    """
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        left_out = np.zeros(problem.observations.height, np.bool_)
        left_out[order[middle:]] = True
        if settle(problem.without(left_out | _not_in(order, problem))).is_feasible:
            low = middle
        else:
            high = middle - 1
    return low


def _not_in(order: Ints, problem: Problem) -> Bools:
    """Return the observations between both files that are not among some."""
    clock, rows = problem.domains.clock, problem.observations
    crossing = clock[rows["earlier"].to_numpy()] != clock[rows["later"].to_numpy()]
    crossing[order] = False
    return np.asarray(crossing)


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
        "Check the anchors that were stated."
        if _by_anchors(problem, cycle)
        else "No duration between this file and others is given. Check that all files are of one run.",
        path=domains.table["path"][host],
    )
    return replace(_without_file(problem, host), apart=problem.apart | {host}), finding


def _by_anchors(problem: Problem, cycle: Cycle) -> bool:
    """Tell if something that the user stated is part of a contradiction."""
    return any(problem.observations["kind"][row] == "anchor" for row in cycle.rows)


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

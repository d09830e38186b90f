"""What weakens a comparison: told beside its numbers, or refused where it would make them wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapscope.compare.runs import Arm, Run
from gapscope.compare.series import Series
from gapscope.errors import UsageError
from gapscope.findings import Finding, plural

_ABSOLUTE_NS = 946_684_800_000_000_000
"""Times from the year 2000 on are Unix times; earlier ones come from a clock that does not know the date."""


def refuse_repeated(arm: Arm) -> None:
    """Check that every run of an arm is a start of its own.

    Raises:
        UsageError: One recording was given twice: it would count as two restarts that agree.
    """
    seen: dict[object, str] = {}
    for run in arm.runs:
        for mark in (run.name, _mark(run)):
            if mark is not None and mark in seen:
                both = f"{seen[mark]} and {run.name}" if seen[mark] != run.name else run.name
                raise UsageError(
                    f"Arm {arm.name} has one recording twice ({both}). Each run has to be a start of the job of its "
                    "own: name each once."
                )
            seen[mark] = run.name


def refuse_own_pair(noise: Sequence[tuple[Run, Run]]) -> None:
    """Check that pairs of runs for the noise floor are of two runs each.

    Raises:
        UsageError: A recording is paired with itself: the floor would be zero.
    """
    for one, two in noise:
        mark = _mark(one)
        if mark is not None and mark == _mark(two):
            both = f"{one.name} and {two.name}" if one.name != two.name else one.name
            raise UsageError(f"A pair for the noise floor is one recording twice ({both}). Name two runs of arm A.")


def in_both_arms(a: Arm, b: Arm) -> list[str]:
    """Return the names, in arm B, of recordings that are in arm A as well: they agree with themselves."""
    marks = {_mark(run) for run in a.runs} - {None}
    return [run.name for run in b.runs if _mark(run) in marks]


def _mark(run: Run) -> tuple[object, ...] | None:
    """Return what two starts of a job do not share: when things were, to the nanosecond; None: nothing was."""
    first = run.handoffs["consumer_start_ns"].min()
    if first is not None:
        return "handoffs", first, run.handoffs["gap_ns"].sum()
    first = run.units["start_ns"].min()
    return None if first is None else ("units", first, run.units["end_ns"].sum())


def began_ns(run: Run) -> int | None:
    """Return when the first consumer of a run started (Unix ns); None: no clock of it knows the date."""
    first = run.handoffs["consumer_start_ns"].min()
    return int(first) if isinstance(first, int) and first > _ABSOLUTE_NS else None


def notes_on(
    a: Arm, b: Arm, series_a: Sequence[Series], series_b: Sequence[Series], pairs: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """Return what weakens a comparison.

    Args:
        a: Arm A.
        b: Arm B.
        series_a: The series of its runs.
        series_b: The series of the runs of B.
        pairs: Rows of `gapscope.compare.measured.PAIR`.
    """
    notes = [*_both(a, b), *_tools(a, b), *_restarts(a, b), *_in_turn(a, b)]
    unpaired = {str(row["metric"]): str(row["note"]) for row in pairs if not row["paired"]}
    if unpaired:
        why = next(iter(unpaired.values())) or "no key is in both"
        message = f"Compared without pairs: {_some(list(unpaired), 3)}."
        notes.append(Finding("unpaired", "info", message, f"{why[:1].upper()}{why[1:]}."))
    runs = (*series_a, *series_b)
    shared = set(runs[0]).intersection(*runs[1:])
    lost = sorted({m.words() for run in runs for m in run if m.family != "cause" and m not in shared})
    if lost:
        notes.append(Finding("not_in_all_runs", "warning", f"Not in all runs, and not compared: {_some(lost, 4)}.",
                             "Mark and record the same edges and steps in all runs."))  # fmt: skip
    return [*notes, *(note for arm in (a, b) for run in arm.runs for note in run.notes)]


def _both(a: Arm, b: Arm) -> list[Finding]:
    names = in_both_arms(a, b)
    if not names:
        return []
    message = f"{plural(len(names), 'recording')} of {b.name} are in {a.name} as well: {_some(names, 3)}."
    if len(names) == 1:
        message = f"One recording of {b.name} is in {a.name} as well: {names[0]}."
    return [Finding("in_both_arms", "warning", f"{message} Nothing is claimed.",
                    "Each run has to be a start of the job of its own, in one arm.")]  # fmt: skip


def _tools(a: Arm, b: Arm) -> list[Finding]:
    tools = {run.tools for run in (*a.runs, *b.runs) if run.tools}
    if len(tools) < 2:
        return []
    said = "; ".join(" and ".join(t) for t in sorted(tools))
    hint = "Compare runs of one tool with the same options: profilers slow calls down differently."
    return [Finding("unlike_tools", "warning", f"The runs were recorded by different tools: {said}.", hint)]


def _restarts(a: Arm, b: Arm) -> list[Finding]:
    if len(a.runs) == len(b.runs):
        return []
    message = f"{a.name} has {plural(len(a.runs), 'run')}, {b.name} {len(b.runs)}: restarts are not paired."
    return [
        Finding(
            "unequal_arms", "info", message, "With as many runs per arm, taken in turn, what drifts in time cancels."
        )
    ]


def _in_turn(a: Arm, b: Arm) -> list[Finding]:
    """Tell whether all runs of one arm came before all of the other, so that what drifts looks like a difference."""
    declared = all(run.place is not None for run in (*a.runs, *b.runs))
    times_a, times_b = ([run.place if declared else began_ns(run) for run in arm.runs] for arm in (a, b))
    known_a, known_b = ([t for t in times if t is not None] for times in (times_a, times_b))
    if min(len(a.runs), len(b.runs)) < 2 or len(known_a) < len(a.runs) or len(known_b) < len(b.runs):
        return []
    if max(known_a) >= min(known_b) and max(known_b) >= min(known_a):
        return []
    first, second = (a, b) if max(known_a) < min(known_b) else (b, a)
    return [Finding(
        "not_in_turn", "warning", f"All runs of {first.name} came before all of {second.name}.",
        "What drifts in time (heat, clocks, neighbors) looks like a difference then: run the arms in turn, as in ABBA.",
    )]  # fmt: skip


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

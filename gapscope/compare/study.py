"""A study carried out: each arm against the base, or over a parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gapscope.compare.comparing import Comparison, compare
from gapscope.compare.plan import ArmPlan, RunPlan, StudyPlan
from gapscope.compare.runs import Arm, Run, readable
from gapscope.compare.sweeping import Sweep, sweep

ReadRun = Callable[[RunPlan], Run]


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        plan: What its file says.
        comparisons: Each arm against the base; empty for a sweep, which has no one answer for all values.
        sweep: One metric over a parameter; None: the study goes over none.
    """

    plan: StudyPlan
    comparisons: tuple[Comparison, ...]
    sweep: Sweep | None

    @property
    def confidence(self) -> float:
        """Of each interval and verdict, so that all arms together have that of the plan."""
        return shared_confidence(self.plan)


def run_study(plan: StudyPlan, read: ReadRun) -> Study:
    """Return what a study finds.

    Args:
        plan: What its file says.
        read: Reads one run, for example by `gapscope.compare.read_run`.

    Raises:
        UsageError: Something of it cannot be compared.
    """
    arms = [_read(arm, read) for arm in plan.arms]
    settings = replace(plan.settings, confidence=shared_confidence(plan))
    if plan.sweep is not None:
        name = plan.sweep.parameter
        values = {arm.name: [run.parameters.get(name) for run in arm.runs] for arm in plan.arms}
        return Study(plan, (), sweep(arms, name, values, plan.sweep.metric, settings))
    noise = [(read(one), read(two)) for one, two in plan.noise]
    base, *others = arms
    return Study(plan, tuple(compare(base, arm, settings, noise) for arm in others), None)


def shared_confidence(plan: StudyPlan) -> float:
    """Return the confidence of each of several arms, so that all together have that of the plan (Bonferroni)."""
    return 1 - (1 - plan.settings.confidence) / (len(plan.arms) - 1)


def _read(arm: ArmPlan, read: ReadRun) -> Arm:
    runs = [replace(read(run), name=readable(run.name), place=run.place) for run in arm.runs]
    return Arm(arm.name, runs)

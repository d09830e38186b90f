"""Did a change bring what it should? Two arms of runs compared, with claims only where restarts support them.

`runs` reads what is compared, `series` makes metrics of it, `measured` compares one pair of restarts, `comparing` puts
the pairs together and draws verdicts, `closing` says what a change of gaps is made of, `noting` what weakens it.
`plan` reads a study from a file and `study` carries it out; `sweeping` goes over a parameter and `crossing` finds where
arms change places. `telling` makes plain data of it all.
"""

from gapscope.compare.comparing import Comparison, Settings, compare
from gapscope.compare.plan import RunPlan, StudyPlan, read_plan
from gapscope.compare.runs import Arm, Run, read_run, run_of
from gapscope.compare.study import Study, run_study
from gapscope.compare.sweeping import Sweep, sweep
from gapscope.compare.telling import comparison_told, study_told, sweep_told

__all__ = [
    "Arm",
    "Comparison",
    "Run",
    "RunPlan",
    "Settings",
    "Study",
    "StudyPlan",
    "Sweep",
    "compare",
    "comparison_told",
    "read_plan",
    "read_run",
    "run_of",
    "run_study",
    "study_told",
    "sweep",
    "sweep_told",
]

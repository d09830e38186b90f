"""Did a change bring what it should? Two arms of runs compared, with claims only where restarts support them.

`runs` reads what is compared, `series` makes metrics of it, `measured` compares one pair of restarts, `comparing` puts
the pairs together and draws verdicts, `closing` says what a change of gaps is made of.
"""

from gapscope.compare.comparing import Comparison, Settings, compare
from gapscope.compare.runs import Arm, Run, read_run, run_of

__all__ = ["Arm", "Comparison", "Run", "Settings", "compare", "read_run", "run_of"]

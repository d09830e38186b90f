"""What a fix would bring: the whole graph replayed with some of its time gone, up to the end of steps and requests.

`model` ties tiles to the nodes of the graph, `classes` tells which are of one cause and rank, `scenario` what is gone.
`effects` replays it, `ranking` compares the causes one at a time, `slack` says how much later each handoff could have
come and what would take its place.
"""

from gapscope.whatif.effects import Effects, effects
from gapscope.whatif.model import Model
from gapscope.whatif.ranking import ranked
from gapscope.whatif.scenario import Scenario
from gapscope.whatif.slack import unit_slack

__all__ = ["Effects", "Model", "Scenario", "effects", "ranked", "unit_slack"]

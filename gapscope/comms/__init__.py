"""What belongs together across ranks and lanes: collectives, sends and receives, host messages, synchronizing calls.

Found once here, for two uses: `gapscope.clocks` learns from it how clocks stand, `gapscope.graph` what waited for what.
Only what recorded ids or a documented order pair without a guess is paired.
"""

from gapscope.comms.collectives import collective_members
from gapscope.comms.event_waits import event_waits
from gapscope.comms.host import host_messages
from gapscope.comms.p2p import sends_and_receives
from gapscope.comms.waits import blocking_copies, host_waits

__all__ = [
    "blocking_copies",
    "collective_members",
    "event_waits",
    "host_messages",
    "host_waits",
    "sends_and_receives",
]

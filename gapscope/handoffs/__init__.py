"""Handoffs: the events of both ends on one timebase, one row per handoff.

`collectives` makes rows of a group, `transport`, `status` and `steady` say what kind of handoff it is, `notes` what is
missing or odd, `build` ties it up. The events come from `gapscope.events`, the timebase from `gapscope.clocks`.
"""

from gapscope.handoffs.build import Handoffs, build_handoffs

__all__ = ["Handoffs", "build_handoffs"]

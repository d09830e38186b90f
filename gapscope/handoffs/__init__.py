"""Handoffs: the events of both ends of each handoff, from marks and the operations launched inside them.

The files, in the order in which the data flows: `nesting` takes nested ranges apart, `launched` finds the operations of
each mark, `losses` what a damaged file may have lost of them, `times` and `points` the times that a mark gives,
`pairing` puts both ends together, `collectives` those of a group, `transport`, `status` and `steady` say what kind of
handoff it is, `build` ties it up.
"""

from gapscope.handoffs.build import Handoffs, build_handoffs

__all__ = ["Handoffs", "build_handoffs"]

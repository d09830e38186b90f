"""How causes and recorded things look, wherever they are drawn.

Causes have the eight colors of Okabe and Ito (Color Universal Design, 2008) by where they lie, and within one color a
pattern each. No cause is told by color alone: bars carry its name, terminals a letter, and legends the pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """How bars of one kind look: color, and the shape of the pattern over it (none: ``""``)."""

    color: str
    pattern: str = ""


_SOURCE_HOST, _SOURCE_CALL, _QUEUE = "#D55E00", "#E69F00", "#F0E442"
_MOVING, _TARGET_HOST, _TARGET_LAUNCH, _TARGET = "#009E73", "#0072B2", "#56B4E9", "#CC79A7"
_PRICE, _UNKNOWN = "#9A9A9A", "#C8C8C8"

CAUSE_LOOKS: Mapping[str, Look] = {
    "late_submission": Look(_SOURCE_HOST),
    "submit_call": Look(_SOURCE_CALL),
    "metadata_wait": Look(_SOURCE_CALL, "/"),
    "stream_queueing": Look(_QUEUE),
    "head_of_line": Look(_QUEUE, "/"),
    "slot_wait": Look(_QUEUE, "x"),
    "late_receive": Look(_TARGET_HOST),
    "peer_wait": Look(_SOURCE_HOST, "/"),
    "movement": Look(_MOVING),
    "late_launch": Look(_TARGET_LAUNCH),
    "consumer_busy": Look(_TARGET),
    "launch_latency": Look(_PRICE),
    "event_release": Look(_PRICE, "/"),
    "stream_turnaround": Look(_PRICE, "\\"),
    "flag_wait": Look(_PRICE, "."),
    "device_sharing": Look(_TARGET, "x"),
    "schedule": Look(_TARGET_HOST, "/"),
    "upstream_compute": Look(_SOURCE_HOST, "x"),
    "profiler_overhead": Look(_PRICE, "+"),
    "unexplained": Look(_UNKNOWN, "x"),
    "unaligned": Look(_UNKNOWN, "+"),
}

OUTSIDE_LOOKS: Mapping[str, Look] = {
    "compute": Look("#5C6F8A"),
    "transfer": Look("#5C8A7E"),
    "host": Look("#8A7A5C"),
    "latency": Look("#8A8A8A", "/"),
    "unknown": Look(_UNKNOWN, "-"),
}
"""What steps and requests pass outside all gaps: muted, for it is no gap."""

KIND_LOOKS: Mapping[str, Look] = {
    "kernel": Look("#5C6F8A"),
    "memcpy": Look("#5C8A7E"),
    "memset": Look("#5C8A7E", "/"),
    "graph": Look("#5C6F8A", "x"),
    "call": Look("#8A7A5C"),
    "mark": Look("rgba(128,128,128,0.16)"),
    "range": Look("rgba(128,128,128,0.08)"),
    "overhead": Look(_PRICE, "+"),
}
"""What was recorded around a gap: muted, so that the tiles stand out."""

_NO_LOOK = Look(_UNKNOWN, "|")


def ink(look: Look) -> str:
    """Return the color of text on bars of one look."""
    return "#FFFFFF" if look.color in {_TARGET_HOST, "#5C6F8A"} else "#101010"


def cause_look(cause: str) -> Look:
    """Return how a cause looks; one that a later version may know looks like none."""
    return CAUSE_LOOKS.get(cause, _NO_LOOK)

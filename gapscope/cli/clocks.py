"""Options about the clocks, as `gapscope analyze` and `gapscope align` take them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.errors import UsageError

if TYPE_CHECKING:
    from gapscope.clocks import AlignOptions

_UNITS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

Offset = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        metavar="RANK=TIME",
        help="Add this to the times of a rank, such as 1=-37ms; what the recordings prove has the last word.",
        show_default=False,
    ),
]
SameHost = Annotated[bool, typer.Option("--same-host", help="All recordings are of one host, so of one clock.")]
ClockBound = Annotated[
    str | None,
    typer.Option(
        "--clock-bound", metavar="TIME", help="The clocks of any two recordings agree to that, such as 10us for PTP."
    ),
]
Anchors = Annotated[
    Path | None,
    typer.Option(
        "--anchors", metavar="FILE", help="CSV of known moments: rank,file_ns,reference_ns,error_ns, one a line."
    ),
]


def align_options(
    offset: list[str] | None, same_host: bool, clock_bound: str | None, anchors: Path | None
) -> AlignOptions | None:
    """Return what the options state; None: nothing.

    Raises:
        UsageError: One of them cannot be understood; the message says which.
    """
    if not offset and not same_host and clock_bound is None and anchors is None:
        return None
    from gapscope.clocks import AlignOptions, read_anchors  # noqa: PLC0415 - results computed before need no clocks

    return AlignOptions(
        offsets=_offsets(offset or []),
        same_host=same_host,
        clock_bound_ns=None if clock_bound is None else _bound(clock_bound),
        anchors=() if anchors is None else read_anchors(anchors),
    )


def nanoseconds(text: str) -> int | None:
    """Return a duration as whole nanoseconds; None if it is none.

    >>> [nanoseconds(t) for t in ("12", "-37ms", "1.5us", "+2s", "3 days", "0.5")]
    [12, -37000000, 1500, 2000000000, None, None]
    """
    found = re.fullmatch(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?(ns|us|µs|ms|s|)", text.strip())
    if not found:
        return None
    sign, whole, fraction, unit = found.groups()
    scale = _UNITS[unit]
    part, rest = divmod(int((fraction or "0").ljust(9, "0")) * scale, 10**9)
    value = int(whole) * scale + part
    if rest or value >= 2**62:
        return None
    return -value if sign == "-" else value


def _offsets(pairs: list[str]) -> dict[int, int]:
    out = {}
    for pair in pairs:
        rank, equals, text = pair.partition("=")
        value = nanoseconds(text)
        if not (equals and re.fullmatch("[0-9]{1,9}", rank)) or value is None:
            raise UsageError(f"--offset {pair}: give RANK=TIME, such as 1=-37ms or 1=-37000000 (nanoseconds).")
        out[int(rank)] = value
    return out


def _bound(text: str) -> int:
    value = nanoseconds(text)
    if value is None or value < 0:
        raise UsageError(f"--clock-bound {text}: give a time such as 10us or 10ms.")
    return value

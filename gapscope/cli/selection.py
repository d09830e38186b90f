"""Options about what part of a run is wanted, as several commands take them."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from gapscope.cli.clocks import nanoseconds
from gapscope.errors import UsageError

_NO_STEP = 2**63  # numbers of steps have 64 bits

Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="A:B", help="Only handoffs of steps A to B, both included; A: and :B are open."),
]
Last = Annotated[
    int | None,
    typer.Option("--last", metavar="N", min=1, help="Only handoffs of the last N steps (of --steps, if given)."),
]


def steps_of(text: str | None) -> tuple[int | None, int | None] | None:
    """Return the first and the last step that ``--steps`` states; None at an end that is open.

    Raises:
        UsageError: It cannot be understood.
    """
    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        first = int(low) if low else None
        last = (int(high) if high else None) if colon else first
    except ValueError:
        raise UsageError(f"--steps {text}: give a step or a range such as 10:20.") from None
    if (first is None and last is None) or any(abs(n or 0) >= _NO_STEP for n in (first, last)):
        raise UsageError(f"--steps {text}: give a step or a range such as 10:20.")
    return first, last


def ranks_of(text: str | None) -> list[int] | None:
    """Return the ranks that ``--ranks`` states.

    Raises:
        UsageError: It cannot be understood.
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--ranks {text}: give rank numbers such as 0,1.") from None


def window_of(text: str | None) -> tuple[int | None, int | None]:
    """Return begin and end, in ns from the first record, that ``--window`` states; None at an end that is open.

    A number needs its unit, but 0 and the first of two of one unit.

    Raises:
        UsageError: It cannot be understood.

    >>> window_of("1.5s:1.6s"), window_of("10:25ms"), window_of("2s:")
    ((1500000000, 1600000000), (10000000, 25000000), (2000000000, None))
    """
    if text is None:
        return None, None
    low, colon, high = (part.strip() for part in text.partition(":"))
    unit = re.search(r"[a-zµ]+$", high)
    if unit and re.fullmatch(r"[0-9.]+", low):
        low += unit[0]
    times = [None if not part else nanoseconds(part) if re.search(r"[a-zµ]$|^0$", part) else -1 for part in (low, high)]
    known = [t for t in times if t is not None]
    misread = [part for part, t in zip((low, high), times, strict=True) if part and (t is None or t < 0)]
    if not colon or not known or misread or (len(known) == 2 and known[0] >= known[1]):
        raise UsageError(f"--window {text}: give two times from the first record on, such as 1.5s:1.6s or 20ms:80ms.")
    return times[0], times[1]

"""Margins in words: differences up to there do not matter."""

from __future__ import annotations

from gapscope.errors import UsageError

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_MOST_NS = 3_600_000_000_000
"""No gap, step or request of a recording is an hour long: a larger margin calls everything equivalent."""


def parse_margin(text: str) -> tuple[float | None, float | None]:
    """Return a margin in nanoseconds, or as a share of arm A's own value; the other is None.

    Args:
        text: ``2%``, ``50us``, ``1ms``.

    Raises:
        UsageError: It is neither, or so large that every difference lies within: above 100 %, or above an hour.

    >>> parse_margin("2%"), parse_margin("50us")
    ((None, 0.02), (50000.0, None))
    """
    number = text.rstrip("%nuµms ")
    unit = text[len(number) :].strip()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (unit != "%" and unit not in _UNITS_NS):
        raise UsageError(f"{text}: give a share or a time such as 2%, 50us or 1ms.")
    if unit == "%" and value > 100:
        raise UsageError(f"{text}: a margin above 100 % calls every difference equivalent. Give less, such as 2%.")
    if unit != "%" and value * _UNITS_NS[unit] > _MOST_NS:
        raise UsageError(f"{text}: a margin above an hour calls every difference equivalent. Give less, such as 50us.")
    return (None, value / 100) if unit == "%" else (value * _UNITS_NS[unit], None)

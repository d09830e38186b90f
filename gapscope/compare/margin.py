"""Margins in words: differences up to there do not matter."""

from __future__ import annotations

from gapscope.errors import UsageError

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def parse_margin(text: str) -> tuple[float | None, float | None]:
    """Return a margin in nanoseconds, or as a share of arm A's own value; the other is None.

    Args:
        text: ``2%``, ``50us``, ``1ms``.

    Raises:
        UsageError: It is neither.

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
    return (None, value / 100) if unit == "%" else (value * _UNITS_NS[unit], None)

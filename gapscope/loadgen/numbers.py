"""Numbers of JSON as the text has them: seconds become integer nanoseconds without passing through a float."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation, localcontext

_LATEST_S = 4 * 10**9
"""Beyond it (the year 2096 in Unix time) a number is no time in seconds."""

_CONTEXT = Context(prec=60, Emin=-9999, Emax=9999, rounding=ROUND_HALF_EVEN)


class DecimalText(str):
    """A number with a point or exponent, as the file writes it."""

    __slots__ = ()


def nanoseconds(value: object) -> int | None:
    """Return a time or duration in seconds as nanoseconds, rounded half to even below one; None if it is none.

    >>> nanoseconds(DecimalText("1201387.0415926535")), nanoseconds(DecimalText("9.5e-07")), nanoseconds(2)
    (1201387041592654, 950, 2000000000)
    >>> nanoseconds(DecimalText("NaN")), nanoseconds("0.5"), nanoseconds(True), nanoseconds(-1)
    (None, None, None, None)
    """
    number = _decimal(value)
    if number is None or not 0 <= number <= _LATEST_S:
        return None
    return int(number.scaleb(9, _CONTEXT).to_integral_value(ROUND_HALF_EVEN, _CONTEXT))


def seconds_text(ns: int) -> str:
    """Return nanoseconds as decimal seconds, exactly: the inverse of `nanoseconds`.

    >>> seconds_text(1_201_387_041_592_654)
    '1201387.041592654'
    """
    return f"{ns // 10**9}.{ns % 10**9:09d}"


def total_nanoseconds(values: object) -> int | None:
    """Return the sum of a list of durations in seconds, rounded once; None if one of them is no duration.

    >>> total_nanoseconds([DecimalText("0.0000000004")] * 5), total_nanoseconds([]), total_nanoseconds([None])
    (2, 0, None)
    """
    if not isinstance(values, list) or not set(map(type, values)) <= {DecimalText, int}:
        return None
    with localcontext(_CONTEXT):
        try:
            numbers = list(map(Decimal, values))
            total = sum(numbers, Decimal(0))
            if not total.is_finite() or min(numbers, default=total) < 0 or max(numbers, default=total) > _LATEST_S:
                return None
        except (InvalidOperation, ValueError):
            return None
        return int(total.scaleb(9).to_integral_value())


def whole(value: object) -> int | None:
    """Return a number of things; None if it is none.

    >>> whole(7), whole(True), whole(-1), whole(DecimalText("7.5")), whole(10**30)
    (7, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 2**63 else None


def rate(value: object) -> float | None:
    """Return a rate per second; infinity is one. None if it is none.

    The tools write infinity as the text ``inf`` (vLLM) or as ``Infinity``, which is no JSON (SGLang).

    >>> rate("inf"), rate(DecimalText("Infinity")), rate(DecimalText("7.5")), rate(4), rate("trace"), rate(0)
    (inf, inf, 7.5, 4.0, None, None)
    """
    if value == "inf":
        return math.inf
    if isinstance(value, DecimalText) or (isinstance(value, int) and not isinstance(value, bool)):
        number = float(Decimal(value))
        return number if number > 0 else None
    return None


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, DecimalText)):
        return None
    try:
        number = Decimal(value)
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() else None

"""Two groups of durations side by side: their spread, whether one has two humps, and by how much they are apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

FEWEST = 10
"""No verdict with fewer durations than this in either group."""

LEAST_SIDE = 0.2
"""A hump holds at least this share of a group."""

LEAST_GAP = 0.1
"""The gap between two humps is at least this share of the value below it,"""

GAP_TO_SPREAD = 3.0
"""and at least this many times the wider hump's interquartile range. Of samples with one hump (normal, lognormal,
uniform, exponential) 2 to 6 % of ten values then seem to have two, at most 2 % of fifteen, next to none of thirty."""

LEAST_EFFECT = 0.05
"""A shift smaller than this share of the lonely median is no difference: kernels vary that much with their place."""

_Z = 1.96
_MOST = 400


def spread(values: Ints) -> dict[str, Any]:
    """Return ``n, p10_ns, p50_ns, p90_ns`` (null: none), and ``humps``: ``n`` and ``p50_ns`` of each if there are two.

    >>> spread(np.array([], np.int64))
    {'n': 0, 'p10_ns': None, 'p50_ns': None, 'p90_ns': None, 'humps': []}
    """
    values = np.sort(values)
    quantiles = np.rint(np.quantile(values, (0.1, 0.5, 0.9))).astype(int).tolist() if len(values) else [None] * 3
    at = second_hump(values)
    parts = [] if at is None else [values[:at], values[at:]]
    humps = [{"n": len(part), "p50_ns": round(float(np.median(part)))} for part in parts]
    return {"n": len(values), **dict(zip(("p10_ns", "p50_ns", "p90_ns"), quantiles, strict=True)), "humps": humps}


def second_hump(values: Ints) -> int | None:
    """Return where the second hump of sorted values begins; None: there are no two, or too few values to tell.

    The widest gap between neighbors with at least a fifth of the values on either side is taken for the valley. It has
    to be wide: a tenth of the value below it, and three times the interquartile range of the wider
    side. A valley that is not empty is not found.

    >>> second_hump(np.array([10] * 6 + [11] * 6 + [30] * 6))
    12
    >>> second_hump(np.arange(100, 130)) is None
    True
    """
    n = len(values)
    if n < FEWEST:
        return None
    least = int(np.ceil(LEAST_SIDE * n))
    gaps = np.diff(values)[least - 1 : n - least]
    at = least + int(np.argmax(gaps))
    low, high = values[:at], values[at:]
    gap = int(values[at] - values[at - 1])
    within = max(float(np.subtract(*np.quantile(part, (0.75, 0.25)))) for part in (low, high))
    return at if gap > 0 and gap >= LEAST_GAP * values[at - 1] and gap >= GAP_TO_SPREAD * within else None


def shift(alone: Ints, other: Ints) -> tuple[int, int, int]:
    """Return by how much the second group lies above the first, and an interval of 95 %.

    The Hodges-Lehmann shift, the median of all differences between the groups, with the interval that belongs to the
    Mann-Whitney test (normal approximation). Of large groups evenly spaced order statistics stand for all. Durations
    that follow each other are not independent: the interval is at least this wide.

    >>> shift(np.array([10, 20, 30]), np.array([110, 120, 130]))
    (100, 80, 120)
    """
    n, m = len(alone), len(other)
    one, two = (np.sort(v)[np.linspace(0, len(v) - 1, min(len(v), _MOST)).round().astype(int)] for v in (alone, other))
    differences = np.sort((two[:, None] - one[None, :]).ravel())
    beside = _Z * np.sqrt((n + m + 1) / (12 * n * m))
    low, high = np.quantile(differences, (max(0.5 - beside, 0), min(0.5 + beside, 1)), method="nearest")
    return round(float(np.median(differences))), int(low), int(high)


def compared(alone: Ints, other: Ints) -> dict[str, Any]:
    """Return both groups side by side, the shift between them and a verdict.

    Returns:
        ``alone``, ``overlapped`` (see `spread`), ``shift_ns, shift_lo_ns, shift_hi_ns`` (null: too few), ``verdict``:
        ``too few``, ``slower``, ``faster`` or ``no difference`` of the overlapped against the lonely.
    """
    found = {"alone": spread(alone), "overlapped": spread(other)}
    if min(len(alone), len(other)) < FEWEST:
        nothing = dict.fromkeys(("shift_ns", "shift_lo_ns", "shift_hi_ns"))
        return {**found, **nothing, "verdict": "too few"}
    middle, low, high = shift(alone, other)
    verdict = "no difference"
    if abs(middle) >= LEAST_EFFECT * found["alone"]["p50_ns"] and (low > 0 or high < 0):
        verdict = "slower" if low > 0 else "faster"
    return {**found, "shift_ns": middle, "shift_lo_ns": low, "shift_hi_ns": high, "verdict": verdict}

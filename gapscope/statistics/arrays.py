"""What a series may hold: whole numbers of nanoseconds (or logarithms of ratios), none of them missing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.errors import UsageError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EXACT = 2.0**53
"""From here on float64 does not hold every whole number: in nanoseconds 104 days, so no duration gets there."""


def observed(values: npt.ArrayLike) -> Floats:
    """Return a series as float64.

    Args:
        values: Numbers, one per request, step, handoff or restart.

    Raises:
        UsageError: If a value is missing (a missing value is not zero, and leaving it out is for
            `gapscope.statistics.pairing` to count), or if values are absolute times.
    """
    series = np.asarray(values)
    if series.ndim != 1:
        raise UsageError(
            f"A series has one dimension, not {series.ndim}. Give one number per request, step or handoff."
        )
    try:
        floats = series.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A series holds numbers, not {series.dtype}: {error}") from error
    if missing := int(np.count_nonzero(~np.isfinite(floats))):
        raise UsageError(f"{missing} of {len(floats)} values are missing or not finite. Leave them out and count them.")
    if np.any(np.abs(floats) >= EXACT):
        raise UsageError("Values of 104 days or more are times, not durations. Subtract the start of each first.")
    return floats


def same_length(a: Floats, b: Floats) -> None:
    """Check that two series can be pairs.

    Raises:
        UsageError: If they have different lengths.
    """
    if len(a) != len(b):
        raise UsageError(f"Pairs need two series of one length, not {len(a)} and {len(b)}. Pair them by key first.")

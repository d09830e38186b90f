"""How many requests were under way, and whether they grew more: then the load was more than the server takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from gapscope.statistics.autocorrelation import effective_size

SLICES = 20
"""The time of sending is cut into this many equal slices; the test is on their means."""

_FEWEST = 5 * SLICES
_FEWEST_EARLY = 20
_LEAST_WINDOW = 2
_EARLY_SHARE = 10  # the first tenth: later ones have grown already where the queue does
_P_VALUE = 0.01
_MATERIAL_SHARE = 0.1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """Whether the number of requests in flight grew while requests were sent.

    Attributes:
        verdict: ``grows``, ``steady``, or ``unknown``.
        reason: Why it is unknown; empty otherwise.
        slope_hz: Requests by which it grew each second (least squares over the means of `SLICES` slices); or None.
        grown: The same over the whole window.
        mean: Mean number in flight in the window.
        p_value: One-sided probability of such a slope without growth (Student's t; neighbors that resemble each other
            count for less, by the effective size of the residuals).
        window_ns: Length of the window: from when the pipeline was full until the last request was sent.
        left_out: Requests that are not counted, for their start or end is not known: those that failed.
    """

    verdict: Literal["grows", "steady", "unknown"]
    reason: str = ""
    slope_hz: float | None = None
    grown: float | None = None
    mean: float | None = None
    p_value: float | None = None
    window_ns: int | None = None
    left_out: int = 0


def growth(requests: pl.DataFrame) -> Growth:
    """Return whether the queue grew.

    A request is in flight from when it was to be sent (else from when it was sent) to its end. The window begins when
    the earliest tenth of the requests would be answered (by the longest latency among them), since until then every
    run grows, and has to be twice as long as that. The queue grows if the slope is unlikely without growth (1 %), and
    adds one request and a tenth of the mean or more over the window.

    In simulated queues of 1 to 16 servers with random arrivals and service (200 runs each of 1,000 and of 3,000
    requests) it said so of 0 to 2 % of the runs at 80 % load, of 1 to 5 % at 90 % (a queue that is still filling does
    grow), of 79 to 97 % at 110 %, and of 99 % or more at 130 %.

    Args:
        requests: Table `LATENCIES`.
    """
    starts, ends = spans(requests)
    left_out = requests.height - len(starts)
    if not len(starts):
        return Growth("unknown", "the file does not say when requests were sent", left_out=left_out)
    if len(starts) < _FEWEST:
        return Growth("unknown", f"{len(starts)} requests are too few, it takes {_FEWEST}", left_out=left_out)
    order = np.argsort(starts, kind="stable")
    early = order[: max(len(order) // _EARLY_SHARE, _FEWEST_EARLY)]
    filled = int((ends[early] - starts[early]).max())
    first, last = int(starts.min()), int(starts.max())
    begin, length = first + filled, last - first - filled
    if length < _LEAST_WINDOW * filled or length < SLICES:
        reason = "requests take too long for the time in which they were sent"
        return Growth("unknown", reason, left_out=left_out)
    edges = begin + np.linspace(0, length, SLICES + 1).astype(np.int64)
    means = np.diff(_area(starts, edges) - _area(ends, edges)) / np.diff(edges)
    per_slice, p_value = _slope(means)
    slope_hz, mean = per_slice * SLICES / length * 1e9, float(means.mean())
    grown = per_slice * SLICES
    grows = p_value < _P_VALUE and grown >= max(1.0, _MATERIAL_SHARE * mean)
    return Growth("grows" if grows else "steady", "", slope_hz, grown, mean, p_value, length, left_out)


def most_in_flight(requests: pl.DataFrame) -> int | None:
    """Return how many requests were under way at once at most, from sent to end; None: the file does not say."""
    starts, ends = spans(requests.with_columns(scheduled_ns=pl.lit(None, pl.Int64)))
    if not len(starts):
        return None
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())  # what ends as another begins is over before


def spans(requests: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return start and end of every request of which both are known, in ns since the earliest start."""
    start = pl.coalesce("scheduled_ns", "sent_ns").alias("start_ns")
    known = requests.select(start, "end_ns").drop_nulls()
    known = known.select(pl.all() - pl.col("start_ns").min())
    return known["start_ns"].to_numpy(), known["end_ns"].to_numpy()


def _area(times: Ints, at: Ints) -> Ints:
    """Return for each moment the time since each of ``times`` that has passed, summed: request-nanoseconds."""
    ordered = np.sort(times)
    before = np.concatenate([[0], np.cumsum(ordered)])
    k = np.searchsorted(ordered, at, side="right")
    return np.asarray(k * at - before[k], np.int64)


def _slope(means: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope per slice, and its one-sided p-value."""
    k = np.arange(len(means)) - (len(means) - 1) / 2
    spread = float(k @ k)
    slope = float(k @ means) / spread
    residuals = means - means.mean() - slope * k
    rest = float(residuals @ residuals)
    if rest <= 1e-12 * float(means @ means):
        return slope, 0.0 if slope > 0 else 1.0
    n = effective_size(residuals)
    freedom = max(n - 2, 1.0)
    error = (rest / (len(means) - 2) * len(means) / n / spread) ** 0.5
    return slope, float(special.stdtr(freedom, -slope / error))

"""What a comparison of latencies has to know about the load: each a finding, with numbers and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from gapscope.findings import Finding, Level, plural
from gapscope.loadgen.in_flight import Growth, growth, most_in_flight
from gapscope.loadgen.table import Latencies
from gapscope.wording import duration, percent

Grade = Literal["allowed", "weakened", "refused"]
_GRADES: tuple[Grade, ...] = ("allowed", "weakened", "refused")
_CONSEQUENCE: dict[Grade, str] = {
    "allowed": "",
    "weakened": " A comparison of latencies is weak for it.",
    "refused": " A comparison of latencies is refused for it.",
}

FAILED_SHARE = 0.01
"""With more than this share failed or lost, requests of two arms are no pairs any more."""

TAILS = (("p50", 6), ("p90", 29), ("p95", 59), ("p99", 299))
"""Fewest independent requests of which the smallest and largest hold the quantile between them at 95 %."""

_SHORTFALL = 0.05
_LAG_SHARE = 0.05


@dataclass(frozen=True)
class LoadChecks:
    """The load of one run, checked.

    Attributes:
        comparison: What a comparison of latencies with another run is: ``allowed``, ``weakened`` (it is made, and says
            why it is weak), or ``refused``. A run's throughput can be compared all the same.
        unpaired: Too many requests failed for pairs: compare the arms unpaired.
        latency_from: What latencies count from (`with_latency`).
        requests: Requests in the file.
        failed: Of them with an error.
        lost: Requests that were asked for and are not in the file; None: it does not say how many were asked for.
        asked_rate_hz: Requests per second asked for; None: not known or not one rate.
        achieved_rate_hz: Requests per second sent; None: the file does not say when they were sent.
        answered_rate_hz: Requests in the file per second of the whole run, its tail included; None: no duration.
        lag_p50_ns: Median of sent minus scheduled; None: no schedule in the file.
        lag_p99_ns: Its 99th percentile.
        most_in_flight: Most requests under way at once, from sent to end; None: not known.
        growth: Whether the queue grew.
        refused_for: Why a comparison is refused, a sentence each; empty if it is not.
        findings: What was found, one finding each.
    """

    comparison: Grade
    unpaired: bool
    latency_from: Literal["scheduled", "sent"]
    requests: int
    failed: int
    lost: int | None
    asked_rate_hz: float | None
    achieved_rate_hz: float | None
    answered_rate_hz: float | None
    lag_p50_ns: int | None
    lag_p99_ns: int | None
    most_in_flight: int | None
    growth: Growth
    refused_for: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), repr=False)


def with_latency(latencies: Latencies, deadline_ns: int | None = None) -> pl.DataFrame:
    """Return table `LATENCIES` with ``latency_ns`` and ``censored``: what is compared. No request is left out.

    ``latency_ns`` (int64) counts from when the request was to be sent where the file says it, else from when it was
    sent: the wait that a late load generator or a concurrency limit adds is then part of it or not seen at all.
    ``censored`` (bool): the request failed, or took longer than the deadline; ``latency_ns`` is then the deadline, or
    without one the longest latency that was answered: it took at least so long, so a quantile among the censored is a
    lower bound. Null: answered, but the file does not say how long it took (or, censored, nothing was answered).

    Args:
        latencies: One run.
        deadline_ns: After which an answer is of no use; None: there is none.
    """
    waited = (pl.col("sent_ns") - pl.col("scheduled_ns")).fill_null(0)
    frame = latencies.requests.with_columns(latency_ns=pl.col("e2e_ns") + waited)
    late = pl.lit(False) if deadline_ns is None else (pl.col("latency_ns") > deadline_ns).fill_null(False)
    limit = pl.col("latency_ns").max() if deadline_ns is None else pl.lit(deadline_ns, pl.Int64)
    frame = frame.with_columns(censored=pl.col("error").is_not_null() | late)
    return frame.with_columns(latency_ns=pl.when("censored").then(limit).otherwise("latency_ns").cast(pl.Int64))


def check_load(latencies: Latencies) -> LoadChecks:
    """Return what was found about the load of one run.

    Args:
        latencies: What `read_latencies` returned.
    """
    return _Checks(latencies).result()


class _Checks:
    """One run, and what was found so far."""

    def __init__(self, latencies: Latencies) -> None:
        self.path, self.run, self.table = latencies.path, latencies.run, latencies.requests
        self.findings: list[Finding] = []
        self.grade = 0
        self.refused: list[str] = []
        self.unpaired = False
        self.growth = growth(self.table)
        self.most = most_in_flight(self.table)
        self.failed = self.table.height - self.table["error"].null_count()
        asked = self.run.asked_requests
        self.lost = None if asked is None else max(0, asked - self.table.height)
        self.sent_rate = _sent_rate(self.table)
        self.scheduled = self.table["scheduled_ns"].null_count() < self.table.height
        lag = self.table.select(lag=pl.col("sent_ns") - pl.col("scheduled_ns"))["lag"].drop_nulls()
        self.lags = [None if lag.is_empty() else int(lag.quantile(q, "nearest") or 0) for q in (0.5, 0.99)]

    def result(self) -> LoadChecks:
        checks: tuple[Callable[[], None], ...] = (
            self._loop,
            self._rate,
            self._lag,
            self._queue,
            self._failures,
            self._origin,
            self._tails,
        )
        for check in checks:
            check()
        duration_ns = self.run.duration_ns
        return LoadChecks(
            comparison=_GRADES[self.grade],
            unpaired=self.unpaired,
            latency_from="scheduled" if self.scheduled else "sent",
            requests=self.table.height,
            failed=self.failed,
            lost=self.lost,
            asked_rate_hz=self.run.asked_rate_hz,
            achieved_rate_hz=self.sent_rate,
            answered_rate_hz=self.table.height / duration_ns * 1e9 if duration_ns else None,
            lag_p50_ns=self.lags[0],
            lag_p99_ns=self.lags[1],
            most_in_flight=self.most,
            growth=self.growth,
            refused_for=tuple(self.refused),
            findings=tuple(self.findings),
        )

    def _say(self, code: str, message: str, hint: str, grade: Grade) -> None:
        self.grade = max(self.grade, _GRADES.index(grade))
        if grade == "refused":
            self.refused.append(message)
        self._add(code, "info" if grade == "allowed" else "warning", message + _CONSEQUENCE[grade], hint)

    def _add(self, code: str, level: Level, message: str, hint: str, count: int | None = None) -> None:
        self.findings.append(Finding(code, level, message, hint, path=self.path, count=count))

    def _loop(self) -> None:
        """Was a request sent because its time had come, or because another had ended?"""
        limit, asked = self.run.concurrency_limit, self.run.asked_rate_hz
        at_once = asked is not None and math.isinf(asked)
        hint = "Give a request rate below what the server takes, and no concurrency limit."
        if at_once and limit is not None:
            message = (
                f"The load is closed-loop: at most {plural(limit, 'request')} at once and no rate, so a slow server "
                "is sent less, and mean latency is the limit divided by the throughput."
            )
            self._say("load_closed_loop", message, hint + " Throughput can be compared as it is.", "refused")
        elif at_once:
            message = "All requests were sent at once, so a latency is mostly the place in the queue."
            self._say("load_burst", message, hint + " Compare how long all of them took.", "weakened")
        elif limit is not None and not self.scheduled:
            if self.most is None:
                message = (
                    f"At most {plural(limit, 'request')} were let through at once, and the file does not say how long "
                    "others waited for it."
                )
                self._say("load_limited", message, "Leave the concurrency limit out.", "weakened")
            elif self.most >= limit:
                message = f"The concurrency limit of {limit} was reached, and the wait for it is in no latency."
                self._say("load_limited", message, "Leave the concurrency limit out, or lower the rate.", "refused")
        elif limit is not None and self.most is not None and self.most >= limit:
            message = f"The concurrency limit of {limit} was reached; latencies hold the wait for it."
            self._say("load_limited", message, "Leave the limit out to load the server with all of it.", "allowed")

    def _rate(self) -> None:
        """Were requests sent as fast as was asked for?"""
        asked, sent = self.run.asked_rate_hz, self.sent_rate
        if asked is None or math.isinf(asked) or sent is None:
            return
        noise = 3 / math.sqrt(self.table.height)
        if sent < asked * (1 - max(_SHORTFALL, noise)):
            message = f"Requests were sent at {sent:.2f} per second, {asked:.2f} were asked for."
            hint = "Lower the rate, or give the load generator more processors or processes."
            self._say("load_rate_missed", message, hint, "refused")

    def _lag(self) -> None:
        """Were requests sent when they were to be sent?"""
        p50, p99 = self.lags
        e2e = self.table["e2e_ns"].median()
        if p50 is None or p99 is None or not isinstance(e2e, (int, float)):
            return
        if p99 > _LAG_SHARE * e2e:
            message = (
                f"Requests were sent later than scheduled: {duration(p50)} in the median, {duration(p99)} at p99 "
                f"(median latency from sent to end: {duration(round(e2e))})."
            )
            self._say("load_sent_late", message, "Lower the rate or raise the concurrency limit.", "weakened")

    def _queue(self) -> None:
        """Could the server keep up?"""
        g = self.growth
        if g.verdict == "unknown":
            message = f"Whether the queue grew cannot be told: {g.reason}."
            hint = "Take a longer run, with a load generator that writes when each request was sent."
            self._say("load_queue_unknown", message, hint, "weakened")
        elif g.verdict == "grows" and None not in (g.grown, g.slope_hz, g.p_value, g.mean, g.window_ns):
            message = (
                f"The queue grew by {g.grown:.1f} requests in {duration(g.window_ns)} ({g.slope_hz:.3g} per second, "
                f"p = {g.p_value:.1g}; {g.mean:.1f} in flight in the mean): latency depends on how long the run was."
            )
            self._say("load_queue_grows", message, "Lower the request rate, and compare again.", "refused")

    def _failures(self) -> None:
        """Is a request missing that was asked for?"""
        missing = self.failed + (self.lost or 0)
        if not missing:
            return
        share = missing / (self.table.height + (self.lost or 0))
        parts = [f"{self.failed:,} failed"] if self.failed else []
        parts += [f"{self.lost:,} of those asked for are not in the file"] if self.lost else []
        message = f"Not all requests were answered: {', '.join(parts)} ({percent(share)})."
        self.unpaired = share > FAILED_SHARE
        message += " More than 1%, so requests are not paired." if self.unpaired else ""
        hint = "They count as longer than the deadline, not as missing; look at their errors first."
        self._add("load_requests_failed", "warning" if self.unpaired else "info", message, hint, missing)

    def _origin(self) -> None:
        """From when do latencies count?"""
        if self.scheduled:
            message = f"Latencies count from when a request was to be sent ({self.run.scheduled})."
            self._add("load_latency_origin", "info", message, "")
            return
        message = "Latencies count from when a request was sent; that it should have been sent earlier cannot be seen."
        hint = "vllm bench serve writes the wait before sending from 0.31.0 on."
        self._add("load_latency_origin", "info", message, hint)

    def _tails(self) -> None:
        """Are there enough requests for a tail?"""
        n = self.table.height
        short = [f"{name} ({fewest})" for name, fewest in TAILS if n < fewest]
        if short:
            message = f"{plural(n, 'request')} are too few for {', '.join(short)}."
            self._add("load_few_requests", "info", message, "Send more requests.", n)


def _sent_rate(table: pl.DataFrame) -> float | None:
    """Return requests per second between the first and the last that was sent."""
    sent = table["sent_ns"].drop_nulls()
    first, last = sent.min(), sent.max()
    if len(sent) < 2 or not isinstance(first, int) or not isinstance(last, int) or first == last:
        return None
    return (len(sent) - 1) / (last - first) * 1e9

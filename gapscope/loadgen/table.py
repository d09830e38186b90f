"""The normal form of what load generators write: one row per request, and facts about the run."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from gapscope.findings import Finding
from gapscope.schema import Column, Table

LATENCIES: Table = {
    "index": Column(
        pl.Int64(), "Position of the request in the file, from 0: the order in which they were to be sent."
    ),
    "request_id": Column(pl.String(), "Id that the client gave the request; null: not in the file."),
    "scheduled_ns": Column(
        pl.Int64(),
        "When it was to be sent, on the client's clock, whose zero is unknown (`LoadRun.scheduled` says how it is "
        "known); null: not in the file.",
    ),
    "sent_ns": Column(pl.Int64(), "When it was sent, same clock; null: not in the file, or never sent."),
    "first_token_ns": Column(pl.Int64(), "When its first token arrived, same clock; null: not known, or none arrived."),
    "end_ns": Column(
        pl.Int64(), "When its answer was complete (`LoadRun.end` says what that is), same clock; or null."
    ),
    "ttft_ns": Column(pl.Int64(), "From `sent_ns` to the first token; null: none arrived, or not in the file."),
    "e2e_ns": Column(pl.Int64(), "From `sent_ns` to `end_ns`; null: it failed, or the file does not say."),
    "tpot_ns": Column(
        pl.Int64(), "Time per output token after the first, rounded down; null: fewer than two tokens, or not known."
    ),
    "input_tokens": Column(pl.Int64(), "Tokens of the prompt, as the tool counted them; null: not in the file."),
    "output_tokens": Column(pl.Int64(), "Tokens of the answer, as the tool counted them; null: failed or not in it."),
    "error": Column(pl.String(), "Why it failed, as the tool wrote it; null: it did not."),
}

NO_REASON = "no reason recorded"
"""Error of requests that failed without a text: the tool counted them as not completed, and nothing came."""


@dataclass(frozen=True)
class LoadRun:
    """Facts about a run, as the load generator wrote them.

    Attributes:
        tool: Program that wrote the file.
        version: Its version; None: not in the file.
        backend: Kind of server or endpoint it spoke to.
        asked_rate_hz: Requests per second that were asked for; infinite: all at once, or as fast as the concurrency
            limit lets them; None: not known.
        by_trace: Requests were to be sent at the times of a trace, so there is no one rate.
        concurrency_limit: At most this many requests at once; None: no limit.
        duration_ns: From the start of sending to the last answer; None: not in the file.
        asked_requests: How many requests were asked for; None: not in the file.
        completed: How many the tool counts as answered; None: not in the file.
        scheduled: What ``scheduled_ns`` is; None: the file has no schedule.
        end: What ``end_ns`` and ``e2e_ns`` end with.
    """

    tool: str
    version: str | None = None
    backend: str | None = None
    asked_rate_hz: float | None = None
    by_trace: bool = False
    concurrency_limit: int | None = None
    duration_ns: int | None = None
    asked_requests: int | None = None
    completed: int | None = None
    scheduled: str | None = None
    end: str = "last token"


@dataclass(frozen=True)
class Latencies:
    """What one run of a load generator recorded.

    Attributes:
        path: The file.
        requests: Table `LATENCIES`, in order of ``index``.
        run: Facts about the run.
        findings: What was odd in the file.
    """

    path: str
    requests: pl.DataFrame = field(repr=False)
    run: LoadRun
    findings: tuple[Finding, ...] = ()

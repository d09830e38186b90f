"""The arrays of a record as columns of table `LATENCIES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from gapscope.findings import Finding, plural
from gapscope.loadgen.numbers import nanoseconds, total_nanoseconds, whole
from gapscope.loadgen.records import Record
from gapscope.loadgen.table import LATENCIES, NO_REASON
from gapscope.schema import dtypes

Convert = Callable[[object], int | None]


class Arrays:
    """Arrays of one record, a value per request each; what is odd in them costs the value and is counted.

    Attributes:
        rows: Number of requests: the length of the longest array.
    """

    def __init__(self, record: Record, names: Sequence[str]) -> None:
        self._record = record
        self._found = [name for name in names if isinstance(record.get(name), list)]
        self.rows = max((len(record[name]) for name in self._found), default=0)
        self._odd: set[int] = set()

    def has(self, name: str) -> bool:
        """Tell if the record has this array."""
        return name in self._found

    def short(self) -> list[str]:
        """Return the arrays that have fewer values than there are requests."""
        return [name for name in self._found if len(self._record[name]) < self.rows]

    def take(self, name: str, convert: Convert) -> list[int | None]:
        """Return an array, converted; all null if there is none. A JSON null is not odd; what is not understood is."""
        values = self._raw(name)
        converted = [convert(value) for value in values]
        self._odd |= {k for k, (v, c) in enumerate(zip(values, converted, strict=True)) if c is None and v is not None}
        return converted

    def texts(self, name: str) -> list[str | None]:
        """Return an array of texts; an empty one is null."""
        values = self._raw(name)
        self._odd |= {k for k, value in enumerate(values) if value is not None and not isinstance(value, str)}
        return [value if isinstance(value, str) and value else None for value in values]

    def findings(self, path: str) -> list[Finding]:
        """Return what was odd so far."""
        found = []
        if self._odd:
            n = len(self._odd)
            message = f"{plural(n, 'request')} of {self.rows:,} in the load generator's file with values that are none."
            hint = "They are left out of what needs them; the other values of these requests count."
            found.append(Finding("load_values_odd", "warning", message, hint, path=path, count=n))
        if short := self.short():
            message = f"Arrays of the load generator's file are shorter than others: {', '.join(short)}."
            hint = "What they lack counts as not recorded; the file may have been edited."
            found.append(Finding("load_arrays_short", "warning", message, hint, path=path, count=len(short)))
        return found

    def _raw(self, name: str) -> list[Any]:
        values = self._record[name] if self.has(name) else []
        return [*values, *[None] * (self.rows - len(values))]


def requests_table(arrays: Arrays, *, latency: str | None, start: str | None, wait: str | None) -> pl.DataFrame:
    """Return table `LATENCIES` without what failed silently (`with_silent_failures`).

    Args:
        arrays: Arrays ``input_lens``, ``output_lens``, ``ttfts``, ``itls`` and ``errors``, and those named next.
        latency: Array of seconds from sent to the end; None: the time to the first token and the gaps after it are
            summed.
        start: Array of the times of sending, in seconds; None: there is none.
        wait: Array of seconds from handed out to sent; None: there is none.
    """
    frame = pl.DataFrame(
        {
            "index": range(arrays.rows),
            "request_id": [None] * arrays.rows,
            "sent_ns": arrays.take(start, nanoseconds) if start else [None] * arrays.rows,
            "wait_ns": arrays.take(wait, nanoseconds) if wait else [None] * arrays.rows,
            "ttft_ns": arrays.take("ttfts", nanoseconds),
            "after_ns": [None] * arrays.rows if latency else arrays.take("itls", total_nanoseconds),
            "latency_ns": arrays.take(latency, nanoseconds) if latency else [None] * arrays.rows,
            "input_tokens": arrays.take("input_lens", whole),
            "output_tokens": arrays.take("output_lens", whole),
            "error": arrays.texts("errors"),
        },
        schema_overrides=dict.fromkeys(("sent_ns", "wait_ns", "after_ns", "latency_ns"), pl.Int64),
        strict=False,
    )
    # the tools start every request with zeros: a zero that is left means that nothing came, not that it took no time
    seen = frame.with_columns(
        pl.when(pl.col(name) > 0).then(name).alias(name) for name in ("sent_ns", "ttft_ns", "latency_ns")
    )
    e2e = pl.col("latency_ns") if latency else pl.col("ttft_ns") + pl.col("after_ns")
    answered = pl.col("error").is_null()
    seen = seen.with_columns(
        e2e_ns=pl.when(answered).then(e2e),
        output_tokens=pl.when(answered).then("output_tokens"),
        scheduled_ns=pl.col("sent_ns") - pl.col("wait_ns"),
    )
    seen = seen.with_columns(
        first_token_ns=pl.col("sent_ns") + pl.col("ttft_ns"),
        end_ns=pl.col("sent_ns") + pl.col("e2e_ns"),
        tpot_ns=pl.when(pl.col("output_tokens") > 1).then(
            (pl.col("e2e_ns") - pl.col("ttft_ns")) // (pl.col("output_tokens") - 1)
        ),
    )
    return seen.select(pl.col(name).cast(dtype) for name, dtype in dtypes(LATENCIES).items())


def with_silent_failures(requests: pl.DataFrame, completed: int | None) -> pl.DataFrame:
    """Return the table with an error where a request failed without a text.

    The files do not say which requests were answered. Where the tool counts fewer as answered than have no error
    text, those without any time or token failed; this is inferred.

    Args:
        requests: Table `LATENCIES`.
        completed: How many the tool counts as answered; None: not in the file.
    """
    silent = (
        pl.col("error").is_null()
        & pl.col("e2e_ns").is_null()
        & pl.col("ttft_ns").is_null()
        & (pl.col("output_tokens").fill_null(0) == 0)
    )
    if completed is None or requests["error"].null_count() <= completed:
        return requests
    reason = pl.when(silent).then(pl.lit(NO_REASON)).otherwise("error")
    return requests.with_columns(error=reason, output_tokens=pl.when(~silent).then("output_tokens"))

"""Results of ``vllm bench serve --save-result --save-detailed`` and of the older ``benchmark_serving.py``.

What is in them, by vLLM version (read in its sources 0.6.6, 0.8.5, 0.9.2, 0.10.2, 0.11.2, 0.14.1, 0.18.1, 0.22.1,
0.26.0, 0.29.0, 0.31.0 and 0.33.0):

    all                 one JSON object; ``date``, ``backend`` or ``endpoint_type``, ``model_id``, ``num_prompts``,
                        ``request_rate`` (``"inf"``: none), ``max_concurrency``, ``duration``, ``completed``, and per
                        request ``input_lens``, ``output_lens``, ``ttfts``, ``itls``, ``errors``, in order of sending
    up to 0.9.2         ``benchmark_serving.py``; from 0.10.2 it only says that ``vllm bench serve`` replaces it
    from 0.18.1         ``start_times`` (0.14.1 has none): when a request was sent
    from 0.31.0         ``latencies`` and ``queue_times`` (0.29.0 has none): from handed out to sent, which is the wait
                        for the concurrency limit; these two are kept without ``--save-detailed`` too

Times are seconds of ``time.perf_counter``, so their zero is unknown. Before 0.31.0 a request's end is its last token.
The schedule itself is not written: what ``queue_times`` count from is when the generator handed the request out,
and then its event loop can already be late. Ids are sent (header ``x-request-id``: the prefix of
``--request-id-prefix`` and a number) from 0.10.2 on, but written by no version. Version and success are not written
either. A failed request has zeros and mostly an error text.
"""

from __future__ import annotations

import polars as pl

from gapscope.findings import Finding
from gapscope.loadgen.columns import Arrays, requests_table, with_silent_failures
from gapscope.loadgen.numbers import nanoseconds, rate, whole
from gapscope.loadgen.records import Record
from gapscope.loadgen.table import LoadRun

_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "errors", "latencies", "start_times", "queue_times")
_OWN = ("model_id", "tokenizer_id", "num_prompts")


class VllmFormat:
    """See the module."""

    name = "vLLM benchmark result (vllm bench serve, benchmark_serving.py)"
    detail_option = "--save-result --save-detailed"

    def matches(self, record: Record) -> bool:
        """See `gapscope.loadgen.reading.Format`."""
        return all(key in record for key in _OWN) and ("backend" in record or "endpoint_type" in record)

    def read(self, record: Record, path: str) -> tuple[pl.DataFrame, LoadRun, list[Finding]]:
        """See `gapscope.loadgen.reading.Format`."""
        arrays = Arrays(record, _ARRAYS)
        own_latency, handed_out = arrays.has("latencies"), arrays.has("queue_times") and arrays.has("start_times")
        requests = requests_table(
            arrays,
            latency="latencies" if own_latency else None,
            start="start_times" if arrays.has("start_times") else None,
            wait="queue_times" if handed_out else None,
        )
        backend = record.get("backend", record.get("endpoint_type"))
        run = LoadRun(
            tool="vllm bench serve" if "endpoint_type" in record else "benchmark_serving.py",
            backend=backend if isinstance(backend, str) else None,
            asked_rate_hz=None if "ramp_up_strategy" in record else rate(record.get("request_rate")),
            concurrency_limit=whole(record.get("max_concurrency")),
            duration_ns=nanoseconds(record.get("duration")),
            asked_requests=whole(record.get("num_prompts")),
            completed=whole(record.get("completed")),
            scheduled="when the generator handed the request out" if handed_out else None,
            end="end as the tool recorded it" if own_latency else "last token",
        )
        return with_silent_failures(requests, run.completed), run, arrays.findings(path)


VLLM = VllmFormat()

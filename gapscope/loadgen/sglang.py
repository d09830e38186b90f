"""Results of ``python -m sglang.bench_serving --output-file F --output-details``: JSON lines, one run each.

What is in them (read in the sources of SGLang 0.2.15, 0.3.6, 0.4.1, 0.4.5, 0.4.8, 0.4.10, 0.5.2, 0.5.4, 0.5.6, 0.5.9,
0.5.12 and 0.5.23): ``backend``, ``dataset_name``, ``request_rate`` (``Infinity``, which is no JSON, or ``"trace"``
from 0.5.2 on), ``random_range_ratio``, ``duration``, ``completed``; ``max_concurrency`` from 0.4.1 on, ``server_info``
from 0.5.6 on. ``--output-details`` (0.4.8 has it, 0.4.5 not) adds per request ``input_lens``, ``output_lens``,
``ttfts``, ``itls``, ``generated_texts`` and ``errors``, in order of sending. Files are appended to.

Times are seconds. No version writes when a request was sent, its whole latency, its id or its schedule; the program
sends no id of its own. So a request's end is its last token, and what happens between requests cannot be seen.
"""

from __future__ import annotations

import polars as pl

from gapscope.findings import Finding
from gapscope.loadgen.columns import Arrays, requests_table, with_silent_failures
from gapscope.loadgen.numbers import nanoseconds, rate, whole
from gapscope.loadgen.records import Record
from gapscope.loadgen.table import LoadRun

_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
_OWN = ("backend", "dataset_name", "random_range_ratio", "sharegpt_output_len")


class SglangFormat:
    """See the module."""

    name = "SGLang benchmark result (sglang.bench_serving)"
    detail_option = "--output-details"

    def matches(self, record: Record) -> bool:
        """See `gapscope.loadgen.reading.Format`."""
        return all(key in record for key in _OWN)

    def read(self, record: Record, path: str) -> tuple[pl.DataFrame, LoadRun, list[Finding]]:
        """See `gapscope.loadgen.reading.Format`."""
        arrays = Arrays(record, _ARRAYS)
        requests = requests_table(arrays, latency=None, start=None, wait=None)
        backend, server = record.get("backend"), record.get("server_info")
        version = server.get("version") if isinstance(server, dict) else None
        run = LoadRun(
            tool="sglang.bench_serving",
            version=version if isinstance(version, str) else None,
            backend=backend if isinstance(backend, str) else None,
            asked_rate_hz=rate(record.get("request_rate")),
            by_trace=record.get("request_rate") == "trace",
            concurrency_limit=whole(record.get("max_concurrency")),
            duration_ns=nanoseconds(record.get("duration")),
            completed=whole(record.get("completed")),
        )
        return with_silent_failures(requests, run.completed), run, arrays.findings(path)


SGLANG = SglangFormat()

"""Result files of load generators, in the shape that the tools' sources write (`gapscope.loadgen.vllm`, `sglang`)."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gapscope.loadgen import LATENCIES, Latencies, LoadRun
from gapscope.schema import dtypes

DATA = Path(__file__).parents[1] / "data" / "loadgen"
VLLM_FILE, SGLANG_FILE = DATA / "vllm_bench_serve.json", DATA / "sglang_bench_serving.jsonl"


@dataclass
class Request:
    """One request as a tool holds it: seconds; a failed one has zeros."""

    start: float = 100.0
    queue: float = 0.0
    ttft: float = 0.25
    itl: tuple = (0.125, 0.125)
    error: str = ""

    @property
    def latency(self):
        return 0.0 if self.failed else self.ttft + sum(self.itl)

    @property
    def failed(self):
        return bool(self.error) or not self.ttft

    @property
    def tokens(self):
        return 0 if self.failed else 1 + len(self.itl)


FAILED = Request(ttft=0.0, itl=(), error="Service Unavailable")


def details(requests):
    return {
        "input_lens": [7 for _ in requests],
        "output_lens": [r.tokens for r in requests],
        "ttfts": [r.ttft for r in requests],
        "itls": [list(r.itl) for r in requests],
        "generated_texts": ["a " * r.tokens for r in requests],
        "errors": [r.error for r in requests],
    }


def vllm(requests, *, version="0.33.0", detailed=True, **changes):
    """Return a result of vLLM; ``version`` is one of those between which the fields changed."""
    record = {
        "date": "20261130-095242",
        **({} if version == "0.9.2" else {"endpoint_type": "openai"}),
        **({} if version == "0.10.2" else {"backend": "openai"}),
        "label": None,
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": len(requests),
        "request_rate": 4.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 12.5,
        "completed": sum(not r.failed for r in requests),
        "request_throughput": 3.5,
    }
    arrays = details(requests)
    if version in {"0.18.1", "0.33.0"}:
        arrays["start_times"] = [r.start for r in requests]
    if not detailed:
        arrays = {}
    if version == "0.33.0":
        arrays["latencies"] = [r.latency for r in requests]
        arrays["queue_times"] = [r.queue for r in requests]
    return record | arrays | changes


def sglang(requests, *, detailed=True, **changes):
    """Return a result of SGLang."""
    record = {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": 4.0,
        "max_concurrency": None,
        "sharegpt_output_len": None,
        "random_input_len": 7,
        "random_output_len": 3,
        "random_range_ratio": 0.0,
        "server_info": {"version": "0.5.23"},
        "duration": 12.5,
        "completed": sum(not r.failed for r in requests),
    }
    return record | (details(requests) if detailed else {}) | changes


def write(path, *records):
    """Write records as both tools append them: one after the other, a line each."""
    text = "\n".join(json.dumps(record) for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def latencies(*, run=None, **columns):
    """Return latencies with the columns given, null for all else."""
    rows = max(len(values) for values in columns.values())
    given = {"index": range(rows)} | columns
    frame = pl.DataFrame(
        {name: given.get(name, [None] * rows) for name in LATENCIES}, schema=dtypes(LATENCIES), strict=False
    )
    return Latencies("run.json", frame, run or LoadRun("tool", asked_rate_hz=1.0))


def ms(*values):
    return [None if value is None else value * 1_000_000 for value in values]

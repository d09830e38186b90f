"""SGLang's results: one real file (tests/data/README.md says how it was made), and files as the sources write them."""

import json
from decimal import Decimal

import pytest

from gapscope.errors import InputError, UsageError
from gapscope.loadgen import read_latencies
from tests.loadgen.files import FAILED, SGLANG_FILE, Request, sglang, write


def test_the_real_file_is_read_to_the_nanosecond():
    read = read_latencies(SGLANG_FILE)
    raw = json.loads(SGLANG_FILE.read_text(), parse_float=Decimal)
    expected = [
        None if error else round((first + sum(gaps)) * 10**9)
        for first, gaps, error in zip(raw["ttfts"], raw["itls"], raw["errors"], strict=True)
    ]
    assert max(abs(a - b) for a, b in zip(read.requests["e2e_ns"], expected, strict=True) if b is not None) <= 1
    assert [k for k, e2e in enumerate(read.requests["e2e_ns"]) if e2e is None] == [5, 17]
    assert read.requests["error"][5] == "Service Unavailable: overloaded"
    for unknown in ("request_id", "scheduled_ns", "sent_ns", "end_ns"):
        assert read.requests[unknown].null_count() == 24
    assert (read.run.tool, read.run.asked_rate_hz, read.run.completed) == ("sglang.bench_serving", 40.0, 22)


def test_what_the_file_says_of_the_run(tmp_path):
    run = read_latencies(write(tmp_path / "r.jsonl", sglang([Request()], request_rate=float("inf")))).run
    assert (run.version, run.asked_rate_hz, run.duration_ns) == ("0.5.23", float("inf"), 12_500_000_000)
    traced = read_latencies(write(tmp_path / "t.jsonl", sglang([Request()], request_rate="trace"))).run
    assert (traced.asked_rate_hz, traced.by_trace) == (None, True)


def test_one_run_of_several_has_to_be_named(tmp_path):
    path = write(tmp_path / "r.jsonl", sglang([Request()]), sglang([Request(), FAILED]))
    with pytest.raises(UsageError, match="holds 2 runs"):
        read_latencies(path)
    with pytest.raises(UsageError, match="no run 2"):
        read_latencies(path, run=2)
    assert [read_latencies(path, run=k).requests.height for k in (0, 1)] == [1, 2]


def test_summaries_alone_are_refused_and_name_the_option(tmp_path):
    with pytest.raises(InputError, match="--output-details"):
        read_latencies(write(tmp_path / "r.jsonl", sglang([Request()], detailed=False)))


def test_no_first_token_of_an_answered_request_is_null(tmp_path):
    read = read_latencies(write(tmp_path / "r.jsonl", sglang([Request(ttft=0.0, itl=())], completed=1)))
    assert read.requests.select("ttft_ns", "e2e_ns", "error").row(0) == (None, None, None)

"""vLLM's results: one real file (tests/data/README.md says how it was made), and files as the sources write them."""

import json
from decimal import Decimal

import polars as pl
import pytest

from gapscope.errors import InputError
from gapscope.loadgen import LATENCIES, read_latencies
from gapscope.loadgen.table import NO_REASON
from gapscope.schema import dtypes
from tests.loadgen.files import FAILED, VLLM_FILE, Request, vllm, write


def test_the_real_file_is_read_to_the_nanosecond():
    read = read_latencies(VLLM_FILE)
    raw = json.loads(VLLM_FILE.read_text(), parse_float=Decimal)
    assert dict(read.requests.schema) == dtypes(LATENCIES)
    assert read.requests.height == len(raw["ttfts"]) == 24
    assert read.requests["sent_ns"].to_list() == [round(s * 10**9) for s in raw["start_times"]]
    answered = read.requests.filter(pl.col("error").is_null())
    assert answered["e2e_ns"].to_list() == [round(s * 10**9) for s in raw["latencies"] if s]
    assert (answered["end_ns"] - answered["sent_ns"]).to_list() == answered["e2e_ns"].to_list()
    waits = (read.requests["sent_ns"] - read.requests["scheduled_ns"]).to_list()
    assert waits == [round(s * 10**9) for s in raw["queue_times"]]
    assert read.requests.filter(pl.col("error").is_not_null())["index"].to_list() == [5, 17]
    assert (read.run.asked_rate_hz, read.run.concurrency_limit, read.run.completed) == (40.0, 4, 22)
    assert read.findings == ()


def test_its_own_latency_is_the_first_token_and_the_gaps_after_it(tmp_path):
    raw = json.loads(VLLM_FILE.read_text())
    without = {k: v for k, v in raw.items() if k not in {"latencies", "queue_times"}}
    older = write(tmp_path / "older.json", without)
    both = [read_latencies(p).requests["e2e_ns"].drop_nulls() for p in (VLLM_FILE, older)]
    assert (both[0] - both[1]).abs().max() <= 1


@pytest.mark.parametrize(
    ("version", "sent", "scheduled", "tool"),
    [
        ("0.9.2", None, None, "benchmark_serving.py"),
        ("0.10.2", None, None, "vllm bench serve"),
        ("0.18.1", 100_000_000_000, None, "vllm bench serve"),
        ("0.33.0", 100_000_000_000, 99_500_000_000, "vllm bench serve"),
    ],
)
def test_every_shape_of_its_versions(tmp_path, version, sent, scheduled, tool):
    read = read_latencies(write(tmp_path / "r.json", vllm([Request(queue=0.5)], version=version)))
    row = read.requests.row(0, named=True)
    assert (row["sent_ns"], row["scheduled_ns"], read.run.tool) == (sent, scheduled, tool)
    assert (row["ttft_ns"], row["e2e_ns"], row["tpot_ns"]) == (250_000_000, 500_000_000, 125_000_000)
    assert row["end_ns"] == (None if sent is None else sent + 500_000_000)
    assert row["request_id"] is None
    assert (row["input_tokens"], row["output_tokens"]) == (7, 3)


def test_zeros_of_a_failed_request_are_no_times(tmp_path):
    read = read_latencies(write(tmp_path / "r.json", vllm([Request(), FAILED])))
    row = read.requests.row(1, named=True)
    assert row["error"] == "Service Unavailable"
    assert all(row[name] is None for name in ("ttft_ns", "e2e_ns", "end_ns", "first_token_ns", "output_tokens"))
    assert row["sent_ns"] == 100_000_000_000


def test_what_came_before_a_failure_is_no_answer(tmp_path):
    broken = Request(error="Traceback: the connection was closed")
    read = read_latencies(write(tmp_path / "r.json", vllm([broken], version="0.18.1")))
    assert read.requests.select("ttft_ns", "e2e_ns", "end_ns", "tpot_ns").row(0) == (250_000_000, None, None, None)


@pytest.mark.parametrize("version", ["0.9.2", "0.33.0"])
def test_a_failure_without_text_is_told_by_the_count(tmp_path, version):
    silent = Request(ttft=0.0, itl=())
    read = read_latencies(write(tmp_path / "r.json", vllm([Request(), silent], version=version)))
    assert read.requests["error"].to_list() == [None, NO_REASON]
    assert read.requests["e2e_ns"].to_list() == [500_000_000, None]
    counted = vllm([Request(), silent], version=version, completed=2)  # the tool says that both were answered
    assert read_latencies(write(tmp_path / "c.json", counted)).requests["error"].to_list() == [None, None]


def test_summaries_alone_are_refused_and_name_the_option(tmp_path):
    with pytest.raises(InputError, match="--save-detailed"):
        read_latencies(write(tmp_path / "r.json", vllm([Request()], version="0.18.1", detailed=False)))


def test_newer_summaries_hold_latencies_all_the_same(tmp_path):
    read = read_latencies(write(tmp_path / "r.json", vllm([Request(), FAILED], detailed=False)))
    assert read.requests["e2e_ns"].to_list() == [500_000_000, None]
    assert read.requests["error"].to_list() == [None, NO_REASON]


def test_no_rate_and_a_limit(tmp_path):
    run = read_latencies(write(tmp_path / "r.json", vllm([Request()], request_rate="inf", max_concurrency=8))).run
    assert (run.asked_rate_hz, run.concurrency_limit) == (float("inf"), 8)


def test_a_ramp_is_no_rate(tmp_path):
    record = vllm([Request()], ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=9)
    assert read_latencies(write(tmp_path / "r.json", record)).run.asked_rate_hz is None


@pytest.mark.parametrize("odd", ["0.5", -1.0, float("nan"), True, {}, 1e300])
def test_an_odd_value_costs_one_value_of_one_request(tmp_path, odd):
    record = vllm([Request(), Request(), Request()])
    record["latencies"][1] = odd
    read = read_latencies(write(tmp_path / "r.json", record))
    assert read.requests["e2e_ns"].to_list() == [500_000_000, None, 500_000_000]
    assert read.requests["ttft_ns"].to_list() == [250_000_000] * 3
    assert [(f.code, f.count) for f in read.findings] == [("load_values_odd", 1)]


def test_a_short_array_is_filled_with_nothing(tmp_path):
    record = vllm([Request(), Request()])
    record["ttfts"].pop()
    read = read_latencies(write(tmp_path / "r.json", record))
    assert read.requests["ttft_ns"].to_list() == [250_000_000, None]
    assert [f.code for f in read.findings] == ["load_arrays_short"]

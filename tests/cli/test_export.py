"""``gapscope export``: what is written, what is said, and what cannot be understood."""

from __future__ import annotations

import json

import polars as pl
import pytest

import gapscope
from gapscope.cli.selection import window_of
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError

pytest.importorskip("perfetto")
from tests.exports.reading import read


@pytest.fixture(scope="module")
def demo():
    return gapscope.analyze(str(DEMO_RECORDING))


@pytest.fixture
def export(cli, tmp_path):
    def run(*options, name="run.pftrace"):
        out = tmp_path / name
        outcome = cli("export", "--perfetto", out, "--demo", *options)
        return outcome, read(out) if out.exists() else None

    return run


def gaps(found):
    return sorted(found.events.filter(pl.col("category") == "handoff")["name"].to_list())


def test_the_demo_as_a_trace(export, demo):
    outcome, found = export(name="run.pftrace.gz")
    assert outcome.code == 0
    slices, moments = (~found.events["moment"]).sum(), found.events["moment"].sum()
    assert f"{slices:,} slices and {moments} moments of ranks 0, 1, 20 handoffs" in outcome.out
    assert gaps(found) == sorted(demo.handoffs["handoff_id"])
    assert found.under("gapscope")["name"].to_list() == [f"gapscope {gapscope.__version__}"]


def test_steps_keep_their_time_and_their_handoffs(export, demo):
    _, found = export("--steps", "12:13")
    assert gaps(found) == ["0>1/0/12", "0>1/0/13"]
    assert sorted(found.under("Steps and requests")["name"]) == ["step 12", "step 13"]
    steps = demo.units.filter(pl.col("id").is_in(["12", "13"]))
    kernels = found.events.filter(pl.col("category") == "kernel")
    low = min(steps["start_ns"].min(), demo.handoffs.filter(pl.col("step") == 12)["receive_post_ns"].min())
    assert low <= kernels["end_ns"].min()
    assert kernels["start_ns"].max() <= steps["end_ns"].max()
    assert 0 < kernels.height < 300


def test_a_window_counts_from_the_first_record(export, demo):
    _, found = export("--window", "10:20ms")
    begin = demo.trace.processes["window_start_ns"].min()
    calls = found.events.filter(pl.col("category") == "call")
    assert calls["end_ns"].min() >= begin + 10_000_000
    assert calls["start_ns"].max() <= begin + 20_000_000
    assert calls["start_ns"].max() > begin + 18_000_000


def test_a_handoff_brings_what_surrounds_it_on_its_ranks(export, demo):
    _, found = export("--handoff", "0-1:14")
    assert "0>1/0/14" in gaps(found)
    assert len(gaps(found)) <= 3
    row = demo.handoffs.filter(pl.col("seq") == 14).row(0, named=True)
    times = [row[f"{e}_ns"] for e in gapscope.schema.EVENTS]
    pad = (max(times) - min(times)) // 2
    calls = found.events.filter(pl.col("category") == "call")
    assert min(times) - pad <= calls["end_ns"].min() <= min(times)
    assert max(times) <= calls["start_ns"].max() <= max(times) + pad


def test_ranks_and_calls_can_be_left_out(export):
    _, found = export("--ranks", "1", "--no-calls")
    assert set(found.under("rank 0 (pid 853, host)")["category"]) == {"event"}
    assert "call" not in set(found.events["category"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--window", "5s:"], "Nothing is left"),
        (["--window", "10:20"], "give two times"),
        (["--window", "20ms:10ms"], "give two times"),
        (["--steps", "900:"], "None of these steps"),
        (["--steps", "x"], "give a step"),
        (["--ranks", "x"], "give rank numbers"),
        (["--ranks", "9"], "There are ranks 0, 1."),
        (["--handoff", "0-1:999"], "there is none"),
        (["--handoff", "0-1:10", "--window", "80ms:"], "No time is in all"),
    ],
)
def test_what_cannot_be_done_is_said(export, options, said):
    outcome, found = export(*options)
    assert outcome.code == 2
    assert said in outcome.err
    assert found is None


def test_times_below_zero_are_said(cli, tmp_path):
    recording = tmp_path / "early.json"
    mark = {"ph": "X", "cat": "user_annotation", "name": "gapscope::step step=1 rank=0", "pid": 10, "tid": 10}
    recording.write_text(json.dumps({"traceEvents": [{**mark, "ts": -1900, "dur": 100}]}))
    outcome = cli("export", "--perfetto", tmp_path / "x.pftrace", recording)
    assert outcome.code == 0
    assert "below zero, which a trace cannot show: all are shown 1.90 ms later." in outcome.out


def test_without_a_name_nothing_is_written(cli):
    outcome = cli("export", "--demo")
    assert (outcome.code, "--perfetto run.pftrace" in outcome.err) == (2, True)
    assert cli("export", "--perfetto", "x").code == 2


@pytest.mark.parametrize("text", ["", ":", "5", "1s", "a:b", "-1s:2s", "1s:1s", "1x:2x", "0:1.23456789123s"])
def test_windows_that_cannot_be_read(text):
    with pytest.raises(UsageError, match="give two times"):
        window_of(text)


@pytest.mark.parametrize(
    ("text", "window"),
    [("0:1ms", (0, 1_000_000)), (":2s", (None, 2 * 10**9)), ("1.5:2us", (1500, 2000)), ("3ms:1s", (3_000_000, 10**9))],
)
def test_windows(text, window):
    assert window_of(text) == window

"""Real transfers and collectives with no mark in their code, marked by the adapter c10d."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import gapscope
from tests.integration.c10d_job import ELEMENTS, PIPELINE_MICROBATCHES, PIPELINE_ROWS, PIPELINE_WIDTHS

pytestmark = pytest.mark.xdist_group("c10d")

JOB = Path(__file__).with_name("c10d_job.py")
FLOAT_BYTES = 4
FIRST, TAG = 8, 1024  # of the adapter's channels: the first group, and what a tag adds
WHOLE = ELEMENTS * FLOAT_BYTES
BETWEEN = ["submit_ns", "receive_post_ns", "movement_start_ns", "available_ns"]


def handoffs_of(folder, attach, *options):
    command = [sys.executable, "-m", "gapscope_instrumentation", "--attach", attach, JOB, "--out", folder, *options]
    environment = {**os.environ, "GAPSCOPE_DIR": str(folder / "marks")}
    done = subprocess.run(
        list(map(str, command)), check=False, capture_output=True, text=True, timeout=300, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return gapscope.analyze([folder / "marks"]).handoffs


@pytest.fixture(scope="module")
def handoffs(tmp_path_factory):
    return handoffs_of(tmp_path_factory.mktemp("c10d"), "c10d")


def test_transfers_have_their_key_their_bytes_and_both_sides(handoffs):
    key = ["src_rank", "dst_rank", "channel", "seq", "size_bytes"]
    pairs = handoffs.filter(pl.col("kind") == "p2p")
    matched = pairs.filter(pl.col("status") == "incomplete")
    assert sorted(matched.select(key).rows()) == [
        (0, 1, FIRST, 0, WHOLE),
        # Number 1 went to a receive from any rank: that side is counted, not marked.
        (0, 1, FIRST, 2, 2 * FLOAT_BYTES),
        (0, 1, FIRST, 3, 3 * FLOAT_BYTES),  # in the batch
        (0, 1, FIRST + 1, 0, FLOAT_BYTES),  # in the second group of the two
        (0, 1, FIRST + TAG, 0, WHOLE),
        (0, 1, FIRST + 2 * TAG, 0, WHOLE),
        (1, 0, FIRST, 0, 3 * FLOAT_BYTES),
    ]
    assert matched.select(pl.col(BETWEEN).is_not_null().all()).row(0) == (True,) * len(BETWEEN)
    # What computes is not known to this adapter, and the analyzer says so.
    ends = matched.select("producer_finish_ns", "consumer_start_ns")
    assert ends.null_count().row(0) == (matched.height,) * 2
    others = pairs.filter(pl.col("status") != "incomplete").select(*key, pl.col("status").cast(pl.String))
    assert others.rows() == [(0, 1, FIRST, 1, WHOLE, "unmatched_send")]
    assert set(pairs["transport"]) == {"gloo"}


def test_collectives_have_their_group_their_bytes_and_who_came_last(handoffs):
    collectives = handoffs.filter(pl.col("kind") == "collective").sort("seq")
    # One row for the rank that waited: of two ranks, one did.
    assert collectives.select("group", "seq", "size_bytes").rows() == [("0", seq, WHOLE) for seq in range(3)]
    assert set(collectives.select(pl.col("src_rank") + pl.col("dst_rank")).to_series()) == {1}
    assert collectives.select(pl.col(BETWEEN).is_not_null().all()).row(0) == (True,) * len(BETWEEN)
    assert set(collectives["transport"]) == {"gloo"}


def test_what_another_adapter_marks_is_not_marked_again(tmp_path):
    alone = handoffs_of(tmp_path / "alone", "torch_pipelining", "--pipeline")
    both = handoffs_of(tmp_path / "both", "c10d,torch_pipelining", "--pipeline")
    key = ["src_rank", "dst_rank", "channel", "seq", "microbatch", "direction", "size_bytes", "messages"]
    pipeline = both.filter(pl.col("channel") < FIRST)
    assert sorted(pipeline.select(key).rows()) == sorted(alone.select(key).rows())
    nbytes = PIPELINE_ROWS * sum(PIPELINE_WIDTHS) * FLOAT_BYTES
    assert set(alone["size_bytes"]) == {nbytes}  # of both tensors of a handoff
    assert alone.height == 2 * PIPELINE_MICROBATCHES
    assert set(pipeline["status"].cast(pl.String)) == {"complete"}
    # The rest is what the schedule exchanges to set itself up: nothing of it has a microbatch.
    rest = both.filter(pl.col("channel") >= FIRST)
    assert rest["microbatch"].null_count() == rest.height > 0

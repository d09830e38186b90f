"""Real jobs of torch.distributed.pipelining over gloo, with no mark on any handoff."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import gapscope

JOB = Path(__file__).with_name("schedule_job.py")
STEPS, MICROBATCHES = 2, 4


pytestmark = pytest.mark.xdist_group("schedules")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the folder with what one job recorded of all pipelines, each in its own."""
    folder = tmp_path_factory.mktemp("schedules")
    command = [sys.executable, JOB, "--out", folder, "interleaved-2", "interleaved-4", "1f1b-2"]
    subprocess.run(list(map(str, command)), check=True, timeout=300)
    return folder


@pytest.mark.parametrize("ranks", [2, 4])
def test_interleaved_schedules_name_stages_and_microbatches(recorded, ranks):
    found = gapscope.analyze(recorded / f"interleaved-{ranks}")
    handoffs = found.handoffs
    stages = 2 * ranks
    # Every border between two stages, both ways, every microbatch of every step: once.
    expected = {
        (src, src + way, "fwd" if way > 0 else "bwd", src % ranks, (src + way) % ranks, microbatch, step)
        for way in (1, -1)
        for src in range(stages)
        if 0 <= src + way < stages
        for microbatch in range(MICROBATCHES)
        for step in range(STEPS)
    }
    columns = ["src_stage", "dst_stage", "direction", "src_rank", "dst_rank", "microbatch", "step"]
    assert sorted(handoffs.select(columns).rows()) == sorted(expected)
    assert set(handoffs["origin"]) == {"metadata"}
    assert set(handoffs["transport"]) == {"gloo"}
    assert handoffs["producer_finish_source"].cast(pl.String).unique().to_list() == ["emitted"]
    # No receive returns before its producer had finished, whatever the clocks.
    assert "violation" not in handoffs["order"].cast(pl.String).to_list()
    assert set(handoffs["status"].cast(pl.String)) == {"complete"}


def test_one_forward_one_backward_is_paired_by_order(recorded):
    found = gapscope.analyze(recorded / "1f1b-2")
    per_edge = found.handoffs.group_by("src_rank", "dst_rank", "step").len().sort("src_rank", "step").rows()
    assert per_edge == [(0, 1, 0, 4), (0, 1, 1, 4), (1, 0, 0, 4), (1, 0, 1, 4)]
    assert set(found.handoffs["origin"]) == {"order"}
    assert set(found.handoffs["status"].cast(pl.String)) == {"complete"}
    assert "violation" not in found.handoffs["order"].cast(pl.String).to_list()

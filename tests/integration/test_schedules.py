"""Real jobs of torch.distributed.pipelining over gloo, with no mark on any handoff."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import gapscope

JOB = Path(__file__).with_name("schedule_job.py")
STEPS, MICROBATCHES = 2, 4


def recorded(folder, schedule, ranks):
    command = [sys.executable, JOB, "--out", folder, "--schedule", schedule, "--ranks", str(ranks)]
    subprocess.run(list(map(str, command)), check=True, timeout=300)
    return gapscope.analyze(folder)


@pytest.mark.xdist_group("schedules")
@pytest.mark.parametrize("ranks", [2, 4])
def test_interleaved_schedules_name_stages_and_microbatches(tmp_path, ranks):
    found = recorded(tmp_path, "interleaved", ranks)
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


@pytest.mark.xdist_group("schedules")
def test_one_forward_one_backward_is_paired_by_order(tmp_path):
    found = recorded(tmp_path, "1f1b", 2)
    per_edge = found.handoffs.group_by("src_rank", "dst_rank", "step").len().sort("src_rank", "step").rows()
    assert per_edge == [(0, 1, 0, 4), (0, 1, 1, 4), (1, 0, 0, 4), (1, 0, 1, 4)]
    assert set(found.handoffs["origin"]) == {"order"}
    assert set(found.handoffs["status"].cast(pl.String)) == {"complete"}
    assert "violation" not in found.handoffs["order"].cast(pl.String).to_list()

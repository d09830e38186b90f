"""Handoffs without marks on the lab's recordings: what marks say about them, they say without."""

import gzip
import json
import sqlite3
from functools import cache

import polars as pl
import pytest

import gapscope
from gapscope.load import LoadOptions
from gapscope.schema import EVENTS
from tests.integration.analyzed import analyzed, of_runs, paths_or_skip

US = 1_000
GPU_EVENTS = ("producer_finish", "movement_start", "available", "consumer_start")
COUNTED = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")


def is_mark(name):
    return str(name).startswith("gapscope::") and not str(name).startswith("gapscope::step")


def without_marks(source, folder):
    """Copy a recording without the marks of its handoffs."""
    copy = folder / source.name
    if source.name.endswith(".json.gz"):
        recorded = json.loads(gzip.decompress(source.read_bytes()))
        recorded["traceEvents"] = [e for e in recorded["traceEvents"] if not is_mark(e.get("name"))]
        copy.write_bytes(gzip.compress(json.dumps(recorded).encode(), 1))
        return copy
    copy = copy.with_suffix("")
    copy.write_bytes(gzip.decompress(source.read_bytes()))
    with sqlite3.connect(copy) as db:
        db.execute("DELETE FROM NVTX_EVENTS WHERE text LIKE 'gapscope::%' AND text NOT LIKE 'gapscope::step%'")
    return copy


NCCL = ["none", "late_submit", "late_launch", "slow_consumer"]


@of_runs([*(f"two_gpus_nccl_{cause}_torch" for cause in NCCL), "two_gpus_nccl_none_nsys", "two_gpus_nccl_mixed"])
def test_events_and_pairs_are_those_that_marks_name(run, tmp_path):
    marked = analyzed(run).handoffs
    ranks = analyzed(run).trace.processes.select("pid", "rank").drop_nulls().iter_rows()
    options = LoadOptions(rank_of=dict(ranks)) if "torch" not in run else None
    stripped = [without_marks(p, tmp_path) for p in paths_or_skip(run)]
    found = gapscope.analyze(stripped, options=options).handoffs.filter(pl.col("transport") == "nccl")
    assert found.height == marked.height
    assert set(found["origin"]) == {"metadata" if run.endswith("torch") else "order"}
    both = marked.join(found, on=["src_rank", "dst_rank", "producer_finish_ns"], suffix="_found")
    assert both.height == marked.height
    for event in GPU_EVENTS[1:]:
        assert both[f"{event}_ns"].equals(both[f"{event}_ns_found"], check_names=False), event
    assert both["step"].equals(both["step_found"], check_names=False)
    # What the host asked for lies within the mark around it.
    for event in ("submit", "receive_post"):
        after = both[f"{event}_ns_found"] - both[f"{event}_ns"]
        assert after.min() >= 0
        assert after.max() < 500 * US
    # Sorted by the sender's order, as the marks' numbers are.
    assert both.sort("seq")["seq_found"].is_sorted()


def test_causes_without_marks_are_those_with_them(tmp_path):
    run = "two_gpus_nccl_late_submit_torch"
    stripped = [without_marks(p, tmp_path) for p in paths_or_skip(run)]
    found = gapscope.analyze(stripped).handoffs.filter((pl.col("transport") == "nccl") & COUNTED)
    assert found.height == 19
    assert set(found["dominant_cause"]) == {"late_submission"}
    assert 1_900 * US < found["dominant_ns"].median() < 2_500 * US


@pytest.mark.xdist_group("two_gpus_nccl_none_torch")
def test_unmarked_is_asked_for_where_there_are_marks():
    run = "two_gpus_nccl_none_torch"
    assert set(analyzed(run).handoffs["origin"]) == {"marks"}
    beside = gapscope.analyze(paths_or_skip(run), unmarked=True).handoffs
    # The NCCL kernels are within marks; the token over gloo is not, and has channels of its own.
    counts = beside.group_by("origin", "transport").len().sort("origin").rows()
    assert counts == [("marks", "nccl", 20), ("order", "gloo", 20)]
    assert beside["handoff_id"].n_unique() == 40
    kept = beside.filter(pl.col("origin") == "marks")
    columns = [f"{e}_ns" for e in EVENTS] + ["dominant_cause", "removable_ns"]
    assert kept.select(columns).equals(analyzed(run).handoffs.select(columns))


F1B1 = {"torch": None, "nsys": LoadOptions(rank_of={4346: 0, 4347: 1})}


@cache
def f1b1(tool):
    return gapscope.analyze(paths_or_skip(f"two_gpus_f1b1_{tool}"), options=F1B1[tool])


@pytest.mark.parametrize("tool", F1B1)
def test_one_forward_one_backward_both_ways(tool):
    handoffs = f1b1(tool).handoffs
    # Four steps of eight microbatches, forward and backward.
    assert dict(handoffs.group_by("src_rank").len().iter_rows()) == {0: 32, 1: 32}
    assert set(handoffs["status"].cast(pl.String)) == {"complete"}
    assert set(handoffs["order"].cast(pl.String)) == {"ok"}
    assert set(handoffs["origin"]) == {"metadata" if tool == "torch" else "order"}
    assert handoffs["size_bytes"].unique().to_list() == [4_194_304 if tool == "torch" else None]
    per_step = handoffs.group_by("src_rank", "step").len()
    assert per_step["len"].unique().to_list() == [8]
    # Rank 1, the last stage, is the slower one: it asks for what comes forward when it has time, and rank 0 waits
    # for what comes back.
    forward, backward = (handoffs.filter(COUNTED & (pl.col("src_rank") == r)) for r in (0, 1))
    assert set(forward["dominant_cause"]) <= {"late_receive", "late_launch"}
    assert forward.filter("consumer_bound").height == forward.height
    assert set(backward["dominant_cause"]) <= {"late_submission", "submit_call"}


@pytest.mark.parametrize("tool", F1B1)
def test_tiles_of_unmarked_handoffs_sum_to_the_gap(tool):
    sums = f1b1(tool).tiles.group_by("handoff_id").agg(total=pl.col("duration_ns").sum())
    both = f1b1(tool).handoffs.join(sums, on="handoff_id")
    assert both.height == 64
    assert both["total"].equals(both["gap_ns"], check_names=False)


def test_processes_without_ranks_are_named():
    found = analyzed("two_gpus_f1b1_nsys")
    assert not found.handoffs.height
    notes = [f for f in found.findings if f.code == "communication_without_ranks"]
    assert len(notes) == 1
    assert "4346" in notes[0].message
    assert "4347" in notes[0].message
    assert "--rank-of 4346=" in notes[0].hint


def test_all_reduces_name_the_last_rank_and_part_wait_from_transfer():
    found = analyzed("two_gpus_tp_torch")
    handoffs = found.handoffs
    # Of two ranks one waits each time.
    assert handoffs.height == 64
    assert set(handoffs["kind"]) == {"collective"}
    assert set(handoffs["group"]) == {"0"}
    assert handoffs["size_bytes"].unique().to_list() == [8_192]
    late = handoffs.filter(pl.col("step") > 0)
    # As the lab's README has it: rank 0 is later in 31 of 48, by 24 to 462 us, median 171.
    assert dict(late.group_by("src_rank").len().iter_rows()) == {0: 31, 1: 17}
    skew = late["movement_start_ns"] - late["arrival_ns"]
    assert skew.min() > 20 * US
    assert 160 * US < skew.median() < 180 * US
    assert skew.max() < 470 * US
    # Both forms of the split name the same rank, and the transfer takes 5.2 to 6.0 us.
    assert (late["shortest_rank"] == late["src_rank"]).all()
    assert late["transfer_ns"].min() > 5 * US
    assert late["transfer_ns"].max() < 6_100
    [group] = found.summary["groups"]
    assert group["collectives"] == 48
    assert [(r["rank"], r["times"], r["agreed"]) for r in group["last"]] == [(0, 31, 31), (1, 17, 17)]
    assert group["transfer"]["by"] == "length"
    # The causes are found on the rank that was last.
    tiles = found.tiles.join(late.select("handoff_id"), on="handoff_id", how="semi")
    asked = tiles.filter(pl.col("cause").is_in(["late_submission", "submit_call"]))
    assert (asked["rank"] == asked["src_rank"]).all()


def test_declared_kernels_are_collectives():
    """The all-reduce kernels of the same recording, told by their name alone, beside their own metadata."""
    names = gapscope.analyze(paths_or_skip("two_gpus_tp_torch"), comm_kernels=["ncclDevKernel_AllReduce"]).handoffs
    assert names.height == 64  # once, not twice
    with pytest.raises(gapscope.errors.UsageError, match=r"no pattern"):
        gapscope.analyze(paths_or_skip("two_gpus_tp_torch"), comm_kernels=["("])


def test_one_rank_alone_is_said():
    one = paths_or_skip("two_gpus_tp_torch")[:1]
    found = gapscope.analyze(one)
    assert not found.handoffs.height
    [note] = [f for f in found.findings if f.code == "unpaired_collectives"]
    assert (note.count, note.rank) == (64, 0)
    send = paths_or_skip("two_gpus_f1b1_torch")[:1]
    found = gapscope.analyze(send)
    states = dict(found.handoffs.group_by(pl.col("status").cast(pl.String)).len().iter_rows())
    assert states == {"unmatched_send": 32, "unmatched_receive": 32}

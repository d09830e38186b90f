"""Recordings with an injected cause: interference, many messages, and what was not marked.

`tests/data/README.md` says what each run must show; the numbers there are from the raw files.
"""

from functools import cache

import polars as pl
import pytest

import gapscope
from tests.reference.runs import REPOSITORY

FOLDER = REPOSITORY / "tests" / "data" / "causes"
US = 1_000
COUNTED = (pl.col("status") == "complete") & pl.col("steady") & (pl.col("order") == "ok")


@cache
def analyzed(run, **options):
    return gapscope.analyze([FOLDER / f"{run}_rank{rank}.json.gz" for rank in (0, 1)], **options)


def test_products_beside_a_transfer_are_slower_on_both_ranks():
    rows = analyzed("interference_nccl").interference
    products = rows.filter((pl.col("what") == "kernel") & pl.col("name").str.contains("256x128")).sort("rank")
    # 13 steps of 8 products a rank, 6 of them beside the transfer; on rank 1 only their first three overlap it.
    assert products.select("rank", "alone_n", "overlapped_n").rows() == [(0, 56, 48), (1, 86, 18)]
    assert products["verdict"].to_list() == ["slower", "slower"]
    for row in products.to_dicts():
        assert 168 * US < row["alone_p50_ns"] < 181 * US
        assert 228 * US < row["overlapped_p50_ns"] < 256 * US
        assert 70 * US < row["shift_lo_ns"] <= row["shift_ns"] <= row["shift_hi_ns"] < 80 * US
    # What ran a few times only gets no verdict.
    assert set(rows.filter(pl.min_horizontal("alone_n", "overlapped_n") < 8)["verdict"]) == {"too few"}


def test_the_handoff_beside_them_waits_for_work_and_is_not_queued():
    """Its transfer moves; the consumer is held by what rank 0 still computes for the other handoff."""
    tiles = analyzed("interference_nccl").tiles.filter((pl.col("channel") == 1) & (pl.col("rank") == 0))
    late = tiles.filter(pl.col("phase") == "movement")
    assert late.height > 0
    assert "stream_queueing" not in set(late["cause"])
    assert set(late.filter(pl.col("lane").str.starts_with("gpu"))["cause"]) <= {
        "upstream_compute", "stream_turnaround", "event_release", "movement", "launch_latency",
    }  # fmt: skip


# From message to message and of that moving in submission-bound steps; moving in all, and from first to last, in the
# others: µs, from the raw files.
FRAGMENTED = {"fragmented_nccl": (16, 160, 5, 6_040, 6_070), "fragmented_copy_engine": (64, 55, 2, 5_600, 5_900)}


@pytest.mark.parametrize("run", FRAGMENTED)
def test_many_messages_are_bound_by_what_was_injected(run):
    n, apart, each, moving, whole = FRAGMENTED[run]
    found = analyzed(run)
    rows = found.messages.join(found.handoffs.select("handoff_id", "step", "steady"), on="handoff_id")
    assert rows["messages"].unique().to_list() == [n]
    steps = {row["step"]: row for row in rows.filter("steady").to_dicts()}
    assert {step: row["verdict"] for step, row in steps.items()} == {
        step: "submission-bound" if step % 2 == 0 else "bandwidth-bound" for step in (6, 7, 8, 9)
    }
    # Step 6 of the run over NCCL has one slow call besides.
    calm = steps[8]
    assert calm["span_ns"] == pytest.approx(n * apart * US, rel=0.1)
    if run == "fragmented_nccl":
        assert calm["moving_ns"] == pytest.approx(n * each * US, rel=0.4)
    assert calm["unlaunched_ns"] > 0.5 * calm["span_ns"]
    for step in (7, 9):
        assert steps[step]["moving_ns"] == pytest.approx(moving * US, rel=0.03)
        assert steps[step]["span_ns"] == pytest.approx(whole * US, rel=0.03)
        assert steps[step]["unlaunched_ns"] < 0.02 * steps[step]["span_ns"]
    for row in rows.to_dicts():
        parts = ("moving_ns", "unlaunched_ns", "queued_ns", "latency_ns", "unknown_ns")
        assert sum(row[part] for part in parts) == row["span_ns"]


def test_unmarked_batches_are_paired_and_name_the_late_rank():
    handoffs = analyzed("bidirectional_nccl").handoffs.sort("src_rank", "seq")
    per_step = handoffs.group_by("src_rank", "step").len()
    assert per_step.height == 18
    assert per_step["len"].unique().to_list() == [2]
    assert set(handoffs["status"].cast(pl.String)) == {"complete"}
    sizes = dict(handoffs.select("src_rank", "size_bytes").unique().iter_rows())
    assert sizes == {0: 4 << 20, 1: 2 << 20}
    # The second batch of a step: the host of rank 1 (odd steps: rank 0) sleeps 1 ms before it.
    second = handoffs.filter(COUNTED).with_columns(late=1 - pl.col("step") % 2).filter(pl.col("seq") % 2 == 1)
    from_late = second.filter(pl.col("src_rank") == pl.col("late"))
    to_late = second.filter(pl.col("dst_rank") == pl.col("late"))
    # In steps 10 and 11 a host call of rank 1 took 2 ms besides.
    assert from_late["dominant_cause"].to_list().count("late_submission") >= from_late.height - 1
    assert to_late["dominant_cause"].to_list().count("late_receive") >= to_late.height - 2


@pytest.mark.parametrize(("run", "kernels"), [("late_rank_unmarked", ()), ("one_shot_unmarked", ("one_shot",))])
def test_unmarked_all_reduces_name_the_late_rank(run, kernels):
    found = analyzed(run, comm_kernels=kernels)
    handoffs = found.handoffs.filter("steady").with_columns(k=pl.col("seq") % 3)
    assert handoffs.height == 18
    # Before the first the host of rank 1 (odd steps: 0) sleeps; before the third the other rank's stream is busy.
    first, third = (handoffs.filter(pl.col("k") == k) for k in (0, 2))
    assert (first["src_rank"] == 1 - first["step"] % 2).all()
    assert (third["src_rank"] == third["step"] % 2).all()
    assert set(first["dominant_cause"]) == {"late_submission"}
    assert first["dominant_ns"].min() > 1_400 * US
    # The busy kernel is the last that the communication had to wait for: the gap behind it is the transfer alone.
    assert third["gap_ns"].max() < 10 * US
    assert (handoffs["shortest_rank"] == handoffs["src_rank"]).all()
    assert 5 * US < handoffs["transfer_ns"].median() < 8 * US
    [group] = found.summary["groups"]
    assert [(r["rank"], r["times"]) for r in group["last"]] == [(0, 9), (1, 9)]


def test_a_kernel_of_its_own_is_found_only_if_it_is_declared():
    assert not analyzed("one_shot_unmarked").handoffs.height

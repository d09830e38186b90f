"""How time on the chain is named, on the lab's recordings."""

import polars as pl
import pytest

import gapscope
from tests.integration.analyzed import analyzed, paths_or_skip

US = 1_000


@pytest.mark.xdist_group("one_gpu_gloo_none_torch")
def test_the_first_buffer_that_torch_asks_for_is_the_profilers():
    """It stands in the file without a thread; rank 1 did nothing else for 2,491 µs, and then called."""
    found = analyzed("one_gpu_gloo_none_torch").tiles.filter(pl.col("cause") == "profiler_overhead")
    assert found.select("handoff_id", "rank", "lane", "detail", "evidence", "duration_ns").rows() == [
        ("0>1/0/9", 1, "host:1140", "Activity Buffer Request", "inferred", 2_491_213)
    ]


@pytest.mark.xdist_group("two_gpus_nccl_late_submit_nsys")
def test_what_the_profiler_does_on_other_threads_is_not_on_the_chain():
    """nsys allocates memory for 509 µs on NCCL's watchdog thread while rank 0 sleeps before a send."""
    assert "profiler_overhead" not in set(analyzed("two_gpus_nccl_late_submit_nsys").tiles["cause"])


def test_nsys_says_which_streams_wait_for_the_default_stream():
    """torch computes in the legacy default stream, 7, and makes all its own streams non-blocking."""
    trace = gapscope.load(paths_or_skip("one_gpu_mailbox_mixed"))
    found = trace.table("streams").filter(pl.col("stream").is_in([7, 13]))
    assert found.select("source", "rank", "device", "context", "stream", "kind").rows() == [
        (0, 0, 0, 1, 7, "legacy_default"),
        (0, 0, 0, 1, 13, "non_blocking"),
    ]


@pytest.mark.xdist_group("one_gpu_gloo_none_torch")
def test_what_gloo_receives_within_the_receive_is_data_and_the_token_holds_no_gap():
    """Rank 0 waits for the token before its stage, so it is in no gap; each receive on rank 1 is the handoff's data."""
    found = analyzed("one_gpu_gloo_none_torch").tiles
    messages = found.filter((pl.col("op") == "gloo:recv") & (pl.col("cause") != "unexplained"))
    assert set(messages["cause"]) == {"movement"}
    assert set(messages["rank"]) == {1}
    assert messages["handoff_id"].n_unique() == 20

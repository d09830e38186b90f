"""The product against the reference, on every lab recording, to the nanosecond."""

import shutil
import subprocess
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

import gapscope
from tests.integration.analyzed import ALL_RUNS, analyzed, of_runs, paths_or_skip
from tests.reference.handoffs import EVENTS, reference_handoffs
from tests.reference.runs import PARTIAL_RUNS, REPORTS, RUNS, TWICE_RECORDED, UNMARKED_RUNS, recording_path

MARKED_RUNS = [name for name, _ in RUNS if name not in UNMARKED_RUNS]
PARTIAL_RUN_NAMES = [name for name, _ in PARTIAL_RUNS]

KEY_COLUMNS = ["src_rank", "dst_rank", "channel", "seq"]
PRODUCT_NAME = {"mb": "microbatch"}  # where a column of the product is named other than in the marks
HOST_EVENTS = ("submit_ns", "receive_post_ns")
STAGE_EVENTS = ("producer_finish_ns", "consumer_start_ns")
GRAPH_BLOCK_RUNS = ("one_gpu_mailbox_graph_nsys",)  # stages recorded as one block: bounds, not operations

# No step of the lab but the first of a capture lasts as long; in that one the ranks wait for each other's profiler.
START_UP_WAIT_NS = 25_000_000


def handoffs_or_skip(run):
    return analyzed(run).handoffs


@cache
def reference(run):
    return reference_handoffs(paths_or_skip(run))


def assert_equal_to_reference(handoffs, expected):
    """Same keys, and the same times and labels for each; says which differ and how."""
    rows = [row for row in handoffs.to_dicts() if row["origin"] == "marks"]
    keys = Counter(tuple(row[column] for column in KEY_COLUMNS) for row in rows)
    assert keys == Counter(list(expected))

    differences = {}
    for row in rows:
        key = tuple(row[column] for column in KEY_COLUMNS)
        for name, expected_value in expected[key].items():
            value = row[PRODUCT_NAME.get(name, name)]
            if value != expected_value:
                differences[key, name] = f"{value} and not {expected_value}"
    assert differences == {}


# Times ----------------------------------------------------------------------------------------------------------


@of_runs(ALL_RUNS)
def test_handoffs_equal_the_reference(run):
    assert_equal_to_reference(handoffs_or_skip(run), reference(run))


@of_runs(MARKED_RUNS + PARTIAL_RUN_NAMES)
def test_unmarked_communication_adds_no_handoffs_beside_marks(run):
    """The token that rank 1 sends back over gloo is communication, and not a handoff."""
    assert set(handoffs_or_skip(run)["origin"]) == {"marks"}


@of_runs(UNMARKED_RUNS)
def test_a_capture_without_handoff_marks_makes_no_marked_handoffs(run):
    assert "marks" not in set(handoffs_or_skip(run)["origin"])


@of_runs(MARKED_RUNS + PARTIAL_RUN_NAMES)
def test_each_time_says_how_it_was_had(run):
    for row in handoffs_or_skip(run).to_dicts():
        for event in EVENTS:
            source = row[event.removesuffix("_ns") + "_source"]
            if row[event] is None:
                assert source == "missing"
            elif event in HOST_EVENTS:
                assert source == "emitted"
            elif run in GRAPH_BLOCK_RUNS and event in STAGE_EVENTS:
                assert source == "estimated"
            else:
                assert source == "derived"


# What is said of the handoffs -----------------------------------------------------------------------------------


@of_runs(MARKED_RUNS)
def test_no_handoff_of_the_lab_violates_the_order(run):
    """Both comparisons behind `order` are within one GPU, so the alignment of the ranks has no part in it."""
    assert set(handoffs_or_skip(run)["order"]) == {"ok"}


@of_runs([name for name in MARKED_RUNS if len(ALL_RUNS[name]) == 1])
def test_both_ranks_in_one_recording_make_complete_handoffs(run):
    """Whether the ranks of two files can be aligned is for the tests of the clocks."""
    handoffs = handoffs_or_skip(run)
    assert set(handoffs["status"]) == {"complete"}
    gaps = handoffs["consumer_start_ns"] - handoffs["producer_finish_ns"]
    assert handoffs["gap_ns"].to_list() == gaps.to_list()


@of_runs(PARTIAL_RUN_NAMES)
def test_a_handoff_that_lacks_a_time_is_not_complete(run):
    for row in handoffs_or_skip(run).to_dicts():
        if None in [row[event] for event in EVENTS]:
            assert row["status"] != "complete"
            assert row["gap_ns"] is None


@of_runs(MARKED_RUNS)
def test_waiting_for_the_other_profiler_is_not_steady(run):
    expected = reference(run)
    steady = {tuple(row[column] for column in KEY_COLUMNS): row["steady"] for row in handoffs_or_skip(run).to_dicts()}
    for key, times in expected.items():
        if times["consumer_start_ns"] - times["producer_finish_ns"] > START_UP_WAIT_NS:
            assert not steady[key], key
    assert sum(steady.values()) >= len(expected) * 3 // 4


@of_runs(MARKED_RUNS)
def test_steady_handoffs_follow_those_that_are_not(run):
    rows = handoffs_or_skip(run).sort("seq").to_dicts()
    assert all(later["steady"] or not earlier["steady"] for earlier, later in pairwise(rows))


# The same answer from other inputs ------------------------------------------------------------------------------


SEVERAL_FILES = [
    "one_gpu_mailbox_both", "one_gpu_mailbox_both_only_torch", "one_gpu_mailbox_mixed", "one_gpu_mailbox_graph_torch",
    "one_gpu_copy_engine_none_torch", "one_gpu_gloo_none_torch", "two_gpus_mailbox_slot_hold_torch",
    "two_gpus_copy_engine_none_torch", "two_gpus_nccl_mixed", "two_gpus_nccl_late_submit_torch", "two_gpus_f1b1_torch",
    "two_gpus_tp_torch",
]  # fmt: skip
"""Of each transport and way to record; the others are runs of these programs with another cause."""


@of_runs(SEVERAL_FILES)
def test_the_order_of_the_files_does_not_matter(run):
    paths = paths_or_skip(run)
    for other_order in {tuple(paths[::-1]), (*paths[1:], paths[0])}:
        assert gapscope.analyze(other_order).handoffs.equals(handoffs_or_skip(run))


@of_runs(f"{run}_torch" for run in TWICE_RECORDED)
def test_both_tools_give_the_same_table(run):
    by_nsys = f"{run.removesuffix('_torch')}_nsys"
    from_nsys, from_torch = handoffs_or_skip(by_nsys), handoffs_or_skip(run)
    assert from_nsys.schema == from_torch.schema
    if by_nsys in UNMARKED_RUNS:
        return  # what can be told of unmarked communication depends on the tool
    same = [*KEY_COLUMNS, "handoff_id", "kind", "origin", "step", "microbatch", "size_bytes", "status", "order"]
    if set(from_torch["status"]) == {"unaligned"}:
        same.remove("status")
    assert from_nsys.select(same).sort(KEY_COLUMNS).equals(from_torch.select(same).sort(KEY_COLUMNS))


@of_runs(ALL_RUNS)
def test_every_run_has_the_same_columns(run):
    first, *_ = MARKED_RUNS
    assert handoffs_or_skip(run).schema == handoffs_or_skip(first).schema


@pytest.mark.nsys
@pytest.mark.parametrize(("name", "file_name"), REPORTS, ids=[name for name, _ in REPORTS])
def test_a_report_and_its_exports_equal_the_reference(name, file_name, tmp_path):
    report, nsys = recording_path(file_name), shutil.which("nsys")
    if report is None:
        pytest.skip("this recording is not on this machine")
    if nsys is None:
        pytest.skip("there is no nsys on PATH")
    exports = {"sqlite": tmp_path / "report.sqlite", "parquetdir": tmp_path / "report_parquet"}
    for kind, path in exports.items():
        command = [nsys, "export", "--type", kind, "--output", str(path), str(report)]
        subprocess.run(command, check=True, capture_output=True)

    expected = reference_handoffs([exports["sqlite"]])
    assert len(expected) == 20
    assert reference_handoffs([exports["parquetdir"]]) == expected
    for path in (report, *exports.values()):
        assert_equal_to_reference(gapscope.analyze([path]).handoffs, expected)

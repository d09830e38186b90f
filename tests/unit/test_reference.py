"""Pins what the reference says of the lab recordings, and checks its rules on traces small enough to read."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cache
from itertools import pairwise

import polars as pl
import pytest

from tests.reference.handoffs import EVENTS, reference_handoffs
from tests.reference.recording import OPERATION_TABLES, OTHER_TABLES, load_recording, sqlite_tables
from tests.reference.runs import FOLDERS, PARTIAL_RUNS, REPORTS, RUNS, UNMARKED_RUNS, recording_path, run_paths

ALL_RUNS = dict(RUNS + PARTIAL_RUNS)

# Runs with more or fewer than 20 handoffs, each with all six times.
HANDOFFS_OF_RUN = {
    "one_gpu_mailbox_slow_consumer_nsys": 40,
    "one_gpu_mailbox_slow_consumer_torch": 40,
    "two_gpus_mailbox_slow_consumer_nsys": 40,
    "two_gpus_mailbox_slot_hold_torch": 40,
    "two_gpus_copy_engine_slot_hold_nsys": 40,
    "two_gpus_nccl_slow_consumer_torch": 40,
    "two_gpus_f1b1_nsys": 0,
    "two_gpus_f1b1_torch": 0,
    "two_gpus_tp_torch": 0,
}
# Runs in which a time is seen in no handoff. All other times of all other runs are seen in every handoff.
UNSEEN_IN_RUN = {
    "one_gpu_mailbox_both_only_torch": {
        "producer_finish_ns",
        "movement_start_ns",
        "available_ns",
        "consumer_start_ns",
    },
    "one_gpu_mailbox_mixed_only_source": {"receive_post_ns", "available_ns", "consumer_start_ns"},
    "one_gpu_mailbox_mixed_only_destination": {"producer_finish_ns", "submit_ns", "movement_start_ns"},
    "two_gpus_nccl_none_torch_only_source": {"receive_post_ns", "available_ns", "consumer_start_ns"},
    "two_gpus_nccl_none_torch_only_destination": {"producer_finish_ns", "submit_ns", "movement_start_ns"},
}

SPELLED_OUT = [
    (
        "one_gpu_mailbox_none_nsys",
        (0, 1, 0, 18),
        {
            "producer_finish_ns": 1795968578203145662,
            "submit_ns": 1795968578203179699,
            "receive_post_ns": 1795968578201884563,
            "movement_start_ns": 1795968578203406267,
            "available_ns": 1795968578203430171,
            "consumer_start_ns": 1795968578203578138,
            "step": 18,
            "mb": 0,
            "size_bytes": 24576,
        },
    ),
    (
        "two_gpus_mailbox_slot_hold_torch",
        (0, 1, 0, 50),
        {
            "producer_finish_ns": 1795974330686528612,
            "submit_ns": 1795974330686551233,
            "receive_post_ns": 1795974330686621964,
            "movement_start_ns": 1795974330686871010,
            "available_ns": 1795974330687038729,
            "consumer_start_ns": 1795974330687040457,
            "step": 13,
            "mb": 1,
            "size_bytes": 4194304,
        },
    ),
    (
        "one_gpu_mailbox_graph_nsys",  # the graph is traced as one block
        (0, 1, 0, 18),
        {
            "producer_finish_ns": 1795968669485800082,
            "submit_ns": 1795968669485502422,
            "receive_post_ns": 1795968669485316295,
            "movement_start_ns": 1795968669485812786,
            "available_ns": 1795968669485823762,
            "consumer_start_ns": 1795968669485971536,
            "step": 18,
            "mb": 0,
            "size_bytes": 24576,
        },
    ),
    (
        "one_gpu_gloo_none_torch",
        (0, 1, 0, 18),
        {
            "producer_finish_ns": 1795968432749043451,
            "submit_ns": 1795968432749101154,
            "receive_post_ns": 1795968432747668703,
            "movement_start_ns": 1795968432749169050,
            "available_ns": 1795968432749697927,
            "consumer_start_ns": 1795968432749825350,
            "step": 18,
            "mb": 0,
            "size_bytes": 24576,
        },
    ),
    (
        "two_gpus_copy_engine_none_torch",  # the calls of the copies are not recorded
        (0, 1, 0, 18),
        {
            "producer_finish_ns": 1795970210601123050,
            "submit_ns": 1795970210601196409,
            "receive_post_ns": 1795970210600037854,
            "movement_start_ns": 1795970210601325866,
            "available_ns": 1795970210601346213,
            "consumer_start_ns": 1795970210601349829,
            "step": 18,
            "mb": 0,
            "size_bytes": 24576,
        },
    ),
    (
        "one_gpu_mailbox_both",  # two tools saw each rank, one of them with GPU work
        (0, 1, 0, 18),
        {
            "producer_finish_ns": 1795968846286272277,
            "submit_ns": 1795968846286293893,
            "receive_post_ns": 1795968846285308074,
            "movement_start_ns": 1795968846286484885,
            "available_ns": 1795968846286506293,
            "consumer_start_ns": 1795968846286649269,
            "step": 18,
            "mb": 0,
            "size_bytes": 24576,
        },
    ),
]


def paths_or_skip(run):
    paths = run_paths(ALL_RUNS[run])
    if paths is None:
        pytest.skip("this recording is not on this machine")
    return paths


@cache
def handoffs_of(run):
    return reference_handoffs(run_paths(ALL_RUNS[run]))


def handoffs_or_skip(run):
    paths_or_skip(run)
    return handoffs_of(run)


# The recordings -----------------------------------------------------------------------------------------------------


def test_some_recordings_are_on_this_machine():
    assert any(run_paths(file_names) for _, file_names in RUNS)


def test_every_recording_of_the_lab_belongs_to_one_run():
    lab = FOLDERS[0]
    if not lab.exists():
        pytest.skip("the lab's folder is not on this machine")
    suffixes = (".json.gz", ".sqlite.gz", ".nsys-rep")
    in_folder = Counter(str(file.relative_to(lab)) for file in lab.rglob("*") if file.name.endswith(suffixes))
    in_runs = Counter(file_name for _, file_names in RUNS for file_name in file_names)
    assert in_runs + Counter(file_name for _, file_name in REPORTS) == in_folder


@pytest.mark.parametrize("run", ALL_RUNS)
def test_number_of_handoffs_and_of_observed_times(run):
    handoffs = handoffs_or_skip(run)
    number = HANDOFFS_OF_RUN.get(run, 20)
    assert len(handoffs) == number
    observed = {event: sum(times[event] is not None for times in handoffs.values()) for event in EVENTS}
    unseen = UNSEEN_IN_RUN.get(run, set())
    assert observed == {event: 0 if event in unseen else number for event in EVENTS}


@pytest.mark.parametrize("run", [name for name, _ in RUNS if name not in UNMARKED_RUNS])
def test_keys_and_labels_are_those_that_the_lab_describes(run):
    handoffs = handoffs_or_skip(run)
    microbatches, first_seq, size_bytes = (4, 33, 4194304) if len(handoffs) == 40 else (1, 9, 24576)
    assert list(handoffs) == [(0, 1, 0, first_seq + number) for number in range(len(handoffs))]
    for (_, _, _, seq), times in handoffs.items():
        assert (times["step"], times["mb"]) == ((seq - 1) // microbatches + 1, (seq - 1) % microbatches)
        assert times["size_bytes"] == size_bytes


@pytest.mark.parametrize("run", [name for name, _ in RUNS if name not in UNMARKED_RUNS])
def test_times_are_in_an_order_that_can_happen(run):
    for key, times in handoffs_or_skip(run).items():
        assert times["submit_ns"] < times["movement_start_ns"], key
        assert times["receive_post_ns"] < times["available_ns"], key
        chain = [times[event] for event in ("producer_finish_ns", "movement_start_ns", "available_ns")]
        chain.append(times["consumer_start_ns"])
        assert all(earlier < later for earlier, later in pairwise(chain)), key


@pytest.mark.parametrize(("run", "key", "expected"), SPELLED_OUT, ids=[run for run, _, _ in SPELLED_OUT])
def test_one_handoff_spelled_out(run, key, expected):
    assert handoffs_or_skip(run)[key] == expected


def test_the_tool_without_gpu_work_changes_nothing():
    both = handoffs_or_skip("one_gpu_mailbox_both")
    assert both == handoffs_or_skip("one_gpu_mailbox_both_only_nsys")


@pytest.mark.parametrize(
    "run",
    [
        "one_gpu_mailbox_none_torch",
        "one_gpu_mailbox_graph_torch",
        "one_gpu_gloo_none_torch",
        "two_gpus_copy_engine_none_torch",
        "two_gpus_mailbox_slot_hold_torch",
    ],
)
def test_gpu_spans_of_the_tool_agree_with_the_times(run):
    """torch.profiler attributes operations to annotations on its own; its spans are one nanosecond wider each side."""
    handoffs = handoffs_or_skip(run)
    compared = 0
    for recording in map(load_recording, paths_or_skip(run)):
        for span in recording.spans:
            kind, *words = span.text.removeprefix("gapscope::").split(" ")
            fields = dict(word.split("=") for word in words)
            if kind == "step":
                continue
            times = handoffs[int(fields["src"]), int(fields["dst"]), 0, int(fields["seq"])]
            if kind == "produce":
                assert span.end_ns - 1 == times["producer_finish_ns"]
            elif kind == "submit":
                assert span.start_ns + 1 == times["movement_start_ns"]
            elif kind == "receive":
                assert span.end_ns - 1 == times["available_ns"]
            else:
                assert span.start_ns + 1 == times["consumer_start_ns"]
            compared += 1
    assert compared == 4 * len(handoffs)


@pytest.mark.parametrize("file_name", ["mailbox_none_nsys.sqlite.gz", "mailbox_graph_nsys.sqlite.gz"])
def test_a_parquet_export_reads_like_the_sqlite_export(file_name, tmp_path):
    source = recording_path(file_name)
    if source is None:
        pytest.skip("this recording is not on this machine")
    for table, rows in sqlite_tables(source).items():
        if rows:
            pl.DataFrame(rows, infer_schema_length=None).write_parquet(tmp_path / f"{table}.parquet")
    assert reference_handoffs([tmp_path]) == reference_handoffs([source])


# The rules, on traces small enough to read --------------------------------------------------------------------------

BASE_NS = 1_000_000_000_000_000_000


class KinetoFile:
    """Writes a Kineto file; times are microseconds after its base."""

    def __init__(self, path, pid=100):
        self.path = path
        self.pid = pid
        self.events = []

    def _add(self, category, name, pid, tid, start, end, **arguments):
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": round(end - start, 3),
                "args": arguments,
            }
        )

    def mark(self, text, start, end, thread=1):
        self._add("user_annotation", f"gapscope::{text}", self.pid, thread, start, end)

    def launch(self, correlation, call, operation, thread=1, stream=7):
        """One kernel and the call that launched it, each as (start, end)."""
        self._add("cuda_runtime", "cudaLaunchKernel", self.pid, thread, *call, correlation=correlation)
        self._add("kernel", "kernel", 0, stream, *operation, correlation=correlation)

    def copy_without_call(self, correlation, operation, stream=7):
        self._add("gpu_memcpy", "Memcpy DtoD", 0, stream, *operation, correlation=correlation)

    def gpu_span(self, text, start, end, stream=7):
        self._add("gpu_user_annotation", f"gapscope::{text}", 0, stream, start, end)

    def write(self):
        document = {"baseTimeNanoseconds": BASE_NS, "traceEvents": self.events}
        self.path.write_text(json.dumps(document))
        return self.path


@pytest.fixture
def kineto_file(tmp_path):
    return KinetoFile(tmp_path / "trace.json")


def after_base(microseconds):
    return BASE_NS + microseconds * 1000


def only_handoff(*files):
    handoffs = reference_handoffs([file.write() for file in files])
    (times,) = handoffs.values()
    return times


def test_kineto_times_are_exact(tmp_path):
    path = tmp_path / "exact.json"
    path.write_text(
        '{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{"ph": "X", "cat": "user_annotation", "pid": 1,'
        ' "tid": 1, "name": "x", "ts": 5111273933697.083, "dur": 9007199254.741}]}'
    )
    (host_range,) = load_recording(path).ranges
    assert host_range.start_ns == 1790857026000000000 + 5111273933697083
    assert host_range.end_ns == host_range.start_ns + 9007199254741


def test_a_time_finer_than_a_nanosecond_is_refused(kineto_file):
    kineto_file.mark("produce src=0 dst=1 seq=1", 0.0001, 2)
    with pytest.raises(ValueError, match="not a whole number of nanoseconds"):
        load_recording(kineto_file.write())


def test_launched_inside_is_by_call_not_by_overlap_on_the_gpu(kineto_file):
    kineto_file.mark("produce src=0 dst=1 seq=1", 100, 200)
    kineto_file.launch(1, call=(90, 95), operation=(110, 900))  # runs while the bracket is open, launched before
    kineto_file.launch(2, call=(150, 155), operation=(300, 400))  # launched in it, runs after it
    kineto_file.launch(3, call=(210, 215), operation=(500, 600))  # launched after
    assert only_handoff(kineto_file)["producer_finish_ns"] == after_base(400)


def test_calls_of_another_thread_are_not_inside(kineto_file):
    kineto_file.mark("produce src=0 dst=1 seq=1", 100, 200)
    kineto_file.launch(1, call=(150, 155), operation=(300, 400), thread=2)
    assert only_handoff(kineto_file)["producer_finish_ns"] is None


def test_a_correlation_id_belongs_to_its_process(tmp_path):
    source, destination = KinetoFile(tmp_path / "source.json"), KinetoFile(tmp_path / "destination.json")
    source.mark("produce src=0 dst=1 seq=1", 100, 200)
    source.launch(1, call=(150, 155), operation=(300, 400))
    destination.mark("consume src=0 dst=1 seq=1", 140, 600)
    destination.launch(1, call=(510, 515), operation=(520, 530))
    times = only_handoff(source, destination)
    assert times["producer_finish_ns"] == after_base(400)
    assert times["consumer_start_ns"] == after_base(520)


def test_what_a_nested_transfer_launches_does_not_count_for_the_stage(kineto_file):
    kineto_file.mark("produce src=0 dst=1 seq=1", 100, 300)
    kineto_file.launch(1, call=(110, 115), operation=(120, 180))
    kineto_file.mark("submit src=0 dst=1 seq=1", 200, 250)
    kineto_file.launch(2, call=(210, 215), operation=(220, 400))
    times = only_handoff(kineto_file)
    assert times["producer_finish_ns"] == after_base(180)
    assert times["movement_start_ns"] == after_base(220)


def test_one_forward_that_feeds_two_destinations(kineto_file):
    kineto_file.mark("produce src=0 dst=1 seq=1", 100, 200)
    kineto_file.mark("produce src=0 dst=2 seq=1", 105, 195)
    kineto_file.launch(1, call=(110, 115), operation=(120, 180))
    handoffs = reference_handoffs([kineto_file.write()])
    assert {times["producer_finish_ns"] for times in handoffs.values()} == {after_base(180)}
    assert len(handoffs) == 2


def test_consume_counts_after_the_last_receive_nested_in_it(kineto_file):
    kineto_file.mark("consume src=0 dst=1 seq=1", 100, 500)
    kineto_file.launch(1, call=(110, 115), operation=(120, 130))  # preparation
    kineto_file.mark("receive src=0 dst=1 seq=1", 150, 200)
    kineto_file.launch(2, call=(160, 165), operation=(170, 180))
    kineto_file.launch(3, call=(220, 225), operation=(230, 240))  # preparation, between two receives of the handoff
    kineto_file.mark("receive src=0 dst=1 seq=1", 250, 300)
    kineto_file.launch(4, call=(260, 265), operation=(270, 280))
    kineto_file.launch(5, call=(310, 315), operation=(320, 330))
    times = only_handoff(kineto_file)
    assert times["receive_post_ns"] == after_base(150)
    assert times["available_ns"] == after_base(280)
    assert times["consumer_start_ns"] == after_base(320)


def test_the_receive_of_another_handoff_does_not_make_earlier_work_preparation(kineto_file):
    kineto_file.mark("consume src=0 dst=1 seq=1", 100, 500)
    kineto_file.launch(1, call=(110, 115), operation=(120, 130))
    kineto_file.mark("receive src=0 dst=1 seq=2", 150, 200)
    kineto_file.launch(2, call=(160, 165), operation=(118, 119))
    handoffs = reference_handoffs([kineto_file.write()])
    assert handoffs[0, 1, 0, 1]["consumer_start_ns"] == after_base(120)


def test_receives_of_one_handoff_outside_its_consume(kineto_file):
    kineto_file.mark("receive src=0 dst=1 seq=1", 100, 150)  # posted
    kineto_file.mark("receive src=0 dst=1 seq=1", 200, 250)  # waited for
    kineto_file.launch(1, call=(210, 215), operation=(220, 230))
    kineto_file.mark("consume src=0 dst=1 seq=1", 300, 400)
    kineto_file.launch(2, call=(310, 315), operation=(320, 330))
    times = only_handoff(kineto_file)
    assert times["receive_post_ns"] == after_base(100)
    assert times["available_ns"] == after_base(230)
    assert times["consumer_start_ns"] == after_base(320)


def test_without_a_recorded_call_the_span_of_the_same_text_decides(kineto_file):
    text = "submit src=0 dst=1 seq=1"
    kineto_file.mark(text, 100, 150)
    kineto_file.gpu_span(text, 199.999, 250.001, stream=14)
    kineto_file.copy_without_call(1, operation=(205, 250), stream=14)
    kineto_file.copy_without_call(2, operation=(190, 195), stream=14)  # before the span
    kineto_file.copy_without_call(3, operation=(180, 220), stream=14)  # crosses its edge
    kineto_file.copy_without_call(4, operation=(200, 204), stream=7)  # on another stream
    assert only_handoff(kineto_file)["movement_start_ns"] == after_base(205)


def test_a_span_does_not_claim_operations_whose_call_is_recorded(kineto_file):
    text = "submit src=0 dst=1 seq=1"
    kineto_file.mark(text, 100, 150)
    kineto_file.gpu_span(text, 200, 300)
    kineto_file.launch(1, call=(90, 95), operation=(210, 220))
    kineto_file.copy_without_call(2, operation=(230, 240))
    assert only_handoff(kineto_file)["movement_start_ns"] == after_base(230)


def test_several_tensors_are_one_handoff(kineto_file):
    kineto_file.mark("submit src=0 dst=1 seq=1 slot=0 bytes=100", 100, 150)
    kineto_file.launch(1, call=(110, 115), operation=(220, 230))
    kineto_file.mark("submit src=0 dst=1 seq=1 slot=1 bytes=20", 200, 250)
    kineto_file.launch(2, call=(210, 215), operation=(240, 260))
    kineto_file.mark("receive src=0 dst=1 seq=1 slot=0 bytes=100", 300, 310)
    times = only_handoff(kineto_file)
    assert times["submit_ns"] == after_base(100)
    assert times["movement_start_ns"] == after_base(220)
    assert times["size_bytes"] == 120


def test_channels_are_different_handoffs(kineto_file):
    kineto_file.mark("submit src=0 dst=1 seq=1", 100, 150)
    kineto_file.mark("submit src=0 dst=1 channel=1 seq=1", 200, 250)
    assert list(reference_handoffs([kineto_file.write()])) == [(0, 1, 0, 1), (0, 1, 1, 1)]


def test_the_tool_that_recorded_gpu_work_is_asked(tmp_path):
    cpu_only, with_gpu = KinetoFile(tmp_path / "cpu.json"), KinetoFile(tmp_path / "gpu.json")
    cpu_only.mark("submit src=0 dst=1 seq=1", 101, 149)
    with_gpu.mark("submit src=0 dst=1 seq=1", 100, 150)
    with_gpu.launch(1, call=(110, 115), operation=(220, 230))
    times = only_handoff(cpu_only, with_gpu)
    assert times["submit_ns"] == after_base(100)
    assert times["movement_start_ns"] == after_base(220)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("movement_start src=0 dst=1 seq=1", "does not know"),
        ("submit src=0 dst=1 seq=1 step=2", "contradict"),
    ],
)
def test_what_the_reference_does_not_know_is_an_error(kineto_file, text, complaint):
    kineto_file.mark("submit src=0 dst=1 seq=1 step=1", 100, 150)
    kineto_file.mark(text, 160, 170)
    with pytest.raises(ValueError, match=complaint):
        reference_handoffs([kineto_file.write()])


def test_two_recordings_of_one_ranks_gpu_work_are_an_error(tmp_path):
    files = [KinetoFile(tmp_path / "first.json"), KinetoFile(tmp_path / "second.json")]
    for file in files:
        file.mark("submit src=0 dst=1 seq=1", 100, 150)
        file.launch(1, call=(110, 115), operation=(220, 230))
    with pytest.raises(ValueError, match="which recording"):
        reference_handoffs([file.write() for file in files])


# A hand-written nsys export -----------------------------------------------------------------------------------------

SOURCE, DESTINATION = 5 << 24, 6 << 24  # the process part of nsys's global ids

NSYS_TABLES = {
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(1000,)]),
    "StringIds": (
        "id, value",
        [(1, "gapscope::submit src=0 dst=1 seq=1"), (2, "cudaMemcpyAsync"), (3, "cudaGraphLaunch")],
    ),
    "NVTX_EVENTS": (
        "start, end, eventType, text, textId, globalTid",
        [
            (10, 20, 59, "gapscope::produce src=0 dst=1 seq=1", None, SOURCE + 7),
            (30, 40, 59, None, 1, SOURCE + 7),  # a registered string
            (35, None, 34, "a point", None, SOURCE + 7),
            (12, 50, 60, "gapscope::receive src=0 dst=1 seq=1", None, DESTINATION + 8),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, globalTid, correlationId, nameId",
        [
            (11, 12, SOURCE + 7, 1, 3),
            (31, 32, SOURCE + 7, 2, 2),
            (13, 14, DESTINATION + 8, 1, 2),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start, end, deviceId, streamId, correlationId, globalPid",
        [(15, 28, 0, 7, 1, SOURCE)],
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start, end, deviceId, streamId, correlationId, globalPid",
        [(33, 45, 0, 13, 2, SOURCE), (46, 48, 1, 13, 1, DESTINATION)],
    ),
}


def test_a_hand_written_nsys_export(tmp_path):
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, (columns, rows) in NSYS_TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({columns.replace('end', chr(34) + 'end' + chr(34))})")
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    assert set(NSYS_TABLES) <= set(OPERATION_TABLES + OTHER_TABLES)
    assert reference_handoffs([path]) == {
        (0, 1, 0, 1): {
            "producer_finish_ns": 1028,
            "submit_ns": 1030,
            "receive_post_ns": 1012,
            "movement_start_ns": 1033,
            "available_ns": 1048,
            "consumer_start_ns": None,
            "step": None,
            "mb": None,
            "size_bytes": None,
        }
    }

"""The lab recordings as data: which files belong to which run.

The recordings are looked for beside the repository first and in `tests/data` second, under the same names.
"""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (REPOSITORY.parent / "shared" / "traces" / "lab", REPOSITORY / "tests" / "data")


def _nsys(name):
    return [f"{name}_nsys.sqlite.gz"]


def _torch(name):
    return [f"{name}_torch_rank0.json.gz", f"{name}_torch_rank1.json.gz"]


# Every recording, in runs that hold both ranks. `one_gpu` is the lab's top folder, `two_gpus` the one inside it.
RUNS = [
    ("one_gpu_mailbox_none_nsys", _nsys("mailbox_none")),
    ("one_gpu_mailbox_none_torch", _torch("mailbox_none")),
    ("one_gpu_mailbox_late_submit_nsys", _nsys("mailbox_late_submit")),
    ("one_gpu_mailbox_late_submit_torch", _torch("mailbox_late_submit")),
    ("one_gpu_mailbox_late_launch_nsys", _nsys("mailbox_late_launch")),
    ("one_gpu_mailbox_late_launch_torch", _torch("mailbox_late_launch")),
    ("one_gpu_mailbox_slow_consumer_nsys", _nsys("mailbox_slow_consumer")),
    ("one_gpu_mailbox_slow_consumer_torch", _torch("mailbox_slow_consumer")),
    ("one_gpu_mailbox_graph_nsys", _nsys("mailbox_graph")),
    ("one_gpu_mailbox_graph_torch", _torch("mailbox_graph")),
    ("one_gpu_mailbox_graphnode_nsys", _nsys("mailbox_graphnode")),
    ("one_gpu_mailbox_events_nsys", _nsys("mailbox_events")),
    ("one_gpu_mailbox_mixed", ["mailbox_mixed_rank0.sqlite.gz", "mailbox_mixed_rank1.json.gz"]),
    ("one_gpu_mailbox_both", ["mailbox_both.sqlite.gz", "mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"]),
    ("one_gpu_copy_engine_none_nsys", _nsys("copy_engine_none")),
    ("one_gpu_copy_engine_none_torch", _torch("copy_engine_none")),
    ("one_gpu_copy_engine_consumer_busy_torch", _torch("copy_engine_consumer_busy")),
    ("one_gpu_gloo_none_torch", _torch("gloo_none")),
    ("two_gpus_mailbox_none_nsys", _nsys("two-gpus/mailbox_none")),
    ("two_gpus_mailbox_none_torch", _torch("two-gpus/mailbox_none")),
    ("two_gpus_mailbox_late_submit_nsys", _nsys("two-gpus/mailbox_late_submit")),
    ("two_gpus_mailbox_late_submit_torch", _torch("two-gpus/mailbox_late_submit")),
    ("two_gpus_mailbox_slow_consumer_nsys", _nsys("two-gpus/mailbox_slow_consumer")),
    ("two_gpus_mailbox_slot_hold_torch", _torch("two-gpus/mailbox_slot_hold")),
    ("two_gpus_copy_engine_none_nsys", _nsys("two-gpus/copy_engine_none")),
    ("two_gpus_copy_engine_none_torch", _torch("two-gpus/copy_engine_none")),
    ("two_gpus_copy_engine_slot_hold_nsys", _nsys("two-gpus/copy_engine_slot_hold")),
    ("two_gpus_nccl_none_nsys", _nsys("two-gpus/nccl_none")),
    ("two_gpus_nccl_none_torch", _torch("two-gpus/nccl_none")),
    ("two_gpus_nccl_late_submit_nsys", _nsys("two-gpus/nccl_late_submit")),
    ("two_gpus_nccl_late_submit_torch", _torch("two-gpus/nccl_late_submit")),
    ("two_gpus_nccl_late_launch_torch", _torch("two-gpus/nccl_late_launch")),
    ("two_gpus_nccl_slow_consumer_torch", _torch("two-gpus/nccl_slow_consumer")),
    ("two_gpus_nccl_mixed", ["two-gpus/nccl_mixed_rank0.sqlite.gz", "two-gpus/nccl_mixed_rank1.json.gz"]),
    ("two_gpus_f1b1_nsys", _nsys("two-gpus/f1b1")),
    ("two_gpus_f1b1_torch", _torch("two-gpus/f1b1")),
    ("two_gpus_tp_torch", _torch("two-gpus/tp")),
]

# The same files with some left out: one rank only, or only the tool that saw no GPU work.
PARTIAL_RUNS = [
    ("one_gpu_mailbox_both_only_nsys", ["mailbox_both.sqlite.gz"]),
    ("one_gpu_mailbox_both_only_torch", ["mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"]),
    ("one_gpu_mailbox_mixed_only_source", ["mailbox_mixed_rank0.sqlite.gz"]),
    ("one_gpu_mailbox_mixed_only_destination", ["mailbox_mixed_rank1.json.gz"]),
    ("two_gpus_nccl_none_torch_only_source", ["two-gpus/nccl_none_torch_rank0.json.gz"]),
    ("two_gpus_nccl_none_torch_only_destination", ["two-gpus/nccl_none_torch_rank1.json.gz"]),
]

# Runs that hold no mark of a handoff: what communication is found in them is not the reference's to say.
UNMARKED_RUNS = ("two_gpus_f1b1_nsys", "two_gpus_f1b1_torch", "two_gpus_tp_torch")

# Runs of one name, once recorded by nsys and once by torch.profiler.
TWICE_RECORDED = [
    name.removesuffix("_torch")
    for name, _ in RUNS
    if name.endswith("_torch") and name.removesuffix("_torch") + "_nsys" in dict(RUNS)
]

# Reports that only a real nsys can open; exported, they hold the tables that `recording.py` reads.
REPORTS = [
    ("two_gpus_report_mailbox_none", "two-gpus/reports/mailbox_none.nsys-rep"),
    ("two_gpus_report_mailbox_late_submit", "two-gpus/reports/mailbox_late_submit.nsys-rep"),
]


def recording_path(file_name):
    """Where a recording is on this machine, or None."""
    for folder in FOLDERS:
        if (folder / file_name).exists():
            return folder / file_name
    return None


def run_paths(file_names):
    """Where all recordings of a run are on this machine, or None if one is missing."""
    paths = [recording_path(file_name) for file_name in file_names]
    return None if None in paths else paths

"""Our own recordings of torch.profiler, against the numbers in the table that was counted when they were made.

They are no part of this repository; without them these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gapscope.readers.base import ReadOptions, no_progress
from gapscope.readers.kineto import KINETO

LAB = Path(__file__).parents[2].parent / "shared" / "traces" / "lab"
pytestmark = pytest.mark.skipif(not LAB.is_dir(), reason="the recordings are not here")


def _counted():
    """Rows of the tables of Kineto files in the notes beside the recordings, by file."""
    if not LAB.is_dir():
        return []
    rows, folder, header = [], LAB, []
    for line in (LAB / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("## Two GPUs"):
            folder = LAB / "two-gpus"
        if line.startswith("| file |"):
            header = cells
        elif cells[0].endswith(".json.gz") and "gpu_user_annotation" in header:
            rows.append((folder / cells[0], dict(zip(header, cells, strict=True))))
    return rows


COUNTED = _counted()


def _read(path):
    source = KINETO.read(path, ReadOptions(), no_progress)
    return source, {table: frame.collect() for table, frame in source.tables.items()}


def _count(frame, **values):
    return frame.filter(*(pl.col(column).cast(pl.String) == value for column, value in values.items())).height


def test_the_notes_list_the_recordings():
    assert len(COUNTED) == 38


@pytest.mark.parametrize(("path", "counted"), COUNTED, ids=[f"{p.parent.name}/{p.name}" for p, _ in COUNTED])
def test_counts_are_those_of_the_notes(path, counted):
    number = {key: int(text.replace(",", "")) for key, text in counted.items() if text.replace(",", "").isdecimal()}
    source, tables = _read(path)
    info = source.info
    assert source.findings == ()
    assert (info.events, info.clock, info.resolution_ns, info.truncated) == (number["events"], "unix", 1, False)
    assert _count(tables["ops"], kind="kernel") == number["kernel"]
    assert _count(tables["ops"], kind="memcpy") == number["gpu_memcpy"]
    assert tables["syncs"]["start_ns"].drop_nulls().len() == number["cuda_sync"]
    assert _count(tables["ranges"], kind="annotation") == number["user_annotation"]
    assert _count(tables["ranges"], kind="gpu_span") == number["gpu_user_annotation"]
    host = tables["comms"].filter(pl.col("thread").is_not_null()).height
    sends = _count(tables["ranges"], kind="op")
    assert info.dropped["cpu_op"] + host + sends == number["cpu_op"]
    marks = tables["ranges"].filter(pl.col("kind").cast(pl.String) == "annotation")["name"]
    for part in counted["marks"].split(","):
        name, count = part.split()
        assert marks.str.starts_with(f"gapscope::{name} ").sum() == int(count)
    (process,) = tables["processes"].to_dicts()
    assert process["file_rank"] == int(path.name.split("rank")[1][0])
    assert process["process"] == process["pid"]


def test_a_recording_without_gpu_activity_says_so():
    source, _ = _read(LAB / "mailbox_both_rank0.json.gz")
    assert (source.info.gpu_traced, source.info.cpu_only) == (False, False)
    assert _read(LAB / "mailbox_none_torch_rank0.json.gz")[0].info.gpu_traced is None


def test_sends_and_receives_of_nccl():
    for rank, op in ((0, "send"), (1, "recv")):
        comms = _read(LAB / "two-gpus" / f"nccl_none_torch_rank{rank}.json.gz")[1]["comms"]
        assert comms.height == 40
        assert set(comms["op"].cast(pl.String)) == {op}
        assert set(comms["peer"]) == {1 - rank}
        assert set(comms["size_bytes"]) == {24_576}
        gpu, host = comms.filter(pl.col("thread").is_null()), comms.filter(pl.col("thread").is_not_null())
        assert (gpu.height, host.height) == (20, 20)
        assert set(gpu["external_id"]) == set(host["external_id"])


def test_pipeline_with_backward_threads_and_groups():
    for rank in (0, 1):
        tables = _read(LAB / "two-gpus" / f"f1b1_torch_rank{rank}.json.gz")[1]
        comms = tables["comms"]
        assert (_count(comms, op="send"), _count(comms, op="recv"), comms.height) == (32, 32, 64)
        assert comms["correlation"].null_count() == 64  # kernels of groups carry nothing
        assert tables["threads"]["autograd"].sum() == 1


def test_copies_over_nvlink_are_the_senders():
    ops = _read(LAB / "two-gpus" / "copy_engine_none_torch_rank0.json.gz")[1]["ops"]
    copies = ops.filter(pl.col("kind").cast(pl.String) == "memcpy")
    assert set(copies["copy_kind"].cast(pl.String)) == {"PtoP"}
    assert (set(copies["device"]), set(copies["stream"]), set(copies["context"])) == ({0}, {14}, {None})
    assert set(copies["size_bytes"]) == {24_576}


def test_a_graph_launch_has_many_kernels():
    tables = _read(LAB / "mailbox_graph_torch_rank0.json.gz")[1]
    launches = tables["calls"].filter(pl.col("family").cast(pl.String) == "graph_launch")
    kernels = tables["ops"].filter(pl.col("correlation").is_in(launches["correlation"].implode()))
    assert (launches.height, kernels.height) == (20, 960)


def test_polls_are_no_waits():
    syncs = _read(LAB / "two-gpus" / "nccl_none_torch_rank0.json.gz")[1]["syncs"]
    kinds = dict(syncs["kind"].cast(pl.String).value_counts().iter_rows())
    assert "event_sync" not in kinds
    assert kinds["event_query"] > 0
    records = syncs.filter(pl.col("kind").cast(pl.String) == "event_record")
    assert records["correlation"].null_count() == 0
    assert records["start_ns"].null_count() == records.height

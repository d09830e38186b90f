"""Parquet exports as folders: what is recognized, and what a damaged file costs."""

from __future__ import annotations

import random

import pytest

from gapscope.errors import InputError, MalformedTraceError
from gapscope.readers import ReadOptions
from gapscope.readers.base import no_progress
from gapscope.readers.nsys_parquet import NSYS_PARQUET
from gapscope.schema import READER_TABLES
from tests.unit.nsys_files import KERNEL, NVTX, RUNTIME, small_export


def read(folder):
    return NSYS_PARQUET.read(folder, ReadOptions(), no_progress)


@pytest.fixture
def folder(tmp_path):
    return small_export().write_parquet(tmp_path / "export_pqtdir")


def heights(source):
    return {t: source.tables[t].collect().height for t in ("ops", "calls", "syncs", "ranges")}


WHOLE = {"ops": 4, "calls": 7, "syncs": 3, "ranges": 3}


def test_sniff(folder, tmp_path):
    assert NSYS_PARQUET.sniff(folder, b"")
    assert not NSYS_PARQUET.sniff(tmp_path, b"")
    (tmp_path / "handoffs.parquet").write_bytes(b"PAR1")
    assert not NSYS_PARQUET.sniff(tmp_path, b"")  # a folder of parquet files of something else
    assert not NSYS_PARQUET.sniff(folder / f"{KERNEL}.parquet", b"PAR1")


def test_files_that_are_no_tables_do_not_matter(folder):
    (folder / "notes.txt").write_text("x")
    (folder / "other.parquet").write_bytes(b"x")
    (folder / "folder.parquet").mkdir()
    assert heights(read(folder)) == WHOLE


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "footer"])
@pytest.mark.parametrize(
    ("table", "left"),
    [
        (KERNEL, WHOLE | {"ops": 2}),
        (RUNTIME, WHOLE | {"calls": 0}),
        (NVTX, WHOLE | {"ranges": 0}),
        ("StringIds", WHOLE),
        ("META_DATA_CAPTURE", WHOLE),
    ],
)
def test_one_damaged_file_costs_its_table(folder, table, left, damage):
    file = folder / f"{table}.parquet"
    content = file.read_bytes()
    file.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "garbage": b"x" * len(content),
            "footer": content[:-30] + b"\xff" * 22 + content[-8:],
        }[damage]
    )
    source = read(folder)
    assert [f.message.split()[1] for f in source.findings if f.code == "damaged_table"] == [table]
    assert heights(source) == left


def test_all_files_of_events_damaged(folder):
    for file in folder.iterdir():
        file.write_bytes(b"")
    with pytest.raises(MalformedTraceError, match="none of its 7 tables of events can be read"):
        read(folder)


def test_missing_folder(tmp_path):
    with pytest.raises(InputError, match="cannot be listed"):
        read(tmp_path / "none")


@pytest.mark.parametrize("seed", range(5))
def test_flipped_bytes(folder, seed):
    choose = random.Random(seed)
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    for name in choose.sample(sorted(whole), 4):
        content = bytearray(whole[name])
        for _ in range(choose.randrange(1, 10)):
            content[choose.randrange(len(content))] = choose.randrange(256)
        (folder / name).write_bytes(content)
        try:
            source = read(folder)
        except InputError:  # any other error is a failure
            pass
        else:
            for table in READER_TABLES:
                source.tables[table].collect()
        (folder / name).write_bytes(whole[name])

"""What every reader has to keep to, on every recording in tests/data. A new reader is picked up by itself."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gapscope.readers import READERS, ReadOptions, find_reader
from gapscope.readers.base import no_progress
from gapscope.readers.compression import head
from gapscope.schema import READER_TABLES, reader_dtypes

DATA = Path(__file__).parents[1] / "data"
SAMPLES = sorted(
    p
    for p in DATA.rglob("*")
    # Records of load generators are no recordings; of many restarts of one job one is enough.
    if p.name.endswith((".gz", ".sqlite", ".json", ".gslog")) and p.parent.name not in ("loadgen", "restarts")
)


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda p: p.name)
def sample(request):
    path = request.param
    return path, find_reader(path).read(path, ReadOptions(), no_progress)


def test_there_are_samples_of_several_formats():
    assert len({find_reader(p).name for p in SAMPLES}) >= 2


def test_names_differ_and_versions_are_numbers():
    assert len({r.name for r in READERS}) == len(READERS)
    assert all(isinstance(r.version, int) and r.version >= 1 for r in READERS)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_exactly_one_reader_recognizes_a_recording(path):
    first = head(path)
    assert sum(reader.sniff(path, first) for reader in READERS) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"[1, 2]",
        b'{"name": "left-pad", "version": "1.0.0"}',
        b"SQLite format 4\0",
        b"\x1f\x8b",
        b"PAR1",
        b"text\n",
        b"gapscope mark",
    ],
)
@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
def test_no_reader_takes_foreign_content(reader, content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not reader.sniff(path, content)


def test_all_tables_have_the_columns_of_the_schema(sample):
    _, source = sample
    assert set(source.tables) == set(READER_TABLES)
    for name, frame in source.tables.items():
        assert frame.collect_schema() == pl.Schema(reader_dtypes(name)), name


def test_info_says_what_it_has_to(sample):
    path, source = sample
    info = source.info
    assert (info.path, info.tool in {"nsys", "torch", "gapscope"}, info.clock) == (str(path), True, "unix")
    assert info.events >= sum(source.tables[t].collect().height for t in ("ops", "calls", "ranges"))
    assert not info.truncated
    assert "damaged" not in info.dropped


def test_times_are_whole_and_ordered(sample):
    _, source = sample
    for name in ("ops", "calls", "ranges"):
        frame = source.tables[name].collect()
        assert (frame["start_ns"].is_null() == frame["end_ns"].is_null()).all(), name
        assert (frame["end_ns"] >= frame["start_ns"]).all(), name
        for _, of_process in frame.group_by("process"):
            assert of_process["start_ns"].is_sorted(), name


def test_ids_are_never_sentinels(sample):
    _, source = sample
    for table, column in (
        ("ops", "stream"),
        ("syncs", "stream"),
        ("syncs", "event"),
        ("syncs", "event_sync"),
        ("ops", "correlation"),
    ):
        values = source.tables[table].collect()[column].drop_nulls()
        assert not values.is_in([-1, 2**32 - 1]).any(), (table, column)


def test_every_row_belongs_to_a_known_process(sample):
    _, source = sample
    known = source.tables["processes"].collect()["process"]
    assert known.n_unique() == known.len()
    for name, frame in source.tables.items():
        assert frame.collect()["process"].is_in(known.implode()).all(), name


def test_reading_twice_gives_the_same(sample):
    path, source = sample
    again = find_reader(path).read(path, ReadOptions(), no_progress)
    assert again.info == source.info
    assert again.findings == source.findings
    for name, frame in source.tables.items():
        assert frame.collect().equals(again.tables[name].collect()), name

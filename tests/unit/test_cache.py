"""Cached tables: whole or not there, and never those of another file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from gapscope import cache
from gapscope.findings import Finding
from gapscope.load import assemble
from gapscope.marks import parse_marks
from gapscope.readers.base import ReadOptions
from gapscope.readers.packing import packed
from gapscope.schema import READER_TABLES
from gapscope.testing import Recording


class AReader:
    name = "built by hand"
    version = 3

    def sniff(self, path, head):
        return True

    def read(self, path, options: ReadOptions, progress):
        raise AssertionError("the tables are kept")


def tables():
    r = Recording("a", pid=5, dropped={"damaged": 2})
    r.mark("submit src=0 dst=1 seq=1", 0, 10)
    r.kernel(2, 3, 9)
    windows = pl.DataFrame({"process": [5], "window_start_ns": [0], "window_end_ns": [10], "n_ops": [1]})
    source = r.tables()
    return replace(source, windows=windows, marks=parse_marks(source.tables["ranges"], "a")[0])


def equal(one, two):
    return (
        one.info == two.info
        and one.windows.equals(two.windows)
        and one.marks.equals(two.marks)
        and all(one.tables[t].collect().equals(two.tables[t].collect()) for t in READER_TABLES)
    )


def test_what_is_kept_comes_back(tmp_path):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    assert cache.load_entry(entry) is None
    assert cache.store_entry(entry, tables()) is None
    assert equal(cache.load_entry(entry), tables())
    assert [p.name for p in entry.parent.iterdir()] == [entry.name]


def test_what_a_file_states_about_its_clock_is_kept(tmp_path):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    stated = {"epoch_ns": 2**62 - 1, "system_clock_ns": 38, "counter_ns": 41, "shift_ns": -5000, "cpu_traced": False}
    source = tables()
    cache.store_entry(entry, replace(source, info=replace(source.info, **stated)))
    kept = cache.load_entry(entry)
    assert {name: getattr(kept.info, name) for name in stated} == stated
    (row,) = assemble([kept]).sources.select(list(stated)).to_dicts()
    assert row == stated


def test_another_reader_version_is_another_entry(tmp_path):
    newer = AReader()
    newer.version = 4
    assert cache.entry_path(tmp_path, "d", AReader()) != cache.entry_path(tmp_path, "d", newer)


@pytest.mark.parametrize("broken", ["ops.parquet", "source.json", "calls.parquet", "windows.parquet", "marks.parquet"])
@pytest.mark.parametrize("how", ["cut", "gone", "flipped"])
def test_a_broken_entry_is_removed(tmp_path, broken, how):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    cache.store_entry(entry, tables())
    file = entry / broken
    if how == "cut":
        file.write_bytes(file.read_bytes()[:20])
    elif how == "flipped":
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        file.write_bytes(raw)
    else:
        file.unlink()
    assert cache.load_entry(entry) is None
    assert not entry.exists()


def test_every_bit_of_what_an_entry_says_counts(tmp_path):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    cache.store_entry(entry, tables())
    whole = (entry / "source.json").read_bytes()
    for position in range(0, len(whole), 7):
        cache.store_entry(entry, tables())
        wrong = bytearray(whole)
        wrong[position] ^= 1 << position % 8
        (entry / "source.json").write_bytes(wrong)
        assert cache.load_entry(entry) is None, bytes(wrong)


def test_an_entry_that_another_run_made_first_stays(tmp_path):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    cache.store_entry(entry, tables())
    before = (entry / "source.json").stat().st_ino
    assert cache.store_entry(entry, tables()) is None
    assert (entry / "source.json").stat().st_ino == before


def test_a_disk_that_cannot_be_written_is_said(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "file" in cache.store_entry(blocked / "tables" / "x", tables())
    assert cache.usable_cache_dir(blocked / "sub") is None


def test_the_digest_follows_the_content_not_the_name(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"abc")
    two.write_bytes(b"abc")
    assert cache.content_digest(one, tmp_path) == cache.content_digest(two, tmp_path)
    two.write_bytes(b"abd")
    assert cache.content_digest(one, tmp_path) != cache.content_digest(two, tmp_path)


def test_a_remembered_digest_is_dropped_when_the_file_changes(tmp_path):
    file = tmp_path / "one"
    file.write_bytes(b"abc")
    os.utime(file, (1_000_000, 1_000_000))  # long ago: it is remembered
    first = cache.content_digest(file, tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "digests").iterdir())) == 1
    file.write_bytes(b"abd")
    os.utime(file, (1_000_001, 1_000_001))
    assert cache.content_digest(file, tmp_path / "cache") != first


def test_who_sets_the_time_of_a_changed_file_back_is_seen(tmp_path):
    file = tmp_path / "one"
    file.write_bytes(b"abc")
    os.utime(file, (1_000_000, 1_000_000))
    first = cache.content_digest(file, tmp_path / "cache")
    time.sleep(0.02)  # more than a step of the clock that files are stamped with
    with file.open("r+b") as stream:
        stream.write(b"abd")
    os.utime(file, (1_000_000, 1_000_000))
    assert cache.content_digest(file, tmp_path / "cache") != first


def test_a_remembered_digest_that_went_bad_is_not_used(tmp_path):
    file = tmp_path / "one"
    file.write_bytes(b"abc")
    os.utime(file, (1_000_000, 1_000_000))
    first = cache.content_digest(file, tmp_path / "cache")
    (memo,) = (tmp_path / "cache" / "digests").iterdir()
    memo.write_text(memo.read_text().replace(first[-4:], "0000"))
    assert cache.content_digest(file, tmp_path / "cache") == first


def test_a_file_just_changed_is_not_remembered(tmp_path):
    file = tmp_path / "one"
    file.write_bytes(b"abc")
    cache.content_digest(file, tmp_path / "cache")
    assert not (tmp_path / "cache" / "digests").exists()


def test_a_folder_is_its_files(tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "a").write_text("1")
    before = cache.content_digest(folder, None)
    (folder / "b").write_text("2")
    assert cache.content_digest(folder, None) != before


STORING = """
import sys
from pathlib import Path
from gapscope import cache
from tests.unit.test_cache import AReader, tables
print("ready", flush=True)
for number in range(10_000):
    failure = cache.store_entry(cache.entry_path(Path(sys.argv[1]), str(number), AReader()), tables())
    assert failure is None, failure
"""


def storing(folder):
    run = subprocess.Popen([sys.executable, "-c", STORING, str(folder)], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    return run


def test_runs_that_are_killed_while_they_store_leave_whole_entries_or_none(tmp_path):
    """Two runs at once store the same entries, and both are killed in the middle of one."""
    runs = [storing(tmp_path), storing(tmp_path)]
    time.sleep(0.5)
    for run in runs:
        run.kill()
        run.communicate()
    entries = [p for p in (tmp_path / "tables").iterdir() if not p.name.startswith(".new-")]
    assert entries
    for entry in entries:
        assert equal(cache.load_entry(entry), tables())
    again = cache.entry_path(tmp_path, str(len(entries) + 1), AReader())
    assert cache.store_entry(again, tables()) is None
    assert equal(cache.load_entry(again), tables())


def test_what_a_killed_run_left_goes_after_a_day(tmp_path):
    entry = cache.entry_path(tmp_path, "digest", AReader())
    left, fresh = entry.parent / ".new-old", entry.parent / ".new-fresh"
    for folder in (left, fresh):
        folder.mkdir(parents=True)
    os.utime(left, (1_000_000, 1_000_000))
    cache.store_entry(entry, tables())
    assert not left.exists()
    assert fresh.exists()


class AFileReader(AReader):
    """Reads any file as the same tables."""

    def read(self, path, options, progress):
        source = tables()
        frames = {name: packed(table.collect()) for name, table in source.tables.items()}
        return replace(source, packed=frames)


def looked_up(path, cache_dir):
    return cache.Lookup(path, AFileReader(), cache_dir)


def test_tables_are_kept_in_the_background_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_AT_ONCE_BYTES", 0)
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    lookup = looked_up(file, tmp_path / "cache")
    assert lookup.kept() is None
    assert lookup.store(AFileReader().read(file, None, None)) is None
    assert equal(looked_up(file, tmp_path / "cache").kept(), tables())
    cache.finish()
    assert [p.name for p in (tmp_path / "cache" / "tables").iterdir()] == [lookup.entry.name]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_kept_beside_the_tables_may_come_later(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(cache, "_AT_ONCE_BYTES", 1 << 40 if at_once else 0)
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    lookup = looked_up(file, tmp_path / "cache")
    later = replace(tables(), findings=(Finding("x", "info", "found later"),))
    with ThreadPoolExecutor(1) as beside:
        complete = beside.submit(lambda: time.sleep(0.05) or later)
        assert lookup.store(AFileReader().read(file, None, None), complete) is None
    kept = looked_up(file, tmp_path / "cache").kept()
    assert equal(kept, later)
    assert kept.findings == later.findings


def test_tables_that_are_never_complete_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_AT_ONCE_BYTES", 0)
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    lookup, complete = looked_up(file, tmp_path / "cache"), Future()
    assert lookup.store(AFileReader().read(file, None, None), complete) is None
    complete.set_exception(pl.exceptions.ComputeError("cannot be"))
    cache.finish()
    assert list((tmp_path / "cache" / "tables").iterdir()) == []


def test_a_copy_of_a_file_that_was_read_has_its_tables(tmp_path):
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    for file, content in ((one, b"abc"), (two, b"abc"), (other, b"abd")):
        file.write_bytes(content)
    assert looked_up(one, tmp_path / "cache").store(tables()) is None
    assert equal(looked_up(two, tmp_path / "cache").kept(), tables())
    assert looked_up(other, tmp_path / "cache").kept() is None


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    lookup = looked_up(file, tmp_path / "cache")
    assert lookup.kept() is None
    file.write_bytes(b"abcd")
    assert "changed" in lookup.store(tables())


def test_a_cache_without_room_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    lookup = looked_up(file, tmp_path / "cache")
    assert "no room" in lookup.store(AFileReader().read(file, None, None))

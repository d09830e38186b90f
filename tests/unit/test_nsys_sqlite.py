"""SQLite exports as files: compressed, damaged, cut, locked, with a journal beside them."""

from __future__ import annotations

import errno
import gzip
import random
import shutil
import sqlite3
from contextlib import closing

import polars as pl
import pytest
import zstandard
from polars.testing import assert_frame_equal

from gapscope.errors import InputError, MalformedTraceError, UnknownFormatError
from gapscope.readers import ReadOptions, nsys_database, nsys_sqlite
from gapscope.readers.base import no_progress
from gapscope.readers.compression import head
from gapscope.readers.nsys_database import SqliteTables
from gapscope.readers.nsys_raw import WHOLE_PAYLOADS, RangeChoice
from gapscope.readers.nsys_sqlite import NSYS_SQLITE
from gapscope.schema import READER_TABLES
from tests.unit.nsys_files import KERNEL, NVTX, RUNTIME, SYNC, A, B, call, nvtx, on_stream, process, small_export


def read(path, cache_dir=None):
    return NSYS_SQLITE.read(path, ReadOptions(cache_dir=cache_dir), no_progress)


def heights(source):
    return {t: source.tables[t].collect().height for t in ("ops", "calls", "syncs", "ranges")}


WHOLE = {"ops": 4, "calls": 7, "syncs": 3, "ranges": 3}


@pytest.fixture
def path(tmp_path):
    return small_export().write_sqlite(tmp_path / "export.sqlite")


def damaged_tables(source):
    return [f.message.split()[1] for f in source.findings if f.code == "damaged_table"]


def test_sniff(path, tmp_path):
    assert NSYS_SQLITE.sniff(path, head(path))
    assert not NSYS_SQLITE.sniff(path, b"SQLite format 4\0")
    assert not NSYS_SQLITE.sniff(tmp_path, b"")


@pytest.mark.parametrize("name", ["a b?c#d%20.sqlite", "ä.sqlite", "-wal", "no suffix"])
def test_any_file_name(path, tmp_path, name):
    other = tmp_path / name
    path.rename(other)
    source = read(other)
    assert (heights(source), source.info.path) == (WHOLE, str(other))


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_compressed(path, tmp_path, kind):
    packed = tmp_path / f"export.sqlite.{kind}"
    content = path.read_bytes()
    packed.write_bytes(gzip.compress(content) if kind == "gz" else zstandard.compress(content))
    assert NSYS_SQLITE.sniff(packed, head(packed))
    cache = tmp_path / "cache"
    source = read(packed, cache)
    assert (heights(source), source.info.path) == (WHOLE, str(packed))
    assert list((cache / "tmp").iterdir()) == []  # the copy is gone


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("part", [0.2, 0.9, 0.999])
def test_cut_compressed_stream(path, tmp_path, kind, part):
    packed = tmp_path / f"export.sqlite.{kind}"
    content = path.read_bytes()
    content = gzip.compress(content) if kind == "gz" else zstandard.compress(content)
    packed.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(MalformedTraceError, match="stream ends before its own end") as caught:
        read(packed)
    assert caught.value.path == str(packed)


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(path, tmp_path):
    packed = tmp_path / "export.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "cache").write_text("a file, not a folder")
    assert heights(read(packed, tmp_path / "cache")) == WHOLE


def test_nothing_is_written(path, tmp_path):
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert heights(read(path)) == WHOLE
    finally:
        tmp_path.chmod(0o755)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("large", [False, True])
def test_write_ahead_log_beside_the_file(path, tmp_path, monkeypatch, large):
    if large:
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f'UPDATE {KERNEL} SET "end" = 2999 WHERE correlationId = 1')
        connection.commit()
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in tmp_path.glob("export.sqlite*"):
            shutil.copy(file, copy)
    before = {p.name: p.read_bytes() for p in copy.iterdir()}
    assert len(before["export.sqlite-wal"]) > 0
    ops = read(copy / "export.sqlite").tables["ops"].collect()
    assert (ops.filter(kind="kernel")["end_ns"] % 10_000).to_list() == [2999, 2999]
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == before


def test_write_ahead_mode_without_a_log(path, tmp_path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert heights(read(path)) == WHOLE
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_database_of_something_else(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    with pytest.raises(UnknownFormatError, match=r"no export of Nsight Systems \(its tables: bookmarks\)"):
        read(path)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.sqlite")


def test_cut_database(path):
    content = path.read_bytes()
    path.write_bytes(content[:20_000])
    with pytest.raises(MalformedTraceError, match=f"is cut off: 20,000 of its {len(content):,} bytes are there"):
        read(path)


def test_text_that_is_not_utf8(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(X'67617073636F70653A3AFF' AS TEXT) WHERE start = 900")
        connection.execute("UPDATE StringIds SET value = CAST(X'FE616464' AS TEXT) WHERE id = 10")
        connection.commit()
    source = read(path)
    assert source.tables["ranges"].collect()["name"][0] == "gapscope::\ufffd"
    assert source.tables["ops"].collect()["name"][0] == "\ufffdadd"


@pytest.mark.parametrize("large", [False, True])
def test_values_of_another_kind_count_as_not_recorded(path, monkeypatch, large):
    if large:
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {KERNEL} SET streamId = 'seven' WHERE globalPid >> 24 & 0xFFFFFF = {A}")
        connection.execute(f"UPDATE {RUNTIME} SET start = X'00' WHERE correlationId = 5")
        connection.commit()
    source = read(path)
    assert source.tables["ops"].collect()["stream"].to_list() == [None, 13, 17, 17]
    assert heights(source) == WHOLE | {"calls": 6}
    assert source.info.dropped == {"foreign_ranges": 1, "damaged": 1}


def root_page(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("table", "left"),
    [
        (KERNEL, WHOLE | {"ops": 2}),
        (RUNTIME, WHOLE | {"calls": 0}),
        (SYNC, WHOLE | {"syncs": 1}),
        (NVTX, WHOLE | {"ranges": 0}),
        ("StringIds", WHOLE),
        ("META_DATA_EXPORT", WHOLE),
        ("ThreadNames", WHOLE),
    ],
)
def test_one_damaged_table_costs_that_table(path, monkeypatch, table, left, large):
    if large:
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    content = bytearray(path.read_bytes())
    at = (root_page(path, table) - 1) * 4096
    content[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    source = read(path)
    assert damaged_tables(source) == [table]
    assert {f.code for f in source.findings} == {"damaged_table"}
    assert heights(source) == left


def big_export():
    """Enough rows for several levels of pages."""
    export = small_export()
    for n in range(3000):
        export.add(RUNTIME, call(A, 101, 10_000 + 10 * n, 10_005 + 10 * n, 10 + n, 1 + n % 6))
        export.add(KERNEL, on_stream(A, 50_000 + 10 * n, 50_005 + 10 * n, 10 + n, demangledName=10, graphNodeId=n))
    return export.add(NVTX, *(nvtx(A, 101, 10 * n, 10 * n + 5, text=f"gapscope::step step={n}") for n in range(500)))


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    return big_export().write_sqlite(tmp_path_factory.mktemp("nsys") / "big.sqlite", page_size=1024)


def read_or_refuse(path):
    """Read; only the package's own errors may come out, and what comes out can be used."""
    try:
        source = read(path)
    except InputError:
        return None
    for table in READER_TABLES:
        source.tables[table].collect()
    return source


@pytest.mark.parametrize("large", [False, True])
def test_cut_at_many_lengths(big, tmp_path, monkeypatch, large):
    if large:
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    content = big.read_bytes()
    path = tmp_path / "cut.sqlite"
    for length in [*range(0, 2000, 250), *range(2000, len(content), len(content) // 20)]:
        path.write_bytes(content[:length])
        assert read_or_refuse(path) is None


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_flipped_bytes(big, tmp_path, monkeypatch, seed, large):
    if large:
        monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    choose = random.Random(seed)
    path = tmp_path / "flipped.sqlite"
    for _ in range(6):
        content = bytearray(big.read_bytes())
        for _ in range(choose.randrange(1, 30)):
            content[choose.randrange(len(content))] = choose.randrange(256)
        path.write_bytes(content)
        read_or_refuse(path)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_headers_of_pages(big, tmp_path, monkeypatch, seed):
    """The page decoder must neither crash nor read past a page: it gives up, and SQLite decides."""
    monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    choose = random.Random(seed)
    path = tmp_path / "headers.sqlite"
    for _ in range(10):
        content = bytearray(big.read_bytes())
        for _ in range(3):
            content[choose.randrange(1, len(content) // 1024) * 1024 + choose.randrange(40)] = choose.randrange(256)
        path.write_bytes(content)
        read_or_refuse(path)


def test_both_ways_give_the_same(big, monkeypatch):
    small = read(big)
    monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    large = read(big)
    assert small.info == large.info
    for table in READER_TABLES:
        assert_frame_equal(small.tables[table].collect(), large.tables[table].collect())
    assert heights(large) == {"ops": 3004, "calls": 3007, "syncs": 3, "ranges": 503}


CHOICES = {
    "texts": RangeChoice((59,), prefixes=("gapscope", "nccl")),
    "registered": RangeChoice((59, 34), registered_prefixes=("gapscope",)),
    "domains": RangeChoice((59, 60), domains=((process(A) >> 24, 5),)),
    "all": RangeChoice((75, 59), everything=True),
    "some of each": RangeChoice((59, 34), ("GAP", "nccl"), ("gapscope",), ((process(A) >> 24, 5),)),
    "none": RangeChoice((1,), prefixes=("gapscope",)),
}
COLUMNS = {"start": pl.Int64, "text": pl.String, "textId": pl.Int64, "globalTid": pl.Int64, "domainId": pl.Int64}


def ranges_of_all_kinds():
    """Rows that a choice may fall on, or not, with each kind of payload."""
    export = small_export().empty(NVTX)
    export.add("StringIds", {"id": 900, "value": "gapscope::submit"}, {"id": 901, "value": "other"})
    texts = (
        "gapscope::step step=1",
        "gap",
        "nccl",
        "ncclAllReduceKernel",
        "GAPSCOPE",
        "",
        "gäpscope",
        "漢字 nccl",
        None,
    )
    for n, (text, text_id) in enumerate((t, i) for t in texts for i in (None, 900, 901)):
        payload = {WHOLE_PAYLOADS[n % 4]: n * 2**40 - 5} if n % 5 else {}
        more = {"doubleValue": 7.0} if n % 5 == 0 else {}
        who = {"kind": (59, 34, 60, 75)[n % 4], "domain": (0, 5, None)[n % 3]}
        export.add(NVTX, nvtx((A, B)[n % 2], 101, n, n + 1, text=text, text_id=text_id, **who, **payload, **more))
    return export


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_both_ways_choose_the_same_ranges(tmp_path, monkeypatch, choice):
    path = ranges_of_all_kinds().write_sqlite(tmp_path / "x.sqlite")
    small = SqliteTables(path).ranges(COLUMNS, choice)
    count = SqliteTables(path).count_ranges(choice.event_types)
    monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    monkeypatch.setattr(SqliteTables, "_chosen_by_sql", None)
    assert_frame_equal(SqliteTables(path).ranges(COLUMNS, choice), small)
    assert SqliteTables(path).count_ranges(choice.event_types) == count
    assert small.height or choice.event_types == (1,)


@pytest.mark.parametrize("odd", [{"text": "a\0b"}, {"text": "x" * 5000}, {"doubleValue": 0.5}, {"text": b"gap"}])
def test_ranges_that_only_sqlite_reads(tmp_path, monkeypatch, odd):
    export = ranges_of_all_kinds()
    export.add(NVTX, {**nvtx(A, 101, 1, 2, text="y"), **odd})
    path = export.write_sqlite(tmp_path / "x.sqlite")
    small = SqliteTables(path).ranges(COLUMNS, CHOICES["all"])
    monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    assert_frame_equal(SqliteTables(path).ranges(COLUMNS, CHOICES["all"]), small)


def test_many_registered_texts(tmp_path):
    export = small_export().empty(NVTX)
    count = nsys_database._MANY_STRINGS + 10
    export.add("StringIds", *({"id": 1000 + n, "value": f"gapscope::step step={n}"} for n in range(count)))
    export.add(NVTX, *(nvtx(A, 101, n, n + 1, text_id=1000 + n) for n in range(count)))
    ranges = read(export.write_sqlite(tmp_path / "x.sqlite")).tables["ranges"].collect()
    assert ranges["name"].to_list() == [f"gapscope::step step={n}" for n in range(count)]


def test_no_room_to_unpack_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    packed = tmp_path / "x.sqlite.gz"
    packed.write_bytes(gzip.compress(small_export().write_sqlite(tmp_path / "x.sqlite").read_bytes()))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(nsys_sqlite, "copy_decompressed", full)
    with pytest.raises(InputError, match="has to be unpacked") as caught:
        NSYS_SQLITE.read(packed, ReadOptions(cache_dir=tmp_path), no_progress)
    assert str(tmp_path / "tmp") in str(caught.value)
    assert "GAPSCOPE_CACHE" in caught.value.next_step

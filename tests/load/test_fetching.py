"""Recordings behind URLs: the same as files, and nothing of them stays but their tables."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gapscope
from gapscope import LoadOptions, cache
from gapscope.errors import InputError, UsageError
from gapscope.load import fetching
from gapscope.load.fetching import RemoteFile, expand_url
from gapscope.schema import READER_TABLES

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'gapscope[ray]'")

DATA = Path(__file__).parents[1] / "data"
TORCH = ["gloo_none_torch_rank0.json.gz", "gloo_none_torch_rank1.json.gz"]


@pytest.fixture
def memory():
    storage = fsspec.filesystem("memory")
    storage.store.clear()
    storage.pseudo_dirs[:] = [""]
    return storage


@pytest.fixture
def run(memory):
    for name in TORCH:
        memory.pipe_file(f"/run/{name}", (DATA / name).read_bytes())
    return memory


def urls(given):
    return [file.url for file in expand_url(given)]


@pytest.mark.parametrize("given", ["memory://run", "memory://run/", "memory://run/*.json.gz", "memory://run/**"])
def test_a_run_behind_urls_is_the_run(run, given):
    there, here = (
        gapscope.load(paths, LoadOptions(use_cache=False)) for paths in (given, [DATA / name for name in TORCH])
    )
    assert there.sources["path"].to_list() == [f"memory:///run/{name}" for name in TORCH]
    assert there.marks.equals(here.marks)
    assert all(there.table(name).equals(here.table(name)) for name in READER_TABLES)
    assert there.processes.drop("rank_source").equals(here.processes.drop("rank_source"))


def test_a_web_server_is_not_asked_whether_a_file_is_a_folder(monkeypatch):
    """It would send the whole file, into memory."""

    class Server:
        def info(self, path):
            if path.endswith("none.json"):
                raise FileNotFoundError(path)
            return {"name": path, "type": "file", "size": 7}

        def isdir(self, path):
            asked.append(path)
            return False

    asked = []
    monkeypatch.setattr(fetching, "_storage", lambda url: (Server(), url))
    assert expand_url("http://host/rank0.json") == [RemoteFile("http://host/rank0.json", named=True, size_bytes=7)]
    assert asked == []
    with pytest.raises(UsageError, match="there is no such file"):
        expand_url("http://host/none.json")


def test_urls_and_files_mix(run):
    trace = gapscope.load([f"memory://run/{TORCH[0]}", DATA / TORCH[1]], LoadOptions(use_cache=False))
    assert trace.sources["path"].to_list() == [str(DATA / TORCH[1]), f"memory://run/{TORCH[0]}"]


def test_a_file_url_is_a_path():
    trace = gapscope.load([f"file://{DATA / TORCH[0]}"], LoadOptions(use_cache=False))
    assert trace.sources["path"].to_list() == [str(DATA / TORCH[0])]


def test_jobs_have_urls_too(run):
    jobs = {"prefill": [f"memory://run/{TORCH[0]}"], "decode": [f"memory://run/{TORCH[1]}"]}
    trace = gapscope.load([], LoadOptions(use_cache=False, jobs=jobs))
    assert set(trace.processes["job"]) == {"prefill", "decode"}


def test_files_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.write(DATA / TORCH[0], "deep/" + TORCH[0])
        archive.writestr("deep/.hidden.json", "{}")
    for pattern in ("deep", "**/*.json.gz"):
        assert urls(f"zip://{pattern}::{tmp_path / 'run.zip'}") == [f"zip://deep/{TORCH[0]}::{tmp_path / 'run.zip'}"]


def test_an_export_beside_its_report_stands_in_for_it(memory):
    for name in ("a.nsys-rep", "a.sqlite", "b.sqlite", "c.nsys-rep"):
        memory.pipe_file(f"/run/{name}", b"x")
    found = {file.url: file.stand_in and file.stand_in.url for file in expand_url("memory://run")}
    assert found == {
        "memory:///run/a.nsys-rep": "memory:///run/a.sqlite",
        "memory:///run/b.sqlite": None,
        "memory:///run/c.nsys-rep": None,
    }


def test_the_stand_in_is_fetched_where_the_report_cannot_be_read(memory, tmp_path, monkeypatch):
    export = gzip.decompress((DATA / "mailbox_both.sqlite.gz").read_bytes())
    memory.pipe_file("/run/a.nsys-rep", b"NSYSREP" + bytes(100))
    memory.pipe_file("/run/a.sqlite", export)
    from gapscope.errors import ExporterError
    from gapscope.load import one_file

    real = one_file.find_reader

    def no_exporter(path):
        if path.suffix == ".nsys-rep":
            raise ExporterError(path, "there is no nsys.", "Install it.")
        return real(path)

    monkeypatch.setattr(one_file, "find_reader", no_exporter)
    trace = gapscope.load("memory://run", LoadOptions(cache_dir=tmp_path))
    assert trace.sources["path"].to_list() == ["memory:///run/a.nsys-rep"]
    (note,) = [f for f in trace.findings if f.code == "used_export_beside_report"]
    assert note.path == "memory:///run/a.nsys-rep"
    assert not list((tmp_path / "fetched").iterdir())


def test_a_parquet_export_is_one_file(memory):
    for name in ("StringIds", "NVTX_EVENTS"):
        memory.pipe_file(f"/run/a_pqtdir/{name}.parquet", b"x")
    (file,) = expand_url("memory://run")
    assert (file.url, file.is_folder) == ("memory:///run/a_pqtdir", True)
    with fetching.fetched(file, None) as folder:
        assert sorted(p.name for p in folder.iterdir()) == ["NVTX_EVENTS.parquet", "StringIds.parquet"]
    assert not folder.exists()


# The cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Counts what is fetched; small files are kept, too."""
    counted = []
    real = fetching.fetched
    monkeypatch.setattr(fetching, "fetched", lambda file, folder: counted.append(file.url) or real(file, folder))
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 0)
    return counted


def test_what_has_not_changed_is_not_fetched_again(run, reads, tmp_path):
    first, second = (gapscope.load("memory://run", LoadOptions(cache_dir=tmp_path)) for _ in range(2))
    assert len(reads) == 2
    assert all(first.table(name).equals(second.table(name)) for name in READER_TABLES)
    assert not list((tmp_path / "fetched").iterdir())
    run.pipe_file(f"/run/{TORCH[0]}", (DATA / TORCH[0]).read_bytes())
    gapscope.load("memory://run", LoadOptions(cache_dir=tmp_path))
    assert reads[2:] == [f"memory:///run/{TORCH[0]}"]


def test_a_storage_that_tells_no_version_is_asked_each_time(run, tmp_path, monkeypatch):
    monkeypatch.setattr(type(run), "info", lambda self, path, **_: {"name": path, "size": 5, "type": "file"})
    assert fetching.memo_of(RemoteFile("memory://run/x", named=True), tmp_path, "") is None


def test_tables_of_other_options_are_not_taken(run, tmp_path):
    file = RemoteFile(f"memory://run/{TORCH[0]}", named=True)
    fetching.memo_of(file, tmp_path, "some").remember(tmp_path / "tables" / "an entry")
    assert fetching.memo_of(file, tmp_path, "some").entry == tmp_path / "tables" / "an entry"
    assert fetching.memo_of(file, tmp_path, "others").entry is None


def test_what_a_killed_run_left_is_removed_and_what_others_fetch_stays(run, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = os.uname().nodename
    names = {f"{host}.{gone.pid}.old": False, f"{host}.{gone.pid}.new": True, f"{host}.{os.getpid()}.mine": True,
             f"elsewhere.{gone.pid}.old": True}  # fmt: skip
    for name in names:
        (tmp_path / "fetched" / name).mkdir(parents=True)
        if not name.endswith("new"):
            os.utime(tmp_path / "fetched" / name, (0, 0))
    with fetching.fetched(RemoteFile(f"memory://run/{TORCH[0]}", named=True), tmp_path) as path:
        assert path.read_bytes() == (DATA / TORCH[0]).read_bytes()
    assert {p.name for p in (tmp_path / "fetched").iterdir()} == {name for name, stays in names.items() if stays}


# What cannot be had -----------------------------------------------------------------------------------------------


def test_nothing_behind_a_url_is_an_error(memory):
    for given in ("memory://nowhere/rank0.json", "memory://nowhere/*"):
        with pytest.raises(UsageError, match="there is no such file"):
            gapscope.load(given)


def test_a_storage_without_its_package_is_an_error_that_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match=r"s3://bucket/run: the package .* not installed .*s3fs"):
        gapscope.load("s3://bucket/run")


def test_a_storage_that_nobody_knows_is_an_error():
    with pytest.raises(UsageError, match="nonsense://run: Protocol not known: nonsense"):
        gapscope.load("nonsense://run")


def test_without_fsspec_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match="pip install fsspec"):
        gapscope.load("s3://bucket/run")


def test_a_file_that_cannot_be_fetched_costs_that_rank(run, monkeypatch):
    real = type(run).get_file

    def broken(self, path, *others, **more):
        if TORCH[0] in path:
            raise ConnectionError("the line is dead")
        return real(self, path, *others, **more)

    monkeypatch.setattr(type(run), "get_file", broken)
    trace = gapscope.load("memory://run", LoadOptions(use_cache=False))
    (lost,) = [f for f in trace.findings if f.code == "unreadable_file"]
    assert (lost.path, lost.message) == (f"memory:///run/{TORCH[0]}", "cannot be fetched (the line is dead).")
    assert trace.sources.height == 1


def test_a_file_that_goes_away_or_changes_is_an_error(run):
    with pytest.raises(InputError, match="not there any more"), fetching.fetched(RemoteFile("memory://x", True), None):
        pass
    file = RemoteFile(f"memory://run/{TORCH[0]}", named=True, size_bytes=5)
    with pytest.raises(InputError, match="bytes came, 5 were announced"), fetching.fetched(file, None):
        pass


def test_a_file_that_is_no_recording_is_named_by_its_url(memory):
    memory.pipe_file("/run/a.txt", b"no recording")
    with pytest.raises(InputError, match=r"^memory://run/a\.txt: the content is not a format"):
        gapscope.load("memory://run/a.txt", LoadOptions(use_cache=False))

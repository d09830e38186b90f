"""The engine ray on a real cluster of two nodes: the same results as here, whatever fails on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import gapscope
from gapscope import LoadOptions
from gapscope.cli import app
from gapscope.errors import IdentityError, InputError, UsageError
from gapscope.load.engines import ray as engine
from gapscope.load.engines import wire
from gapscope.schema import READER_TABLES
from tests.load.on_workers import LOCAL

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'gapscope[ray]'")

pytestmark = pytest.mark.xdist_group("ray")  # one cluster, started once

DATA = Path(__file__).parents[1] / "data"
TORCH = ["gloo_none_torch_rank0.json.gz", "gloo_none_torch_rank1.json.gz"]
RUNS = {
    "nsys": ["mailbox_both.sqlite.gz"],
    "torch": TORCH,
    "both tools": ["mailbox_mixed_rank0.sqlite.gz", "mailbox_mixed_rank1.json.gz"],
    "one run in two tools": ["mailbox_both.sqlite.gz", "mailbox_both_rank0.json.gz", "mailbox_both_rank1.json.gz"],
    "mark logs": ["cpu_pipeline_rank0.gslog", "cpu_pipeline_rank1.gslog"],
}
NODE_IS_DEAD = {
    "health_check_period_ms": 1_000,
    "health_check_failure_threshold": 4,
    "health_check_timeout_ms": 60_000,  # a busy machine may be slow to answer; a node that is gone refuses at once
}
ORDERS = ("die_once", "die", "out_of_memory", "vanish", "hold", "held", "nodes")


class TestCluster:
    """Two nodes of one processor each, and the folder by which tests tell their workers what to do."""

    __test__ = False

    def __init__(self, folder):
        from ray.cluster_utils import Cluster

        self.control = folder / "control"
        os.environ["GAPSCOPE_TEST_CONTROL"] = str(self.control)
        self.reset()
        self._cluster = Cluster()
        self.workers_cache = folder / "cache of the workers"
        self.add("a", _system_config=NODE_IS_DEAD)
        self.add("b")
        hook = {"worker_process_setup_hook": "tests.load.on_workers.install"}
        ray.init(address=self._cluster.address, runtime_env=hook, log_to_driver=False, logging_level="ERROR")
        self.address = self._cluster.address

    def add(self, name, **more):
        own = {"GAPSCOPE_TEST_NODE": name, "GAPSCOPE_CACHE": str(self.workers_cache), "RAY_USAGE_STATS_ENABLED": "0"}
        return self._cluster.add_node(
            num_cpus=1, object_store_memory=100 << 20, include_dashboard=False, env_vars=own, **more
        )

    def remove(self, node):
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self):
        ray.shutdown()
        self._cluster.shutdown()

    def reset(self):
        shutil.rmtree(self.control, ignore_errors=True)
        for order in ORDERS:
            (self.control / order).mkdir(parents=True)

    def order(self, what, name):
        (self.control / what / name).touch()

    def place(self, node, name, *files):
        """Let one node have files that no other place sees; returns how it names their folder."""
        folder = self.control / "nodes" / node / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy2(file, folder)
        return f"{LOCAL}/{name}"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    cluster = TestCluster(tmp_path_factory.mktemp("ray"))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(running):
    running.reset()
    return running


@pytest.fixture
def pair(tmp_path):
    """Two ranks, in files that a test may harm."""
    return [Path(shutil.copy2(DATA / name, tmp_path)) for name in TORCH]


def on_cluster(paths, **options):
    return gapscope.load(paths, LoadOptions(engine="ray", **{"use_cache": False, **options}))


def here(paths, **options):
    return gapscope.load(paths, LoadOptions(**{"use_cache": False, **options}))


def assert_same(one, other):
    """All tables of two traces are the same, and so is what is found in them."""
    for name in ("sources", "processes", "marks"):
        assert getattr(one, name).equals(getattr(other, name)), name
    for name in READER_TABLES:
        assert one.table(name).equals(other.table(name)), name
        assert one.table(name).schema == other.table(name).schema
    assert one.findings == other.findings


def unreadable(trace):
    return [f for f in trace.findings if f.code == "unreadable_file"]


# The same results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_a_run_read_on_the_cluster_is_the_run_read_here(cluster, run):
    paths = [DATA / name for name in RUNS[run]]
    assert_same(on_cluster(paths), here(paths))


def test_all_results_are_the_same(cluster, tmp_path):
    paths = [DATA / name for name in RUNS["both tools"]]
    folders = {}
    for name in ("local", "ray"):
        analysis = gapscope.analyze(paths, options=LoadOptions(engine=name, use_cache=False))
        folders[name] = analysis.write(tmp_path / name)
    for one, other in zip(*folders.values(), strict=True):
        if one.suffix == ".json":
            assert one.read_text() == other.read_text()
        else:
            assert pl.read_parquet(one).equals(pl.read_parquet(other)), one.name


def test_a_folder_with_files_that_are_no_recordings(cluster, pair, tmp_path):
    (tmp_path / "notes.txt").write_text("no recording\n")
    (tmp_path / "empty.json").touch()
    paths = [tmp_path, tmp_path / "empty.json"]
    one, other = on_cluster(paths), here(paths)
    assert_same(one, other)
    assert {"skipped_file", "unreadable_file"} <= {f.code for f in one.findings}


def test_jobs_and_ranks_that_the_user_states(cluster):
    options = {"jobs": {"prefill": [DATA / TORCH[0]], "decode": [DATA / TORCH[1]]}}
    one, other = on_cluster([], **options), here([], **options)
    assert_same(one, other)
    assert set(one.processes["job"].drop_nulls()) == {"prefill", "decode"}


def test_what_is_missing_is_an_error_that_counts_the_nodes(cluster, tmp_path):
    with pytest.raises(UsageError, match=r"rank9\.json: .*on this machine or on the 2 nodes"):
        on_cluster([tmp_path / "rank9.json"])


def test_nothing_readable_is_the_error_of_the_first_file(cluster, tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError) as here_:
        here(tmp_path / "a.json")
    with pytest.raises(InputError) as there:
        on_cluster(tmp_path / "a.json")
    assert (type(there.value), str(there.value)) == (type(here_.value), str(here_.value))


def test_progress_names_files_as_they_finish(cluster):
    told = []
    gapscope.load(
        [DATA / name for name in TORCH], LoadOptions(engine="ray", use_cache=False), lambda *a: told.append(a)
    )
    assert [fraction for _, fraction in told] == [0.5, 1.0]
    assert {what.split()[1] for what, _ in told} == set(TORCH)


def test_the_command_line_prints_the_same(cluster):
    arguments = ["analyze", *(str(DATA / n) for n in TORCH), "--format", "json"]
    command = [sys.executable, "-m", "gapscope", *arguments, "--engine", "ray", "--ray-address", cluster.address]
    done = subprocess.run(command, capture_output=True, check=True, timeout=200, text=True)
    assert done.stdout == CliRunner().invoke(app, arguments).stdout != ""


# The caches -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(cluster, tmp_path, monkeypatch):
    """Both sides keep tables, each in a folder of its own."""
    (cluster.control / "cache_all").touch()
    monkeypatch.setenv("GAPSCOPE_CACHE", str(tmp_path / "cache of the driver"))
    sent = []
    real = wire.from_wire
    monkeypatch.setattr(engine, "from_wire", lambda s, c: sent.append(s) or real(s, c))
    return sent


def entries(folder):
    return sorted(folder.glob("tables/*"))


def test_tables_are_kept_on_both_sides_and_then_do_not_travel(cluster, cached, pair, tmp_path):
    expected = here(pair)
    for _ in range(2):
        assert_same(on_cluster(pair, use_cache=True), expected)
    names = {e.name for e in entries(tmp_path / "cache of the driver")}
    assert len(names) == 2
    assert names <= {e.name for e in entries(cluster.workers_cache)}
    assert [s["files"] is None for s in cached] == [False, False, True, True]


def test_tables_that_went_bad_here_are_sent_again(cluster, cached, pair, tmp_path):
    expected = here(pair)
    on_cluster(pair, use_cache=True)
    (entries(tmp_path / "cache of the driver")[0] / "marks.parquet").write_bytes(b"bad")
    assert_same(on_cluster(pair, use_cache=True), expected)
    assert [s["files"] is None for s in cached] == [False, False, True, True, False]


# What fails -------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_costs_a_retry(cluster, pair):
    cluster.order("die_once", TORCH[1])
    assert_same(on_cluster(pair), here(pair))
    assert not (cluster.control / "die_once" / TORCH[1]).exists()


def test_a_file_that_kills_each_worker_costs_that_rank(cluster, pair):
    cluster.order("die", TORCH[1])
    trace = on_cluster(pair)
    (lost,) = unreadable(trace)
    assert (lost.level, lost.path) == ("error", str(pair[1]))
    assert lost.message.count("the process that read it died") >= 2
    assert "the logs of Ray" in lost.hint
    assert trace.sources["path"].to_list() == [str(pair[0])]


def test_memory_that_is_short_has_its_own_words(cluster, pair):
    cluster.order("out_of_memory", TORCH[0])
    (lost,) = unreadable(on_cluster(pair))
    assert "killed because its node was short of memory" in lost.message
    assert "more memory" in lost.hint


def test_a_file_that_goes_away_before_it_is_read_costs_that_rank(cluster, pair):
    cluster.order("vanish", TORCH[0])
    trace = on_cluster(pair)
    (lost,) = unreadable(trace)
    assert (lost.path, lost.message) == (str(pair[0]), "cannot be opened (No such file or directory).")
    assert trace.sources["path"].to_list() == [str(pair[1])]


def test_a_file_that_goes_away_from_its_node_is_named_with_the_node(cluster, pair):
    folder = cluster.place("a", "run", pair[0])
    cluster.order("vanish", TORCH[0])
    (lost,) = unreadable(on_cluster([folder, pair[1]]))
    assert lost.path.endswith(f":{folder}/{TORCH[0]}")
    assert "was there when files were looked for, and is gone" in lost.message
    assert lost.hint == "Run again on what is there now."


def test_a_node_that_goes_away_costs_a_retry_on_another_that_has_the_file(cluster):
    added = {name: cluster.add(name) for name in ("c", "d")}
    try:
        for name in added:
            folder = cluster.place(name, "run", *(DATA / n for n in TORCH))
        cluster.order("hold", TORCH[0])
        trace = Background(on_cluster, folder)
        held = cluster.control / "held" / TORCH[0]
        wait_until(lambda: held.exists() and held.read_text())
        cluster.remove(added.pop(held.read_text()))
        (cluster.control / "hold" / TORCH[0]).unlink()
        found = trace.result()
        assert [Path(p).name for p in found.sources["path"]] == TORCH
        assert found.table("ops").equals(here([DATA / n for n in TORCH]).table("ops"))
        assert not unreadable(found)
    finally:
        for node in added.values():
            cluster.remove(node)


def test_a_node_that_goes_away_with_its_file_costs_that_rank(cluster, pair):
    node = cluster.add("e")
    folder = cluster.place("e", "run", DATA / TORCH[0])
    cluster.order("hold", TORCH[0])
    trace = Background(on_cluster, [folder, pair[1]])
    wait_until((cluster.control / "held" / TORCH[0]).exists)
    cluster.remove(node)
    (lost,) = unreadable(trace.result())
    assert lost.path.endswith(f":{LOCAL}/run/{TORCH[0]}")
    assert "went away" in lost.message or "died" in lost.message
    assert "Bring the node back" in lost.hint
    assert trace.result().sources["path"].to_list() == [str(pair[1])]


def test_another_version_on_a_node_is_an_error_that_names_both(cluster, pair):
    (cluster.control / "other_version").touch()
    with pytest.raises(UsageError, match=r"other versions: gapscope 0\.0\.1 there and .* here"):
        on_cluster(pair)


# Files that lie elsewhere -----------------------------------------------------------------------------------------


def test_each_node_has_the_file_of_its_rank_under_its_own_name(cluster):
    for node, name in zip("ab", TORCH, strict=True):
        folder = cluster.place(node, "run", DATA / name)
    for asked in (folder, f"{folder}/*.json.gz"):
        trace = on_cluster(asked)
        assert [p.partition(":")[2] for p in trace.sources["path"]] == [f"{folder}/{name}" for name in TORCH]
        assert trace.table("ops").equals(here([DATA / n for n in TORCH]).table("ops"))


def test_each_node_has_the_file_of_its_rank_under_one_name(cluster, tmp_path):
    for node, name in zip("ab", TORCH, strict=True):
        shutil.copy2(DATA / name, tmp_path / "trace.json.gz")
        folder = cluster.place(node, "run", tmp_path / "trace.json.gz")
    trace = on_cluster(f"{folder}/trace.json.gz")
    paths = trace.sources["path"].to_list()
    assert len(set(paths)) == 2
    assert all(p.endswith(f":{folder}/trace.json.gz") for p in paths)
    assert sorted(trace.processes["rank"].drop_nulls().unique()) == [0, 1]
    assert trace.table("ops").height == here([DATA / n for n in TORCH]).table("ops").height


def test_a_file_that_all_nodes_see_is_read_once(cluster):
    for node in "ab":
        folder = cluster.place(node, "run", DATA / TORCH[0])
    assert on_cluster(folder).sources["path"].to_list() == [f"{folder}/{TORCH[0]}"]


def test_one_recording_under_two_names_is_a_duplicate_as_it_is_here(cluster):
    cluster.place("a", "one", DATA / TORCH[0])
    cluster.place("b", "two", DATA / TORCH[0])
    with pytest.raises(IdentityError):
        on_cluster([f"{LOCAL}/one", f"{LOCAL}/two"])


def test_urls_are_fetched_by_workers(cluster, tmp_path):
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for name in TORCH:
            archive.write(DATA / name, name)
    url = f"zip://*.json.gz::{tmp_path / 'run.zip'}"
    one, other = on_cluster(url), here(url)
    assert_same(one, other)
    assert [p.rpartition("::")[0] for p in one.sources["path"]] == [f"zip://{name}" for name in TORCH]


def test_the_memory_of_this_process_is_read_here(cluster):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in TORCH:
        memory.pipe_file(f"/ray/{name}", (DATA / name).read_bytes())
    assert_same(on_cluster("memory://ray"), here("memory://ray"))


def test_a_connection_that_was_there_stays(cluster, pair):
    on_cluster(pair)
    assert ray.is_initialized()


class Background:
    """Runs a function in a thread."""

    def __init__(self, function, *arguments):
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(function, *arguments)
        self._pool.shutdown(wait=False)

    def result(self):
        return self._future.result(timeout=100)


def wait_until(condition):
    import time

    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

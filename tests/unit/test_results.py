"""Results that are kept: the second look is the same to the last digit, and nothing stale or broken is ever used."""

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import gapscope
from gapscope import Scenario, analysis, cache, pipeline, results
from gapscope.errors import UsageError
from gapscope.load import LoadOptions, load, one_file
from gapscope.request import TABLES, Request

DATA = Path(__file__).parents[1] / "data"
FILES = ("gloo_none_torch_rank0.json.gz", "gloo_none_torch_rank1.json.gz")


@pytest.fixture(autouse=True)
def _small_files_count(monkeypatch):
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 0)


@pytest.fixture
def run(tmp_path):
    """The recordings, in a folder of their own, and a cache of their own."""
    for name in FILES:
        shutil.copy(DATA / name, tmp_path / name)
        os.utime(tmp_path / name, (1, 1))  # settled long ago
    return [tmp_path / name for name in FILES], LoadOptions(cache_dir=tmp_path / "cache")


@pytest.fixture
def no_computing(monkeypatch):
    """Computing anything is an error from here on."""

    def forbid():
        monkeypatch.setattr(pipeline, "compute", lambda *_: pytest.fail("computed again"))

    return forbid


def entries(options):
    return sorted((options.cache_dir / "results").glob("*"))


def same(one, other):
    assert one.findings == other.findings
    assert one.summary == other.summary
    assert one.selection == other.selection
    for name in TABLES:
        assert getattr(one, name).equals(getattr(other, name)), name
        assert getattr(one, name).schema == getattr(other, name).schema, name


def test_the_second_look_computes_nothing_and_says_the_same(run, no_computing):
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    no_computing()
    second = gapscope.analyze(paths, options=options)
    same(first, second)
    assert (first.is_kept, second.is_kept) == (False, True)


def test_the_second_look_opens_no_table_before_it_is_asked_for(run, monkeypatch):
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    opened = []
    monkeypatch.setattr(analysis, "load", lambda *given: opened.append(given) or load(*given))
    second = gapscope.analyze(iter(paths), options=options)
    same(first, second)
    assert not opened
    assert second.trace.ops.equals(first.trace.ops)
    assert second.trace is second.trace
    assert len(opened) == 1


def test_recordings_that_changed_since_their_results_were_found_are_not_mixed_with_them(run):
    paths, options = run
    gapscope.analyze(paths, options=options)
    second = gapscope.analyze(paths, options=options)
    shutil.copy(DATA / "mailbox_both_rank0.json.gz", paths[0])
    with pytest.raises(UsageError, match="changed after their results were found"):
        _ = second.trace


def test_all_names_are_listed():
    assert set(gapscope.__all__) <= set(dir(gapscope))


_LOOK = """
import sys
from pathlib import Path
from gapscope import cache, cli
cache.MIN_CACHED_BYTES = 0
sys.argv = ["gapscope", "analyze", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code
print("numba" in sys.modules, "gapscope.pipeline" in sys.modules)
"""


def test_the_second_look_does_not_even_import_what_computes(run, tmp_path):
    paths, options = run
    told = []
    for _ in range(2):
        look = [sys.executable, "-c", _LOOK, *map(str, paths), "--format", "json"]
        env = {**os.environ, "GAPSCOPE_CACHE": str(options.cache_dir)}
        told.append(subprocess.run(look, capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout)
    (first, first_imported), (second, second_imported) = (t.rstrip().rsplit("\n", 1) for t in told)
    assert first == second
    assert first_imported == "True True"
    assert second_imported == "False False"


@pytest.mark.parametrize("asked", [{"steps": (3, 5)}, {"last": 2}])
def test_results_of_a_part_of_kept_tables_are_kept(run, monkeypatch, no_computing, asked):
    monkeypatch.setattr(one_file, "WINDOWED_BYTES", 0)
    paths, options = run
    cold = gapscope.analyze(paths, options=options, **asked)
    assert not entries(options)  # a part that was read as such is of contents that nobody knows
    whole = gapscope.analyze(paths, options=options)
    part = gapscope.analyze(paths, options=options, **asked)
    assert 0 < part.trace.ops.height < whole.trace.ops.height
    assert part.handoffs.equals(cold.handoffs)
    assert len(entries(options)) == 2
    no_computing()
    same(part, gapscope.analyze(paths, options=options, **asked))
    same(whole, gapscope.analyze(paths, options=options))


def test_a_graph_that_is_too_large_to_keep_is_made_anew(run, monkeypatch):
    paths, _ = run
    options = LoadOptions(use_cache=False)
    first = gapscope.analyze(paths, options=options)
    monkeypatch.setattr(pipeline, "_MANY_ITEMS", 0)
    second = gapscope.analyze(paths, options=options)
    same(first, second)
    assert "model" in vars(first.stages())
    assert "model" not in vars(second.stages())
    late = Scenario(cause="late_submission")
    assert second.whatif(late).units.equals(first.whatif(late).units)


def test_a_cache_without_the_tables_of_a_file_is_filled_again(run, no_computing):
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    shutil.rmtree(options.cache_dir / "tables")
    no_computing()
    same(first, gapscope.analyze(paths, options=options))
    cache.finish()
    assert len(list((options.cache_dir / "tables").iterdir())) == len(paths)


def test_the_summary_is_kept_as_json_says_it(run):
    paths, options = run
    summary = gapscope.analyze(paths, options=options).summary
    assert json.loads(json.dumps(summary)) == summary


def test_clocks_and_model_are_there_when_they_are_asked_for(run):
    paths, options = run
    first, second = (gapscope.analyze(paths, options=options) for _ in range(2))
    assert second.timebase.table.equals(first.timebase.table)
    scenario = gapscope.Scenario(cause="late_submission")
    assert second.whatif(scenario).units.equals(first.whatif(scenario).units)


@pytest.mark.parametrize(
    "asked",
    [
        {"steps": (2, 5)},
        {"ranks": [1]},
        {"warmup": 3},
        {"unmarked": True},
        {"comm_kernels": ["one_shot"]},
        {"clocks": gapscope.clocks.AlignOptions(same_host=True)},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_another_question_is_another_entry(run, asked):
    paths, options = run
    gapscope.analyze(paths, options=options)
    other = gapscope.analyze(paths, options=options, **asked)
    assert len(entries(options)) == 2
    same(other, gapscope.analyze(paths, options=replace(options, use_cache=False), **asked))


def test_another_job_of_the_files_is_another_entry(run):
    paths, options = run
    gapscope.analyze(paths, options=options)
    gapscope.analyze(paths, options=replace(options, jobs={"serve": paths}))
    assert len(entries(options)) == 2


def test_a_file_that_changed_is_analyzed_again(run):
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    for rank, path in enumerate(paths):
        shutil.copy(DATA / f"mailbox_graph_torch_rank{rank}.json.gz", path)
        os.utime(path, (2, 2))
    second = gapscope.analyze(paths, options=options)
    assert second.summary != first.summary
    assert len(entries(options)) == 2


def test_a_file_of_another_name_has_its_own_name_in_the_findings(run, tmp_path):
    paths, options = run
    gapscope.analyze(paths, options=options)
    moved = tmp_path / "other.json.gz"
    paths[0].rename(moved)
    again = gapscope.analyze([moved, paths[1]], options=options)
    assert str(moved) in again.trace.sources["path"].to_list()
    assert len(entries(options)) == 2


def test_results_of_another_version_are_not_used(run, monkeypatch):
    paths, options = run
    gapscope.analyze(paths, options=options)
    monkeypatch.setattr(results, "VERSION", "0.0.0")
    gapscope.analyze(paths, options=options)
    assert len(entries(options)) == 2


def test_results_of_other_code_are_not_used(run, monkeypatch):
    paths, options = run
    gapscope.analyze(paths, options=options)
    monkeypatch.setattr(results, "_own_files", lambda: "changed")
    gapscope.analyze(paths, options=options)
    assert len(entries(options)) == 2


def damaged(file, damage):
    content, middle = file.read_bytes(), file.stat().st_size // 2
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:middle])
    else:
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 0x40]) + content[middle + 1 :])


def test_an_entry_that_is_broken_anywhere_is_not_used(run, tmp_path):
    paths, options = run
    gapscope.analyze(paths, options=options)
    whole = entries(options)[0]
    assert results.find(whole, TABLES) is not None
    for name in [*(f"{name}.parquet" for name in TABLES), results.INDEX]:
        for damage in ("cut", "flipped", "gone"):
            entry = shutil.copytree(whole, tmp_path / "entry")
            damaged(entry / name, damage)
            assert results.find(entry, TABLES) is None, (name, damage)
            assert not entry.exists()


def test_an_entry_that_is_broken_is_made_again(run):
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    damaged(entries(options)[0] / "tiles.parquet", "flipped")
    same(first, gapscope.analyze(paths, options=options))
    assert results.find(entries(options)[0], TABLES) is not None


def test_what_is_kept_is_written_as_it_is_and_only_then(run, tmp_path, monkeypatch):
    """Once it was kept no table is made a file again; a broken entry, and another analysis, are."""
    paths, options = run
    first = gapscope.analyze(paths, options=options)
    first.write(tmp_path / "plain")
    made = []
    table_file = analysis.table_file
    monkeypatch.setattr(analysis, "table_file", lambda *given: made.append(given) or table_file(*given))
    second = gapscope.analyze(paths, options=options)
    for number, one in enumerate((first, second)):
        one.write(tmp_path / str(number))
    assert not made
    other = replace(first, tiles=first.tiles.head(3))
    other.write(tmp_path / "other")
    assert len(made) == len(TABLES)
    assert pl.read_parquet(tmp_path / "other" / "tiles.parquet").height == 3
    damaged(entries(options)[0] / "tiles.parquet", "flipped")
    first.write(tmp_path / "broken")
    assert len(made) == 2 * len(TABLES)
    files = {folder: {f.name: f.read_bytes() for f in (tmp_path / folder).iterdir()} for folder in ("plain", "0", "1")}
    assert files["plain"] == files["0"] == files["1"]
    assert pl.read_parquet(tmp_path / "broken" / "tiles.parquet").equals(first.tiles)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(run, monkeypatch):
    paths, options = run
    monkeypatch.setattr(results, "staged", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert gapscope.analyze(paths, options=options).handoffs.height == 20


def test_runs_at_once_share_one_entry(run):
    paths, options = run
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(gapscope.analyze(paths, options=options))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    same(found[0], found[1])
    same(found[0], found[2])
    assert len(entries(options)) == 1


def test_small_recordings_leave_nothing(run, monkeypatch):
    paths, options = run
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 1 << 30)
    gapscope.analyze(paths, options=options)
    assert not entries(options)


def test_a_trace_that_was_loaded_before_is_always_computed(run):
    paths, options = run
    trace = gapscope.load(paths, options)
    gapscope.analyze(trace)
    assert not entries(options)


def test_a_request_says_all_of_itself():
    texts = {repr(Request()), repr(Request(steps=(1, None))), repr(Request(steps=(None, 1))), repr(Request(ranks=(1,)))}
    assert len(texts) == 4

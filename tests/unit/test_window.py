"""Some steps of a recording: what is read of them answers as the whole recording does."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import gapscope
from gapscope.errors import UsageError
from gapscope.load import LoadOptions, load, one_file
from gapscope.readers import nsys_database
from gapscope.readers.base import Window
from gapscope.readers.window import windowed
from gapscope.schema import EVENTS
from gapscope.testing import Recording, trace
from tests.reference.runs import FOLDERS

DATA = FOLDERS[1]
RUNS = [
    "mailbox_graph_nsys.sqlite.gz",
    "mailbox_graph_torch_rank*.json.gz",
    "gloo_none_torch_rank*.json.gz",
    "mailbox_mixed_rank*",
    "two-gpus/f1b1_nsys.sqlite.gz",
]
UNCACHED = LoadOptions(use_cache=False)
TIMES = [
    "handoff_id",
    "status",
    "order",
    "steady",
    "gap_ns",
    *(f"{e}{of}" for e in EVENTS for of in ("_ns", "_source")),
]
PLACES = ["handoff_id", "start_ns", "end_ns", "phase", "rank", "lane", "op"]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(one_file, "WINDOWED_BYTES", 0)


def paths(run):
    found = sorted(DATA.glob(run))
    if not found:
        pytest.skip("this recording is not on this machine")
    return found


def rows(of, table):
    """Return a table with names as texts: categories are numbered as they are met."""
    return of.table(table).with_columns(pl.col(pl.Categorical).cast(pl.String))


def middle(found, width=2):
    """Return steps from the middle of a run, so that something lies before and behind their margins."""
    steps = load(found, UNCACHED).marks["step"].drop_nulls().unique().sort()
    at = len(steps) // 2
    return steps[at], steps[min(at + width - 1, len(steps) - 1)]


@pytest.mark.parametrize("run", RUNS)
def test_handoffs_of_a_window_are_those_of_the_whole(run):
    found = paths(run)
    steps = middle(found)
    whole = gapscope.analyze(load(found, UNCACHED), steps=steps)
    part = gapscope.analyze(found, options=UNCACHED, steps=steps)
    assert whole.handoffs.height
    assert part.trace.calls.height + part.trace.ops.height < whole.trace.calls.height + whole.trace.ops.height
    assert_frame_equal(part.handoffs.select(TIMES), whole.handoffs.select(TIMES))
    assert_frame_equal(part.tiles.select(PLACES), whole.tiles.select(PLACES))
    causes = pl.DataFrame({"part": part.tiles["cause"], "whole": whole.tiles["cause"]})
    assert set(causes.filter(pl.col("part") != pl.col("whole")).rows()) <= {("unexplained", "device_sharing")}
    assert [f.code for f in part.findings if f.code.startswith("missing_")] == [
        f.code for f in whole.findings if f.code.startswith("missing_")
    ]
    assert "part_read" in {f.code for f in part.findings}


def test_last_steps_are_the_last_of_those_chosen():
    found = paths(RUNS[0])
    steps = load(found, UNCACHED).marks["step"].drop_nulls().unique().sort().to_list()
    analysis = gapscope.analyze(found, options=UNCACHED, last=2)
    assert analysis.handoffs["step"].unique().sort().to_list() == steps[-2:]
    assert analysis.selection["steps"] == steps[-2:]
    analysis = gapscope.analyze(found, options=UNCACHED, last=2, steps=(None, steps[9]))
    assert analysis.handoffs["step"].unique().sort().to_list() == steps[8:10]


def test_the_first_step_of_the_recording_is_start_up_not_that_of_the_window():
    found = paths(RUNS[0])
    first = load(found, UNCACHED).marks["step"].min()
    assert gapscope.analyze(found, options=UNCACHED, steps=(first, first + 1)).handoffs["steady"].to_list() == [0, 1]
    assert gapscope.analyze(found, options=UNCACHED, steps=(first + 5, first + 5)).handoffs["steady"].all()


def test_pages_that_are_skipped_hold_nothing_of_the_window(monkeypatch, tmp_path):
    found = paths(RUNS[0])
    window = Window(*middle(found))
    expected = load(found, replace(UNCACHED, window=window))
    monkeypatch.setattr(nsys_database, "LARGE_BYTES", 0)
    read = load(found, replace(UNCACHED, window=window))
    for table in ("ops", "calls", "syncs", "ranges"):
        assert read.table(table).height
        assert_frame_equal(rows(read, table), rows(expected, table))


def test_a_window_of_kept_tables_is_that_of_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr("gapscope.cache.MIN_CACHED_BYTES", 0)
    found = paths(RUNS[0])
    window = Window(*middle(found))
    kept = LoadOptions(cache_dir=tmp_path)
    load(found, replace(kept, window=window))
    assert not (tmp_path / "tables").exists()  # a part is no entry
    load(found, kept)
    monkeypatch.setattr("gapscope.readers.nsys_sqlite.SqliteTables", None)
    part, expected = load(found, replace(kept, window=window)), load(found, kept)
    assert 0 < part.ops.height < expected.ops.height
    assert part.window == window
    monkeypatch.undo()
    monkeypatch.setattr(one_file, "WINDOWED_BYTES", 0)
    read = load(found, replace(UNCACHED, window=window))
    for table in ("ops", "calls", "syncs", "ranges"):
        assert_frame_equal(rows(part, table), rows(read, table))


def recording():
    """Return five steps of 100 ns. The second launches what runs in the fifth; the first what runs in the fourth."""
    r = Recording("a", pid=5)
    for step in range(5):
        r.mark(f"step step={step}", 100 * step, 100 * step + 99)
    r.mark("submit src=0 dst=1 seq=1", 0, 10)
    r.kernel(10, 350, 360)
    r.kernel(50, 60, 70)
    r.kernel(110, 450, 460)
    r.kernel(210, 220, 230)
    r.kernel(410, 420, 430)
    r.sync(490, 499)
    return r.tables()


def starts(source, table):
    return source.tables[table].collect()["start_ns"].sort().to_list()


def test_what_the_window_launched_is_kept_whenever_it_ran():
    part = windowed(recording(), Window(2, 2))  # 1 to 3: from 100 to 399
    assert starts(part, "ops") == [220, 350, 450]
    assert starts(part, "calls") == [10, 50, 110, 210]  # one stretch of ids
    assert starts(part, "syncs") == []
    assert part.tables["ranges"].collect().height == 6
    assert part.info.is_part


def test_an_open_end_goes_to_the_end_of_the_recording():
    assert starts(windowed(recording(), Window(2, None)), "ops") == [220, 350, 420, 450]
    assert starts(windowed(recording(), Window(None, 3)), "ops") == starts(recording(), "ops")
    assert starts(windowed(recording(), Window(last_n=1)), "ops") == [350, 420, 450]
    assert starts(windowed(recording(), Window(last_n=1)), "syncs") == [490]


def test_without_steps_all_is_read_and_said():
    source = recording()
    source = replace(source, tables={**source.tables, "ranges": source.tables["ranges"].clear()})
    part = windowed(source, Window(2, 2))
    assert starts(part, "ops") == starts(recording(), "ops")
    assert [f.code for f in part.findings] == ["window_without_steps"]


@pytest.mark.parametrize("choice", [{}, {"unmarked": True}])
def test_handoffs_without_marks_keep_their_numbers(choice):
    """They are counted from the first of the recording on."""
    found = paths("two-gpus/tp_torch_rank*.json.gz")
    steps = middle(found)
    whole = gapscope.analyze(load(found, UNCACHED), steps=steps, **choice)
    part = gapscope.analyze(found, options=UNCACHED, steps=steps, **choice)
    assert whole.handoffs.height
    assert_frame_equal(part.handoffs, whole.handoffs)


def test_last_steps_need_steps():
    r = Recording("a", pid=5)
    r.mark("submit src=0 dst=1 seq=1", 0, 10)
    with pytest.raises(UsageError, match="no mark names a step"):
        gapscope.analyze(trace(r), last=2)

"""Results that were written, read again: those of the folder that was named, of this version, and of one analysis."""

from __future__ import annotations

import json
import os
import shutil

import polars as pl
import pytest

import gapscope
from gapscope.compare import Arm, compare, comparison_told, read_run
from gapscope.errors import UsageError
from tests.compare.conftest import recordings


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two folders of ``analyze --out``: ``none`` and ``late``."""
    folder = tmp_path_factory.mktemp("results")
    for name, recording in (("none", "mailbox_none"), ("late", "mailbox_late_submit")):
        gapscope.analyze(recordings(recording)).write(folder / name)
    return folder


@pytest.fixture
def copied(results, tmp_path):
    """A folder of results that a test may change."""
    return shutil.copytree(results / "none", tmp_path / "copied")


def rewrite(file, frame=None, **metadata):
    frame = pl.read_parquet(file) if frame is None else frame
    frame.write_parquet(file, metadata=metadata or None)


def test_a_folder_that_looks_like_a_pattern_is_itself(results, tmp_path):
    shutil.copytree(results / "none", tmp_path / "x1")
    shutil.copytree(results / "late", tmp_path / "x[1]")
    read, other = (read_run(tmp_path / name)[0] for name in ("x[1]", "x1"))
    assert read.handoffs.equals(read_run(results / "late")[0].handoffs)
    assert not read.handoffs.equals(other.handoffs)


def test_a_path_that_is_not_utf8(results, tmp_path):
    odd = tmp_path / os.fsdecode(b"run\xff")
    shutil.copytree(results / "late", odd)
    run = read_run(odd)[0]
    assert run.name.endswith("run\\xff")
    told = comparison_told(compare(Arm("A", [read_run(results / "none")[0]]), Arm("B", [run])))
    assert "run\\\\xff" in json.dumps(told)


@pytest.mark.parametrize("table", ["handoffs", "tiles", "units"])
def test_another_schema_version_is_refused(copied, table):
    rewrite(copied / f"{table}.parquet", schema_version="1")
    read_run(copied)
    rewrite(copied / f"{table}.parquet", schema_version="2")
    with pytest.raises(UsageError, match=rf"{table}\.parquet: has schema_version 2, this gapscope reads 1; another"):
        read_run(copied)


@pytest.mark.parametrize(
    ("column", "what", "words"),
    [
        ("gap_ns", pl.lit("soon"), "gap_ns is String, not Int64"),
        ("gap_ns", pl.lit("12"), "gap_ns is String"),
        ("gap_ns", pl.col("gap_ns") + 0.5, "gap_ns is Float64"),
        ("status", pl.lit(7), "status is Int32"),
        ("steady", pl.lit("yes"), "steady is String"),
        ("status", pl.lit("unheard of"), "holds values that this version does not know"),
        ("src_rank", pl.lit(1 << 63, pl.UInt64), "holds values that this version does not know"),
    ],
)
def test_columns_of_other_types_or_values_are_refused(copied, column, what, words):
    file = copied / "handoffs.parquet"
    rewrite(file, pl.read_parquet(file).with_columns(what.alias(column)))
    with pytest.raises(UsageError, match=words) as caught:
        read_run(copied)
    assert "another version of gapscope wrote it" in str(caught.value)


def test_texts_of_other_writers_are_read(copied):
    file = copied / "handoffs.parquet"
    before = read_run(copied)[0].handoffs
    rewrite(
        file, pl.read_parquet(file).with_columns(pl.col("status").cast(pl.String), pl.col("src_rank").cast(pl.Int32))
    )
    assert read_run(copied)[0].handoffs.equals(before)


@pytest.mark.parametrize("file", ["handoffs.parquet", "tiles.parquet", "units.parquet", "summary.json"])
def test_results_of_two_analyses_in_one_folder_are_refused(results, copied, file):
    shutil.copy(results / "late" / file, copied / file)
    with pytest.raises(UsageError, match="mixes the results of several analyses"):
        read_run(copied)

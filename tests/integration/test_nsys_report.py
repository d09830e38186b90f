"""Real reports through a real nsys: both kinds of export give the same tables, and failures are said.

Needs an nsys: in GAPSCOPE_NSYS or on PATH (see tests/conftest.py, which skips and says so without one).
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from gapscope.errors import ExporterError
from gapscope.readers import ReadOptions, find_reader
from gapscope.readers.base import no_progress
from gapscope.readers.nsys_export import find_nsys, version_numbers
from gapscope.readers.nsys_report import written_by
from gapscope.schema import READER_TABLES

pytestmark = pytest.mark.nsys

PLACES = (
    Path(__file__).parents[1] / "data" / "two-gpus" / "reports",
    Path(__file__).parents[2].parent / "shared" / "traces" / "lab" / "two-gpus" / "reports",
)


@pytest.fixture(params=["mailbox_none", "mailbox_late_submit"])
def report(request, nsys):
    for folder in PLACES:
        path = folder / f"{request.param}.nsys-rep"
        if path.exists():
            break
    else:
        pytest.skip(f"the report {request.param} is not on this machine")
    if find_nsys(nsys).version < version_numbers(written_by(path)):
        pytest.skip(f"this nsys is older than the report ({written_by(path)})")
    return path


def read(path, options=None):
    return find_reader(path).read(path, options or ReadOptions(), no_progress)


def assert_same_tables(one, other):
    for table in READER_TABLES:
        assert_frame_equal(one.tables[table].collect(), other.tables[table].collect())


def test_parquet_and_sqlite_exports_are_equal(report, nsys, tmp_path):
    made = {}
    for kind, target in (("sqlite", tmp_path / "x.sqlite"), ("parquetdir", tmp_path / "x_pqtdir")):
        command = [nsys, "export", "--quiet=true", "--type", kind, "--output", str(target), str(report)]
        subprocess.run(command, check=True, capture_output=True)
        made[kind] = read(target)
    sqlite, parquet = made["sqlite"], made["parquetdir"]
    assert_same_tables(sqlite, parquet)
    assert sqlite.info.format == "nsys SQLite"
    assert parquet.info == replace(sqlite.info, path=parquet.info.path, format="nsys parquet")

    through_nsys = read(report, ReadOptions(nsys=nsys))
    assert_same_tables(through_nsys, sqlite)
    assert through_nsys.info == replace(
        sqlite.info, path=str(report), format="nsys report", tool_version=written_by(report).partition("-")[0]
    )


def test_rows_of_the_report(report, nsys, tmp_path):
    options = ReadOptions(nsys=nsys, cache_dir=tmp_path / "cache")
    source = read(report, options)
    ops = source.tables["ops"].collect()
    assert (ops.filter(kind="kernel").height, ops.filter(kind="memcpy").height) == (1940, 60)
    assert source.tables["calls"].collect().height == 4325
    assert source.tables["ranges"].collect().filter(kind="push_pop").height == 120
    assert source.tables["syncs"].collect()["kind"].value_counts().sort("kind").rows() == [
        ("stream_wait", 40),
        ("stream_sync", 20),
        ("device_sync", 2),
    ]
    assert (source.info.host, source.findings) == ("lab", ())
    (kept,) = (tmp_path / "cache" / "exports").iterdir()
    stamp = kept.stat().st_mtime_ns
    assert read(report, options).info == source.info
    assert kept.stat().st_mtime_ns == stamp


def test_a_cut_report(report, nsys, tmp_path):
    path = tmp_path / "cut.nsys-rep"
    path.write_bytes(report.read_bytes()[:100_000])
    with pytest.raises(ExporterError, match=r"cannot export the report .*Exportation error"):
        read(path, ReadOptions(nsys=nsys))


def test_a_report_of_a_later_version(report, nsys, tmp_path):
    version = written_by(report).replace(".", "@").encode()
    path = tmp_path / "later.nsys-rep"
    path.write_bytes(report.read_bytes().replace(version, b"2999" + version[4:], 1))
    with pytest.raises(ExporterError, match=r"made by nsys 2999\..* is newer than the nsys that was found") as caught:
        read(path, ReadOptions(nsys=nsys))
    assert "nsys export --type sqlite --output later.sqlite later.nsys-rep" in caught.value.next_step


def test_a_report_without_gpu_says_that_the_gpu_was_not_traced(nsys, tmp_path):
    report = tmp_path / "host.nsys-rep"
    options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={report}"]
    done = subprocess.run([nsys, "profile", *options, "true"], check=False, capture_output=True, text=True)
    if not report.exists():
        pytest.skip(f"nsys cannot record here: {done.stdout[-200:]}{done.stderr[-200:]}")
    source = read(report, ReadOptions(nsys=nsys))
    assert source.info.gpu_traced is False
    assert [f.code for f in source.findings] == ["no_events"]

"""Reports by way of programs that stand in for nsys: which is used, what is kept, and what is said when it fails."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from gapscope.errors import ExporterError, InputError, MalformedTraceError
from gapscope.readers import ReadOptions, nsys_export
from gapscope.readers.base import no_progress
from gapscope.readers.compression import head
from gapscope.readers.nsys_export import ENV, find_nsys, version_numbers
from gapscope.readers.nsys_parquet import NSYS_PARQUET
from gapscope.readers.nsys_report import NSYS_REPORT, written_by
from gapscope.readers.nsys_tables import MARKER_TABLES
from gapscope.schema import READER_TABLES
from tests.unit.nsys_files import small_export

REPORT = b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\n\x0bLocal (CLI)"


@pytest.fixture(autouse=True)
def no_other_nsys(monkeypatch, tmp_path):
    """Nothing installed on this machine is found."""
    monkeypatch.delenv(ENV, raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "on_path"), "/usr/bin", "/bin"]))
    monkeypatch.setattr(nsys_export, "_INSTALLED", ())
    monkeypatch.setattr(shutil, "which", _which)


def _which(name):
    """As shutil.which, without the folders of the system."""
    path = Path(name) if "/" in name else Path(os.environ["PATH"].split(os.pathsep)[0]) / name
    return str(path) if os.access(path, os.X_OK) else None


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "input" / "run.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(REPORT)
    return path


@pytest.fixture
def exported(tmp_path):
    """What the stand-in exports."""
    small_export().write_parquet(tmp_path / "ready_pqtdir")
    return small_export().write_sqlite(tmp_path / "ready.sqlite")


def program(
    path, export="exit 1", version="2023.4.4.54-234433681190v0", types="sqlite, parquetdir", tables="--tables="
):
    """Write a stand-in for nsys; ``$target`` is where its export has to go, ``$report`` what to export."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit 0; fi
if [ "$2" = --help ]; then echo "Possible values are: {types}"; echo "{tables}"; exit 0; fi
echo "$@" >> "{path}.log"
while [ $# -gt 0 ]; do
  if [ "$1" = --output ]; then target=$2; fi
  report=$1
  shift
done
{export}
"""
    )
    path.chmod(0o755)
    return str(path)


def copying(exported):
    """Export by copying what is ready, with the progress of a real nsys."""
    return (
        "printf 'Processing 7 events: [=50%%  ]\\r[==100%%]\\n'\n"
        f'case "$target" in *.sqlite) cp "{exported}" "$target";; '
        f'*) cp -r "{exported.with_name("ready_pqtdir")}" "$target";; esac'
    )


def read(report, nsys=None, cache_dir=None, progress=no_progress):
    return NSYS_REPORT.read(report, ReadOptions(nsys=nsys, cache_dir=cache_dir), progress)


def log(nsys):
    file = Path(nsys + ".log")
    return file.read_text().splitlines() if file.exists() else []


def test_sniff(report):
    assert NSYS_REPORT.sniff(report, head(report))
    assert not NSYS_REPORT.sniff(report, b"NVIDIA Tegra something")


def test_a_report_says_who_wrote_it(tmp_path, report):
    assert written_by(report) == "2023.4.4.54-234433681190v0"
    old = tmp_path / "old.qdrep"
    old.write_bytes(b"NVIDIA Tegra Profiler Report 2021@3@2@4.\n")
    assert written_by(old) == "2021.3.2.4"
    old.write_bytes(b"NVIDIA Tegra Profiler Report, of a kind unknown")
    assert written_by(old) is None


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("types", ["sqlite, parquetdir", "sqlite, hdf, json"])
def test_a_report_gives_the_tables_of_its_export(tmp_path, report, exported, types, cached):
    nsys = program(tmp_path / "nsys", copying(exported), types=types)
    source = read(report, nsys, tmp_path / "cache" if cached else None)
    direct = NSYS_PARQUET.read(tmp_path / "ready_pqtdir", ReadOptions(), no_progress)
    for table in READER_TABLES:
        assert_frame_equal(source.tables[table].collect(), direct.tables[table].collect())
    assert source.info == replace(direct.info, path=str(report), format="nsys report", tool_version="2023.4.4.54")
    (command,) = log(nsys)
    assert command.startswith(f"export --type {'parquetdir' if 'parquet' in types else 'sqlite'} --output ")
    assert command.endswith(f"--tables={nsys_export.KEPT_TABLES} {report}")
    assert [p.name for p in report.parent.iterdir()] == [report.name]


@pytest.mark.parametrize("absent", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", None])
def test_parquet_that_does_not_tell_what_was_traced(tmp_path, report, exported, absent):
    """nsys 2023.4.4 leaves META_DATA_CAPTURE out of parquet; where tables are absent, it is needed."""
    for table in ("META_DATA_CAPTURE", absent):
        (tmp_path / "ready_pqtdir" / f"{table}.parquet").unlink(missing_ok=True)
    nsys = program(tmp_path / "nsys", copying(exported))
    source = read(report, nsys, tmp_path / "cache")
    assert [line.split()[2] for line in log(nsys)] == (["parquetdir", "sqlite"] if absent else ["parquetdir"])
    assert source.tables["ranges"].collect().height == 3
    assert read(report, nsys, tmp_path / "cache").info == source.info


def test_an_nsys_without_a_choice_of_tables(tmp_path, report, exported):
    nsys = program(tmp_path / "nsys", copying(exported), tables="")
    read(report, nsys)
    assert "--tables" not in log(nsys)[0]


def test_compressed_report(tmp_path, report, exported):
    packed = tmp_path / "run.nsys-rep.gz"
    packed.write_bytes(gzip.compress(report.read_bytes()))
    assert NSYS_REPORT.sniff(packed, head(packed))
    nsys = program(tmp_path / "nsys", copying(exported))
    assert read(packed, nsys).info.path == str(packed)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(MalformedTraceError, match="ends before its own end"):
        read(packed, nsys)


def test_progress(tmp_path, report, exported):
    seen = []
    read(report, program(tmp_path / "nsys", copying(exported)), progress=lambda what, part: seen.append((what, part)))
    assert ("nsys export", 0.0) in seen
    assert ("nsys export", 0.5) in seen
    parts = [part for _, part in seen]
    assert parts == sorted(parts)
    assert all(0 <= part <= 1 for part in parts)


# What is kept


def kept(cache):
    return sorted(p.name for p in (cache / "exports").iterdir())


def test_an_export_is_made_once_for_each_content_and_nsys(tmp_path, report, exported):
    cache = tmp_path / "cache"
    nsys = program(tmp_path / "nsys", copying(exported))
    first = read(report, nsys, cache)
    moved = report.with_name("other.qdrep")
    report.rename(moved)
    second = read(moved, nsys, cache)
    assert (len(log(nsys)), len(kept(cache)), second.info.path) == (1, 1, str(moved))
    assert first.info == replace(second.info, path=str(report))
    moved.write_bytes(REPORT + b"changed")
    read(moved, nsys, cache)
    assert (len(log(nsys)), len(kept(cache))) == (2, 2)
    newer = program(tmp_path / "newer", copying(exported), version="2025.1.0.1")
    read(moved, newer, cache)
    assert (len(log(newer)), len(kept(cache))) == (1, 3)


@pytest.mark.parametrize("damage", ["one table", "all tables", "no export"])
def test_a_broken_export_that_is_kept_is_made_again(tmp_path, report, exported, damage):
    cache = tmp_path / "cache"
    nsys = program(tmp_path / "nsys", copying(exported))
    read(report, nsys, cache)
    (folder,) = (cache / "exports").iterdir()
    if damage == "no export":
        shutil.rmtree(folder / "export_pqtdir")
    else:
        for file in (folder / "export_pqtdir").iterdir():
            if damage == "all tables" or file.name.startswith("NVTX"):
                file.write_bytes(b"")
    assert read(report, nsys, cache).findings == ()
    assert len(log(nsys)) == 2


def test_leftovers_of_interrupted_exports_are_not_used(tmp_path, report, exported):
    cache = tmp_path / "cache"
    leftover = cache / "exports" / ".new-abc"
    leftover.mkdir(parents=True)
    (leftover / "export.sqlite").write_bytes(b"SQLite format 3\0")
    nsys = program(tmp_path / "nsys", copying(exported))
    assert read(report, nsys, cache).tables["ops"].collect().height == 4
    assert leftover.exists()


def test_a_failed_export_leaves_nothing(tmp_path, report):
    cache = tmp_path / "cache"
    with pytest.raises(ExporterError):
        read(report, program(tmp_path / "nsys", 'mkdir "$target"; exit 1'), cache)
    assert kept(cache) == []


def test_exports_at_the_same_time(tmp_path, report, exported):
    cache = tmp_path / "cache"
    nsys = program(tmp_path / "nsys", "sleep 0.2\n" + copying(exported))
    results = []
    threads = [threading.Thread(target=lambda: results.append(read(report, nsys, cache))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.tables["ops"].collect().height for r in results] == [4] * 4
    assert len(kept(cache)) == 1


def test_a_cache_that_cannot_be_written(tmp_path, report, exported):
    (tmp_path / "cache").write_text("a file")
    source = read(report, program(tmp_path / "nsys", copying(exported)), tmp_path / "cache")
    assert source.tables["ops"].collect().height == 4


CUT = {"sqlite": 'head -c 5000 "{0}" > "$target"', "parquetdir": 'f="$target/NVTX_EVENTS.parquet"; truncate -s -9 "$f"'}


@pytest.mark.parametrize("kind", ["sqlite", "parquetdir"])
def test_a_cache_whose_disk_is_full_costs_no_report(tmp_path, report, exported, kind):
    """nsys ends without an error on a full disk, and leaves a part."""
    cut = CUT[kind].format(exported)
    export = f'{copying(exported)}\ncase "$target" in *exports*) {cut};; esac'
    nsys = program(tmp_path / "nsys", export, types=kind)
    source = read(report, nsys, tmp_path / "cache")
    assert source.tables["ranges"].collect().height == 3
    assert source.findings == ()
    assert kept(tmp_path / "cache") == []
    everywhere = program(tmp_path / "other", f"{copying(exported)}\n{cut}", types=kind)
    with pytest.raises(ExporterError, match=r"left a part of its export in .*, where [\d,.]+ MB are free"):
        read(report, everywhere, tmp_path / "cache")


def test_a_kept_export_with_a_bit_that_went_bad_is_made_again(tmp_path, report, exported):
    cache = tmp_path / "cache"
    nsys = program(tmp_path / "nsys", copying(exported))
    read(report, nsys, cache)
    (folder,) = (cache / "exports").iterdir()
    file = folder / "export_pqtdir" / "StringIds.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)
    assert read(report, nsys, cache).findings == ()
    assert len(log(nsys)) == 2


# Failures


def test_no_nsys(report):
    with pytest.raises(ExporterError) as caught:
        read(report)
    assert caught.value.found == ("no nsys was found to export this report (made by nsys 2023.4.4.54-234433681190v0).")
    assert "`nsys export --type sqlite --output run.sqlite run.nsys-rep`" in caught.value.next_step
    assert "pass the .sqlite file instead" in caught.value.next_step


@pytest.mark.parametrize("writer", [b"2027@1@0@9-1v0.", b"?"])
def test_report_newer_than_nsys(tmp_path, report, writer):
    report.write_bytes(b"NVIDIA Tegra Profiler Report " + writer + b"\n")
    words = (
        "echo 'Exportation error: Report was created in Nsight Systems version (2027.1.0.9-1v0), newer than your "
        "current version (2023.4.4.54-234433681190v0).' >&2; exit 1"
    )
    nsys = program(tmp_path / "nsys", words)
    with pytest.raises(ExporterError) as caught:
        read(report, nsys)
    made = "nsys 2027.1.0.9-1v0" if writer != b"?" else "an unknown version of nsys"
    assert caught.value.found == (
        f"the report (made by {made}) is newer than the nsys that was found (2023.4.4.54-234433681190v0, {nsys})."
    )
    assert "nsys export --type sqlite" in caught.value.next_step


def test_last_words_of_nsys(tmp_path, report):
    words = "echo chatter; echo more chatter; echo 'Exportation error: Section Table broken.' >&2; exit 1"
    with pytest.raises(ExporterError) as caught:
        read(report, program(tmp_path / "nsys", words))
    assert caught.value.found.endswith("chatter more chatter Exportation error: Section Table broken.")
    assert caught.value.path == str(report)


@pytest.mark.parametrize("words", ["exit 3", "exit 0", 'case "$target" in *dir) mkdir "$target";; esac'])
def test_nsys_that_says_nothing(tmp_path, report, words):
    with pytest.raises(ExporterError, match=r"cannot export the report .*(without a word|gave no reason)"):
        read(report, program(tmp_path / "nsys", words))


def test_an_export_that_cannot_be_read(tmp_path, report):
    nsys = program(tmp_path / "nsys", 'echo "SQLite format 3" > "$target"', types="sqlite")
    with pytest.raises(ExporterError, match="left a part of its export") as caught:
        read(report, nsys)
    assert caught.value.path == str(report)


@pytest.mark.parametrize("how", ["option", "environment"])
def test_an_nsys_that_cannot_be_run(tmp_path, report, monkeypatch, how):
    named = str(tmp_path / "none")
    if how == "environment":
        monkeypatch.setenv(ENV, named)
    origin = "as given" if how == "option" else "from GAPSCOPE_NSYS"
    with pytest.raises(ExporterError, match=f"the nsys {named} .{origin}. cannot be run"):
        read(report, named if how == "option" else None)


def test_missing_report(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.nsys-rep")


# Which nsys


def test_version_numbers():
    assert version_numbers("2023.4.4.54-234433681190v0") == (2023, 4, 4, 54)
    assert version_numbers("unknown") == ()


def test_the_named_nsys_comes_first(tmp_path, monkeypatch):
    named = program(tmp_path / "named", version="2022.1.1.1")
    from_env = program(tmp_path / "env", version="2023.1.1.1")
    on_path = program(tmp_path / "on_path" / "nsys", version="2024.1.1.1")
    assert find_nsys(None).path == on_path
    monkeypatch.setenv(ENV, from_env)
    assert find_nsys(None).path == from_env
    assert find_nsys(named, (2030, 1)).path == named


def test_the_newest_of_the_usual_folders(tmp_path, monkeypatch):
    for version in ("2023.4.4", "2025.10.1", "2025.9.2"):
        program(tmp_path / "opt" / version / "bin" / "nsys", version=version)
    broken = Path(program(tmp_path / "opt" / "broken" / "bin" / "nsys"))
    broken.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(nsys_export, "_INSTALLED", (str(tmp_path / "opt" / "*" / "bin" / "nsys"),))
    assert find_nsys(None).version == (2025, 10, 1)
    on_path = program(tmp_path / "on_path" / "nsys", version="2024.1.1.1")
    assert find_nsys(None).path == on_path
    assert find_nsys(None, (2024, 1, 1, 1)).path == on_path
    assert find_nsys(None, (2025, 1)).version == (2025, 10, 1)  # the one on the path is too old for the report
    assert find_nsys(None, (2030, 1)).version == (2025, 10, 1)


def test_no_nsys_anywhere():
    assert find_nsys(None) is None


def test_every_table_that_is_read_is_asked_for():
    """Else a report would tell less than its own export."""
    patterns = [re.compile(pattern) for pattern in nsys_export.KEPT_TABLES.split(",")]
    missing = [table for table in MARKER_TABLES if not any(p.fullmatch(table) for p in patterns)]
    assert missing == []

"""Files that gapscope writes are whole, or as they were before."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from plotly.graph_objects import Figure

import gapscope
from gapscope.analysis import OUTPUTS
from gapscope.cli import aligning, comparing, main
from gapscope.demo import DEMO_RECORDING
from gapscope.errors import UsageError
from gapscope.exports.perfetto import write_perfetto
from gapscope.page.simple import SimplePage, write_page
from gapscope.plots.html import write_figure
from gapscope.writing import replacing

Ended = Callable[..., tuple[int, str]]
PAGE = SimplePage("Runs", ["one"], [], [], [], [])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> gapscope.Analysis:
    analysis = gapscope.analyze([DEMO_RECORDING])
    write_perfetto(analysis, tmp_path_factory.mktemp("once") / "run.pftrace")  # its loops are compiled and kept
    return analysis


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run the command line in this process; return its exit code and what stood on stderr."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gapscope", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        return int(exited.value.code or 0), capsys.readouterr().err

    return run


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let longer files fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


WRITERS: dict[str, Callable[[gapscope.Analysis, Path], object]] = {
    "report.html": lambda demo, path: demo.write_report(path),
    "page.html": lambda _, path: write_page(PAGE, path, "0"),
    "plot.html": lambda _, path: write_figure(Figure(), path),
    "run.pftrace": write_perfetto,
    "run.pftrace.gz": write_perfetto,
    "told.json": lambda _, path: comparing._write(path, {"numbers": list(range(5_000))}),
    "alignment.parquet": lambda demo, path: aligning._write(demo.alignment, path.parent),
    "summary.json": lambda demo, path: demo.write(path.parent),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_cannot_be_written_whole_leaves_the_file_as_it_was(
    demo: gapscope.Analysis, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text("old")
    with (
        files_of_at_most(1_000),
        pytest.raises(UsageError, match=r"cannot be written.*File too large"),
    ):
        WRITERS[name](demo, path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "old")]


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_replaced(demo: gapscope.Analysis, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    WRITERS[name](demo, path)
    assert path.read_bytes() != b"old"
    assert {file.name for file in tmp_path.iterdir()} == ({*OUTPUTS} if name == "summary.json" else {name})


def test_tables_of_two_runs_do_not_mix(
    demo: gapscope.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.write(tmp_path)
    before = {file.name: file.stat().st_ino for file in tmp_path.iterdir()}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(demo.slack), "write_parquet", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.write(tmp_path)
    assert {file.name: file.stat().st_ino for file in tmp_path.iterdir()} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_ends_the_command_in_words(tmp_path: Path, ended: Ended) -> None:
    (tmp_path / "tiles.parquet").symlink_to("/dev/full")
    code, err = ended("analyze", "--demo", "--out", str(tmp_path))
    assert code == 2
    assert err == f"gapscope: {tmp_path}: cannot be written to (No space left on device). Name another folder.\n"
    assert [file.name for file in tmp_path.iterdir()] == ["tiles.parquet"]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    with replacing(link) as beside:
        beside.write_text("new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_permissions_of_any(tmp_path: Path) -> None:
    with replacing(tmp_path / "new") as beside:
        beside.write_text("new")
    (tmp_path / "other").write_text("other")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        comparing._write(pipe, {"claim": 1})
        assert os.read(reading, 100) == b'{\n "claim": 1\n}\n'
    finally:
        os.close(reading)
    assert pipe.is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
def test_a_file_that_may_not_be_written_to_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(PermissionError), replacing(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("out", "report"), [("X", "X"), ("X", "sub/../X"), ("X/y", "X"), ("X", "X/summary.json"), ("X", "X/tiles.parquet")]
)
def test_a_report_in_place_of_the_tables_is_refused_before_anything_is_written(
    tmp_path: Path, ended: Ended, out: str, report: str
) -> None:
    code, err = ended("analyze", "--demo", "--out", f"{tmp_path}/{out}", "--report", f"{tmp_path}/{report}")
    assert code == 2
    assert err.startswith(f"gapscope: --report {tmp_path}/{report}: --out {tmp_path}/{out} ")
    assert not list(tmp_path.iterdir())


def test_a_report_may_lie_beside_the_tables(tmp_path: Path, ended: Ended) -> None:
    assert ended("analyze", "--demo", "--out", str(tmp_path), "--report", str(tmp_path / "report.html")) == (0, "")
    assert {file.name for file in tmp_path.iterdir()} == {*OUTPUTS, "report.html"}

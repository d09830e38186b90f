"""Engines: which there are, and what they say where they cannot be had."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gapscope
from gapscope import LoadOptions
from gapscope.cli import app
from gapscope.errors import (
    ExporterError,
    InputError,
    MalformedTraceError,
    UnknownFormatError,
    UnsupportedVersionError,
    UsageError,
)
from gapscope.findings import Finding
from gapscope.load.engines.wire import from_wire, to_wire
from gapscope.load.one_file import Read

DATA = Path(__file__).parents[1] / "data"
FILE = DATA / "cpu_pipeline_rank0.gslog"


def test_there_is_no_other_engine():
    with pytest.raises(UsageError, match=r"no engine 'dask'\. Engines are local, ray"):
        gapscope.load(FILE, LoadOptions(engine="dask"))


def test_a_cache_folder_may_be_a_text(tmp_path):
    gapscope.load(FILE, LoadOptions(cache_dir=str(tmp_path / "cache")))
    assert (tmp_path / "cache").is_dir()


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'gapscope\[ray\]'"):
        gapscope.analyze(FILE, options=LoadOptions(engine="ray"))


def test_an_address_where_nobody_listens_is_said_at_once():
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listened at
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = CliRunner().invoke(app, ["analyze", str(FILE), "--engine", "ray", "--ray-address", address])
    assert isinstance(outcome.exception, UsageError)
    assert f"Nothing answers at the address of the Ray cluster, {address} (" in str(outcome.exception)


def test_an_address_without_the_engine_is_an_error():
    outcome = CliRunner().invoke(app, ["analyze", str(FILE), "--ray-address", "auto"])
    assert str(outcome.exception) == "--ray-address auto: this is for --engine ray."


def test_gapscope_imports_no_ray_and_no_fsspec_before_they_are_needed():
    import subprocess

    code = "import sys, gapscope; gapscope.load(sys.argv[1]); print({'ray', 'fsspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, str(FILE)], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    "kind", [InputError, UnknownFormatError, MalformedTraceError, UnsupportedVersionError, ExporterError]
)
def test_errors_travel_as_what_they_are(kind):
    error = from_wire(to_wire(Read(kind("a.json", "is broken.", "Mend it."))), None).result
    assert type(error) is kind
    assert (error.path, error.found, error.next_step) == ("a.json", "is broken.", "Mend it.")


def test_all_errors_about_a_file_can_travel():
    def below(kind):
        return {kind}.union(*(below(k) for k in kind.__subclasses__()))

    for kind in below(InputError):
        assert type(from_wire(to_wire(Read(kind("a", "b"))), None).result) is kind


def test_findings_travel():
    finding = Finding("skipped_file", "info", "Not read.", path="a", count=3)
    assert from_wire(to_wire(Read(finding)), None).result == finding

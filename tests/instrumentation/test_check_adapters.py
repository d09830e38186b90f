"""The script that checks the adapters against sources, on the stub frameworks as sources."""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from gapscope_instrumentation.adapters import find
from gapscope_instrumentation.adapters.base import Target

from tests.instrumentation.engine_support import STUBS
from tools.check_adapters import Code, Folder, check, main

ENGINES = ("megatron", "deepspeed", "vllm", "sglang")


@pytest.fixture
def sources(tmp_path):
    return Path(shutil.copytree(STUBS, tmp_path / "sources", ignore=shutil.ignore_patterns("__pycache__")))


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_sources_that_fit(sources, capsys):
    assert main([str(sources)]) == 0
    said = lines(capsys)
    for name in ENGINES:
        assert f"{name} against {sources} (says: {find(name).checked})" in said
        assert all(f"  ok    {target.name}" in said for target in find(name).targets)
    assert [line.split(":")[0] for line in said if line.startswith("skip")] == ["skip  torch_pipelining", "skip  c10d"]
    assert said[-1] == f"{sum(len(find(name).targets) for name in ENGINES)} targets checked, 0 do not fit"


def test_what_is_gone_or_has_other_parameters_is_named(sources, capsys):
    worker = sources / "vllm/v1/worker/gpu_worker.py"
    worker.write_text(worker.read_text().replace("def wait_for_comm", "def wait").replace("scheduler_output", "plan"))
    (sources / "vllm/distributed/parallel_state.py").unlink()
    assert main([str(sources), "--adapter", "vllm", "--adapter", "sglang"]) == 1
    said = lines(capsys)
    at = "vllm.v1.worker.gpu_worker"
    assert f"  FAIL  {at}.AsyncIntermediateTensors.wait_for_comm: is not there" in said
    wanted = "and (self, scheduler_output) is what the adapter was made for"
    assert f"  FAIL  {at}.Worker.execute_model: takes (self, plan), {wanted}" in said
    state = "vllm.distributed.parallel_state"
    assert f"  FAIL  {state}.get_pp_group: {state} is not there" in said
    assert said[-1] == f"{len(find('vllm').targets) + len(find('sglang').targets)} targets checked, 6 do not fit"


@pytest.mark.parametrize("kind", ["wheel", "tar.gz", "git", "folder below"])
def test_kinds_of_sources(sources, tmp_path, capsys, kind):
    if kind == "wheel":
        source = tmp_path / "all.whl"
        with zipfile.ZipFile(source, "w") as out:
            for file in sources.rglob("*.py"):
                out.write(file, file.relative_to(sources))
    elif kind == "tar.gz":
        source = tmp_path / "all-1.0.tar.gz"
        with tarfile.open(source, "w:gz") as out:
            out.add(sources, "all-1.0/python")
    elif kind == "git":
        source = sources / ".git"
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"],
        ):
            subprocess.run(["git", "-C", str(sources), *command], check=True)
        for file in sources.rglob("*.py"):
            file.unlink()
    else:
        source = tmp_path
    assert main([str(source), *(f"--adapter={name}" for name in ENGINES)]) == 0
    assert f"vllm against {source} (says: {find('vllm').checked})" in lines(capsys)


def test_nothing_to_check_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert len([line for line in lines(capsys) if line.startswith("skip")]) == 6
    (tmp_path / "a.txt").write_text("no source")
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "a.txt")])
    assert "a.txt: neither a folder, nor a git directory, a wheel or a tar file" in capsys.readouterr().err


def test_the_installed_torch_fits(capsys):
    torch = pytest.importorskip("torch")
    site = Path(torch.__file__).parent.parent
    assert main([str(site), "--adapter", "torch_pipelining", "--adapter", "c10d"]) == 0
    assert f"  ok    {find('torch_pipelining').targets[0].name}" in lines(capsys)


def test_names_are_found_through_imports_bases_conditions_and_stub_files(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("from .a import *\nif True:\n    from .b import of_b as renamed\n")
    (package / "a.py").write_text(
        "from .b import Base\nclass Of(Base):\n    pass\ntry:\n    TABLE = {}\nfinally:\n    pass\n"
    )
    (package / "b.py").write_text(
        "from .c import Native\nclass Base:\n    def method(self, first, *rest, last, **more): ...\ndef of_b(x): ...\n"
    )
    overloads = "".join(f"    @overload\n    def send(self, {taken}): ...\n" for taken in ("one", "two, three"))
    (package / "c.pyi").write_text("class Native:\n" + overloads)
    code = Code(Folder(tmp_path))
    for target in (
        Target("p", "Of.method", ("self", "first", "last")),
        Target("p.a", "Of.method", ("self", "rest", "more")),
        Target("p", "renamed", ("x",)),
        Target("p", "TABLE"),
        Target("p.b", "Native.send", ("two", "three")),
        Target("p.b", "Native.send", ("arg0", "arg1")),  # without names
    ):
        assert check(target, code) is None
    assert check(Target("p.a", "Of.method", ("last", "first")), code) == (
        "takes (self, first, rest, last, more), and (last, first) is what the adapter was made for"
    )
    assert check(Target("p.b", "Native.send", ("three", "four")), code) == (
        "takes (self, one) or (self, two, three), and (three, four) is what the adapter was made for"
    )
    assert check(Target("p.b", "Native.send", ("arg0", "arg1", "arg2")), code) is not None
    assert check(Target("p", "of_b"), code) == "is not there"
    assert check(Target("p", "Of.other"), code) == "is not there"

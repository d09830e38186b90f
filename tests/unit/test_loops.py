"""Where compiled loops are kept, and what happens where they cannot be: with real files, each run in a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LOOP = """
from gapscope.loops import loop

@loop
def triangle(n):
    total = 0
    for k in range(n):
        total += k
    return total
"""
RUN = """
import resource, sys
import triangles
if "full" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
if "nowhere" in sys.argv:
    from numba.core.caching import CacheImpl
    from gapscope.loops import loop
    CacheImpl._locator_classes = []
    triangles.triangle = loop(triangles.triangle.py_func)
print(triangles.triangle(4), sum(triangles.triangle.stats.cache_hits.values()))
"""


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "triangles.py").write_text(LOOP)
    return tmp_path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop")
    (folder / "triangles.py").write_text(LOOP)
    assert run(folder) == ("6 0", "")
    (folder / "kept").rename(folder / "whole")
    return folder


@pytest.fixture
def folder(compiled: Path) -> Path:
    """A folder in which the loop was compiled before; what is kept lies under names that hang on the folder's own."""
    shutil.rmtree(compiled / "kept", ignore_errors=True)
    shutil.copytree(compiled / "whole", compiled / "kept")
    (compiled / "triangles.py").write_text(LOOP)
    return compiled


def run(folder: Path, *words: str) -> tuple[str, str]:
    """Return the result with the number of loops that were loaded, and what was warned of."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "kept")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip(), done.stderr


def kept(folder: Path) -> Path:
    (found,) = (folder / "kept").rglob("*.loop")
    return found


def test_a_loop_is_compiled_once(folder: Path) -> None:
    assert run(folder) == ("6 1", "")


def cut(content: bytes) -> bytes:
    return content[:100]


def flipped(content: bytes) -> bytes:
    return content[:3000] + bytes([content[3000] ^ 4]) + content[3001:]


@pytest.mark.parametrize("damaged", [cut, flipped, bytes.upper, lambda _: b""])
def test_a_damaged_file_is_made_again(folder: Path, damaged: Callable[[bytes], bytes]) -> None:
    file = kept(folder)
    file.write_bytes(damaged(file.read_bytes()))
    assert run(folder) == ("6 0", "")
    assert run(folder) == ("6 1", "")


def test_code_of_another_function_is_not_run(folder: Path) -> None:
    file = kept(folder)
    (folder / "triangles.py").write_text(LOOP.replace("total += k", "total += 2 * k"))
    assert run(folder) == ("12 0", "")
    kept(folder).write_bytes((folder / "whole" / file.relative_to(folder / "kept")).read_bytes())
    assert run(folder) == ("12 0", "")


def test_after_a_change_of_the_source_that_cannot_be_kept_no_old_code_is_run(empty: Path) -> None:
    run(empty)
    (empty / "triangles.py").write_text(LOOP.replace("total += k", "total += 2 * k"))
    assert run(empty, "full")[0] == "12 0"
    assert run(empty) == ("12 0", "")
    assert run(empty) == ("12 1", "")
    kept(empty)  # one alone: what was compiled before is gone


def test_a_file_that_cannot_be_read_or_replaced_costs_time_alone(folder: Path) -> None:
    file = kept(folder)
    file.unlink()
    file.mkdir()
    result, said = run(folder)
    assert result == "6 0"
    assert said.count(f"could not be kept (in {file.parent}: Is a directory)") == 1


def test_a_full_disk_costs_time_alone(empty: Path) -> None:
    result, said = run(empty, "full")
    assert result == "6 0"
    assert said.count("File too large)") == 1
    assert run(empty) == ("6 0", "")
    assert run(empty) == ("6 1", "")


def test_without_a_folder_each_run_compiles_and_says_what_to_do(empty: Path) -> None:
    result, said = run(empty, "nowhere")
    assert result == "6 0"
    assert "no folder for them can be written to" in said
    assert "Set NUMBA_CACHE_DIR to another folder." in said

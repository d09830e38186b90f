"""Who may import what, beyond what import-linter can say (`[tool.importlinter]` in pyproject.toml)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gapscope_instrumentation.contract
import grimp
import pytest

SHARED_BY_READERS = {"base", "compression", "api_calls", "packing", "window"}


def modules_after(statement):
    """Return the top-level modules that a fresh interpreter holds after a statement and did not hold before."""
    code = f"import sys; before = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_contract_imports_nothing():
    tree = ast.parse(Path(gapscope_instrumentation.contract.__file__).read_text())
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)] == []


def test_the_instrumentation_loads_the_standard_library_alone():
    loaded = modules_after("import gapscope_instrumentation")
    assert loaded - sys.stdlib_module_names == {"gapscope_instrumentation"}


@pytest.mark.parametrize("unwanted", ["torch", "nvtx", "typer", "plotly"])
def test_the_library_loads_neither_what_it_analyzes_nor_its_skins(unwanted):
    assert unwanted not in modules_after("import gapscope")


def test_readers_of_one_tool_know_nothing_of_the_other():
    graph = grimp.build_graph("gapscope", cache_dir=None)
    readers = {name.split(".")[2] for name in graph.find_descendants("gapscope.readers")}
    nsys = {name for name in readers if name.startswith("nsys_")}
    others = readers - nsys - SHARED_BY_READERS
    assert nsys
    assert others
    families = [(nsys, others), (others, nsys), (SHARED_BY_READERS, nsys | others)]
    crossing = [
        (importer, imported)
        for from_family, to_family in families
        for importer in from_family
        for imported in to_family
        if graph.direct_import_exists(
            importer=f"gapscope.readers.{importer}", imported=f"gapscope.readers.{imported}", as_packages=True
        )
    ]
    assert crossing == []

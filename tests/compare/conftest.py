"""Runs that the tests of comparisons share: shipped recordings of the examples, analyzed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapscope.compare import read_run

EXAMPLES = Path(__file__).parents[1] / "data" / "examples"


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "browser" not in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("compare"))  # recordings are analyzed once


def recordings(name, tool="nsys"):
    """Return the recordings of one run of the examples, with commas between."""
    if tool == "nsys":
        return str(EXAMPLES / f"{name}_nsys.sqlite.gz")
    return ",".join(str(EXAMPLES / f"{name}_torch_rank{rank}.json.gz") for rank in (0, 1))


@pytest.fixture(scope="session")
def run_of():
    """Return a run of the examples."""
    known = {}

    def read(name, tool="nsys"):
        if (name, tool) not in known:
            known[name, tool] = read_run(recordings(name, tool))[0]
        return known[name, tool]

    return read


@pytest.fixture(scope="session")
def none(run_of):
    return run_of("mailbox_none")


@pytest.fixture(scope="session")
def late(run_of):
    return run_of("mailbox_late_submit")

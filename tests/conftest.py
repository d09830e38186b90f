"""What all tests share: an environment without the user's own settings, and a real nsys where there is one.

Tests marked ``nsys`` run a real nsys. It is looked for in ``GAPSCOPE_NSYS`` and on ``PATH``; without one they are
skipped, and the end of the run says so. ``.ci/run`` installs one.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest

NO_NSYS = "no nsys: set GAPSCOPE_NSYS to the program of an Nsight Systems, or put it on PATH"
SETTINGS_OF_THE_USER = (
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "NO_COLOR",
    "PY_COLORS",
    "TERMINAL_WIDTH",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
CACHE = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption("--update-docs", action="store_true", help="write the outputs shown in README.md anew")


def pytest_configure(config):
    gc.disable()  # until all is imported: what collecting makes stays anyway
    for name in SETTINGS_OF_THE_USER:
        os.environ.pop(name, None)
    config.stash[CACHE] = tempfile.mkdtemp(prefix="gapscope-tests-")
    os.environ["GAPSCOPE_CACHE"] = config.stash[CACHE]
    if nsys := os.environ.get("GAPSCOPE_NSYS"):
        os.environ["PATH"] = os.pathsep.join([str(Path(nsys).resolve().parent), os.environ["PATH"]])


def pytest_unconfigure(config):
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)


def pytest_collection_finish():
    gc.freeze()  # tests are not charged for looking through all modules again and again
    gc.enable()


def pytest_collection_modifyitems(items):
    without = nsys_program() is None
    for item in items:
        if item.get_closest_marker("nsys"):
            item.add_marker(pytest.mark.xdist_group("nsys"))  # two at once disturb each other
            if without:
                item.add_marker(pytest.mark.skip(reason=NO_NSYS))


def pytest_terminal_summary(terminalreporter):
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if "nsys" in r.keywords]
    if skipped:
        text = f"tests that need a real nsys and were SKIPPED: {len(skipped)}"
        terminalreporter.write_sep("!", text, red=True, bold=True)


def nsys_program():
    """Where nsys is, or None."""
    return os.environ.get("GAPSCOPE_NSYS") or shutil.which("nsys")


@pytest.fixture(scope="session")
def nsys():
    """Path of a real nsys."""
    program = nsys_program()
    if program is None:
        pytest.skip(NO_NSYS)
    return program

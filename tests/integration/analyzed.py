"""Analyses of the lab recordings: each is made once for all tests of one process.

Tests of one recording form a group, so that one process has them all.
"""

from functools import cache

import pytest

import gapscope
from tests.reference.runs import PARTIAL_RUNS, RUNS, run_paths

ALL_RUNS = dict(RUNS + PARTIAL_RUNS)


def of_runs(names):
    """Run a test once per recording, beside the other tests of that recording."""
    return pytest.mark.parametrize("run", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in names])


def paths_or_skip(run):
    paths = run_paths(ALL_RUNS[run])
    if paths is None:
        pytest.skip("this recording is not on this machine")
    return paths


@cache
def analyzed(run):
    return gapscope.analyze(paths_or_skip(run))

"""The compiler is made ready without what no loop needs, and can still do it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, sys
import numba
import numpy as np
from gapscope.compiler import ready_compiler
ready_compiler()
ready_compiler()
assert gc.isenabled()
assert "numba.np.arraymath" in sys.modules
print("scipy.linalg" in sys.modules)
print(numba.njit(lambda a, b: np.dot(a, b))(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
print("scipy.linalg" in sys.modules)
"""


def test_matrices_are_left_out_until_they_are_multiplied():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "11.0", "True"]

"""Floyd-Warshall as a compiled loop, for jobs of many ranks; `gapscope.clocks.closure.close_plainly` does the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gapscope.loops import loop


@loop
def close_in_place(closed: npt.NDArray[np.int64], infinite: int, finite: int) -> None:
    """Replace the bounds of ``[window, upper, lower]`` by their closure.

    Args:
        closed: The bounds.
        infinite: What stands for "no bound".
        finite: Bounds from here on are none; contradictions are cut off at minus this.
    """
    n = closed.shape[1]
    for bounds in closed:
        for k in range(n):
            for i in range(n):
                first = bounds[i, k]
                if first < finite:
                    for j in range(n):
                        through = first + bounds[k, j]
                        if through < bounds[i, j]:
                            bounds[i, j] = max(through, -finite)
    for bounds in closed.reshape(-1, n):
        for j in range(n):
            if bounds[j] >= finite:
                bounds[j] = infinite

"""How much of some windows others spend in them, without a loop over events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]


def overlap(group: Ints, start: Ints, end: Ints, beside: pl.DataFrame) -> Ints:
    """Return for windows how much time others of the same group spend in them; what runs twice counts twice.

    Up to any moment that is a sum over what began before it minus one over what ended before it; sums may wrap around,
    their differences do not.

    Args:
        group: Number of the group of each window: a GPU, a process.
        start: Start of each window.
        end: End of each window.
        beside: ``group, start_ns, end_ns`` of the others.
    """
    found = np.zeros(len(start), np.int64)
    for (number,), others in beside.group_by("group"):
        mine = np.flatnonzero(group == number)
        begins, ends = np.sort(others["start_ns"].to_numpy()), np.sort(others["end_ns"].to_numpy())
        begun, ended = (np.concatenate([[0], np.cumsum(v)]) for v in (begins, ends))

        def up_to(at: Ints, b: Ints = begins, e: Ints = ends, bs: Ints = begun, es: Ints = ended) -> Ints:
            i, j = np.searchsorted(b, at), np.searchsorted(e, at)
            return (i * at - bs[i]) - (j * at - es[j])

        found[mine] = up_to(end[mine]) - up_to(start[mine])
    return found

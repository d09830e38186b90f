"""What the recordings say about the order of moments on two clocks.

Each observation is one fact of cause and effect: a moment on one clock came no later than a moment on another. With
``T = t + b`` for each clock, ``t_e + b_e <= t_l + b_l`` bounds the difference of the two offsets by the recorded delay
(Duda et al. 1987; algorithms.md 1.2). An assumption bounds it the same way, without a time and without a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.lanes import lanes_of
from gapscope.loops import loop

Ints = npt.NDArray[np.int64]

OBSERVATION: dict[str, pl.DataType | type[pl.DataType]] = {
    "earlier": pl.Int32,
    "later": pl.Int32,
    "earlier_ns": pl.Int64,
    "later_ns": pl.Int64,
    "kind": pl.String,
    "instance": pl.String,
    "earlier_what": pl.String,
    "later_what": pl.String,
}
"""Clocks (numbers of `gapscope.clocks.domains`), times as recorded in the files, why the one cannot come after the
other (a key of `KINDS`), what both belong to (one launch, message or collective), and the two records in words."""

SOFT: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "domain": pl.Int32,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
"""One row per participant of a collective: ends are nearly simultaneous, which bounds nothing but tells a lot."""

KINDS = {
    "launch": "an operation cannot start before the call that launched it began",
    "sync": "a synchronizing call cannot return before the operation that it waited for ended",
    "copy": "a blocking copy to the host cannot return before the copy ended",
    "message": "data cannot be available before it was sent",
    "transfer": "data cannot be available before the first byte moved",
    "collective": "no rank can leave a collective before every rank has entered it",
    "rooted": "data of a root cannot arrive before the root sent it",
    "send_recv": "a receive cannot end before its send began",
    "host_message": "a receive cannot return before its send began",
    "nested": "two tools recorded the same range, one inside the other",
    "anchor": "the user stated when this was",
}

ASSUMPTIONS = {
    "gpu_mapping": "tools map device times onto the host's timeline to about 10 µs (8 to 9 µs were seen), or say how "
    "well",
    "same_host": "clocks of one host agree within what the tools can do",
    "system_clock": "files of one host carry the reading of its monotonic clock",
    "clock_bound": "--clock-bound",
}

KEPT_PER_BIN = 4
BINS = 1024


@dataclass(frozen=True)
class Assumption:
    """``b[upper] - b[lower] <= bound_ns``, offsets in the files' own absolute times, assumed and not proven."""

    upper: int
    lower: int
    bound_ns: int
    kind: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """All that was found about the clocks of a trace.

    Attributes:
        observations: Columns `OBSERVATION`.
        soft: Columns `SOFT`.
        counts: Facts found, per kind, before thinning.
        notes: Kind and text of what could not be used.
    """

    observations: pl.DataFrame
    soft: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SOFT))
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)


def thin(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep what binds: of each pair of clocks, in each of `BINS` stretches of time, the `KEPT_PER_BIN` shortest delays.

    Leaving out facts loosens bounds and never makes them wrong. Several are kept so that a damaged record can be
    dropped.

    Args:
        frame: Has ``earlier, later, earlier_ns, later_ns``.
    """
    if frame.height <= BINS:
        return frame
    first, last = frame["earlier_ns"].min(), frame["earlier_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    width = max(1, -(-(last - first + 1) // BINS))
    pairs, pair = lanes_of(frame, ["earlier", "later"], nulls_last=False)
    begin, until = frame["earlier_ns"].to_numpy(), frame["later_ns"].to_numpy()
    cell = pair.astype(np.int64) * BINS + (begin - first) // width
    frame = frame.with_columns(_cell=pl.Series(cell))
    frame = frame.filter(pl.Series(_may_be_kept(cell, until - begin, begin, pairs.height * BINS)))
    return (
        frame.with_columns(_delay=pl.col("later_ns") - pl.col("earlier_ns"))
        .sort("_delay", "earlier_ns", maintain_order=True)
        .group_by("_cell", maintain_order=True)
        .head(KEPT_PER_BIN)
        .drop("_cell", "_delay")
    )


@loop
def _may_be_kept(cell: Ints, delay: Ints, begin: Ints, cells: int) -> npt.NDArray[np.bool_]:
    """Return which rows are among the shortest of their cell; of equal ones the first."""
    kept = np.full((cells, KEPT_PER_BIN), -1, np.int64)
    for row in range(len(cell)):
        mine = kept[cell[row]]
        for place in range(KEPT_PER_BIN):
            other = mine[place]
            if other < 0 or delay[row] < delay[other] or (delay[row] == delay[other] and begin[row] < begin[other]):
                mine[place + 1 :] = mine[place:-1].copy()
                mine[place] = row
                break
    found = np.zeros(len(cell), np.bool_)
    for one in kept.ravel():
        if one >= 0:
            found[one] = True
    return found


def observations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `OBSERVATION`, without rows that lack a clock or a time."""
    found = frame.select(pl.col(n).cast(t) for n, t in OBSERVATION.items())
    return found.drop_nulls(["earlier", "later", "earlier_ns", "later_ns"])

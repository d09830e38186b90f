"""What the constraints say about one pair of host clocks over time: the numbers that a plot of it shows.

Everything is about ``D = offset[one] - offset[two]``, the offset of clock ``one`` relative to clock ``two``: how much
more is added to its times to put both on one timebase. A record of the file of ``one`` that came no later than a
record of the file of ``two`` bounds it from above by the recorded delay, the reverse bounds it from below. Either bound
holds at every moment between both records, whatever the clocks' rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gapscope.clocks.alignment import Alignment
from gapscope.clocks.closure import FINITE, Bools, Ints
from gapscope.errors import UsageError
from gapscope.findings import plural

PAIR_OBSERVATION: dict[str, pl.DataType | type[pl.DataType]] = {
    "at_ns": pl.Int64,
    "side": pl.String,
    "bound_ns": pl.Int64,
    "beyond_ns": pl.Int64,
    "kind": pl.String,
    "instance": pl.String,
    "earlier_clock": pl.String,
    "later_clock": pl.String,
    "earlier_what": pl.String,
    "later_what": pl.String,
}
"""When, on the common timebase (the middle between both records, each clock at its chosen offset); ``upper`` (``D`` is
at most the bound) or ``lower`` (at least); the bound; how far outside the interval of its window it lies (negative:
inside; null: that side of the interval is open); and columns of `gapscope.clocks.observations.OBSERVATION`, with the
clocks in words."""

PAIR_WINDOW: dict[str, pl.DataType | type[pl.DataType]] = {
    "window_start_ns": pl.Int64,
    "window_end_ns": pl.Int64,
    "offset_ns": pl.Int64,
    "lo_ns": pl.Int64,
    "hi_ns": pl.Int64,
    "proven_lo_ns": pl.Int64,
    "proven_hi_ns": pl.Int64,
    "quality": pl.String,
}
"""Limits of the window on the common timebase; the chosen ``D``; its interval by observations and assumptions; its
interval by observations alone; all throughout the window, null: none. ``quality`` as in `gapscope.schema.ALIGNMENT`."""

PAIR_HULL: dict[str, pl.DataType | type[pl.DataType]] = {"side": pl.String, "at_ns": pl.Int64, "bound_ns": pl.Int64}
"""Corners in the order of time: of ``upper`` the lower convex hull of the upper bounds, of ``lower`` the upper convex
hull of the lower bounds. Each corner is an observation."""

_FEW = 512
"""So many candidates for corners go into the exact pass in plain integers."""


@dataclass(frozen=True)
class PairView:
    """What the constraints say about two host clocks.

    Attributes:
        one: Label of the clock that the offset is of.
        two: Label of the clock that it is against.
        observations: Columns `PAIR_OBSERVATION`, in the order of time: what ties the two files directly. What ties them
            through a third file is in the interval of the windows, and not among these.
        windows: Columns `PAIR_WINDOW`, in the order of time, without gaps.
        hull: Columns `PAIR_HULL`. While both clocks keep constant rates, ``D`` over time is a straight line, and it
            passes between both hulls (Duda et al. 1987); nothing else is assumed. Empty if a clock of the pair stepped.
        counts: ``kind, side, n``: observations of each kind, the most frequent first.
        stepped: Whether one of both clocks was found to have stepped.
    """

    one: str
    two: str
    observations: pl.DataFrame
    windows: pl.DataFrame
    hull: pl.DataFrame
    counts: pl.DataFrame
    stepped: bool

    @property
    def interval_ns(self) -> tuple[int | None, int | None]:
        """Bounds of the offset that hold over all windows, by observations and assumptions; None: none."""
        return self._over_all("lo_ns", "hi_ns")

    @property
    def proven_ns(self) -> tuple[int | None, int | None]:
        """Bounds of the offset that hold over all windows, by observations alone; None: none."""
        return self._over_all("proven_lo_ns", "proven_hi_ns")

    @property
    def placed(self) -> bool:
        """Whether both clocks stand on the common timebase."""
        return self.windows["offset_ns"].null_count() == 0

    def _over_all(self, low: str, high: str) -> tuple[int | None, int | None]:
        lows, highs = self.windows[low], self.windows[high]
        least = None if lows.null_count() or lows.is_empty() else int(lows.to_numpy().min())
        return least, None if highs.null_count() or highs.is_empty() else int(highs.to_numpy().max())


def default_pair(alignment: Alignment) -> tuple[int, int] | None:
    """Return the clocks to look at where nobody says which: a host's against the reference; None: there is only one."""
    domains = alignment.domains
    hosts = domains.table.filter(pl.col("device").is_null() & pl.col("source").is_not_null())["domain"]
    others = [int(c) for c in hosts if c != domains.reference]
    if not others:
        return None
    return others[0], domains.reference if domains.reference in hosts else others[1]


def clock_of_rank(alignment: Alignment, rank: int, tool: str | None = None) -> int:
    """Return the number of the host clock that recorded a rank.

    Args:
        alignment: Where the clocks stand.
        rank: The rank.
        tool: ``nsys``, ``torch``, or ``gapscope`` for the mark log; None: whichever recorded it, the mark log only
            where nothing else did.

    Raises:
        UsageError: No clock recorded that rank, or several did.
    """
    hosts = alignment.domains.table.filter(pl.col("device").is_null() & pl.col("source").is_not_null())
    by_tool = hosts if tool is None else hosts.filter(pl.col("tool") == tool)
    found = by_tool.filter(pl.col("ranks").list.contains(rank).fill_null(value=False))
    traces = found.filter(pl.col("tool") != "gapscope")
    if tool is None and traces.height:
        found = traces
    if found.height == 1:
        return int(found["domain"][0])
    of_tool = "" if tool is None else f" by {tool}"
    if not found.height:
        there = by_tool["ranks"].explode().drop_nulls().unique().sort().to_list()
        listed = f"The ranks there are: {', '.join(map(str, there))}." if there else "No rank is known."
        raise UsageError(f"No recording{of_tool} is of rank {rank}. {listed}")
    listed = ", ".join(f"{label} ({tool})" for label, tool in found.select("label", "tool").iter_rows())
    raise UsageError(f"Rank {rank} was recorded on {plural(found.height, 'clock')}{of_tool}: {listed}. Name the tool.")


def pair_view(alignment: Alignment, one: int, two: int) -> PairView:
    """Return what the constraints say about the offset of one host clock relative to another.

    An observation may be of a device clock of either file. It is turned into a bound on the host clocks by taking that
    device clock at its chosen offset against its host, though it may stand elsewhere inside an interval of its own. The
    interval of the windows allows for that, and for the drift within the window, so that a bound shown here may lie
    inside it.

    Args:
        alignment: Where the clocks stand.
        one: Number of a host clock (`gapscope.clocks.domains`).
        two: Number of another one.

    Raises:
        UsageError: They are not two host clocks.
    """
    domains = alignment.domains
    label = domains.table["label"].to_list()
    for clock in (one, two):
        if not 0 <= clock < domains.n or not domains.is_host[clock]:
            raise UsageError(f"Clock {clock} is not a host clock of this run.")
    if one == two:
        raise UsageError(f"Both are the same clock ({label[one]}): nothing has to be aligned.")
    windows = _windows(alignment, one, two)
    rows = _observations(alignment, one, two, windows)
    stepped = any(step.before in (one, two) for step in domains.steps)
    hull = pl.DataFrame(schema=PAIR_HULL) if stepped else _hulls(rows)
    counts = (
        rows.group_by("kind", "side")
        .agg(n=pl.len().cast(pl.Int64))
        .sort("n", "kind", "side", descending=[True, False, False])
    )
    return PairView(label[one], label[two], rows, windows, hull, counts, stepped)


def nearest(view: PairView, most: int) -> pl.DataFrame:
    """Return the observations that tell most.

    Of each stretch of time those nearest to the interval (where it is open to that side, the tightest), and the corners
    of the hulls.

    Args:
        view: The pair.
        most: How many, beside the corners.
    """
    rows = view.observations
    if rows.height <= most:
        return rows
    first, last = rows["at_ns"][0], rows["at_ns"][-1]
    per_cell = 2
    width = max(1, -(-(last - first + 1) // max(1, most // (2 * per_cell))))
    looseness = pl.when(pl.col("side") == "upper").then("bound_ns").otherwise(-pl.col("bound_ns"))
    kept = (
        rows.with_row_index("_row")
        .with_columns(_bin=(pl.col("at_ns") - first) // width, _far=pl.coalesce("beyond_ns", looseness))
        .sort("_far", "_row")
        .group_by("side", "_bin", maintain_order=True)
        .head(per_cell)
        .select(rows.columns)
    )
    corners = rows.join(view.hull, on=["side", "at_ns", "bound_ns"], how="semi")
    return pl.concat([kept, corners]).unique(maintain_order=True).sort("at_ns", maintain_order=True)


def _windows(alignment: Alignment, one: int, two: int) -> pl.DataFrame:
    s = alignment.solution
    near = s.near_ns[one] - s.near_ns[two]
    high, low = s.proven[:, one, two], -s.proven[:, two, one]
    proven = pl.DataFrame(
        {
            "window_start_ns": s.edges[:-1],
            "_end": s.edges[1:],
            "proven_lo_ns": low + near,
            "proven_hi_ns": high + near,
            "_low": low > -(FINITE // 2),
            "_high": high < FINITE // 2,
        }
    ).with_columns(
        proven_lo_ns=pl.when("_low").then("proven_lo_ns"), proven_hi_ns=pl.when("_high").then("proven_hi_ns")
    )
    joined = proven.join_asof(alignment.against([(one, two)]), on="window_start_ns")
    placed = pl.col("offset_ns").is_not_null()
    return joined.with_columns(
        window_end_ns="_end",
        proven_lo_ns=pl.when(placed).then("proven_lo_ns"),
        proven_hi_ns=pl.when(placed).then("proven_hi_ns"),
    ).select(pl.col(n).cast(t) for n, t in PAIR_WINDOW.items())


def _observations(alignment: Alignment, one: int, two: int, windows: pl.DataFrame) -> pl.DataFrame:
    s, domains = alignment.solution, alignment.domains
    rows = s.problem.observations
    earlier, later = (rows[c].to_numpy().astype(np.int64) for c in ("earlier", "later"))
    host = domains.clock
    above = (host[earlier] == one) & (host[later] == two)
    tied = above | ((host[earlier] == two) & (host[later] == one))
    rows, slack = rows.filter(pl.Series(tied, dtype=pl.Boolean)), s.problem.slack_ns[tied]
    above, earlier, later = above[tied], earlier[tied], later[tied]
    begin, end = rows["earlier_ns"].to_numpy(), rows["later_ns"].to_numpy()
    begin_at, begin_shift = _place(alignment, earlier, begin)
    end_at, end_shift = _place(alignment, later, end)
    delay = (end + end_shift) - (begin + begin_shift) + slack
    bound, at = np.where(above, delay, -delay), begin_at + (end_at - begin_at) // 2
    label = domains.table["label"]
    window = np.clip(np.searchsorted(s.edges, at, side="right") - 1, 0, windows.height - 1)
    found = rows.with_columns(
        at_ns=pl.Series(at),
        bound_ns=pl.Series(bound),
        side=pl.when(pl.Series(above, dtype=pl.Boolean)).then(pl.lit("upper")).otherwise(pl.lit("lower")),
        earlier_clock=label.gather(earlier),
        later_clock=label.gather(later),
        _lo=windows["lo_ns"].gather(window),
        _hi=windows["hi_ns"].gather(window),
    ).with_columns(
        beyond_ns=pl.when(pl.col("side") == "upper")
        .then(pl.col("bound_ns") - pl.col("_hi"))
        .otherwise(pl.col("_lo") - pl.col("bound_ns"))
    )
    return found.select(pl.col(n).cast(t) for n, t in PAIR_OBSERVATION.items()).sort("at_ns", maintain_order=True)


def _place(alignment: Alignment, clock: Ints, local_ns: Ints) -> tuple[Ints, Ints]:
    """Return times on the common timebase, and how far each clock stands from its host's clock."""
    offset, window = alignment.solution.offset_ns, alignment.window(clock, local_ns)
    own = offset[window, clock]
    return local_ns + own, own - offset[window, alignment.domains.clock[clock]]


def _hulls(rows: pl.DataFrame) -> pl.DataFrame:
    parts = [pl.DataFrame(schema=PAIR_HULL)]
    for side, sign in (("upper", 1), ("lower", -1)):
        mine = rows.filter(pl.col("side") == side)
        t, v = lower_hull(mine["at_ns"].to_numpy(), sign * mine["bound_ns"].to_numpy())
        parts.append(
            pl.DataFrame({"at_ns": t, "bound_ns": sign * v})
            .with_columns(side=pl.lit(side))
            .select(pl.col(n).cast(d) for n, d in PAIR_HULL.items())
        )
    return pl.concat(parts)


def lower_hull(t: Ints, v: Ints) -> tuple[Ints, Ints]:
    """Return the corners of the lower convex hull, by time; no three of them on one line.

    >>> t, v = lower_hull(np.array([3, 0, 1, 1, 2, 4]), np.array([0, 4, 3, 2, 2, 5]))
    >>> t.tolist(), v.tolist()
    ([0, 1, 3, 4], [4, 2, 0, 5])
    """
    order = np.lexsort((v, t))
    t, v = t[order], v[order]
    lowest = np.concatenate([[True], t[1:] != t[:-1]]) if len(t) else np.zeros(0, np.bool_)
    t, v = t[lowest], v[lowest]
    while len(t) > _FEW:  # a point above the line through its neighbors is no corner, whatever else is left out
        above = _surely_above(t, v)
        t, v = t[~above], v[~above]
        if above.sum() * 16 < len(t):
            break
    corners: list[tuple[int, int]] = []
    for point in zip(t.tolist(), v.tolist(), strict=True):  # plain integers: products exceed 64 bits
        while len(corners) > 1 and _turn(corners[-2], corners[-1], point) <= 0:
            corners.pop()
        corners.append(point)
    found = np.array(corners, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _surely_above(t: Ints, v: Ints) -> Bools:
    """Return which points lie above the line through their neighbors, by more than rounding."""
    before, after = np.diff(t).astype(np.float64), np.diff(v).astype(np.float64)
    one, two = before[:-1] * after[1:], after[:-1] * before[1:]
    above = np.zeros(len(t), np.bool_)
    above[1:-1] = two - one > (np.abs(one) + np.abs(two)) * 2.0**-48
    return above


def _turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

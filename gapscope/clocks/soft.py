"""Where clocks probably stand: ranks leave a collective at nearly the same time.

Nothing bounds "nearly" (rings and host proxies skew ends by microseconds), so this chooses a point inside a proven
interval and never an interval. Of the instances, those count in which no rank waited long: their durations are within
twice the shortest (algorithms.md 1.4). A running median over time keeps single ones from deciding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks.domains import Domains

Ints = npt.NDArray[np.int64]

_NEIGHBORS = 15
_FEWEST = 3


@dataclass(frozen=True)
class Link:
    """What the collectives of two files say: ``offset[clock] - offset[parent]`` over time.

    Attributes:
        clock: Host clock that is placed.
        parent: Host clock that it is placed against.
        local_ns: When, on the clock's own time.
        difference_ns: The difference then, a running median.
    """

    clock: int
    parent: int
    local_ns: Ints
    difference_ns: Ints


@dataclass(frozen=True)
class SoftOffsets:
    """Estimates of offsets, as a tree of links from the reference outward."""

    links: tuple[Link, ...]
    reference: int

    def at(self, edges: Ints, near_ns: Ints) -> dict[int, Ints]:
        """Return the estimated offset of each clock in each window, by clock."""
        centers = edges[:-1] + np.diff(edges) // 2
        found = {self.reference: np.zeros(len(centers), np.int64)}
        for link in self.links:
            local = centers - near_ns[link.clock]
            first = link.difference_ns[0]  # floats hold differences exactly that are small
            steps = np.interp(
                (local - link.local_ns[0]).astype(np.float64),
                (link.local_ns - link.local_ns[0]).astype(np.float64),
                (link.difference_ns - first).astype(np.float64),
            )
            found[link.clock] = found[link.parent] + first + np.round(steps).astype(np.int64)
        del found[self.reference]
        return found

    def reaches(self, clocks: int) -> npt.NDArray[np.bool_]:
        """Tell which of so many clocks have an estimate."""
        found = np.zeros(clocks, np.bool_)
        found[[link.clock for link in self.links]] = True
        return found

    def drift_ppm(self, clock: int) -> float | None:
        """Return the rate of a clock against its parent, a Theil-Sen slope; None if nothing tells."""
        for link in self.links:
            if link.clock == clock and len(link.local_ns) > _FEWEST:
                picked = np.linspace(0, len(link.local_ns) - 1, min(200, len(link.local_ns))).astype(int)
                x = (link.local_ns[picked] - link.local_ns[0]).astype(np.float64)
                y = (link.difference_ns[picked] - link.difference_ns[0]).astype(np.float64)
                one, two = np.triu_indices(len(x), 1)
                apart = x[two] - x[one]
                slopes = (y[two] - y[one])[apart > 0] / apart[apart > 0]
                return float(np.median(slopes) * 1e6) if len(slopes) else None
        return None


def soft_offsets(domains: Domains, soft: pl.DataFrame) -> SoftOffsets | None:
    """Return estimates from the ends of collectives; None if there are none.

    Args:
        domains: The clocks.
        soft: Columns `gapscope.clocks.observations.SOFT`.
    """
    if not soft.height:
        return None
    clock = pl.Series("clock", domains.clock[soft["domain"].to_numpy()])
    rows = soft.with_columns(clock, duration=pl.col("end_ns") - pl.col("start_ns"))
    calm = pl.col("duration").max().over("instance") <= 2 * pl.col("duration").min().over("instance")
    least = pl.col("duration").min()
    rows = rows.filter(calm | ((pl.col("duration") <= 2 * least).all().over("instance")))
    pairs = (
        rows.join(rows, on="instance", suffix="_2")
        .filter(pl.col("clock") != pl.col("clock_2"))
        .select("clock", "clock_2", "instance", local_ns="end_ns", difference_ns=pl.col("end_ns_2") - pl.col("end_ns"))
    )
    counts = {(a, b): n for a, b, n in pairs.group_by("clock", "clock_2").len().iter_rows() if n >= _FEWEST}
    links: list[Link] = []
    placed = [domains.reference]
    while True:
        open_pairs = {p: n for p, n in counts.items() if p[1] in placed and p[0] not in placed}
        if not open_pairs:
            break
        child, parent = max(open_pairs, key=lambda p: (open_pairs[p], -p[0], -p[1]))
        of_pair = pairs.filter((pl.col("clock") == child) & (pl.col("clock_2") == parent)).sort("local_ns")
        median = of_pair["difference_ns"].cast(pl.Float64) - float(of_pair["difference_ns"][0])
        median = median.rolling_median(_NEIGHBORS, min_samples=1, center=True)
        difference = median.round().cast(pl.Int64) + of_pair["difference_ns"][0]
        links.append(Link(child, parent, of_pair["local_ns"].to_numpy(), difference.to_numpy()))
        placed.append(child)
    return SoftOffsets(tuple(links), domains.reference) if links else None

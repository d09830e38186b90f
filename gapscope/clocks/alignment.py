"""The result: where each clock stands on the common timebase, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.clocks.closure import FINITE, Bools, Ints
from gapscope.clocks.domains import Domains
from gapscope.clocks.soft import SoftOffsets
from gapscope.clocks.solve import Solution, uncertainty
from gapscope.findings import Finding
from gapscope.schema import ALIGNMENT, dtypes

_SAME_NS, _SAME_PART = 500, 20
"""Windows are joined while no bound grows by more than 500 ns or a twentieth."""


@dataclass(frozen=True)
class Alignment:
    """Where each clock stands on the common timebase.

    Attributes:
        domains: The clocks.
        solution: Bounds and points, windows joined where they say the same.
        soft: Estimates from collectives; None: there are none.
        counts: Facts found, per kind.
        findings: What is missing, weak or contradictory.
    """

    domains: Domains
    solution: Solution
    soft: SoftOffsets | None
    counts: dict[str, int]
    findings: list[Finding]

    @cached_property
    def placed(self) -> Bools:
        """Tell which clocks stand on the common timebase at all."""
        domains, apart = self.domains, self.solution.problem.apart
        claims = domains.table["claims"].to_numpy()
        reference = domains.reference
        first, second = self.solution.closed[:, :, reference], self.solution.closed[:, reference, :]
        bounded = ((first < FINITE // 2) & (second < FINITE // 2)).all(axis=0)
        free = claims | bounded
        free[reference] = True
        host = domains.clock
        cut_off = np.array([c in apart or int(host[c]) in apart for c in range(domains.n)])
        return np.asarray((free | ~domains.is_host) & free[host] & ~cut_off)

    def window(self, clock: Ints, local_ns: Ints) -> Ints:
        """Return the window that a time of a clock lies in."""
        return self._window_at(local_ns + self.solution.near_ns[clock])

    def _window_at(self, common_ns: Ints) -> Ints:
        edges = self.solution.edges
        return np.clip(np.searchsorted(edges, common_ns, side="right") - 1, 0, len(edges) - 2)

    def offsets(self, clock: pl.Series, local_ns: pl.Series) -> pl.Series:
        """Return what to add to times of clocks; null where the clock or the time is, or the clock is not placed.

        Args:
            clock: Numbers of clocks.
            local_ns: Times as recorded.
        """
        known, c, t = _known(clock, local_ns)
        value = self.solution.offset_ns[self.window(c, t), c]
        return _series(value, known & self.placed[c])

    def uncertainty(self, one: pl.Series, two: pl.Series, at_ns: pl.Series) -> pl.Series:
        """Return the bound of the error of a time difference between two clocks; null where there is none.

        Args:
            one: Numbers of clocks.
            two: Numbers of clocks.
            at_ns: When, on the common timebase.
        """
        known, first, second = _known(one, two)
        there, _, at = _known(one, at_ns)
        bound = uncertainty(self.solution, first, second, self._window_at(at))
        placed = self.placed[first] & self.placed[second]
        alone = (self.domains.clock[first] == self.domains.clock[second]) & self._tied[first] & self._tied[second]
        return _series(bound, known & ((first == second) | (there & (placed | alone) & (bound < FINITE // 2))))

    @cached_property
    def _tied(self) -> Bools:
        """Tell which clocks have a known relation to their own host's clock."""
        apart = self.solution.problem.apart
        return np.array([self.domains.is_host[c] or c not in apart for c in range(self.domains.n)])

    @cached_property
    def table(self) -> pl.DataFrame:
        """Table ``alignment`` of `gapscope.schema`: each clock against the reference."""
        return self.against([(c, self.domains.reference) for c in range(self.domains.n) if self._shown(c)])

    def _shown(self, clock: int) -> bool:
        return self.domains.table["source"][clock] is not None

    def against(self, pairs: list[tuple[int, int]]) -> pl.DataFrame:
        """Return rows of table ``alignment`` for pairs of clocks: the first against the second, per window."""
        parts = [self._rows(one, two) for one, two in pairs]
        empty = pl.DataFrame(schema=dtypes(ALIGNMENT))
        return pl.concat([empty, *parts]) if parts else empty

    def _rows(self, one: int, two: int) -> pl.DataFrame:
        """Return the rows of one pair; joined where neighbors are equal."""
        s, domains = self.solution, self.domains
        near = s.near_ns[one] - s.near_ns[two]
        offset = s.offset_ns[:, one] - s.offset_ns[:, two]
        high, low = s.closed[:, one, two], -s.closed[:, two, one]
        placed = bool(self.placed[one] and self.placed[two]) or one == two
        row, other = domains.table.row(one, named=True), domains.table.row(two, named=True)
        frame = pl.DataFrame(
            {
                "window_start_ns": s.edges[:-1],
                "window_end_ns": s.edges[1:],
                "offset_ns": offset,
                "lo_ns": low + near,
                "hi_ns": high + near,
                "proven_hi": s.proven[:, one, two] < FINITE // 2,
                "proven_lo": s.proven[:, two, one] < FINITE // 2,
                "narrowed": (s.proven[:, one, two] != high) | (-s.proven[:, two, one] != low),
            }
        )
        frame = frame.with_columns(
            offset_ns=pl.when(pl.lit(placed)).then("offset_ns"),
            lo_ns=pl.when(pl.lit(placed) & (pl.Series(low) > -FINITE // 2)).then("lo_ns"),
            hi_ns=pl.when(pl.lit(placed) & (pl.Series(high) < FINITE // 2)).then("hi_ns"),
            quality=pl.when(pl.lit(one == two))
            .then(pl.lit("same_clock"))
            .when(pl.lit(not placed))
            .then(pl.lit("unaligned"))
            .when(pl.col("proven_lo") & pl.col("proven_hi"))
            .then(pl.lit("bounded"))
            .when(pl.col("proven_lo") | pl.col("proven_hi"))
            .then(pl.lit("half_bounded"))
            .otherwise(pl.lit("wall_only")),
        )
        tied, method, assumed = self._origin(one, two)
        frame = frame.with_columns(
            source=pl.lit(row["source"]),
            rank=pl.lit(row["rank"]),
            domain=pl.lit(row["name"]),
            reference=pl.lit(_name(other)),
            drift_ppm=pl.lit(self._drift(one, two, frame)),
            n_hard=pl.lit(tied),
            n_soft=pl.lit(self._soft_count(one, two)),
            method=pl.lit(method),
            assumed=pl.when(pl.col("narrowed") & pl.lit(placed)).then(pl.lit(assumed)),
        )
        frame = frame.select(pl.col(n).cast(t) for n, t in dtypes(ALIGNMENT).items())
        return _joined(frame)

    def _origin(self, one: int, two: int) -> tuple[int, str, str]:
        """Return how many observations tie two clocks, of which kinds, and what is assumed about them."""
        domains, problem = self.domains, self.solution.problem
        if one == two:
            return 0, "reference" if one == domains.reference else "the same clock", ""
        clock = domains.clock
        earlier, later = (problem.observations[c].to_numpy() for c in ("earlier", "later"))
        if clock[one] == clock[two]:
            gpus = [c for c in (one, two) if not domains.is_host[c]]
            tied = (np.isin(earlier, gpus) | np.isin(later, gpus)) & (clock[earlier] == clock[later])
        else:
            mine = clock == clock[one]
            tied = mine[earlier] != mine[later]
        kinds = problem.observations.filter(pl.Series(tied, dtype=pl.Boolean)).group_by("kind").len()
        said = [
            f"{n} {kind.replace('_', ' ')}" for kind, n in kinds.sort(-pl.col("len").cast(pl.Int64), "kind").iter_rows()
        ]
        files = {int(clock[one]), int(clock[two])}
        assumed = {
            a.kind.replace("_", " ") for a in problem.assumptions if {int(clock[a.upper]), int(clock[a.lower])} & files
        }
        claim = domains.table["claim_text"][one] or "none"
        return int(tied.sum()), ", ".join(said) or claim, ", ".join(sorted(assumed))

    def _soft_count(self, one: int, two: int) -> int:
        if self.soft is None:
            return 0
        clocks = {int(self.domains.clock[one]), int(self.domains.clock[two])}
        return sum(len(link.local_ns) for link in self.soft.links if {link.clock, link.parent} == clocks)

    def _drift(self, one: int, two: int, frame: pl.DataFrame) -> float | None:
        """Return the rate against the reference, ppm; None where the bounds leave both signs open.

        The steepest and the flattest line that pass through all intervals bound the rate; their middle is returned.
        """
        if one == two or frame["lo_ns"].null_count() or frame["hi_ns"].null_count() or frame.height < 2:
            return None
        if any(zone[0] in (one, two) for zone in self.solution.problem.zones):
            return None
        middle = ((frame["window_start_ns"] + frame["window_end_ns"]) // 2).to_numpy()
        picked = np.unique(np.linspace(0, frame.height - 1, min(200, frame.height)).astype(int))
        t, low, high = middle[picked], frame["lo_ns"].to_numpy()[picked], frame["hi_ns"].to_numpy()[picked]
        a, b = np.triu_indices(len(t), 1)
        apart = (t[b] - t[a]).astype(np.float64)
        steepest = float(((high[b] - low[a]) / apart).min() * 1e6)
        flattest = float(((low[b] - high[a]) / apart).max() * 1e6)
        if flattest > steepest or flattest <= 0 <= steepest:
            return None
        return -(flattest + steepest) / 2


def _name(row: dict[str, object]) -> str:
    return "anchors" if row["source"] is None else f"{row['path']}:{row['name']}"


def _known(one: pl.Series, two: pl.Series) -> tuple[Bools, Ints, Ints]:
    known = (one.is_not_null() & two.is_not_null()).to_numpy()
    return known, one.fill_null(0).to_numpy().astype(np.int64), two.fill_null(0).to_numpy().astype(np.int64)


def _series(value: npt.NDArray[np.int64], known: Bools) -> pl.Series:
    frame = pl.DataFrame({"value": value, "known": known}, schema={"value": pl.Int64, "known": pl.Boolean})
    return frame.select(pl.when("known").then("value").alias("value"))["value"]


def _joined(frame: pl.DataFrame) -> pl.DataFrame:
    """Join neighboring windows whose rows are equal but for the window."""
    same = [c for c in frame.columns if c not in ("window_start_ns", "window_end_ns")]
    return (
        frame.with_columns(_run=pl.struct(same).rle_id())
        .group_by("_run", *same, maintain_order=True)
        .agg(pl.col("window_start_ns").min(), pl.col("window_end_ns").max())
        .select(frame.columns)
    )


def coarsen(solution: Solution) -> Solution:
    """Join windows that say nearly the same: bounds of the joined window are the widest of its parts.

    The closure of the whole stays intact (the largest of closed systems is closed), and points stay feasible because
    only windows with equal points are joined.
    """
    closed, proven, offset = solution.closed, solution.proven, solution.offset_ns
    starts = [0]
    narrowest = closed[0]
    now = closed[0]
    for w in range(1, len(closed)):
        wider = np.maximum(now, closed[w])
        least = np.minimum(narrowest, closed[w])
        room = np.maximum(_SAME_NS, np.abs(least) // _SAME_PART)
        if (wider - least <= room).all() and (offset[w] == offset[starts[-1]]).all():
            now, narrowest = wider, least
        else:
            starts.append(w)
            now = narrowest = closed[w]
    return replace(
        solution,
        edges=np.append(solution.edges[starts], solution.edges[-1]),
        closed=np.maximum.reduceat(closed, starts, axis=0),
        proven=np.maximum.reduceat(proven, starts, axis=0),
        offset_ns=offset[starts],
    )

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

_DRIFT_POINTS = 100
_SAME_NS, _SAME_PART = 500, 20
"""Windows are joined while no bound of a clock grows by more than 500 ns or a twentieth of its interval."""


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
        # A claim that is refuted, and bounds that are open on one side, leave nothing to choose a point by.
        guided = np.zeros(domains.n, np.bool_) if self.soft is None else self.soft.reaches(domains.n)
        free = (claims & ~self._refuted) | bounded | guided
        free[reference] = True
        host = domains.clock
        cut_off = np.array([c in apart or int(host[c]) in apart for c in range(domains.n)])
        return np.asarray((free | ~domains.is_host) & free[host] & ~cut_off)

    @cached_property
    def _refuted(self) -> Bools:
        """Tell which clocks do not stand where they claim."""
        claim = self.domains.claim_ns - self.domains.claim_ns[self.domains.reference]
        return np.asarray((self.solution.offset_ns != claim[None, :]).any(axis=0))

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
        c = self.domains.at(c, t)
        known, c = known & (c >= 0), np.maximum(c, 0)
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
        first, second = self._at(first, at), self._at(second, at)
        known, first, second = known & (first >= 0) & (second >= 0), np.maximum(first, 0), np.maximum(second, 0)
        bound = uncertainty(self.solution, first, second, self._window_at(at))
        placed = self.placed[first] & self.placed[second]
        alone = (self.domains.clock[first] == self.domains.clock[second]) & self._tied[first] & self._tied[second]
        return _series(bound, known & ((first == second) | (there & (placed | alone) & (bound < FINITE // 2))))

    def _at(self, clock: Ints, common_ns: Ints) -> Ints:
        """Return the clock that was in force at a time of the common timebase; -1: nobody knows."""
        found, near = clock.copy(), self.solution.near_ns
        for step in self.domains.steps:
            mine = found == step.before
            found[mine & (common_ns > step.begin_ns + near[step.before])] = -1
            found[mine & (common_ns >= step.end_ns + near[step.after])] = step.after
        return found

    @cached_property
    def _tied(self) -> Bools:
        """Tell which clocks have a known relation to their own host's clock."""
        apart = self.solution.problem.apart
        return np.array([self.domains.is_host[c] or c not in apart for c in range(self.domains.n)])

    @cached_property
    def table(self) -> pl.DataFrame:
        """Table ``alignment`` of `gapscope.schema`: each clock against the reference, each device against its host."""
        domains = self.domains
        own = [c for c in range(domains.n) if domains.table["source"][c] is not None]
        devices = [c for c in own if not domains.is_host[c] and domains.clock[c] != domains.reference]
        return self.against([(c, domains.reference) for c in own] + [(c, int(domains.clock[c])) for c in devices])

    def with_spans(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Return the table with rows for the pairs of clocks between which times were compared.

        Args:
            spans: ``one, two, at_ns``: pairs of clocks, and when on the common timebase.
        """
        at = spans["at_ns"].to_numpy()
        used = spans.select("one", "two", window=pl.Series(self._window_at(at), dtype=pl.Int64)).unique()
        reference = self.domains.reference
        clock = self.domains.clock
        known = [reference in {c, d} or d == clock[c] for c, d in used.select("one", "two").iter_rows()]
        used = used.filter(~pl.Series(known, dtype=pl.Boolean))
        pairs = used.select("one", "two").unique().sort("one", "two").rows()
        edges = self.solution.edges
        windows = used.select("one", "two", window_start_ns=pl.Series(edges[used["window"].to_numpy()]))
        return pl.concat([self.table, self.against(pairs, windows)])

    def against(self, pairs: list[tuple[int, int]], windows: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return rows of table ``alignment`` for pairs of clocks, the first against the second.

        Args:
            pairs: Numbers of clocks.
            windows: ``one, two, window_start_ns`` of the wanted windows; None: all.
        """
        if not pairs:
            return pl.DataFrame(schema=dtypes(ALIGNMENT))
        s = self.solution
        one, two = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
        near = s.near_ns[one] - s.near_ns[two]
        high, low = s.closed[:, one, two], -s.closed[:, two, one]
        # Across files it counts what ties them; how well the tools map device times is a matter of microseconds then.
        within = self.domains.clock[one] == self.domains.clock[two]
        proven_hi = np.where(within, s.proven[:, one, two], s.caused[:, one, two]) < FINITE // 2
        proven_lo = np.where(within, s.proven[:, two, one], s.caused[:, two, one]) < FINITE // 2
        count = len(s.edges) - 1
        frame = pl.DataFrame(
            {
                "one": np.tile(one, count),
                "two": np.tile(two, count),
                "window_start_ns": np.repeat(s.edges[:-1], len(pairs)),
                "window_end_ns": np.repeat(s.edges[1:], len(pairs)),
                "offset_ns": (s.offset_ns[:, one] - s.offset_ns[:, two]).ravel(),
                "lo_ns": (low + near).ravel(),
                "hi_ns": (high + near).ravel(),
                "has_lo": (low > -FINITE // 2).ravel(),
                "has_hi": (high < FINITE // 2).ravel(),
                "proven_hi": proven_hi.ravel(),
                "proven_lo": proven_lo.ravel(),
                "narrowed": ((s.proven[:, one, two] != high) | (-s.proven[:, two, one] != low)).ravel(),
            }
        )
        if windows is not None:
            frame = frame.join(windows, on=["one", "two", "window_start_ns"], how="semi")
        frame = frame.join(self._about(pairs), on=["one", "two"], how="left", maintain_order="left")
        placed = pl.col("placed")
        frame = frame.with_columns(
            offset_ns=pl.when(placed).then("offset_ns"),
            lo_ns=pl.when(pl.col("tied") & pl.col("has_lo")).then("lo_ns"),
            hi_ns=pl.when(pl.col("tied") & pl.col("has_hi")).then("hi_ns"),
            assumed=pl.when(pl.col("tied") & pl.col("narrowed")).then("assumed"),
            quality=pl.when(pl.col("one") == pl.col("two"))
            .then(pl.lit("same_clock"))
            .when(~pl.col("tied"))
            .then(pl.lit("unaligned"))
            .when(pl.col("proven_lo") & pl.col("proven_hi"))
            .then(pl.lit("bounded"))
            .when(pl.col("proven_lo") | pl.col("proven_hi"))
            .then(pl.lit("half_bounded"))
            .when(~placed)
            .then(pl.lit("unaligned"))
            .otherwise(pl.lit("wall_only")),
        )
        frame = self._around_steps(frame).sort("order", "window_start_ns")
        return _joined(frame.select(pl.col(n).cast(t) for n, t in dtypes(ALIGNMENT).items()))

    def _around_steps(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep of a clock that jumped the windows before, of the clock after it those after; span both in between."""
        near, steps = self.solution.near_ns, self.domains.steps
        if not steps:
            return frame
        for side in ("one", "two"):
            ends = {s.before: int(s.end_ns + near[s.after]) for s in steps}
            begins = {s.after: int(s.begin_ns + near[s.before]) for s in steps}
            until = pl.col(side).replace_strict(ends, default=None, return_dtype=pl.Int64)
            since = pl.col(side).replace_strict(begins, default=None, return_dtype=pl.Int64)
            frame = frame.filter(
                (pl.col("window_start_ns") < until).fill_null(value=True)
                & (pl.col("window_end_ns") > since).fill_null(value=True)
            )
        same = ["source", "rank", "domain", "reference", "window_start_ns", "window_end_ns"]
        first = [pl.col(c).first() for c in frame.columns if c not in (*same, "lo_ns", "hi_ns")]
        bounds = [
            pl.when(pl.col("lo_ns").is_not_null().all()).then(pl.col("lo_ns").min()).alias("lo_ns"),
            pl.when(pl.col("hi_ns").is_not_null().all()).then(pl.col("hi_ns").max()).alias("hi_ns"),
        ]
        return frame.group_by(same, maintain_order=True).agg(*first, *bounds)

    def _about(self, pairs: list[tuple[int, int]]) -> pl.DataFrame:
        """Return what is the same for all windows of a pair."""
        names, apart = self.domains.table, self.solution.problem.apart
        rows = []
        for order, (one, two) in enumerate(pairs):
            row, other = names.row(one, named=True), names.row(two, named=True)
            tied, method, assumed = self._origin(one, two)
            rows.append(
                {
                    "one": one, "two": two, "order": order, "source": row["source"], "rank": row["rank"],
                    "path": row["path"], "domain": row["name"], "reference": _name(other), "n_hard": tied,
                    "method": method, "assumed": assumed, "n_soft": self._soft_count(one, two),
                    "drift_ppm": self._drift(one, two),
                    "placed": one == two or bool(self.placed[one] and self.placed[two]),
                    "tied": one == two or not ({one, two, *self.domains.clock[[one, two]].tolist()} & apart),
                }
            )  # fmt: skip
        return pl.DataFrame(rows, schema_overrides={"drift_ppm": pl.Float64, "rank": pl.Int32, "source": pl.Int32})

    def _origin(self, one: int, two: int) -> tuple[int, str, str]:
        """Return how many observations tie two clocks, of which kinds, and what is assumed about them."""
        domains = self.domains
        if one == two:
            return 0, "reference" if one == domains.reference else "the same clock", ""
        clock = [int(c) for c in domains.clock]
        if clock[one] == clock[two]:
            files = {clock[one]}
            ties = [self._ties[c] for c in (one, two) if not domains.is_host[c]]
        else:
            files = {clock[one], clock[two]}
            ties = [self._ties[clock[one]]]
        kinds: dict[str, int] = {}
        for tie in ties:
            for kind, n in tie.items():
                kinds[kind] = kinds.get(kind, 0) + n
        said = [f"{n} {kind.replace('_', ' ')}" for kind, n in sorted(kinds.items(), key=lambda k: (-k[1], k[0]))]
        assumed: set[str] = set()
        for kind, ends in self._assumed:
            if ends & files and (len(files) > 1 or len(ends) == 1):
                assumed.add(kind.replace("_", " "))
        claim = domains.table["claim_text"][one] or "none"
        return sum(kinds.values()), ", ".join(said) or claim, ", ".join(sorted(assumed))

    @cached_property
    def _ties(self) -> dict[int, dict[str, int]]:
        """Return the observations per kind: of a host clock with other files, of a device clock with its host."""
        clock = self.domains.clock
        rows = self.solution.problem.observations.select("earlier", "later", "kind").group_by(pl.all()).len()
        found: dict[int, dict[str, int]] = {c: {} for c in range(self.domains.n)}
        for earlier, later, kind, count in rows.sort("earlier", "later", "kind").iter_rows():
            one, two = int(clock[earlier]), int(clock[later])
            touched = [one, two] if one != two else [c for c in (earlier, later) if not self.domains.is_host[c]]
            for c in touched:
                found[c][kind] = found[c].get(kind, 0) + count
        return found

    @cached_property
    def _assumed(self) -> set[tuple[str, frozenset[int]]]:
        """Return the kinds of assumptions and the host clocks that they are about."""
        clock = self.domains.clock
        return {
            (a.kind, frozenset((int(clock[a.upper]), int(clock[a.lower])))) for a in self.solution.problem.assumptions
        }

    def _soft_count(self, one: int, two: int) -> int:
        if self.soft is None:
            return 0
        clocks = {int(self.domains.clock[one]), int(self.domains.clock[two])}
        return sum(len(link.local_ns) for link in self.soft.links if {link.clock, link.parent} == clocks)

    def _drift(self, one: int, two: int) -> float | None:
        """Return by how much the first clock runs fast, ppm; None where the bounds leave both signs open.

        The steepest and the flattest line that pass through all intervals bound the rate; their middle is returned.
        """
        s = self.solution
        if one == two or any(step.before in (one, two) for step in self.domains.steps):
            return None
        picked = np.unique(np.linspace(0, len(s.closed) - 1, min(_DRIFT_POINTS, len(s.closed))).astype(int))
        high, low = s.closed[picked, one, two], -s.closed[picked, two, one]
        if len(picked) < 2 or (high >= FINITE // 2).any() or (low <= -FINITE // 2).any():
            return None
        middle = s.edges[picked] + (s.edges[picked + 1] - s.edges[picked]) // 2
        a, b = np.triu_indices(len(picked), 1)
        apart = (middle[b] - middle[a]).astype(np.float64)
        steepest = float(((high[b] - low[a]) / apart).min() * 1e6)
        flattest = float(((low[b] - high[a]) / apart).max() * 1e6)
        if flattest > steepest or flattest <= 0 <= steepest:
            return None
        return -(flattest + steepest) / 2


def _name(row: dict[str, object]) -> str:
    return "anchors" if row["source"] is None else f"{row['path']}:{row['name']}"


def _known(one: pl.Series, two: pl.Series) -> tuple[Bools, Ints, Ints]:
    known_one, first = _values(one)
    known_two, second = _values(two)
    return known_one & known_two, first, second


def _values(series: pl.Series) -> tuple[Bools, Ints]:
    """Return where a series has values, and these; 0 where it has none."""
    if not series.null_count():
        return np.ones(series.len(), np.bool_), series.to_numpy().astype(np.int64)
    return series.is_not_null().to_numpy(), series.fill_null(0).to_numpy().astype(np.int64)


def _series(value: npt.NDArray[np.int64], known: Bools) -> pl.Series:
    if known.all():
        return pl.Series("value", value, pl.Int64)
    frame = pl.DataFrame({"value": value, "known": known}, schema={"value": pl.Int64, "known": pl.Boolean})
    return frame.select(pl.when("known").then("value").alias("value"))["value"]


def _joined(frame: pl.DataFrame) -> pl.DataFrame:
    """Join neighboring windows whose rows are equal but for the window."""
    same = [c for c in frame.columns if c not in ("window_start_ns", "window_end_ns")]
    apart = pl.col("window_start_ns") != pl.col("window_end_ns").shift()
    other = pl.struct(same).rle_id().diff().fill_null(1) != 0
    return (
        frame.with_columns(_run=(apart.fill_null(value=True) | other).cum_sum())
        .group_by("_run", *same, maintain_order=True)
        .agg(pl.col("window_start_ns").min(), pl.col("window_end_ns").max())
        .select(frame.columns)
    )


def coarsen(solution: Solution, pairs: list[tuple[int, int]], cuts: Ints) -> Solution:
    """Join windows that say nearly the same: bounds of the joined window are the widest of its parts.

    The closure of the whole stays intact (the largest of closed systems is closed), and points stay feasible because
    only windows with equal points are joined.

    Args:
        solution: The solution.
        pairs: Clocks whose bounds decide.
        cuts: Times that stay limits of windows.
    """
    closed, proven, offset = solution.closed, solution.proven, solution.offset_ns
    one, two = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    toward = np.stack([closed[:, one, two], closed[:, two, one]], axis=1)
    starts, now, least = [0], toward[0], toward[0]
    for w in range(1, len(closed)):
        wider, narrowest = np.maximum(now, toward[w]), np.minimum(least, toward[w])
        width = narrowest.sum(axis=0, keepdims=True)
        room = np.where(width < FINITE, np.maximum(_SAME_NS, width // _SAME_PART), _SAME_NS)
        same_point = (offset[w] == offset[starts[-1]]).all() and solution.edges[w] not in cuts
        if same_point and (wider - narrowest <= room).all():
            now, least = wider, narrowest
        else:
            starts.append(w)
            now = least = toward[w]
    return replace(
        solution,
        edges=np.append(solution.edges[starts], solution.edges[-1]),
        closed=np.maximum.reduceat(closed, starts, axis=0),
        proven=np.maximum.reduceat(proven, starts, axis=0),
        caused=np.maximum.reduceat(solution.caused, starts, axis=0),
        offset_ns=offset[starts],
    )

"""Ranks in the trace: each a process of its own, and one more for a clock without a place on the common timebase.

Ranks of different hosts may have the same pid, and their threads the same numbers. So processes have ids of their own
here, made from ranks; what the system called them is in their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from gapscope.clocks import Alignment
from gapscope.exports.packets import Packets, Track
from gapscope.trace import Trace
from gapscope.views import Placed

PLACED = -1
"""Instead of the number of a clock: it has a place on the common timebase."""

_SEVERAL = -2
_FIRST_PID, _OTHER_PIDS = 1_000, 100_000

Of = tuple[str | None, int]
"""Job and rank."""


@dataclass(frozen=True)
class Ranks:
    """Who is who in the trace.

    Attributes:
        lanes: Lanes of `gapscope.views.Placed` with ``job``, ``pid`` (null: not recorded), ``apart`` (number of a clock
            without a place on the common timebase, or `PLACED`) and ``shift_ns``.
        shift_ns: Clock without a place to what is added to its times, so that they begin where the rest does.
        hosts: Job and rank to ``apart`` of its host's clock; -2: it has several clocks, some without a place.
        facts: Job and rank to what its processes are called: pids, then hosts.
    """

    lanes: pl.DataFrame
    shift_ns: Mapping[int, int]
    hosts: Mapping[Of, int]
    facts: Mapping[Of, list[str]]
    _tracks: dict[tuple[Of, int], int] = field(default_factory=dict)

    def process(self, packets: Packets, of: Of, apart: int) -> int:
        """Return the track of a rank's process on a clock; it is added when it is asked for first."""
        if (of, apart) in self._tracks:
            return self._tracks[of, apart]
        job, rank = of
        pid = _FIRST_PID + rank
        while pid in {packets.tracks[t].pid for t in self._tracks.values()}:
            pid += _OTHER_PIDS
        facts, about = self.facts.get(of, []), None
        name = (f"{job}, " if job else "") + f"rank {rank}" + (f" ({', '.join(facts)})" if facts else "")
        if apart != PLACED:
            name += ", clock not aligned"
            shift_ns = self.shift_ns.get(apart, 0)
            about = (
                f"Nothing ties this clock to the others. Its times are shown {shift_ns} ns later than recorded, to "
                "begin where the trace begins: compare them with no other rank's."
            )
        number = packets.track(Track(name, pid=pid, order=100 + len(self._tracks), about=about))
        self._tracks[of, apart] = number
        return number

    def owners(self, handoffs: pl.DataFrame) -> pl.DataFrame:
        """Return handoffs with the processes that their events are shown in, and by how much times are moved there.

        Adds ``job_at, rank_at, apart_at, shift_at`` with prefix ``src_`` and ``dst_``. What has an end in host memory
        was done by the process of its other end. ``apart_at`` is -2 where times of a rank cannot be told apart.
        """
        for side, other in (("src", "dst"), ("dst", "src")):
            end, far = pl.col(f"{side}_rank"), pl.col(f"{other}_rank")
            handoffs = handoffs.with_columns(pl.when(end < 0).then(far).otherwise(end).alias(f"{side}_rank_at"))
            there = handoffs.select("job", f"{side}_rank_at").unique()
            rows = [(job, rank, *self._found(job, rank)) for job, rank in there.iter_rows()]
            names = [f"{side}_{c}" for c in ("job_at", "apart_at", "shift_at")]
            schema = dict(zip(("job", f"{side}_rank_at", *names), (pl.String, pl.Int64, pl.String, pl.Int64, pl.Int64),
                              strict=True))  # fmt: skip
            found = pl.DataFrame(rows, schema=schema, orient="row")
            handoffs = handoffs.join(
                found, on=["job", f"{side}_rank_at"], how="left", nulls_equal=True, maintain_order="left"
            )
        return handoffs

    def _found(self, job: str | None, rank: int | None) -> tuple[str | None, int, int]:
        """Return the job, clock and shift of a rank that a mark names."""
        if rank is None:
            return job, PLACED, 0
        fitting = [key for key in self.hosts if key[1] == rank]
        of = (job, rank) if (job, rank) in self.hosts or len(fitting) != 1 else fitting[0]
        apart = self.hosts.get(of, PLACED)
        return of[0], apart, self.shift_ns.get(apart, 0)


def find_ranks(trace: Trace, alignment: Alignment | None, placed: Placed) -> Ranks:
    """Return the ranks of a run, with what was recorded of them."""
    processes = trace.processes.filter(pl.col("rank").is_not_null() & pl.col("primary"))
    processes = processes.with_columns(_apart(processes, alignment, None))
    lanes = placed.lanes.with_columns(_apart(placed.lanes, alignment, "device")).join(
        processes.select("source", "process", "job", "pid"), on=["source", "process"], how="left", maintain_order="left"
    )
    shift = _shifts(placed.items, lanes, alignment)
    lanes = lanes.with_columns(shift_ns=pl.col("apart").replace_strict(shift, default=0, return_dtype=pl.Int64))
    hosts: dict[Of, int] = {}
    for job, rank, apart in processes.select("job", "rank", "apart").iter_rows():
        hosts[job, rank] = apart if hosts.get((job, rank), apart) == apart else _SEVERAL
    names = processes.group_by("job", "rank").agg(
        pl.col("pid").drop_nulls().unique().sort(), pl.col("host").drop_nulls().unique().sort()
    )
    facts = {
        (job, rank): ([f"pid {', '.join(map(str, pids))}"] if pids else []) + on
        for job, rank, pids, on in names.iter_rows()
    }
    return Ranks(lanes, shift, hosts, facts)


def _apart(frame: pl.DataFrame, alignment: Alignment | None, device: str | None) -> pl.Series:
    """Return column ``apart``: the clock of each row if it has no place on the common timebase, else `PLACED`."""
    if alignment is None:
        return pl.repeat(PLACED, frame.height, dtype=pl.Int64, eager=True).alias("apart")
    columns = ["source", "process", *([device] if device else [])]
    clock = alignment.domains.with_domain(frame.select(columns), device, "", "_clock")["_clock"]
    placed, host = alignment.placed, alignment.domains.clock
    # A device's clock is mapped onto its host's: without a place for that, both are moved as one.
    apart = {c: PLACED if placed[c] else c if placed[host[c]] else int(host[c]) for c in range(alignment.domains.n)}
    return clock.replace_strict(apart, default=PLACED, return_dtype=pl.Int64).alias("apart")


def _shifts(items: pl.DataFrame, lanes: pl.DataFrame, alignment: Alignment | None) -> dict[int, int]:
    """Return by how much the times of each clock without a place are moved, so that they begin where the rest does."""
    if alignment is None or not items.height or (lanes["apart"] == PLACED).all():
        return {}
    first = items.group_by(lanes["apart"].gather(items["lane"]).alias("apart")).agg(pl.col("start_ns").min())
    begins: dict[int, int] = dict(first.iter_rows())
    begin = begins.pop(PLACED, int(alignment.solution.edges[0]))
    return {clock: begin - first_ns for clock, first_ns in begins.items()}

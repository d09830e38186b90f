"""Clock domains: what counts as one clock within a trace.

A host clock is one per nsys report (all its processes are on one timeline) and one per process of a torch.profiler
file (each process fits its own). A device clock is one per process and device as that file sees it: tools map it onto
the host's timeline by interpolation, and that mapping has an error of its own. Times of the device
in a mark log are calibrated by the instrumentation, which writes how far off each may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.lanes import lanes_of
from gapscope.trace import Trace

GPU_TICK_NS = 32
"""Granularity of the GPU timer (NVIDIA developer forum 323887)."""

DRIFT_PPB = 30_000
"""Assumed bound of the rate error of one clock, parts per billion: 30 ppm, the upper end of what Huygens (NSDI 2018)
reports for free-running hosts."""

DEVICE_DRIFT_PPB = 10_000
"""The same for a device clock against the host clock that the tool maps it onto. Tools bring both together again and
again; in between they part by some ppm (NVIDIA developer forum 323887)."""

GPU_ONLY_PPB = 25_000
"""Added for torch.profiler files without host events: Kineto then fits its clock over tens of microseconds."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """A jump of a clock. What it showed until then, and from then on, are two clocks.

    Attributes:
        before: Number of the clock until the jump.
        after: Number of the clock from the jump on.
        begin_ns: Last of its own times that is surely before.
        end_ns: First of its own times that is surely after; of times in between nobody knows.
    """

    before: int
    after: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Domains:
    """The clocks of a trace.

    Attributes:
        table: One row per clock, ordered so that position is number: ``domain`` (its number), ``source``, ``tool``,
            ``process`` (null: all processes of the file), ``device`` (null: host clock), ``clock`` (number of the host
            clock it is mapped onto, its own for a host clock), ``rank`` (null: several or unknown), ``ranks`` (all that
            were recorded on it), ``name`` (``host``, ``gpu:0``), ``label`` (for people), ``zero_ns`` (first recorded
            time), ``last_ns``, ``claims`` (false: its zero is
            unknown), ``claim_ns`` (offset that is claimed: 0, or what the user states), ``claim_text`` (how it was
            had), ``rate_ppb`` (bound of its rate error), ``resolution_ns``, ``mapping_ns`` (of a device clock: how
            far its times may be off from its host's by the file's own word; null: it does not say).
        of_processes: ``source, process, domain``: the host clock of each process.
        steps: Clocks that jumped: what they showed afterward counts as another clock, further down in the table.
    """

    table: pl.DataFrame
    of_processes: pl.DataFrame
    steps: tuple[Step, ...] = ()

    @property
    def n(self) -> int:
        """Number of clocks."""
        return self.table.height

    @cached_property
    def clock(self) -> Ints:
        """Host clock of each clock."""
        return self.table["clock"].to_numpy().astype(np.int64)

    @cached_property
    def zero_ns(self) -> Ints:
        """First recorded time of each clock."""
        return self.table["zero_ns"].to_numpy().astype(np.int64)

    @cached_property
    def claim_ns(self) -> Ints:
        """Offset that each clock claims."""
        return self.table["claim_ns"].to_numpy().astype(np.int64)

    @cached_property
    def resolution_ns(self) -> Ints:
        """Resolution of each clock."""
        return self.table["resolution_ns"].to_numpy().astype(np.int64)

    @cached_property
    def last_ns(self) -> Ints:
        """Last recorded time of each clock."""
        return self.table["last_ns"].to_numpy().astype(np.int64)

    @cached_property
    def hosts_in_order(self) -> list[int]:
        """Host clocks by rank, so that nothing depends on the order of files."""
        hosts = self.table.filter(pl.col("device").is_null())
        return hosts.sort("first_rank", "path", "process", "domain", nulls_last=True)["domain"].to_list()

    @property
    def step_times(self) -> list[tuple[int, int]]:
        """Return clock and own time of the limits of all steps."""
        return [(s.before, s.begin_ns) for s in self.steps] + [(s.after, s.end_ns) for s in self.steps]

    def at(self, clock: Ints, local_ns: Ints) -> Ints:
        """Return the clock that a time of a clock is of, now that some have jumped; -1: nobody knows."""
        found = clock.copy()
        for step in self.steps:
            mine = found == step.before
            found[mine & (local_ns > step.begin_ns)] = -1
            found[mine & (local_ns >= step.end_ns)] = step.after
        return found

    @cached_property
    def is_host(self) -> npt.NDArray[np.bool_]:
        """Which of them are host clocks."""
        return self.table["device"].is_null().to_numpy()

    @cached_property
    def reference(self) -> int:
        """Host clock that the others are placed against: the user's, else that of the lowest rank's GPU work."""
        hosts = self.table.filter(pl.col("device").is_null() & ~pl.col("domain").is_in([s.after for s in self.steps]))
        stated = hosts.filter(pl.col("source").is_null())
        if stated.height:
            return int(stated["domain"][0])
        first = hosts.sort(~pl.col("claims"), ~pl.col("primary"), "first_rank", "source", "process", nulls_last=True)
        return int(first["domain"][0])

    @cached_property
    def _of_devices(self) -> pl.DataFrame:
        """Return the first clock of each device: ``source, owner, device, domain``."""
        later = [step.after for step in self.steps]
        gpus = self.table.filter(pl.col("device").is_not_null() & ~pl.col("domain").is_in(later))
        return gpus.select("source", "owner", "device", "domain")

    def with_domain(self, frame: pl.DataFrame, device: str | None, prefix: str, name: str) -> pl.DataFrame:
        """Add a column with the number of the clock that a row's times are of.

        Args:
            frame: Has ``<prefix>source`` and ``<prefix>process``.
            device: Column with the device; null in it, or None: the host's clock.
            prefix: Prefix of the columns.
            name: Name of the new column; null where no clock is known.
        """
        source, process = f"{prefix}source", f"{prefix}process"
        # There are few places, however many rows.
        places, of_row = lanes_of(frame, [source, process, *([] if device is None else [device])], nulls_last=False)
        hosts = self.of_processes.rename({"source": source, "process": process, "domain": "_clock"})
        places = places.join(hosts, on=[source, process], how="left", maintain_order="left")
        if device is not None:
            gpus = self._of_devices.rename({"source": source, "owner": process, "device": device, "domain": "_gpu"})
            places = places.join(gpus, on=[source, process, device], how="left", maintain_order="left")
            places = places.with_columns(_clock=pl.when(pl.col(device).is_null()).then("_clock").otherwise("_gpu"))
        return frame.with_columns(places["_clock"].gather(of_row).alias(name))


def with_step(domains: Domains, host: int, begin_ns: int, end_ns: int) -> tuple[Domains, dict[int, int]]:
    """Return the clocks with one host clock, and the device clocks mapped onto it, cut in two.

    Args:
        domains: The clocks.
        host: Number of the host clock that jumped.
        begin_ns: See `Step`.
        end_ns: See `Step`.

    Returns:
        The clocks, and the number of the new one for each that was cut.
    """
    cut = [int(c) for c in np.flatnonzero(domains.clock == host)]
    after = {c: domains.n + i for i, c in enumerate(cut)}
    table = domains.table
    number = pl.col("domain").replace_strict(after, default=None, return_dtype=pl.Int32)
    later = table.filter(pl.col("domain").is_in(cut)).with_columns(
        domain=number, clock=pl.lit(after[host], dtype=pl.Int32), zero_ns=pl.lit(end_ns, dtype=pl.Int64),
        last_ns=pl.max_horizontal("last_ns", pl.lit(end_ns)), primary=pl.lit(value=False),
    )  # fmt: skip
    table = table.with_columns(
        last_ns=pl.when(pl.col("domain").is_in(cut))
        .then(pl.max_horizontal("zero_ns", pl.lit(begin_ns)))
        .otherwise("last_ns")
    )
    steps = tuple(Step(c, after[c], begin_ns, end_ns) for c in cut)
    return Domains(pl.concat([table, later]), domains.of_processes, (*domains.steps, *steps)), after


def find_domains(trace: Trace) -> Domains:
    """Return the clocks of a trace."""
    processes = trace.processes.select(
        "source", "process", "rank", "tool", "window_start_ns", "window_end_ns", "primary"
    )
    sources = trace.sources.select(
        "source", "path", "tool", "clock", "resolution_ns", "cpu_traced", claim_text="clock_origin"
    )
    own = (pl.col("tool") == "torch").fill_null(value=False)
    clocks = processes.with_columns(clock_process=pl.when(own).then("process"))
    hosts = (
        clocks.sort("source", "process")
        .group_by("source", "clock_process", maintain_order=True)
        .agg(
            zero_ns=pl.col("window_start_ns").min(),
            last_ns=pl.col("window_end_ns").max(),
            ranks=pl.col("rank").drop_nulls().unique().sort(),
            primary=pl.col("primary").any(),
        )
        .with_columns(device=pl.lit(None, dtype=pl.Int32), owner=pl.lit(None, dtype=pl.Int64))
    )
    empty = trace.sources.filter(~pl.col("source").is_in(hosts["source"].implode())).select(
        "source",
        clock_process=pl.lit(None, dtype=pl.Int64),
        zero_ns=pl.lit(None, dtype=pl.Int64),
        last_ns=pl.lit(None, dtype=pl.Int64),
        ranks=pl.lit([], dtype=pl.List(pl.Int32)),
        primary=pl.lit(value=False),
        device=pl.lit(None, dtype=pl.Int32),
        owner=pl.lit(None, dtype=pl.Int64),
    )
    hosts = pl.concat([hosts, empty], how="diagonal_relaxed")
    gpus = (
        pl.concat([_recorded_devices(trace), _timed_devices(trace)])
        .join(clocks, on=["source", "process"])
        .sort("source", "process", "device")
        .select(
            "source",
            "clock_process",
            "device",
            "mapping_ns",
            zero_ns="window_start_ns",
            last_ns="window_end_ns",
            ranks=pl.when(pl.col("rank").is_not_null()).then(pl.concat_list("rank")),
            owner="process",
        )
    )
    table = (
        pl.concat([hosts, gpus], how="diagonal").with_row_index("domain").with_columns(pl.col("domain").cast(pl.Int32))
    )
    numbers = table.filter(pl.col("device").is_null()).select("source", "clock_process", clock="domain")
    table = (
        table.join(numbers, on=["source", "clock_process"], how="left", nulls_equal=True, maintain_order="left")
        .join(sources.rename({"clock": "claim"}), on="source", how="left", maintain_order="left")
        .with_columns(
            process="clock_process",
            first_rank=pl.col("ranks").list.first(),
            rank=pl.when(pl.col("ranks").list.len() == 1).then(pl.col("ranks").list.first()),
            name=pl.when(pl.col("device").is_null()).then(pl.lit("host")).otherwise(pl.format("gpu:{}", "device")),
            claims=pl.col("claim") == "unix",
            resolution_ns=pl.when(pl.col("device").is_null())
            .then("resolution_ns")
            .otherwise(pl.max_horizontal("resolution_ns", pl.lit(GPU_TICK_NS))),
            rate_ppb=pl.when(pl.col("device").is_null()).then(DRIFT_PPB).otherwise(DEVICE_DRIFT_PPB)
            + pl.when((pl.col("cpu_traced") == False).fill_null(value=False)).then(GPU_ONLY_PPB).otherwise(0),  # noqa: E712
            zero_ns=pl.col("zero_ns").fill_null(0),
            last_ns=pl.coalesce("last_ns", "zero_ns").fill_null(0),
        )
        .with_columns(label=_label(), claim_ns=pl.lit(0, dtype=pl.Int64))
    )
    of_processes = clocks.join(numbers, on=["source", "clock_process"], nulls_equal=True).select(
        "source", "process", domain="clock"
    )
    return Domains(
        table.select(
            "domain", "source", "path", "tool", "process", "owner", "device", "clock", "rank", "first_rank", "ranks",
            "primary", "name", "label", "zero_ns", "last_ns", "claims", "claim_ns", "claim_text", "rate_ppb",
            "resolution_ns", "mapping_ns",
        ),
        of_processes,
    )  # fmt: skip


def _recorded_devices(trace: Trace) -> pl.DataFrame:
    """Return ``source, process, device, mapping_ns`` of the devices whose operations were recorded."""
    devices, _ = lanes_of(trace.scan("ops"), ["source", "process", "device"], nulls_last=False)
    return devices.drop_nulls("device").with_columns(mapping_ns=pl.lit(None, dtype=pl.Int64))


def _timed_devices(trace: Trace) -> pl.DataFrame:
    """Return ``source, process, device, mapping_ns`` of the devices whose times stand in mark logs."""
    devices = trace.sources.select("source", device=pl.col("gpu_device").fill_null(0))
    primary = trace.processes.filter("primary").select("source", "process")
    timed = trace.marks.filter(pl.col("error_ns").is_not_null()).join(primary, on=["source", "process"], how="semi")
    found = timed.group_by("source", "process").agg(mapping_ns=pl.col("error_ns").max())
    return found.join(devices, on="source").select("source", "process", "device", "mapping_ns")


def _label() -> pl.Expr:
    """Name a clock for people: by rank, and by file where that does not tell it from the others."""
    file = pl.col("path").str.extract(r"([^/\\]+)$")
    named = pl.format("rank {} {}", "rank", "name")
    alone = pl.col("rank").is_not_null() & (pl.len().over("rank", "name") == 1)
    by_rank = pl.when(pl.col("rank").is_not_null()).then(pl.format("{} ({})", named, file))
    return pl.when(alone).then(named).otherwise(pl.coalesce(by_rank, pl.format("{} {}", file, "name")))

"""What a reader is, and what it delivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import polars as pl

from gapscope.findings import Finding

FIRST_UNIX_NS, LAST_UNIX_NS = 946_684_800_000_000_000, 2**62 - 1
"""Plausible Unix times in nanoseconds: the years 2000 to 2116. What a file states outside is not used."""

Progress = Callable[[str, float], None]
"""Called with what is going on and the fraction done (0 to 1); may be called often."""


def no_progress(what: str, fraction: float) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """Steps that are wanted of a recording.

    Attributes:
        first_step: The first; None: from the beginning.
        last_step: The last; None: to the end.
        last_n: Of these, only so many last ones; None: all.
    """

    first_step: int | None = None
    last_step: int | None = None
    last_n: int | None = None

    def steps_of(self, there: pl.Series) -> tuple[int, int]:
        """Return the first and the last wanted step, given the numbers of those that there are; at least one."""
        numbers = there.unique().sort()
        if self.first_step is not None:
            numbers = numbers.filter(numbers >= self.first_step)
        if self.last_step is not None:
            numbers = numbers.filter(numbers <= self.last_step)
        if numbers.is_empty():  # none of these: what lies around the place where they would be
            first = self.last_step if self.first_step is None else self.first_step
            return (first or 0), (first or 0)
        kept = numbers if self.last_n is None else numbers.tail(min(self.last_n, len(numbers)))
        return int(kept[0]), int(kept[-1])


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user may set about reading.

    Attributes:
        nsys: Path of the ``nsys`` program to use; None looks in GAPSCOPE_NSYS, PATH and the usual folders.
        cache_dir: Where exports and tables are kept; None: nothing is kept.
        window: Steps that are wanted: the rest need not be read (`gapscope.readers.window`). None: everything.
    """

    nsys: str | None = None
    cache_dir: Path | None = None
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What is known about one file as a whole.

    Attributes:
        path: The file as the user named it.
        format: Name of the reader that read it.
        tool: Program that recorded: ``nsys``, ``torch``, or ``gapscope`` for the mark log of the instrumentation.
        tool_version: Its version as text; None if the file does not say.
        schema_version: Version of the format as text; None if the file does not say.
        host: Name of the machine; None if the file does not say.
        boot_id: Id of the boot of that machine; None if the file does not say.
        clock: ``unix`` if times are Unix nanoseconds by the file's own claim, ``relative`` if its zero is unknown.
        clock_origin: One phrase: how absolute time was had, e.g. ``utcEpochNs + start``.
        epoch_ns: Unix time in nanoseconds at the file's own zero, as the file states it. The times of the tables are
            this plus the recorded ones (nsys: ``utcEpochNs + start``; torch: ``baseTimeNanoseconds + ts``); an export
            of nsys with ``--ts-normalize`` has it added already and still states it. None if the file does not state
            it, if it is no plausible time, or if it is not used (torch files whose times count from 1970).
        system_clock_ns: Reading of the host's monotonic clock in nanoseconds at the file's own zero (nsys:
            ``systemClockNs``). Files of one host since its last boot share this clock, whatever ``epoch_ns`` says. None
            if the file does not state it or states zero or less.
        counter_ns: Reading of the processor's counter in nanoseconds at the file's own zero (nsys:
            ``sessionStartCntVctNs``). None if the file does not state it or states zero or less.
        shift_ns: Nanoseconds by which the recorded times were moved at export (nsys: ``--ts-shift``); 0 if they were
            not, or if the file does not say by how much. The times of the tables contain it, the three readings above
            do not: at a time ``start_ns`` of the tables the monotonic clock read
            ``system_clock_ns + start_ns - epoch_ns - shift_ns``, in a ``relative`` file without ``- epoch_ns``.
        claim_error_ns: How far the file's absolute time may be off from its host's clock, as the file itself says. None
            if it does not say.
        resolution_ns: Smallest step of the recorded times (1, or 1000 where only whole microseconds are written).
        cpu_only: True only if the file says that the job had no GPU to record.
        gpu_traced: False if the file shows that GPU activity was not asked for, None if it does not tell.
        cpu_traced: Of a torch file: True if it has an operator, annotation or Python call of the host, kept or not;
            False if it has GPU operations or API calls and none of these, as a capture of the GPU alone, whose clocks
            fit worse. None if it has neither, if it is cut before one was seen, and for nsys.
        truncated: True if the file ends before its own end.
        calls_in_order: False if the API calls of some thread do not stand in the file in order of time. Of a truncated
            file, nothing then tells which calls are missing.
        gpu_device: Of a mark log: number of the process's GPU, as the process numbers it; None if it does not say.
        marks_cost: Of a mark log: what marks cost in its process, by the instrumentation's own samples: ``brackets``
            timed, median nanoseconds of opening (``begin_ns``) and closing (``end_ns``) one. Empty if it does not say.
        is_part: True if only what lies around the wanted steps was kept (`ReadOptions.window`).
        events: Number of records seen, kept or not.
        dropped: Records that were lost or left out, by reason, e.g. ``{"damaged": 1, "foreign_ranges": 7000}``.
            ``damaged`` counts records lost to broken content.
    """

    path: str
    format: str
    tool: Literal["nsys", "torch", "gapscope"]
    tool_version: str | None = None
    schema_version: str | None = None
    host: str | None = None
    boot_id: str | None = None
    clock: Literal["unix", "relative"] = "unix"
    clock_origin: str = ""
    epoch_ns: int | None = None
    system_clock_ns: int | None = None
    counter_ns: int | None = None
    shift_ns: int = 0
    claim_error_ns: int | None = None
    resolution_ns: int = 1
    cpu_only: bool = False
    gpu_traced: bool | None = None
    cpu_traced: bool | None = None
    truncated: bool = False
    calls_in_order: bool = True
    gpu_device: int | None = None
    marks_cost: Mapping[str, int] = field(default_factory=dict)
    is_part: bool = False
    events: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceTables:
    """One file, read.

    Attributes:
        info: What is known about the file.
        tables: The tables of `gapscope.schema.READER_TABLES`, all of them, by name.
        findings: What was found on the way.
        windows: ``process, window_start_ns, window_end_ns, n_ops`` of each process, kept with cached tables so that
            opening them reads nothing large; None from most readers.
        marks: Table ``marks`` of the file before ranks are known, kept for the same reason; None from a reader.
        own_marks: Marks that are not among the ranges, in the columns of table ``marks`` with ``source`` and
            ``rank`` null; None: all are ranges.
        packed: The same tables as they lie in memory (`gapscope.readers.packing`); None if they do not.
    """

    info: SourceInfo
    tables: Mapping[str, pl.LazyFrame]
    findings: tuple[Finding, ...] = ()
    windows: pl.DataFrame | None = None
    marks: pl.DataFrame | None = None
    own_marks: pl.DataFrame | None = None
    packed: Mapping[str, pl.DataFrame] | None = None


class Reader(Protocol):
    """Reads one input format.

    A reader is a module-level object in a file of its own and one line in `gapscope.readers.READERS`.
    """

    @property
    def name(self) -> str:
        """Short name of the format, as it appears in reports."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever the same file would give other tables: cached tables of older versions are not used."""
        ...

    def sniff(self, path: Path, head: bytes) -> bool:
        """Tell by content if the file is of this format.

        Args:
            path: File or folder.
            head: First 64 KiB of the file after decompression (gzip, zstd); empty for a folder.
        """
        ...

    def read(self, path: Path, options: ReadOptions, progress: Progress) -> SourceTables:
        """Read the file.

        Raises:
            InputError: The file cannot be used; says what was found and what to do next.
        """
        ...

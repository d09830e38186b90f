"""What users may state about the clocks when they know better."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gapscope.errors import UsageError


@dataclass(frozen=True)
class Anchor:
    """A moment that is known on a file's clock and on a common one.

    Attributes:
        rank: Rank whose file it is.
        file_ns: The moment as the file tells it, absolute as in the tables.
        reference_ns: The same moment on the common clock.
        error_ns: How far off that may be.
    """

    rank: int
    file_ns: int
    reference_ns: int
    error_ns: int = 0


@dataclass(frozen=True)
class AlignOptions:
    """What the user states about the clocks.

    Attributes:
        offsets: Nanoseconds to add to the times of a rank (``--offset``). It replaces the claim of the rank's file;
            what the recordings prove has the last word.
        same_host: All files are of one host (``--same-host``).
        clock_bound_ns: The clocks of any two files agree to that (``--clock-bound``).
        anchors: Known moments (``--anchors``).
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    same_host: bool = False
    clock_bound_ns: int | None = None
    anchors: tuple[Anchor, ...] = ()

    def __post_init__(self) -> None:
        """Check what was stated.

        Raises:
            UsageError: Something is no whole number of nanoseconds, or too large for one.
        """
        for rank, offset in self.offsets.items():
            if not _is_time(offset):
                raise UsageError(f"The offset of rank {rank} is {offset!r}: give a whole number of nanoseconds.")
        bound = self.clock_bound_ns
        if bound is not None and (not _is_time(bound) or bound < 0):
            raise UsageError(f"The bound of the clocks is {bound!r}: give a whole number of nanoseconds.")


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**62) < value < 2**62


def read_anchors(path: Path) -> tuple[Anchor, ...]:
    """Read a CSV file of anchors with the columns ``rank, file_ns, reference_ns`` and, if wanted, ``error_ns``.

    Raises:
        UsageError: The file cannot be read, or a row is not four whole numbers; the message names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            missing = {"rank", "file_ns", "reference_ns"} - set(reader.fieldnames or ())
            if missing:
                raise UsageError(
                    f"--anchors {path}: lacks the column {', '.join(sorted(missing))}. "
                    "The first line has to be rank,file_ns,reference_ns,error_ns."
                )
            anchors = tuple(_anchor(path, number, row) for number, row in enumerate(reader, start=2))
            if not anchors:
                raise UsageError(f"--anchors {path}: holds no anchor, only the names of the columns.")
            return anchors
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--anchors {path}: cannot be read ({error}).") from error


def _anchor(path: Path, line: int, row: Mapping[str, str | None]) -> Anchor:
    try:
        rank, file_ns, reference_ns = (int(row[c] or "") for c in ("rank", "file_ns", "reference_ns"))
        error_ns = int(row.get("error_ns") or 0)
        if not all(-(2**62) < n < 2**62 for n in (rank, file_ns, reference_ns)) or not 0 <= error_ns < 2**60:
            raise ValueError
    except ValueError:
        raise UsageError(f"--anchors {path}, line {line}: give whole numbers of nanoseconds.") from None
    return Anchor(rank, file_ns, reference_ns, error_ns)

"""Every run is a line of JSON that is appended as soon as it is known; nothing is ever rewritten.

Kinds of lines: ``series`` (machine and versions; all runs until the next one belong to it), ``input`` (what the files
hold), ``run`` (one process), ``absent`` (a case that could not be run, with the reason).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

FILE = Path(__file__).parents[1] / "performance.jsonl"


def append(path: Path, record: Record) -> None:
    """Add a line."""
    with path.open("a") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def read(path: Path) -> list[Record]:
    """Return all lines, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def now() -> str:
    """Return the time of a line, to the second, in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


@dataclass
class Series:
    """Runs that took turns: on one machine, with one version of everything."""

    about: Record
    runs: dict[str, list[Record]] = field(default_factory=dict)
    absent: dict[str, Record] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """When it began."""
        return str(self.about["date"])


@dataclass
class Measurements:
    """All that was ever measured."""

    series: list[Series] = field(default_factory=list)
    inputs: dict[str, Record] = field(default_factory=dict)

    def newest(self, case: str) -> Series | None:
        """Return the newest series in which a case was run."""
        return next((one for one in reversed(self.series) if case in one.runs), None)

    def why_absent(self, case: str) -> str | None:
        """Return why a case has no run, if it was tried."""
        found = [one.absent[case] for one in self.series if case in one.absent]
        return str(found[-1]["reason"]) if found else None


def arrange(records: Iterable[Record]) -> Measurements:
    """Put lines together.

    Raises:
        ValueError: A run stands before any series.
    """
    found = Measurements()
    for record in records:
        kind = record["kind"]
        if kind == "series":
            found.series.append(Series(record))
        elif kind == "input":
            found.inputs[record["name"]] = record
        elif not found.series:
            raise ValueError(f"a {kind} before any series: {record}")
        elif kind == "run":
            found.series[-1].runs.setdefault(record["case"], []).append(record)
        else:
            found.series[-1].absent[record["case"]] = record
    return found

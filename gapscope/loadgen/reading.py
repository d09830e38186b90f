"""The registry of formats, and the one way in: `read_latencies`."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Protocol

import polars as pl

from gapscope.errors import InputError, UnknownFormatError, UsageError
from gapscope.findings import Finding
from gapscope.loadgen.records import Record, read_records
from gapscope.loadgen.sglang import SGLANG
from gapscope.loadgen.table import Latencies, LoadRun
from gapscope.loadgen.vllm import VLLM


class Format(Protocol):
    """What one load generator writes.

    Attributes:
        name: How messages call it.
        detail_option: Option of the tool that writes every request and not only summaries.
    """

    name: str
    detail_option: str

    def matches(self, record: Record) -> bool:
        """Tell by its keys if an object is of this format."""
        ...

    def read(self, record: Record, path: str) -> tuple[pl.DataFrame, LoadRun, list[Finding]]:
        """Return table ``LATENCIES`` (no row: the object holds only summaries), facts and what was odd."""
        ...


FORMATS: tuple[Format, ...] = (VLLM, SGLANG)
"""Asked in this order; the first that knows the object reads it."""


def read_latencies(path: str | PathLike[str], run: int | None = None) -> Latencies:
    """Return the requests of one run of a load generator, table `gapscope.loadgen.LATENCIES`.

    Args:
        path: The file, plain, ``.gz`` or ``.zst``; the format is told by the content.
        run: Position of the run in the file, from 0, for tools append; None: the file holds one.

    Raises:
        InputError: It cannot be opened, or holds summaries and no requests.
        UnknownFormatError: No format knows it.
        MalformedTraceError: It is cut off or damaged before the end of its first run.
        UsageError: It holds several runs and none is named, or not this one.
    """
    file = Path(path)
    records, damage = read_records(file)
    record = records[_position(file, len(records), run)]
    for known in FORMATS:
        if known.matches(record):
            requests, facts, odd = known.read(record, str(file))
            if not requests.height:
                raise InputError(
                    file,
                    f"is a {known.name} that holds summaries and no requests.",
                    f"Run the benchmark again with {known.detail_option}.",
                )
            return Latencies(str(file), requests, facts, (*damage, *odd))
    keys = ", ".join(list(record)[:5]) or "none"
    raise UnknownFormatError(
        file,
        f"holds JSON, but of no load generator that gapscope knows (its keys begin with: {keys}).",
        "Readable are " + ", ".join(known.name for known in FORMATS) + ".",
    )


def _position(file: Path, runs: int, run: int | None) -> int:
    if run is None and runs == 1:
        return 0
    if run is None:
        raise UsageError(f"{file}: holds {runs} runs, one after the other. Name one, from 0 to {runs - 1}.")
    if not 0 <= run < runs:
        raise UsageError(f"{file}: there is no run {run}; it holds {runs}, counted from 0.")
    return run

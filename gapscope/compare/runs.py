"""Runs and arms: what is compared with what. A run is one start of the job; restarts are what a claim rests on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import polars as pl

from gapscope.analysis import SUMMARY_KEY, Analysis, analyze, summary_digest
from gapscope.clocks import AlignOptions
from gapscope.errors import UsageError
from gapscope.findings import Finding
from gapscope.load import LoadOptions
from gapscope.readers.base import Progress, no_progress
from gapscope.schema import HANDOFFS, SCHEMA_VERSION, TILES, UNITS, Table, dtypes

WRITTEN: dict[str, Table] = {"handoffs": HANDOFFS, "tiles": TILES, "units": UNITS}
"""Tables that a comparison reads of results that were written."""

_ANEW = "Write it anew with gapscope analyze --out."


@dataclass(frozen=True)
class Run:
    """One start of the job, analyzed.

    Attributes:
        name: How it is called in reports: its path.
        handoffs: Table ``handoffs``.
        tiles: Table ``tiles``.
        units: Table ``units``.
        tools: Programs that recorded it; runs of different tools are no like with like.
        latencies: Records of a load generator, see `gapscope.loadgen`; None: there are none.
        notes: What weakens comparisons with it, beside what `gapscope analyze` finds.
        place: Place among all starts of a study, from 0; None: it goes by its own times.
        refused: Families of metrics that nothing may be claimed of, and why, such as latencies under closed-loop load.
    """

    name: str
    handoffs: pl.DataFrame
    tiles: pl.DataFrame
    units: pl.DataFrame
    tools: tuple[str, ...] = ()
    latencies: pl.DataFrame | None = field(default=None, repr=False)
    notes: tuple[Finding, ...] = ()
    place: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """Runs of one variant.

    Attributes:
        name: How it is called in reports.
        runs: Its runs, in order; the first of one arm is paired with the first of the other, and so on.
    """

    name: str
    runs: Sequence[Run]


def run_of(analysis: Analysis, name: str) -> Run:
    """Return an analysis as a run."""
    tools = tuple(sorted(set(analysis.trace.sources["tool"].drop_nulls())))
    return Run(readable(name), analysis.handoffs, analysis.tiles, analysis.units, tools)


def readable(path: str) -> str:
    """Return a path as text that can be written: bytes of it that are not UTF-8 stand as their numbers."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_run(
    path: str | PathLike[str] | Sequence[str],
    *,
    options: LoadOptions | None = None,
    clocks: AlignOptions | None = None,
    unmarked: bool = False,
    comm_kernels: Sequence[str] = (),
    progress: Progress = no_progress,
) -> tuple[Run, list[Finding]]:
    """Return one run and what was found in it.

    Args:
        path: A folder that ``gapscope analyze --out`` wrote, or recordings as `gapscope.analyze` takes them: a file, a
            folder, a pattern, or several of one run, as a list or with commas between.
        options: See `gapscope.analyze`, as the next ones.
        clocks: See there.
        unmarked: See there.
        comm_kernels: See there.
        progress: See there.

    Raises:
        UsageError: It does not exist, was written by another version, or mixes the results of several runs.
        InputError: Nothing in it could be read.
        IdentityError: It holds several runs.
    """
    parts = [part for part in str(path).split(",") if part] if isinstance(path, str | PathLike) else list(path)
    name = str(path) if isinstance(path, str | PathLike) else ",".join(parts)
    folder = Path(name)
    if (folder / "handoffs.parquet").is_file():
        return _written(folder), []
    analysis = analyze(
        parts, options=options, clocks=clocks, unmarked=unmarked, comm_kernels=comm_kernels, progress=progress
    )
    return run_of(analysis, name), analysis.findings


def _written(folder: Path) -> Run:
    """Return the results in a folder."""
    tables, results = {}, {}
    for name, table in WRITTEN.items():
        file = folder / f"{name}.parquet"
        try:
            # Opened here: given a path, polars takes it for a pattern, and takes no path that is not UTF-8.
            with file.open("rb") as opened:
                known = pl.read_parquet_metadata(opened)
                opened.seek(0)
                frame = pl.read_parquet(opened)
        except (OSError, pl.exceptions.PolarsError) as error:
            said = str(error).splitlines() or [type(error).__name__]
            raise UsageError(f"{file}: cannot be read ({said[0]}). {_ANEW}") from error
        version = known.get("schema_version", str(SCHEMA_VERSION))
        if version != str(SCHEMA_VERSION):
            raise UsageError(
                f"{file}: has schema_version {version}, this gapscope reads {SCHEMA_VERSION}; another version of "
                f"gapscope wrote it. {_ANEW}"
            )
        tables[name] = _of_types(frame, table, file)
        if SUMMARY_KEY in known:
            results[file.name] = known[SUMMARY_KEY]
    _refuse_mixed(folder, results)
    name = readable(str(folder))
    return Run(name, tables["handoffs"], tables["tiles"], tables["units"], _tools(folder / "summary.json"))


def _of_types(frame: pl.DataFrame, table: Table, file: Path) -> pl.DataFrame:
    """Return a table that was read in the types of the schema; refuse one whose columns hold something else."""
    missing = [column for column in table if column not in frame.columns]
    if missing:
        raise UsageError(f"{file}: has no {', '.join(missing[:3])}; another version of gapscope wrote it. {_ANEW}")
    for column, dtype in dtypes(table).items():
        found = frame.schema[column]
        # A cast would make numbers of text, and cut fractions off.
        if found != pl.Null and _kind(found) != _kind(dtype):
            raise UsageError(f"{file}: {column} is {found}, not {dtype}; another version of gapscope wrote it. {_ANEW}")
    try:
        return frame.select(pl.col(n).cast(t) for n, t in dtypes(table).items())
    except pl.exceptions.PolarsError as error:
        raise UsageError(
            f"{file}: holds values that this version does not know ({str(error).splitlines()[0]}); another version of "
            f"gapscope wrote it. {_ANEW}"
        ) from error


def _kind(dtype: pl.DataType | type[pl.DataType]) -> str:
    """Return what values of a type are: those of one kind are read as each other where their values fit."""
    if dtype.is_integer():
        return "integer"
    if any(dtype == text for text in (pl.String, pl.Categorical, pl.Enum)):
        return "text"
    return str(dtype)


def _refuse_mixed(folder: Path, results: Mapping[str, str]) -> None:
    """Check that tables and summary of a folder are of one analysis; such from before tell nothing of it."""
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = None
    found = dict(results)
    if results and text is not None:
        found["summary.json"] = summary_digest(text)
    if len(set(found.values())) > 1:
        raise UsageError(f"{folder}: mixes the results of several analyses ({', '.join(found)}). {_ANEW}")


def _tools(summary: Path) -> tuple[str, ...]:
    """Return the programs that recorded what was written; none where the summary is not there, or is none."""
    try:
        recordings = json.loads(summary.read_text(encoding="utf-8"))["recordings"]
        return tuple(sorted({str(r["tool"]) for r in recordings if r["used"] and r["tool"] is not None}))
    except (OSError, ValueError, KeyError, TypeError):
        return ()

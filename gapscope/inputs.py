"""From what the user typed to the files to read: files, folders, globs, several formats of one run."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from gapscope.errors import UsageError

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
EXPORT_SUFFIXES = (".sqlite", ".sqlite.gz", ".sqlite.zst", "_pqtdir", ".parquet", "_arwdir")
_EXPORT_TABLES = ("CUPTI_ACTIVITY", "NVTX_", "StringIds", "TARGET_INFO", "META_DATA", "ENUM_")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file (or parquet folder) to read.

    Attributes:
        path: Where it is.
        named: True if the user named it, False if it was found in a folder or by a pattern: then content that
            is no recording is skipped with a note instead of being an error.
        stand_in: An export of the same report that lies beside it, to be read if the report cannot be.
    """

    path: Path
    named: bool
    stand_in: Path | None = None


def expand(paths: Iterable[str | PathLike[str]]) -> list[InputFile]:
    """Return the files behind paths, folders and patterns, each once, ordered by path.

    In a folder, an export beside its report (same name) is not read a second time: it stands in where the
    report cannot be exported. A folder that is itself a parquet export is one input.

    Raises:
        UsageError: A path does not exist, a pattern matches nothing, or nothing was named.
    """
    found: dict[Path, InputFile] = {}
    for given in paths:
        for entry in _behind(str(given)):
            key = entry.path.resolve()
            if key not in found or entry.named:
                found[key] = entry
    if not found:
        raise UsageError(
            "No recording was named. Pass .nsys-rep, exports of nsys, torch.profiler JSON files, or mark logs (.gslog)."
        )
    return [found[key] for key in sorted(found)]


def _behind(given: str) -> list[InputFile]:
    """Return the files behind one argument."""
    if not given:
        raise UsageError("An empty path was given. Name a recording or a folder with recordings.")
    path = Path(given)
    try:
        if path.is_dir() and not is_parquet_export(path):
            entries = [e for e in (_without_twin(p) for p in _walk(path, set())) if e is not None]
            if not entries:
                raise UsageError(f"{path}: the folder holds no files. Name a recording or a folder with recordings.")
            return entries
        if path.exists() or path.is_symlink():
            return [InputFile(path, named=True)]  # a link to nothing fails when it is read, by its name
        matches = sorted(glob.glob(given, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
    except OSError as error:
        raise UsageError(f"{given[:200]}: cannot be looked into ({error.strerror or error}).") from error
    if not matches:
        raise UsageError(f"{given}: there is no such file, and as a pattern it matches nothing.")
    return [InputFile(Path(m), named=False) for m in matches if Path(m).is_file() or is_parquet_export(Path(m))]


def is_parquet_export(path: Path) -> bool:
    """Tell if a folder is an nsys parquet export: it holds Parquet files with the names of nsys tables."""
    return path.is_dir() and any(names_export_table(p.name) for p in path.glob("*.parquet"))


def names_export_table(name: str) -> bool:
    """Tell if a file has the name of a table of an nsys parquet export.

    >>> names_export_table("StringIds.parquet"), names_export_table("handoffs.parquet")
    (True, False)
    """
    return name.startswith(_EXPORT_TABLES) and name.endswith(".parquet")


def _walk(folder: Path, seen: set[Path]) -> list[Path]:
    """Return all files below a folder; a parquet export counts as one.

    Left out are hidden files and what is no regular file (pipes, sockets). A folder that links lead to twice is
    looked into once. A folder that cannot be listed is returned itself: reading it then says why.
    """
    real = folder.resolve()
    if real in seen:
        return []
    seen.add(real)
    out: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir() and not is_parquet_export(entry):
                out.extend(_walk(entry, seen))
            elif entry.is_file() or entry.is_dir():
                out.append(entry)
        except OSError:
            out.append(entry)
    return out


def _without_twin(path: Path) -> InputFile | None:
    """Return the input for a file found in a folder; None for an export whose report is there too."""
    for suffix in EXPORT_SUFFIXES:
        if path.name.endswith(suffix):
            stem = path.name.removesuffix(suffix)
            if any((path.parent / (stem + s)).is_file() for s in REPORT_SUFFIXES):
                return None
    stand_in = None
    if path.suffix in REPORT_SUFFIXES:
        twins = [path.parent / (path.stem + s) for s in EXPORT_SUFFIXES]
        stand_in = next((t for t in twins if t.exists()), None)
    return InputFile(path, named=False, stand_in=stand_in)

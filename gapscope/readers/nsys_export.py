"""Finding ``nsys`` and exporting a report with it.

An export is made in a folder of its own, never beside the report, and moved into place as a whole, so that runs at
the same time and interrupted ones do no harm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gapscope.readers.base import Progress

ENV = "GAPSCOPE_NSYS"
KEPT_TABLES = (
    "CUPTI_ACTIVITY_KIND_.*,NVTX_EVENTS,StringIds,ThreadNames,PROCESSES,META_DATA_.*,EXPORT_META_DATA,"
    "TARGET_INFO_S.*,TARGET_INFO_CUDA_.*,DIAGNOSTIC_EVENT,PROFILER_OVERHEAD,ENUM_CUPTI_.*,ENUM_DIAGNOSTIC_.*"
)
"""Value for ``nsys export --tables``: patterns that match whole names of the tables that the readers use."""

Version = tuple[int, ...]

_INSTALLED = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/local/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/lib/nsight-systems/target-linux-*/nsys",
    "/usr/lib/*-linux-gnu/nsight-systems/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
)
_PERCENT = re.compile(rb"(\d{1,3})%")
_LAST_WORDS = 3
_PARQUET_END = b"PAR1"
_ANSWER_SECONDS = 60  # for `nsys --version` and `--help`; exporting may take as long as it needs


class CutExportError(Exception):
    """``nsys`` said that all went well, and left a part: the disk is full. The text says where."""


class ExportFailedError(Exception):
    """``nsys`` does not work, or ended with an error; the text says how, in its last words."""


@dataclass(frozen=True, slots=True)
class Nsys:
    """One installed ``nsys``.

    Attributes:
        path: The program.
        version: Its version in numbers; empty if it does not say.
        text: Its version as text.
    """

    path: str
    version: Version
    text: str


def version_numbers(text: str) -> Version:
    """Return the numbers of a version, e.g. ``2023.4.4.54-234433681190v0``, without the build after the dash.

    >>> version_numbers("2023.4.4.54-234433681190v0")
    (2023, 4, 4, 54)
    """
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def find_nsys(wanted: str | None, at_least: Version = ()) -> Nsys | None:
    """Return the ``nsys`` to use, or None if there is none.

    Args:
        wanted: Path of the program, as the user gave it; None looks in ``GAPSCOPE_NSYS``, then in PATH, then in
            the usual folders, newest version first.
        at_least: Version that made the report: of those found by looking, the first that is new enough is
            preferred, else the newest.

    Raises:
        ExportFailedError: The program that the user named does not work.
    """
    named = wanted or os.environ.get(ENV)
    if named:
        found = shutil.which(named) or named
        nsys = _ask(found)
        if nsys is None:
            origin = "as given" if wanted else f"from {ENV}"
            raise ExportFailedError(f"the nsys {named} ({origin}) cannot be run")
        return nsys
    found_in_path = shutil.which("nsys")
    first = [n for n in (_ask(found_in_path) if found_in_path else None,) if n]
    if first and first[0].version >= at_least:
        return first[0]
    others = sorted({n for n in map(_ask, _installed()) if n}, key=lambda n: (n.version, n.path), reverse=True)
    return max([*first, *others], key=lambda n: n.version, default=None)


def _installed() -> Iterator[str]:
    for pattern in _INSTALLED:
        for path in sorted(Path("/").glob(pattern[1:])):
            if os.access(path, os.X_OK):
                yield str(path.resolve())


@lru_cache(maxsize=64)
def _ask(path: str) -> Nsys | None:
    """Return what a program says of itself, or None if it cannot be run."""
    answer = _answer(path, "--version")
    if answer is None:
        return None
    found = re.search(r"version\s+(\S+)", answer)
    text = found[1] if found else answer.strip().splitlines()[0] if answer.strip() else "unknown"
    return Nsys(path, version_numbers(text), text)


def _answer(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def export(nsys: Nsys, report: Path, folder: Path, progress: Progress) -> Path:
    """Export a report into an empty folder and return the export: a parquet folder, or a SQLite file.

    Parquet is smaller and faster to read; an ``nsys`` that cannot write it (before 2023.4) writes SQLite. So does one
    whose parquet leaves out META_DATA_CAPTURE (seen in 2023.4.4) where that table is needed: without GPU
    operations or ranges, only it tells if they were traced.

    Raises:
        ExportFailedError: ``nsys`` ended with an error or left nothing.
        CutExportError: What it left is cut.
    """
    ability = _answer(nsys.path, "export", "--help") or ""
    choice = [f"--tables={KEPT_TABLES}"] if "--tables" in ability else []
    words = ""
    for kind, target in (("parquetdir", folder / "export_pqtdir"), ("sqlite", folder / "export.sqlite")):
        if kind == "parquetdir" and kind not in ability:
            continue
        command = [nsys.path, "export", "--type", kind, "--output", str(target), *choice, str(report)]
        words = _run(command, folder, progress)
        if kind == "sqlite" or _tells_what_was_traced(target):
            break
        shutil.rmtree(target, ignore_errors=True)
    if not target.exists():
        raise ExportFailedError(words or "it wrote no export and gave no reason")
    if not _is_whole(target):
        free = shutil.disk_usage(folder).free
        raise CutExportError(f"{folder.parent}, where {free / 1e6:,.1f} MB are free")
    return target


def _is_whole(export: Path) -> bool:
    """Tell if no file is cut: Parquet ends with its magic, and SQLite says how many pages it has."""
    if export.is_dir():
        return all(_end_of(file) == _PARQUET_END for file in export.glob("*.parquet"))
    with export.open("rb") as file:
        head = file.read(100)
    page_bytes = int.from_bytes(head[16:18], "big")
    n_pages = int.from_bytes(head[28:32], "big")
    return len(head) == 100 and export.stat().st_size >= n_pages * (1 << 16 if page_bytes == 1 else page_bytes)


def _end_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        stream.seek(max(stream.seek(0, os.SEEK_END) - len(_PARQUET_END), 0))
        return stream.read()


def _tells_what_was_traced(export: Path) -> bool:
    there = {p.stem for p in export.glob("*.parquet")}
    return "META_DATA_CAPTURE" in there or {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"} <= there


def _run(command: list[str], folder: Path, progress: Progress) -> str:
    """Run ``nsys export``, reporting its percentages, and return its last words."""
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise ExportFailedError(error.strerror or str(error)) from error
    lines: list[str] = []
    with process:
        try:
            assert process.stdout is not None
            rest = b""
            while piece := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                *whole, rest = re.split(rb"[\r\n]", rest + piece)
                percents = _PERCENT.findall(piece)
                if percents:
                    progress("nsys export", min(int(percents[-1]), 100) / 100)
                lines += [w.decode(errors="replace").strip() for w in whole if not _PERCENT.search(w)]
            lines.append(rest.decode(errors="replace").strip())
        except BaseException:
            process.kill()
            raise
    words = " ".join([w for w in lines if w and "%]" not in w][-_LAST_WORDS:])
    if process.returncode != 0:
        raise ExportFailedError(words or f"exit status {process.returncode}, without a word")
    return words

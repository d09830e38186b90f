"""Read the recordings of one run into a `Trace`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import numpy as np  # noqa: F401 - polars imports it on first use, which is not safe from several threads at once

from gapscope import cache
from gapscope.errors import ExporterError, InputError, UnknownFormatError
from gapscope.findings import Finding
from gapscope.inputs import InputFile, expand
from gapscope.load.assembling import assemble, marks_of, windows_of
from gapscope.readers import find_reader
from gapscope.readers.base import Progress, ReadOptions, SourceTables, no_progress
from gapscope.trace import Trace


@dataclass(frozen=True)
class LoadOptions:
    """What the user may set about loading.

    Attributes:
        nsys: The ``nsys`` program to use; None: it is looked for.
        cache_dir: Where tables and exports are kept; None with ``use_cache``: the default folder.
        use_cache: False: nothing is kept and nothing kept is used.
        rank_of: Rank of a pid, where the recording does not tell.
        jobs: Job name to the paths of its files (``--job NAME=PATHS``), where the marks do not tell.
        workers: Files read at once; None: one per processor, four at most.
    """

    nsys: str | None = None
    cache_dir: Path | None = None
    use_cache: bool = True
    rank_of: Mapping[int, int] = field(default_factory=dict)
    jobs: Mapping[str, Sequence[str | PathLike[str]]] = field(default_factory=dict)
    workers: int | None = None


def load(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    options: LoadOptions | None = None,
    progress: Progress = no_progress,
) -> Trace:
    """Read the recordings of one run.

    Args:
        paths: Files, folders or patterns: ``.nsys-rep``, exports of nsys (SQLite, parquet folder), torch.profiler
            JSON, mark logs (``.gslog``), each plain or compressed, mixed as the run left them.
        options: See `LoadOptions`.
        progress: Called with what is going on and the fraction done.

    Returns:
        The trace. A file that could not be read is a finding of level ``error`` in `Trace.findings`.

    Raises:
        UsageError: A path does not exist.
        IdentityError: Ranks contradict each other, or the files form several runs.
        InputError: None of the files could be read; the message is that of the first.
    """
    options = options or LoadOptions()
    named = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    job_files = {job: expand(files) for job, files in options.jobs.items()}
    inputs = expand([*named, *(f for files in options.jobs.values() for f in files)])
    job_of = {file.path.resolve(): job for job, files in job_files.items() for file in files}
    cache_dir = cache.usable_cache_dir(options.cache_dir or cache.default_cache_dir()) if options.use_cache else None
    reading = _Reading(ReadOptions(nsys=options.nsys, cache_dir=cache_dir), progress, len(inputs))
    workers = options.workers or min(4, os.cpu_count() or 1, len(inputs))
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(reading.read, range(len(inputs)), inputs))
    files = [r for r in results if isinstance(r, SourceTables)]
    problems = [r for r in results if isinstance(r, InputError)]
    if not files:
        raise problems[0] if problems else _nothing_recorded(inputs)
    jobs = [
        job_of.get(file.path.resolve()) for file, r in zip(inputs, results, strict=True) if isinstance(r, SourceTables)
    ]
    findings = [f for r in results if isinstance(r, SourceTables) for f in r.findings]
    findings += [_unreadable(p) for p in problems]
    findings += [r for r in results if isinstance(r, Finding)]
    return assemble(files, jobs, options.rank_of, findings)


class _Reading:
    """Reads inputs, through the cache, and adds up their progress."""

    def __init__(self, options: ReadOptions, progress: Progress, total: int) -> None:
        self._options, self._progress = options, progress
        self._fractions = [0.0] * total
        self._lock = threading.Lock()

    def read(self, number: int, file: InputFile) -> SourceTables | InputError | Finding:
        """Return the tables of one file, or why there are none."""

        def report(what: str, fraction: float) -> None:
            with self._lock:
                self._fractions[number] = min(fraction, 1.0)
                self._progress(what, sum(self._fractions) / len(self._fractions))

        try:
            source = self._through_cache(file.path, report)
            return source if _shown(file.path) == source.info.path else _renamed(source, file.path)
        except InputError as error:
            return self._otherwise(file, error, report)
        except OSError as error:
            return InputError(file.path, f"cannot be read ({error.strerror or error}).")
        except Exception as error:  # a bug in one reader must not cost the other files
            return _bug(file.path, error)
        finally:
            report(f"reading {file.path.name}", 1.0)

    def _otherwise(self, file: InputFile, error: InputError, report: Progress) -> SourceTables | InputError | Finding:
        """Return what stands for a file that cannot be read."""
        if isinstance(error, UnknownFormatError) and not file.named:
            return Finding("skipped_file", "info", f"Not read: {error.found}", path=error.path)
        if isinstance(error, ExporterError) and file.stand_in is not None:
            return self._stand_in(file.stand_in, error, report)
        return error

    def _through_cache(self, path: Path, report: Progress) -> SourceTables:
        reader = find_reader(path)
        directory = self._options.cache_dir
        if directory is None or _size(path) < cache.MIN_CACHED_BYTES:
            return reader.read(path, self._options, report)
        entry = cache.entry_path(directory, cache.content_digest(path, directory), reader)
        kept = cache.load_entry(entry)
        if kept is not None:
            return _renamed(kept, path)
        source = reader.read(path, self._options, report)
        marks, notes = marks_of(source)
        windows = windows_of(source) if source.windows is None else source.windows
        source = replace(source, windows=windows, marks=marks, own_marks=None, findings=(*source.findings, *notes))
        failure = cache.store_entry(entry, source)
        if failure is None:
            return source
        note = Finding("cache_not_written", "info", f"The tables could not be kept ({failure}).", path=str(path))
        return replace(source, findings=(*source.findings, note))

    def _stand_in(self, path: Path, error: ExporterError, report: Progress) -> SourceTables | InputError:
        try:
            source = self._through_cache(path, report)
        except InputError:
            return error
        note = Finding(
            "used_export_beside_report",
            "warning",
            f"{error.found} The export beside it was read instead; it may be older than the report.",
            error.next_step,
            path=str(path),
        )
        return replace(source, findings=(*source.findings, note))


def _nothing_recorded(inputs: Sequence[InputFile]) -> InputError:
    where = inputs[0].path.parent if len(inputs) > 1 else inputs[0].path
    found = f"none of the {len(inputs)} files there is a recording." if len(inputs) > 1 else "is no recording."
    return UnknownFormatError(where, found, "Pass .nsys-rep, exports of nsys, torch.profiler JSON files, or mark logs.")


def _bug(path: Path, error: Exception) -> InputError:
    kind = type(error).__name__
    return InputError(
        path, f"reading it failed in a way gapscope did not foresee ({kind}: {error}).", "Please report this."
    )


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size


def _shown(path: Path) -> str:
    """Return a path as text; bytes of a name that are no text are written out."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def _renamed(source: SourceTables, path: Path) -> SourceTables:
    """Return kept tables under the name that the file has now."""
    old, new = source.info.path, _shown(path)
    findings = tuple(replace(f, path=new) if f.path == old else f for f in source.findings)
    return replace(source, info=replace(source.info, path=new), findings=findings)


def _unreadable(error: InputError) -> Finding:
    return Finding("unreadable_file", "error", error.found, error.next_step, path=error.path)

"""Read the recordings of one run into a `Trace`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from gapscope import cache
from gapscope.errors import InputError, UnknownFormatError
from gapscope.findings import Finding, plural
from gapscope.inputs import expand
from gapscope.load.assembling import assemble
from gapscope.load.engines import Asked, Recording, engine_of
from gapscope.load.fetching import is_url
from gapscope.load.memory import give_back
from gapscope.load.one_file import Read, kept_as
from gapscope.readers.base import Progress, ReadOptions, SourceTables, Window, no_progress
from gapscope.trace import Origin, Trace


@dataclass(frozen=True)
class LoadOptions:
    """What the user may set about loading.

    Attributes:
        nsys: The ``nsys`` program to use; None: it is looked for.
        cache_dir: Where tables and exports are kept; None with ``use_cache``: the default folder.
        use_cache: False: nothing is kept and nothing kept is used.
        rank_of: Rank of a pid, where the recording does not tell.
        jobs: Job name to the paths of its files (``--job NAME=PATHS``), where the marks do not tell.
        workers: Files read at once; None: one per processor, four at most; with the engine ``ray``: one per processor
            of the cluster.
        engine: Where files are read: ``local`` (here) or ``ray`` (on the nodes of a Ray cluster; needs
            ``gapscope[ray]``).
        ray_address: Address of the Ray cluster; None: ``RAY_ADDRESS``, else one that runs here, else one is started.
        window: Steps that are wanted: only what lies around them is read (`gapscope.readers.window`); None: all.
    """

    nsys: str | None = None
    cache_dir: str | PathLike[str] | None = None
    use_cache: bool = True
    rank_of: Mapping[int, int] = field(default_factory=dict)
    jobs: Mapping[str, Sequence[str | PathLike[str]]] = field(default_factory=dict)
    workers: int | None = None
    engine: str = "local"
    ray_address: str | None = None
    window: Window | None = None


def load(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    options: LoadOptions | None = None,
    progress: Progress = no_progress,
) -> Trace:
    """Read the recordings of one run.

    Args:
        paths: Files, folders or patterns: ``.nsys-rep``, exports of nsys (SQLite, parquet folder), torch.profiler
            JSON, mark logs (``.gslog``), each plain or compressed, mixed as the run left them; also URLs of object
            storage (``s3://...``, ``gs://...``: what fsspec reads).
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
    asked = _asked(paths, options)
    if not asked:
        expand([])
    cache_dir = _cache_dir(options)
    engine = engine_of(options.engine, options.ray_address, options.workers)
    with engine.session():
        recordings = engine.find(asked)
        read = engine.read(recordings, ReadOptions(options.nsys, cache_dir, options.window), progress)
    results = [r.result for r in read]
    files = [r for r in results if isinstance(r, SourceTables)]
    problems = [r for r in results if isinstance(r, InputError)]
    if not files:
        raise problems[0] if problems else _nothing_recorded(recordings)
    jobs = [file.job for file, r in zip(recordings, results, strict=True) if isinstance(r, SourceTables)]
    findings = [f for r in results if isinstance(r, SourceTables) for f in r.findings]
    findings += [_unreadable(p) for p in problems]
    findings += [r for r in results if isinstance(r, Finding)]
    parts = [file.info for file in files if file.info.is_part]
    if parts:
        findings.append(_note_on_parts(len(parts)))
    trace = assemble(files, jobs, options.rank_of, findings)
    trace.window = options.window if parts else None
    trace.origin = _origin(read, recordings, options, cache_dir)
    give_back()
    return trace


def known_origin(paths: str | PathLike[str] | Iterable[str | PathLike[str]], options: LoadOptions) -> Origin | None:
    """Return the origin that a trace of these recordings has, if that is known without opening their tables.

    Args:
        paths: As `load` takes them.
        options: See `LoadOptions`.

    Raises:
        UsageError: A path does not exist.
    """
    asked = _asked(paths, options)
    cache_dir = _cache_dir(options)
    is_elsewhere = options.engine != "local" or any(is_url(a.given) for a in asked)
    if cache_dir is None or is_elsewhere:
        return None
    recordings = engine_of(options.engine, None, None).find(asked)
    known = [kept_as(file.file, cache_dir) for file in recordings]
    if None in known or not any(isinstance(k, Path) for k in known):
        return None
    return _origin_of([k.name if isinstance(k, Path) else k for k in known], [], recordings, options, cache_dir)


def _asked(paths: str | PathLike[str] | Iterable[str | PathLike[str]], options: LoadOptions) -> list[Asked]:
    named = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    asked = [Asked(str(path)) for path in named]
    return asked + [Asked(str(path), job) for job, files in options.jobs.items() for path in files]


def _cache_dir(options: LoadOptions) -> Path | None:
    return cache.usable_cache_dir(Path(options.cache_dir or cache.default_cache_dir())) if options.use_cache else None


def _origin(
    read: Sequence[Read], recordings: Sequence[Recording], options: LoadOptions, cache_dir: Path | None
) -> Origin | None:
    """Return where results of these recordings may be kept: if all are known by content, and one at least is large."""
    known = [r.identity for r in read if not isinstance(r.result, Finding)]
    if cache_dir is None or None in known or not any(r.entry is not None or r.part_of for r in read):
        return None
    skipped = [r.result for r in read if isinstance(r.result, Finding)]
    return _origin_of(known, skipped, recordings, options, cache_dir)


def _origin_of(
    known: Sequence[str | None],
    skipped: Sequence[Finding],
    recordings: Sequence[Recording],
    options: LoadOptions,
    cache_dir: Path,
) -> Origin:
    named = [(file.shown, file.job) for file in recordings]
    said = repr((known, skipped, named, sorted(options.rank_of.items()), options.window))
    return Origin(cache_dir, hashlib.blake2b(said.encode(), digest_size=20).hexdigest())


def _note_on_parts(number: int) -> Finding:
    return Finding(
        "part_read",
        "warning",
        f"Of {plural(number, 'file')} only what lies around the chosen steps was read. The bounds of clocks, and what "
        "is inferred from how often something happened (device_sharing, slot_wait), rest on less than the whole "
        "recording: such a tile may be unexplained here and named there.",
        "Analyze without a choice of steps to use all of it.",
        count=number,
    )


def _nothing_recorded(recordings: Sequence[Recording]) -> InputError:
    first = recordings[0].shown
    where = first.rpartition("/")[0] or "." if len(recordings) > 1 else first
    found = f"none of the {len(recordings)} files there is a recording." if len(recordings) > 1 else "is no recording."
    return UnknownFormatError(where, found, "Pass .nsys-rep, exports of nsys, torch.profiler JSON files, or mark logs.")


def _unreadable(error: InputError) -> Finding:
    return Finding("unreadable_file", "error", error.found, error.next_step, path=error.path)

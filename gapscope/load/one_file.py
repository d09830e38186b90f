"""Read one recording, through the cache, and reduce what the whole run needs of it.

This is what an engine (`gapscope.load.engines`) runs once per file, wherever the file lies.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gapscope import cache
from gapscope.compiler import ready_compiler
from gapscope.errors import ExporterError, InputError, UnknownFormatError
from gapscope.findings import Finding
from gapscope.identity import LOG
from gapscope.inputs import InputFile
from gapscope.load import fetching
from gapscope.load.assembling import marks_of, windows_of
from gapscope.load.fetching import RemoteFile
from gapscope.readers import find_reader
from gapscope.readers.base import Progress, ReadOptions, SourceTables, Window
from gapscope.readers.window import windowed

WINDOWED_BYTES = 32 << 20
"""Of smaller files everything is read, whatever steps are wanted: that takes no time, and statistics over the whole
recording stay what they are."""

Result = SourceTables | InputError | Finding
"""What became of one file: its tables, why it cannot be used, or a note that it is no recording."""


@dataclass(frozen=True)
class Read:
    """One file, read.

    Attributes:
        result: What became of it.
        entry: Where the cache keeps these tables; None if it does not.
        digest: Of the content of a file that is too small to be kept; None of others, or if it is not known.
        part_of: Name of the entry that these tables are a part of; None: they are not, or nobody knows.
    """

    result: Result
    entry: Path | None = None
    digest: str | None = None
    part_of: str | None = None

    @property
    def identity(self) -> str | None:
        """What tells these tables from all others; None: nothing does."""
        return (self.digest or self.part_of) if self.entry is None else self.entry.name


def read_file(file: InputFile | RemoteFile, shown: str, options: ReadOptions, progress: Progress) -> Read:
    """Return the tables of one file, or why there are none; no problem of the file raises.

    Args:
        file: The file, on this machine or behind a URL.
        shown: Its name in reports and messages.
        options: What the user set about reading.
        progress: Called with what is going on and the fraction done.
    """
    if isinstance(file, RemoteFile):
        return _behind_url(file, shown, options, progress)
    stand_in = None if file.stand_in is None else nullcontext(file.stand_in)
    return _FromPath(file.path, file.named, stand_in, options, progress).read(shown)


def kept_as(file: InputFile | RemoteFile, cache_dir: Path) -> Path | str | None:
    """Return `Read.entry` of a file that was read before, or `Read.digest` of a small one; None if reading it tells."""
    if isinstance(file, RemoteFile):
        return None
    with suppress(InputError, OSError):
        if _size(file.path) < cache.MIN_CACHED_BYTES:
            return _small_identity(file.path)
        return cache.kept_entry(file.path, find_reader(file.path), cache_dir)
    return None


def _small_identity(path: Path) -> str:
    return f"{cache.content_digest(path, None)}-{find_reader(path).version}"


def shown_path(path: Path) -> str:
    """Return a path as text; bytes of a name that are no text are written out."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def _behind_url(file: RemoteFile, shown: str, options: ReadOptions, progress: Progress) -> Read:
    """Return what became of a file behind a URL; the copy that is read is gone afterwards."""
    try:
        memo = fetching.memo_of(file, options.cache_dir, repr(replace(options, cache_dir=None)))
        kept = cache.load_entry(memo.entry) if memo is not None and memo.entry is not None else None
        if memo is not None and kept is not None:
            return Read(_named(kept, shown), memo.entry)
        stand_in = None if file.stand_in is None else fetching.fetched(file.stand_in, options.cache_dir)
        with fetching.fetched(file, options.cache_dir) as path:
            read = _FromPath(path, file.named, stand_in, options, progress, keep=False).read(shown)
    except InputError as error:
        return Read(error)
    if memo is not None and read.entry is not None:
        memo.remember(read.entry)
    return read


@dataclass(frozen=True)
class _FromPath:
    """Reads one file of this machine.

    Attributes:
        path: The file.
        named: See `InputFile.named`.
        stand_in: Gives the export to be read if the file is a report that cannot be exported.
        options: What the user set about reading.
        progress: Called with what is going on and the fraction done.
        keep: False: the tables must do without the file.
    """

    path: Path
    named: bool
    stand_in: AbstractContextManager[Path] | None
    options: ReadOptions
    progress: Progress
    keep: bool = True

    def read(self, shown: str) -> Read:
        try:
            return self._read(shown)
        except InputError as error:
            return Read(_moved(error, self.path, shown))
        except OSError as error:
            return Read(InputError(shown, f"cannot be read ({error.strerror or error})."))
        except Exception as error:  # a bug in one reader must not cost the other files
            kind = type(error).__name__
            found = f"reading it failed in a way gapscope did not foresee ({kind}: {error})."
            return Read(InputError(shown, found, "Please report this."))

    def _read(self, shown: str) -> Read:
        try:
            source, entry, part_of = self._tables(self.path)
        except UnknownFormatError as error:
            if self.named:
                raise
            return Read(Finding("skipped_file", "info", f"Not read: {error.found}", path=shown))
        except ExporterError as error:
            if self.stand_in is None:
                raise
            return Read(_named(self._from_stand_in(self.stand_in, error), shown))
        return Read(_named(source, shown), entry, self._digest() if entry is None else None, part_of)

    def _digest(self) -> str | None:
        """Return what tells a small file from others; of a large one that would cost as much as reading it."""
        if self.options.cache_dir is None or _size(self.path) >= cache.MIN_CACHED_BYTES:
            return None
        return _small_identity(self.path)

    def _from_stand_in(self, stand_in: AbstractContextManager[Path], error: ExporterError) -> SourceTables:
        try:
            with stand_in as path:
                source, _, _ = self._tables(path)
        except InputError:
            raise error from None
        note = Finding(
            "used_export_beside_report",
            "warning",
            f"{error.found} The export beside it was read instead; it may be older than the report.",
            error.next_step,
            path=source.info.path,
        )
        return replace(source, findings=(*source.findings, note))

    def _tables(self, path: Path) -> tuple[SourceTables, Path | None, str | None]:
        """Return the tables of a file, where the cache keeps them, and the name of what they are a part of."""
        reader = find_reader(path)
        directory = self.options.cache_dir
        size = _size(path)
        options = self.options if size >= WINDOWED_BYTES else replace(self.options, window=None)
        window = options.window
        if directory is None or size < cache.MIN_CACHED_BYTES:
            ready_compiler()
            source = _windowed(reader.read(path, options, self.progress), window)
            return self._without_file(reduced(source)), None, None
        lookup = cache.Lookup(path, reader, directory)
        kept = lookup.kept(to_store=window is None)
        if kept is not None:
            if window is None:
                return kept, lookup.entry, None
            return _windowed(kept, window), None, lookup.entry.name
        ready_compiler()  # beside the digest
        source = _windowed(reader.read(path, options, self.progress), window)
        if window is not None:  # a part of a file is no entry: the next look may want another
            return self._without_file(reduced(source)), None, None
        with ThreadPoolExecutor(1) as beside:
            complete = beside.submit(reduced, source)
            failure = lookup.store(source, complete)
            source = complete.result()
        if failure is not None:
            note = Finding("cache_not_written", "info", f"The tables could not be kept ({failure}).", path=str(path))
            return self._without_file(replace(source, findings=(*source.findings, note))), None, None
        if not self.keep or cache.packed_bytes(source) >= cache.LARGE_BYTES:
            kept = cache.load_entry(lookup.entry)
        return (self._without_file(source) if kept is None else kept), lookup.entry, None

    def _without_file(self, source: SourceTables) -> SourceTables:
        """Return tables that do without the file, where that is asked."""
        if self.keep or source.packed is not None:
            return source
        return replace(source, tables={name: frame.collect().lazy() for name, frame in source.tables.items()})


def _windowed(source: SourceTables, window: Window | None) -> SourceTables:
    """Return what a window leaves of the tables, if the reader read all of them."""
    if window is None or source.info.is_part or source.info.tool == LOG:
        return source
    return windowed(source, window)


def reduced(source: SourceTables) -> SourceTables:
    """Return the tables with what the run as a whole needs of them first: windows and marks."""
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(marks_of, source)
        windows = windows_of(source) if source.windows is None else source.windows
        marks, notes = found.result()
    return replace(source, windows=windows, marks=marks, own_marks=None, findings=(*source.findings, *notes))


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size


def _named(source: SourceTables, shown: str) -> SourceTables:
    """Return tables under the name that the file has in reports."""
    old = source.info.path
    if old == shown:
        return source
    findings = tuple(replace(f, path=shown) if f.path == old else f for f in source.findings)
    return replace(source, info=replace(source.info, path=shown), findings=findings)


def _moved(error: InputError, path: Path, shown: str) -> InputError:
    """Return an error about a file, or a part of it, under the name that the file has in reports."""
    if not error.path.startswith(str(path)):
        return error
    return type(error)(shown + error.path.removeprefix(str(path)), error.found, error.next_step)

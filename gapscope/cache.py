"""Tables of files that were read before, as Parquet, keyed by content and reader version.

Layout of the cache folder (it may be deleted at any time)::

    digests/<hash of the path>.json     content digest of a file, valid while size, times and inode stay
    tables/<digest>-<format>-<version>/ one Parquet file a table (`gapscope.readers.packing`), and source.json
    results/<key>/                      tables of an analysis, and index (`gapscope.results`)
    exports/                            what nsys exported (`gapscope.readers.nsys_export`)

An entry appears at once and whole (`gapscope.entries`), so that concurrent runs share it and a killed run leaves none.
One that is not what was written is removed and made again.

The first look at a file does not wait for the cache: its digest is computed while it is read, and its tables are
written while they are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from gapscope_instrumentation.contract import CONTRACT_VERSION

from gapscope.entries import discard, read_index, sealed, staged, unsealed, write_at_once, write_index
from gapscope.findings import Finding
from gapscope.readers.base import Reader, SourceInfo, SourceTables
from gapscope.readers.packing import is_packed, packed, unpacked
from gapscope.schema import READER_TABLES, SCHEMA_VERSION

MIN_CACHED_BYTES = 4 << 20
"""Smaller files are read again: that is as fast as the cache."""

LARGE_BYTES = 1 << 30
"""Tables of more bytes in memory are written at once and then read from the disk as they are needed."""

_AT_ONCE_BYTES = 4 << 20  # tables of fewer bytes are not worth a thread
_INDEX = "source.json"
_SETTLED_S = 2.0  # a file changed more recently may change again within one step of its mtime


def default_cache_dir() -> Path:
    """Return ``$GAPSCOPE_CACHE``, or ``gapscope`` in the cache folder of the user; of one without a home, no folder."""
    if chosen := os.environ.get("GAPSCOPE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gapscope"
    except RuntimeError:  # as in a container that runs under a number without a name
        return Path(os.devnull, "gapscope")


def usable_cache_dir(wanted: Path) -> Path | None:
    """Return ``wanted`` if it can be written to (it is made if need be), else None."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        return None


def content_digest(path: Path, cache_dir: Path | None) -> str:
    """Return a digest of the content of a file, or of all files of a folder; that of a file begins with its size.

    The digest of an unchanged file (same size, times and inode) is remembered in ``cache_dir``.
    """
    if path.is_dir():
        total = hashlib.blake2b(digest_size=20)
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            total.update(f"{part.relative_to(path)}\0{content_digest(part, cache_dir)}\0".encode())
        return total.hexdigest()
    known = None if cache_dir is None else _remembered(path, cache_dir)
    if known is not None:
        return known
    stamp, stat = _stamp(path), path.stat()
    with path.open("rb") as file:
        # Processors have instructions for SHA-256, which makes it the fastest digest of the standard library.
        digest = f"{stat.st_size:x}-{hashlib.file_digest(file, 'sha256').hexdigest()[:40]}"
    if cache_dir is not None and time.time() - stat.st_mtime > _SETTLED_S:
        with contextlib.suppress(OSError):
            write_at_once(_memo(path, cache_dir), sealed(json.dumps({"stamp": stamp, "digest": digest})))
    return digest


def _stamp(path: Path) -> list[int]:
    stat = path.stat()  # whoever changes a file may set its mtime back, but not its ctime
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _memo(path: Path, cache_dir: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=20).hexdigest()
    return cache_dir / "digests" / f"{name}.json"


def _remembered(path: Path, cache_dir: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(unsealed(_memo(path, cache_dir).read_text()))
        if known["stamp"] == _stamp(path):
            return str(known["digest"])
    return None


class Lookup:
    """The entry of one file. Its digest is computed beside other work, unless it decides whether there is any.

    Args:
        path: File or folder.
        reader: Reads it.
        cache_dir: The cache.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path, reader: Reader, cache_dir: Path) -> None:
        self._path, self._reader, self._cache_dir = path, reader, cache_dir
        self._stamp = None if path.is_dir() else _stamp(path)
        self._pool = ThreadPoolExecutor(1)

    @cached_property
    def _digest(self) -> Future[str]:
        digest = self._pool.submit(content_digest, self._path, self._cache_dir)
        self._pool.shutdown(wait=False)
        return digest

    @property
    def entry(self) -> Path:
        """Where the tables of this content are kept, or would be; waits for the digest."""
        return entry_path(self._cache_dir, self._digest.result(), self._reader)

    def kept(self, to_store: bool = True) -> SourceTables | None:
        """Return the tables; None if they are not kept. Waits for the digest only if a file of that size was.

        Args:
            to_store: If they are not kept, they will be: begin to compute the digest.
        """
        if self._stamp is None or _remembered(self._path, self._cache_dir) is not None:
            return load_entry(self.entry)
        of_size = (self._cache_dir / "tables").glob(f"{self._stamp[0]:x}-*")
        if any(of_size) or _writers:
            return load_entry(self.entry)
        if to_store:
            _ = self._digest
        return None

    def store(self, source: SourceTables, complete: Future[SourceTables] | None = None) -> str | None:
        """Keep the tables, small ones at once and others in the background; return why that will fail, or None.

        Args:
            source: The tables.
            complete: The same with all that is kept beside them; None: they are. Writing them does not wait for it.
        """
        entry = self.entry
        if self._stamp is not None and self._stamp != _stamp(self._path):
            return "the file changed while it was read"
        size = packed_bytes(source)
        if size < _AT_ONCE_BYTES or size >= LARGE_BYTES:
            return store_entry(entry, source, complete)
        return _store_later(entry, source, size, complete)


def packed_bytes(source: SourceTables) -> int:
    """Return how many bytes of memory the tables take as they are kept; 0 if they are not in memory."""
    return sum(int(frame.estimated_size()) for frame in (source.packed or {}).values())


_writers: dict[Path, threading.Thread] = {}


def _store_later(entry: Path, source: SourceTables, size: int, complete: Future[SourceTables] | None) -> str | None:
    """Begin to keep tables; return why it cannot be, or None. The process ends only after it is done.

    What goes wrong later leaves no entry: the next run reads the file again.
    """
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(entry.parent).free
    except OSError as error:
        return str(error)
    if usable_cache_dir(entry.parent) is None:
        return f"{entry.parent} cannot be written to"
    if free < size:
        return f"{entry.parent} has no room"

    def write() -> None:
        try:
            store_entry(entry, source, complete)
        finally:
            _writers.pop(entry, None)

    thread = threading.Thread(target=write, name=f"cache of {source.info.path}", daemon=False)
    _writers[entry] = thread
    thread.start()
    return None


def finish(entry: Path | None = None) -> None:
    """Wait until an entry that this process writes in the background is there; None: all of them."""
    for path, thread in list(_writers.items()):
        if entry in (None, path):
            thread.join()


def entry_path(cache_dir: Path, digest: str, reader: Reader) -> Path:
    """Return where the tables of a file with this content are kept."""
    slug = reader.name.replace(" ", "-").replace(".", "-").lower()
    return cache_dir / "tables" / f"{digest}-{slug}-{reader.version}.{SCHEMA_VERSION}.{CONTRACT_VERSION}"


def kept_entry(path: Path, reader: Reader, cache_dir: Path) -> Path | None:
    """Return where the tables of a file are kept; None if they are not, or only its content would tell."""
    digest = None if path.is_dir() else _remembered(path, cache_dir)
    entry = None if digest is None else entry_path(cache_dir, digest, reader)
    return entry if entry is not None and entry.is_dir() else None


def load_entry(entry: Path) -> SourceTables | None:
    """Return the tables kept at ``entry``; None if there are none or they cannot be used."""
    finish(entry)
    if not entry.is_dir():
        return None
    try:
        stored = read_index(entry, _INDEX)
        tables = {}
        for name in READER_TABLES:
            frame = pl.scan_parquet(entry / f"{name}.parquet")
            if not is_packed(frame.collect_schema(), name):
                raise ValueError(name)
            tables[name] = unpacked(frame, name)
        findings = tuple(Finding(**f) for f in stored["findings"])
        windows, marks = (pl.read_parquet(entry / f"{name}.parquet") for name in ("windows", "marks"))
        return SourceTables(SourceInfo(**stored["info"]), tables, findings, windows, marks)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        discard(entry)
        return None


def store_entry(entry: Path, source: SourceTables, complete: Future[SourceTables] | None = None) -> str | None:
    """Keep the tables of one file; return why that failed, or None. See `Lookup.store`."""
    try:
        with staged(entry) as staging:
            for name, table in source.tables.items():
                frame = packed(table.collect()) if source.packed is None else source.packed[name]
                # Statistics would be a quarter of the work, and help no query of what `unpacked` returns.
                frame.write_parquet(staging / f"{name}.parquet", compression="lz4", statistics=False)
            source = source if complete is None else complete.result()
            for name, derived in (("windows", source.windows), ("marks", source.marks)):
                if derived is not None:
                    derived.write_parquet(staging / f"{name}.parquet")
            stored = {"info": asdict(source.info), "findings": [asdict(f) for f in source.findings]}
            write_index(staging, _INDEX, stored)
    except (OSError, pl.exceptions.PolarsError) as error:
        return str(error)
    return None


def add_entry(entry: Path, files: Mapping[str, npt.NDArray[np.uint8]]) -> str | None:
    """Keep an entry that another cache has; return why that failed, or None.

    Args:
        entry: Where it goes.
        files: Its files by name.
    """
    try:
        with staged(entry) as staging:
            for name, content in files.items():
                content.tofile(staging / Path(name).name)
    except OSError as error:
        return str(error)
    return None

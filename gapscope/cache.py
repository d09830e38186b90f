"""Tables of files that were read before, as Parquet, keyed by content and reader version.

Layout of the cache folder (it may be deleted at any time)::

    digests/<hash of the path>.json     content digest of a file, valid while size, mtime and inode stay
    tables/<digest>-<format>-<version>/ one Parquet file a table, and source.json
    exports/                            what nsys exported (`gapscope.readers.nsys_export`)

An entry appears at once and whole (a folder renamed into place), so that concurrent runs share it and a
killed run leaves none. An entry that cannot be read is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import polars as pl
from gapscope_instrumentation.contract import CONTRACT_VERSION

from gapscope.findings import Finding
from gapscope.readers.base import Reader, SourceInfo, SourceTables
from gapscope.schema import READER_TABLES, SCHEMA_VERSION, reader_dtypes

MIN_CACHED_BYTES = 4 << 20
"""Smaller files are read again: that is as fast as the cache."""

_PIECE_BYTES = 1 << 22
_SETTLED_S = 2.0  # a file changed more recently may change again within one step of its mtime


def default_cache_dir() -> Path:
    """Return ``$GAPSCOPE_CACHE``, or ``gapscope`` in the user's cache folder."""
    if chosen := os.environ.get("GAPSCOPE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gapscope"


def usable_cache_dir(wanted: Path) -> Path | None:
    """Return ``wanted`` if it can be written to (it is made if need be), else None."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        return None


def content_digest(path: Path, cache_dir: Path | None) -> str:
    """Return a digest of the content of a file, or of all files of a folder.

    The digest of an unchanged file (same size, mtime and inode) is remembered in ``cache_dir``.
    """
    if path.is_dir():
        total = hashlib.blake2b(digest_size=20)
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            total.update(f"{part.relative_to(path)}\0{content_digest(part, cache_dir)}\0".encode())
        return total.hexdigest()
    stat = path.stat()
    stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]
    memo = None
    if cache_dir is not None:
        name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=20).hexdigest()
        memo = cache_dir / "digests" / f"{name}.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(memo.read_text())
            if known["stamp"] == stamp:
                return str(known["digest"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()
    if memo is not None and time.time() - stat.st_mtime > _SETTLED_S:
        with contextlib.suppress(OSError):
            _write_at_once(memo, json.dumps({"stamp": stamp, "digest": digest}))
    return digest


def entry_path(cache_dir: Path, digest: str, reader: Reader) -> Path:
    """Return where the tables of a file with this content are kept."""
    slug = reader.name.replace(" ", "-").replace(".", "-").lower()
    return cache_dir / "tables" / f"{digest}-{slug}-{reader.version}.{SCHEMA_VERSION}.{CONTRACT_VERSION}"


def load_entry(entry: Path) -> SourceTables | None:
    """Return the tables kept at ``entry``; None if there are none or they cannot be used."""
    if not entry.is_dir():
        return None
    try:
        stored = json.loads((entry / "source.json").read_text())
        if stored["checksums"] != _checksums(entry):
            raise ValueError(entry)
        tables = {}
        for name in READER_TABLES:
            frame = pl.scan_parquet(entry / f"{name}.parquet")
            if frame.collect_schema() != pl.Schema(reader_dtypes(name)):
                raise ValueError(name)
            tables[name] = frame
        findings = tuple(Finding(**f) for f in stored["findings"])
        windows, marks = (pl.read_parquet(entry / f"{name}.parquet") for name in ("windows", "marks"))
        return SourceTables(SourceInfo(**stored["info"]), tables, findings, windows, marks)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        shutil.rmtree(entry, ignore_errors=True)
        return None


def store_entry(entry: Path, source: SourceTables) -> str | None:
    """Keep the tables of one file; return why that failed, or None."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
    except OSError as error:
        return str(error)
    try:
        for name, frame in source.tables.items():
            frame.collect().write_parquet(staging / f"{name}.parquet", compression="lz4", statistics=False)
        for name, derived in (("windows", source.windows), ("marks", source.marks)):
            if derived is not None:
                derived.write_parquet(staging / f"{name}.parquet")
        stored = {
            "info": asdict(source.info),
            "findings": [asdict(f) for f in source.findings],
            "checksums": _checksums(staging),
        }
        (staging / "source.json").write_text(json.dumps(stored))
        try:
            staging.rename(entry)
        except OSError:
            if not entry.is_dir():  # not there because another run was faster
                raise
    except (OSError, pl.exceptions.PolarsError) as error:
        return str(error)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return None


def _checksums(entry: Path) -> dict[str, int]:
    """Return the checksum of each table: a page that went bad on the disk must not surface in an analysis."""
    out = {}
    for file in sorted(entry.glob("*.parquet")):
        total = 0
        with file.open("rb") as stream:
            while piece := stream.read(_PIECE_BYTES):
                total = zlib.crc32(piece, total)
        out[file.name] = total
    return out


def _write_at_once(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new-", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)

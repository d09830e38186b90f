"""Results of analyses that were made before, kept beside the tables of the files they were made from.

An entry of the cache folder, ``results/<key>/``, holds the tables of one analysis as the Parquet files that they are
written to elsewhere, and ``index``: one line, a digest of the rest, which is JSON: what these files say of themselves,
their digests, findings, summary. The key is made of the contents of all
files, of what was asked, and of the version of gapscope and its own files: whatever could change a number changes the
key. As every entry of the cache it appears at once and whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache as once
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from gapscope.entries import digest_of, discard, sealed, staged, unsealed
from gapscope.findings import Finding
from gapscope.schema import SCHEMA_VERSION
from gapscope.version import VERSION
from gapscope.writing import table_file

INDEX = "index"


@dataclass(frozen=True)
class Kept:
    """Results that were computed before.

    Attributes:
        tables: Tables of the analysis by name.
        findings: Its findings, in order.
        summary: Content of ``summary.json``.
    """

    tables: Mapping[str, pl.DataFrame]
    findings: list[Finding]
    summary: dict[str, Any]


def entry_of(cache_dir: Path, digest: str, request: object) -> Path:
    """Return where the results of one request are kept.

    Args:
        cache_dir: Folder of the cache.
        digest: What tells the recordings from others (`gapscope.trace.Origin`).
        request: What was asked; its ``repr`` has to say all of it.
    """
    said = f"{digest}\0{request!r}\0{VERSION}\0{SCHEMA_VERSION}\0{_own_files()}\0{pl.__version__}"
    return cache_dir / "results" / digest_of(said.encode())


def find(entry: Path, names: Iterable[str]) -> Kept | None:
    """Return the results kept at an entry; None if there are none, or they cannot be used: then the entry is gone.

    Args:
        entry: Result of `entry_of`.
        names: The tables that there have to be.
    """
    if not entry.is_dir():
        return None
    try:
        stored = _index(entry)
        tables = {name: pl.read_parquet(BytesIO(_file(entry, name, stored))) for name in names}
        return Kept(tables, [Finding(**f) for f in stored["findings"]], stored["summary"])
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        discard(entry)
        return None


def files(entry: Path, names: Iterable[str], metadata: Mapping[str, str]) -> dict[str, bytes] | None:
    """Return the Parquet files of tables kept at an entry, as `store` wrote them; None: they cannot be used.

    Args:
        entry: Result of `entry_of`.
        names: The tables.
        metadata: What they have to say of themselves.
    """
    try:
        stored = _index(entry)
        return {name: _file(entry, name, stored) for name in names} if stored["metadata"] == metadata else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(entry: Path, kept: Kept, metadata: Mapping[str, str]) -> str | None:
    """Keep results; return why that failed, or None.

    Args:
        entry: Result of `entry_of`.
        kept: The results.
        metadata: What the files of the tables say of themselves.
    """
    try:
        with staged(entry) as staging:
            digests = {}
            for name, table in kept.tables.items():
                content = table_file(table, metadata)
                digests[name] = digest_of(content)
                (staging / f"{name}.parquet").write_bytes(content)
            findings = [asdict(f) for f in kept.findings]
            said = {"metadata": metadata, "digests": digests, "findings": findings, "summary": kept.summary}
            (staging / INDEX).write_text(sealed(json.dumps(said)))
    except (OSError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        return str(error)
    return None


def _index(entry: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(unsealed((entry / INDEX).read_text()))
    return said


def _file(entry: Path, name: str, stored: Mapping[str, Any]) -> bytes:
    """Return the file of a table; raise if it is not what was written."""
    content = (entry / f"{name}.parquet").read_bytes()
    if digest_of(content) != stored["digests"][name]:
        raise ValueError(name)
    return content


@once
def _own_files() -> str:
    """Return what changes whenever a file of gapscope does: results of other code are not used."""
    said = hashlib.blake2b(digest_size=20)
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        with contextlib.suppress(OSError):
            stat = file.stat()
            said.update(f"{file.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return said.hexdigest()

"""What runs on the nodes of a cluster: look for files, read one file."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import polars as pl
from gapscope_instrumentation.contract import CONTRACT_VERSION

from gapscope import cache
from gapscope.errors import InputError, UsageError
from gapscope.inputs import InputFile, expand
from gapscope.load.engines.placing import Seen
from gapscope.load.engines.wire import to_wire
from gapscope.load.fetching import RemoteFile
from gapscope.load.one_file import read_file, shown_path
from gapscope.readers import READERS
from gapscope.readers.base import ReadOptions, no_progress
from gapscope.schema import SCHEMA_VERSION
from gapscope.version import VERSION

_END_BYTES = 1 << 16


def versions() -> dict[str, str]:
    """Return what has to be the same on all nodes for tables to be the same."""
    readers = ", ".join(f"{r.name} {r.version}" for r in READERS)
    return {
        "gapscope": VERSION,
        "polars": pl.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "readers": f"tables {SCHEMA_VERSION}, marks {CONTRACT_VERSION}, {readers}",
    }


def look(asked: Sequence[str]) -> dict[str, Any]:
    """Return what this machine sees behind each path, folder or pattern.

    Takes and returns built-in types alone: a node with another version of gapscope can still say so.

    Returns:
        ``versions``, and ``listing``: for each a list of `gapscope.load.engines.placing.Seen` as dicts, or why there
        is nothing.
    """
    return {"versions": versions(), "listing": [_look_at(given) for given in asked]}


def read(
    file: InputFile | RemoteFile,
    shown: str,
    options: ReadOptions,
    *,
    use_cache: bool,
    expected: Mapping[str, str],
    known: frozenset[str],
) -> dict[str, Any]:
    """Read one file.

    Args:
        file: The file.
        shown: Its name in reports.
        options: What the user set about reading; without a cache folder that of this machine is used.
        use_cache: False: nothing is kept and nothing kept is used.
        expected: The `versions` of the driver.
        known: Names of the entries that the driver's cache has.

    Returns:
        What `gapscope.load.engines.wire.to_wire` returns, with ``versions`` (alone, if they differ) and ``host``;
        ``is_gone`` instead if the file is not there any more.
    """
    answer = {"versions": versions(), "host": os.uname().nodename}
    if answer["versions"] != expected:
        return answer
    wanted = options.cache_dir or cache.default_cache_dir()
    options = replace(options, cache_dir=cache.usable_cache_dir(wanted) if use_cache else None)
    done = read_file(file, shown, options, no_progress)
    if isinstance(done.result, InputError) and isinstance(file, InputFile) and not os.path.lexists(file.path):
        return answer | {"is_gone": True}
    return answer | to_wire(done, known)


def _look_at(given: str) -> list[dict[str, Any]] | str:
    try:
        found = expand([given])
    except UsageError as error:
        return str(error)
    return [asdict(_seen(file)) for file in found]


def _seen(file: InputFile) -> Seen:
    """Return a file as this machine sees it; one that cannot be looked at is listed, and reading it says why."""
    size, mtime, is_whole, digest = 0, 0, True, hashlib.blake2b(digest_size=20)
    try:
        parts = sorted(file.path.rglob("*")) if file.path.is_dir() else [file.path]
        for part in (p for p in parts if p.is_file()):
            stat = part.stat()
            size, mtime = size + stat.st_size, max(mtime, stat.st_mtime_ns)
            with part.open("rb") as opened:
                digest.update(opened.read(_END_BYTES))
                if stat.st_size > 2 * _END_BYTES:
                    is_whole = False
                    opened.seek(-_END_BYTES, os.SEEK_END)
                digest.update(opened.read(_END_BYTES))
    except OSError as error:
        digest.update(str(error.errno).encode())
    return Seen(
        path=os.path.abspath(file.path),  # noqa: PTH100 - links stay as they are, .. goes
        key=str(file.path.resolve()),
        shown=shown_path(file.path),
        named=file.named,
        stand_in=None if file.stand_in is None else os.path.abspath(file.stand_in),  # noqa: PTH100
        size_bytes=size,
        mtime_ns=mtime,
        digest=digest.hexdigest(),
        is_whole=is_whole,
    )

"""How the tables of one file travel: as the Parquet files of a cache entry.

A worker whose cache has the entry sends its files as they are; whoever receives them keeps them in the own cache, or in
memory. Nothing refers to a disk of the other side.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope import cache
from gapscope.errors import (
    ExporterError,
    InputError,
    MalformedTraceError,
    UnknownFormatError,
    UnsupportedVersionError,
)
from gapscope.findings import Finding
from gapscope.load.one_file import Read
from gapscope.readers.base import SourceInfo, SourceTables
from gapscope.readers.packing import all_unpacked, packed

Content = npt.NDArray[np.uint8]
"""A file in memory; Ray hands arrays over without copying them."""

_ERRORS: dict[str, type[InputError]] = {
    kind.__name__: kind
    for kind in (InputError, ExporterError, MalformedTraceError, UnknownFormatError, UnsupportedVersionError)
}


def to_wire(read: Read, known: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return what became of a file as built-in types and arrays.

    Args:
        read: What became of it.
        known: Names of the entries that the receiver's cache has: their tables stay here.
    """
    result = read.result
    if isinstance(result, Finding):
        return {"finding": asdict(result)}
    if isinstance(result, InputError):
        return {"error": [type(result).__name__, result.path, result.found, result.next_step]}
    about = json.dumps({"info": asdict(result.info), "findings": [asdict(f) for f in result.findings]})
    if read.entry is not None:
        if read.entry.name in known:
            return {"about": about, "entry": read.entry.name, "files": None}
        if cache.load_entry(read.entry) is not None:
            files = {file.name: np.fromfile(file, np.uint8) for file in sorted(read.entry.iterdir())}
            return {"about": about, "entry": read.entry.name, "files": files}
    frames = {name: packed(frame.collect()) for name, frame in result.tables.items()}
    frames |= {name: f for name, f in (("windows", result.windows), ("marks", result.marks)) if f is not None}
    return {"about": about, "entry": None, "files": {f"{name}.parquet": _parquet(f) for name, f in frames.items()}}


def from_wire(sent: Mapping[str, Any], cache_dir: Path | None) -> Read | None:
    """Return what became of a file; None if its tables had to be in the cache here, and are not.

    Args:
        sent: What `to_wire` returned.
        cache_dir: The cache of this side; None: tables are kept in memory.
    """
    if "finding" in sent:
        return Read(Finding(**sent["finding"]))
    if "error" in sent:
        kind, path, found, next_step = sent["error"]
        return Read(_ERRORS[kind](path, found, next_step))
    about, files = json.loads(sent["about"]), sent["files"]
    info, findings = SourceInfo(**about["info"]), tuple(Finding(**f) for f in about["findings"])
    if sent["entry"] is not None and cache_dir is not None:
        entry = cache_dir / "tables" / Path(sent["entry"]).name
        kept = cache.load_entry(entry)
        if kept is None and files is not None and cache.add_entry(entry, files) is None:
            kept = cache.load_entry(entry)
        if kept is not None:
            return Read(SourceTables(info, kept.tables, findings, kept.windows, kept.marks), entry)
    if files is None:
        return None
    frames = {name.removesuffix(".parquet"): _frame(f) for name, f in files.items() if name.endswith(".parquet")}
    windows, marks = frames.pop("windows", None), frames.pop("marks", None)
    return Read(SourceTables(info, all_unpacked(frames), findings, windows, marks, packed=frames))


def _parquet(frame: pl.DataFrame) -> Content:
    out = io.BytesIO()
    frame.write_parquet(out, compression="lz4", statistics=False)
    return np.frombuffer(out.getbuffer(), np.uint8)


def _frame(content: Content) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(content.data))

"""The files that are measured: lab recordings tiled to a size, and pairs of them renamed into ranks of a larger job.

They are made on demand in a folder of their own; what is there is used. What they hold is counted here, without
gapscope, so that rates do not rest on what it claims to have read.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TORCH_PAIR = ("mailbox_none_torch_rank0.json.gz", "mailbox_none_torch_rank1.json.gz")
TWO_GPUS_PAIR = tuple(f"two-gpus/{name}" for name in TORCH_PAIR)
NSYS = "mailbox_none_nsys.sqlite.gz"
PAIR_OF_RANKS = "25MB"
"""Size of each file of the runs with many ranks."""

_PIECE = 1 << 24
_EVENT = b'"ph": "'
_OPERATIONS = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("MEMCPY", "MEMSET", "RUNTIME")]


@dataclass(frozen=True)
class Input:
    """Files of one run.

    Attributes:
        name: What it is called in cases and on the command line.
        title: What the page calls it.
        kind: ``torch`` (a file per rank) or ``nsys`` (one file).
        files: Names below the folder of files.
        size: What the tiler is asked for; None where the files are not tiled.
    """

    name: str
    title: str
    kind: str
    files: tuple[str, ...]
    size: str | None = None

    def paths(self, folder: Path) -> list[Path]:
        """Return the files, rank by rank."""
        return [folder / name for name in self.files]


def _torch(size: str, title: str) -> Input:
    return Input(f"torch_{size}", title, "torch", tuple(f"torch_{size}_rank{k}.json" for k in (0, 1)), size)


def _nsys(kernels: str) -> Input:
    title = f"nsys SQLite export, {kernels[:-1]} million kernels"
    return Input(f"nsys_{kernels}", title, "nsys", (f"nsys_{kernels}.sqlite",), kernels)


def _ranks(count: int) -> Input:
    title = f"torch.profiler, {count} rank{'s' if count > 1 else ''} of {PAIR_OF_RANKS[:-2]} MB"
    return Input(f"ranks_{count}", title, "torch", tuple(f"ranks_{count}/rank{k}.json" for k in range(count)))


INPUTS = {
    one.name: one
    for one in (
        _torch("50MB", "torch.profiler, two ranks of 50 MB"),
        _torch("500MB", "torch.profiler, two ranks of 500 MB"),
        _torch("1GB", "torch.profiler, two ranks of 1 GB"),
        _nsys("0.5M"),
        _nsys("1M"),
        _nsys("5M"),
        _nsys("10M"),
        _nsys("50M"),
        *(_ranks(count) for count in (1, 2, 8, 64)),
    )
}


def make(wanted: Input, folder: Path, recordings: Path, tiler: Path) -> list[Path]:
    """Return the files of an input, made if they are not there.

    Args:
        wanted: What to make.
        folder: Where files are kept.
        recordings: The lab recordings.
        tiler: The program that enlarges a recording, keeping it consistent.
    """
    paths = wanted.paths(folder)
    if all(path.exists() for path in paths):
        return paths
    if wanted.size is not None:
        names = TORCH_PAIR if wanted.kind == "torch" else (NSYS,)
        _tile(wanted.kind, [recordings / name for name in names], paths, wanted.size, tiler)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            pair = [Path(scratch) / f"rank{k}.json" for k in (0, 1)]
            _tile("torch", [recordings / name for name in TWO_GPUS_PAIR], pair, PAIR_OF_RANKS, tiler)
            _enlarge_job(pair, paths)
    return paths


def _tile(kind: str, sources: list[Path], targets: list[Path], size: str, tiler: Path) -> None:
    with tempfile.TemporaryDirectory(dir=targets[0].parent) as scratch:
        opened = [_unpacked(source, Path(scratch)) for source in sources]
        made = [Path(scratch) / f"made-{target.name}" for target in targets]
        how = ["kineto", "--size"] if kind == "torch" else ["nsys", "--kernels"]
        command = [sys.executable, str(tiler), how[0], *map(str, opened), "-o", *map(str, made), how[1], size]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for path, target in zip(made, targets, strict=True):
            path.rename(target)


def _unpacked(source: Path, folder: Path) -> Path:
    target = folder / source.name.removesuffix(".gz")
    with gzip.open(source, "rb") as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return target


def _enlarge_job(pair: list[Path], targets: list[Path]) -> None:
    """Write a pair of ranks again and again as ranks 2k and 2k+1 of one job: as many pipelines of two stages."""
    targets[0].parent.mkdir(parents=True, exist_ok=True)
    texts = [path.read_bytes() for path in pair]
    for rank, target in enumerate(targets):
        target.write_bytes(as_rank(texts[rank % 2], rank, len(targets)))


def as_rank(text: bytes, rank: int, world_size: int) -> bytes:
    """Return the recording of rank 0 or 1 of a job of two as that of another rank of a larger job, eight GPUs a host.

    Ranks, the process and its GPU get other numbers; times and everything else stay.
    """
    shift = rank - rank % 2
    gpu = str(rank % 8).encode()
    (pid,) = re.findall(rb'"pid": (\d+), "tid": 0,\s+"args": \{\s+"labels": "CPU"', text)
    own = re.search(rb'"device": (\d+)', text)
    assert own is not None
    members = ", ".join(map(str, range(max(world_size, 2)))).encode()
    changes: list[tuple[bytes, bytes | Callable[[re.Match[bytes]], bytes]]] = [
        (rb"(?<= )(src|dst)=(\d+)", lambda m: b"%s=%d" % (m[1], int(m[2]) + shift)),
        (rb'"pid": %s,' % pid, b'"pid": %d,' % (int(pid) + 10 * shift)),
        (rb'"pid": %s, "tid": (?=[1-9])' % own[1], b'"pid": @, "tid": '),
        (rb'"device": %s\b' % own[1], b'"device": @'),
        (b"@", gpu),
        (rb'"rank": \d+, "world_size": \d+', b'"rank": %d, "world_size": %d' % (rank, max(world_size, 2))),
        (rb'"pg_size": \d+, "ranks": \[[^\]]*\]', b'"pg_size": %d, "ranks": [%s]' % (max(world_size, 2), members)),
    ]
    for pattern, made in changes:
        text = re.sub(pattern, made, text)
    return text


def counted(wanted: Input, folder: Path) -> dict[str, object]:
    """Return what an input holds: ``files`` with their sizes, ``events``, and ``kernels``.

    Events are those of ``traceEvents``, metadata included, or the rows of kernels, copies and API calls.
    """
    paths = wanted.paths(folder)
    files = [{"name": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size} for path in paths]
    if wanted.kind == "torch":
        counts = [_occurrences(path, _EVENT, b'"cat": "kernel"') for path in paths]
        events, kernels = (sum(column) for column in zip(*counts, strict=True))
    else:
        events = kernels = 0
        for path in paths:
            db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            kernels += db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
            there = [name for name in _OPERATIONS if name in tables]
            events += sum(db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in there)
            db.close()
        events += kernels
    return {"files": files, "events": events, "kernels": kernels}


def _occurrences(path: Path, *patterns: bytes) -> list[int]:
    """Count texts in a file, piece by piece at ends of lines: none of them spans two lines."""
    counts = [0] * len(patterns)
    with path.open("rb") as file:
        rest = b""
        while piece := file.read(_PIECE):
            whole, _, rest = (rest + piece).rpartition(b"\n")
            counts = [n + whole.count(p) for n, p in zip(counts, patterns, strict=True)]
    return [n + rest.count(p) for n, p in zip(counts, patterns, strict=True)]

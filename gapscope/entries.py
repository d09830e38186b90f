"""What is kept on disk to be used again: folders that appear at once and whole, and texts that vouch for themselves.

A bit that went bad on the disk must not surface as a number: a text carries a digest of itself, and the index of a
folder the checksums of its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_PIECE_BYTES = 1 << 20
_WORKERS = 4
_ABANDONED_S = 86_400.0  # what was begun so long ago is of a run that was killed
_STAGING = ".new-"
_CHECKSUMS = "checksums"


@contextlib.contextmanager
def staged(entry: Path) -> Iterator[Path]:
    """Give a folder to fill that becomes the entry when all went well, and goes when not.

    Raises:
        OSError: It cannot be written to.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(entry.parent)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=entry.parent))
    try:
        yield staging
        try:
            staging.rename(entry)
        except OSError:
            if not entry.is_dir():  # not there because another run was faster
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def discard(entry: Path) -> None:
    """Remove an entry that cannot be used; it is made again."""
    shutil.rmtree(entry, ignore_errors=True)


def write_index(folder: Path, name: str, said: Mapping[str, Any]) -> None:
    """Write what a folder says of itself, with the checksums of all files that are in it.

    Raises:
        OSError: It cannot be written.
    """
    # One after the other: a thread that writes while the interpreter goes down can start no others.
    checksums = {file: _checksum(path) for file, path in _files(folder, name).items()}
    (folder / name).write_text(sealed(json.dumps({**said, _CHECKSUMS: checksums})))


def read_index(folder: Path, name: str) -> dict[str, Any]:
    """Return what a folder says of itself.

    Raises:
        OSError: It cannot be read.
        ValueError: It, or a file of the folder, is not what was written, or a file is missing or new.
    """
    said: dict[str, Any] = json.loads(unsealed((folder / name).read_text()))
    if said.pop(_CHECKSUMS, None) != _checksums(_files(folder, name)):
        raise ValueError(f"{folder}: not the files that were written")
    return said


def sealed(text: str) -> str:
    r"""Return a text with a digest of itself in front.

    >>> unsealed(sealed("a\nb"))
    'a\nb'
    """
    return f"{digest_of(text.encode())}\n{text}"


def unsealed(said: str) -> str:
    """Return the text that was sealed.

    Raises:
        ValueError: It is not what was written.
    """
    digest, _, text = said.partition("\n")
    if digest != digest_of(text.encode()):
        raise ValueError("not the text that was written")
    return text


def digest_of(content: bytes | memoryview) -> str:
    """Return a digest of some bytes; see `gapscope.cache.content_digest` for why this one."""
    return hashlib.sha256(content).hexdigest()[:40]


def write_at_once(path: Path, text: str) -> None:
    """Write a small file that others see whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=_STAGING, delete=False) as file:
        beside = Path(file.name)
        try:
            file.write(text)
            file.flush()
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


def _files(folder: Path, index: str) -> dict[str, Path]:
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file() and p != folder / index}


def _checksums(files: Mapping[str, Path]) -> dict[str, int]:
    with ThreadPoolExecutor(_WORKERS) as pool:
        return dict(zip(files, pool.map(_checksum, files.values()), strict=True))


def _checksum(file: Path) -> int:
    total, buffer = 0, memoryview(bytearray(_PIECE_BYTES))
    with file.open("rb", buffering=0) as stream:
        while got := stream.readinto(buffer):
            total = zlib.crc32(buffer[:got], total)
    return total


def _remove_abandoned(folder: Path) -> None:
    """Remove what runs that were killed had begun."""
    for staging in folder.glob(f"{_STAGING}*"):
        with contextlib.suppress(OSError):
            if time.time() - staging.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(staging, ignore_errors=True)

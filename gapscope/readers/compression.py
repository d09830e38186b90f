"""Bytes of a file, through gzip or zstd if its content says so, as far as they can be had."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

HEAD_BYTES = 64 * 1024
_RAW_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class ByteStream:
    """Decompressed bytes of one file, in pieces.

    A broken compressed stream does not raise: what came before the damage is delivered, and `damage`
    then says what was wrong. Plain files are passed through.

    Attributes:
        compression: ``gzip``, ``zstd`` or None.
        damage: One phrase on what is wrong with the compressed stream; None if nothing (or not yet seen).
        compressed_bytes: Bytes consumed from the disk so far.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            magic = file.read(4)
        self.compression = "gzip" if magic[:2] == _GZIP else "zstd" if magic == _ZSTD else None
        self.damage: str | None = None
        self.compressed_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if self.compression == "gzip":
                yield from self._gzip(file)
            elif self.compression == "zstd":
                yield from self._zstd(file)
            else:
                while piece := file.read(_RAW_BYTES):
                    self.compressed_bytes += len(piece)
                    yield piece

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        fresh = True  # at the start of a member, nothing of it seen yet
        while raw := file.read(_RAW_BYTES):
            self.compressed_bytes += len(raw)
            while raw:
                try:
                    out = member.decompress(raw)
                except zlib.error as error:
                    if self.compressed_bytes > len(raw) and fresh and not raw.startswith(_GZIP):
                        return  # padding after the last member, as gzip itself tolerates
                    self.damage = f"the gzip stream is broken ({error})"
                    return
                fresh = False
                if out:
                    yield out
                raw = member.unused_data if member.eof else b""
                if member.eof:
                    raw = raw.lstrip(b"\0")
                    member, fresh = zlib.decompressobj(wbits=31), True
        if not fresh:
            tail = member.flush()
            if tail:
                yield tail
            self.damage = "the gzip stream ends before its own end"

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        counted = _CountingFile(file, self)
        reader = zstandard.ZstdDecompressor().stream_reader(counted, read_across_frames=True)
        produced = 0
        while True:
            try:
                out = reader.read(_RAW_BYTES)
            except zstandard.ZstdError as error:
                self.damage = f"the zstd stream is broken ({error})"
                return
            if not out:
                break
            produced += len(out)
            yield out
        if not _zstd_complete(self.path):
            self.damage = "the zstd stream ends before its own end"


class _CountingFile(io.RawIOBase):
    """Passes reads on and counts them in the stream."""

    def __init__(self, file: BinaryIO, stream: ByteStream) -> None:
        self._file, self._stream = file, stream

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._stream.compressed_bytes += len(data)
        return data


def _zstd_complete(path: Path) -> bool:
    """Tell if the last zstd frame of the file is whole (the streaming reader does not say)."""
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    started = False
    with path.open("rb") as file:
        while raw := file.read(_RAW_BYTES):
            while raw:
                if frame.eof:
                    frame, started = decompressor.decompressobj(), False
                try:
                    frame.decompress(raw)
                except zstandard.ZstdError:
                    return False
                started = True
                raw = frame.unused_data if frame.eof else b""
    return frame.eof or not started


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the first ``size`` decompressed bytes; fewer if the file is short or broken."""
    out = bytearray()
    for piece in ByteStream(path):
        out += piece
        if len(out) >= size:
            break
    return bytes(out[:size])


def copy_decompressed(path: Path, destination: Path) -> str | None:
    """Write the decompressed file to ``destination``; return what was wrong with the stream, or None."""
    stream = ByteStream(path)
    with destination.open("wb") as out:
        for piece in stream:
            out.write(piece)
    return stream.damage

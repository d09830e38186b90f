"""Bytes of a file, through gzip or zstd if its content says so, as far as they can be had."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

HEAD_BYTES = 64 * 1024
_RAW_BYTES = 64 * 1024  # small, since it is what is gone through again byte by byte where a stream breaks
_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


class ByteStream:
    """Decompressed bytes of one file, in pieces of at most about a megabyte.

    A broken compressed stream does not raise: all bytes before the damage are delivered, and `damage`
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
                while piece := file.read(_PIECE_BYTES):
                    self.compressed_bytes += len(piece)
                    yield piece

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        member, fresh = zlib.decompressobj(wbits=31), False  # fresh: a member is over, nothing of the next one seen
        while raw := file.read(_RAW_BYTES):
            self.compressed_bytes += len(raw)
            while raw := _without_padding(raw) if fresh else raw:
                before, fresh = member.copy(), False
                try:
                    out = member.decompress(raw, _PIECE_BYTES)
                except zlib.error as error:
                    yield _until_error(before, raw)
                    self.damage = f"the gzip stream is broken ({error})"
                    return
                if out:
                    yield out
                raw = member.unconsumed_tail
                if member.eof:
                    raw, member, fresh = member.unused_data, zlib.decompressobj(wbits=31), True
        if not fresh:
            if out := member.flush():  # what the limit of the last call held back
                yield out
            self.damage = None if member.eof else "the gzip stream ends before its own end"

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        counted = _CountingFile(file, self)
        reader = zstandard.ZstdDecompressor().stream_reader(cast("BinaryIO", counted), read_across_frames=True)
        while True:
            try:
                out = reader.read(_PIECE_BYTES)
            except zstandard.ZstdError as error:
                self.damage = f"the zstd stream is broken ({error})"
                return
            if not out:
                break
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


def _without_padding(raw: bytes) -> bytes:
    """Return what may be the next gzip member: zeros are padding, and gzip itself ignores anything else."""
    raw = raw.lstrip(b"\0")
    return raw if _GZIP.startswith(raw[:2]) else b""


def _until_error(member: zlib._Decompress, raw: bytes) -> bytes:
    """Return what a gzip member gives before the byte that breaks it.

    A call that fails gives nothing at all, so the bytes are handed over one by one.
    """
    out = bytearray()
    try:
        for k in range(len(raw)):
            out += member.decompress(raw[k : k + 1])
    except zlib.error:
        pass
    return bytes(out)


def _zstd_complete(path: Path) -> bool:
    """Tell if the last zstd frame of the file is whole, by the headers of its blocks: the reader does not say."""
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        at = 0
        while at < size:
            file.seek(at)
            header = file.read(18)
            if int.from_bytes(header[:4], "little") in _ZSTD_SKIPPABLE:
                at += 8 + int.from_bytes(header[4:8], "little")
                continue
            try:
                frame = zstandard.get_frame_parameters(header)
                at += zstandard.frame_header_size(header)
            except zstandard.ZstdError:
                return header[:4] != _ZSTD[: len(header)]  # a header cut off, or something else after the last frame
            last = False
            while not last:
                file.seek(at)
                block = file.read(3)
                if len(block) < 3:
                    return False
                word = int.from_bytes(block, "little")
                last, kind, length = bool(word & 1), word >> 1 & 3, word >> 3
                at += 3 + (1 if kind == 1 else length)  # kind 1: one byte, repeated
            at += 4 if frame.has_checksum else 0
        return at == size


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

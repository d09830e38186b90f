"""Compressed streams: whole, cut, broken, several in one file."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard

from gapscope.readers.compression import HEAD_BYTES, ByteStream, copy_decompressed, head

_NOISE = random.Random(7).randbytes(300_000)
_TEXT = b"".join(b'{"ph": "X", "ts": %d.125, "dur": 3},\n' % k for k in range(60_000))  # 2.2 MB: several pieces


def _written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


def _read(path: Path) -> tuple[bytes, str | None]:
    stream = ByteStream(path)
    pieces = list(stream)
    assert all(0 < len(piece) <= 2 << 20 for piece in pieces)
    return b"".join(pieces), stream.damage


def _zstd(data: bytes, **options: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(**options).compressobj()  # type: ignore[arg-type]
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize("content", [b"", b"x", _TEXT, _NOISE], ids=["empty", "byte", "text", "noise"])
@pytest.mark.parametrize(
    ("compress", "name"),
    [(bytes, None), (gzip.compress, "gzip"), (_zstd, "zstd"), (zstandard.ZstdCompressor().compress, "zstd")],
    ids=["plain", "gzip", "zstd-stream", "zstd-sized"],
)
def test_whole_files_come_back_unchanged(tmp_path, compress, name, content):
    raw = compress(content)
    path = _written(tmp_path, raw)
    stream = ByteStream(path)
    assert stream.compression == name
    assert b"".join(stream) == content
    assert stream.damage is None
    assert stream.compressed_bytes == len(raw)


@pytest.mark.parametrize("cut", [1, 4, 8, 10, 200, 5_000])
def test_cut_gzip_gives_all_that_is_there(tmp_path, cut):
    raw = gzip.compress(_TEXT)
    got, damage = _read(_written(tmp_path, raw[:-cut]))
    assert damage == "the gzip stream ends before its own end"
    assert _TEXT.startswith(got)
    assert len(got) == len(_TEXT) if cut <= 8 else len(got) > len(_TEXT) - 40 * cut
    if cut > 8:
        assert len(got) < len(_TEXT)


@pytest.mark.parametrize("cut", [1, 2, 3, 40, 300])
@pytest.mark.parametrize("checksum", [False, True])
def test_cut_zstd_is_noticed(tmp_path, cut, checksum):
    raw = _zstd(_NOISE, write_checksum=checksum)
    got, damage = _read(_written(tmp_path, raw[:-cut]))
    assert damage == "the zstd stream ends before its own end"
    assert _NOISE.startswith(got)
    assert len(got) >= len(_NOISE) - 128 * 1024 - cut


def test_zstd_cut_within_the_header_of_its_frame(tmp_path):
    got, damage = _read(_written(tmp_path, _zstd(_TEXT)[:5]))
    assert (got, damage) == (b"", "the zstd stream ends before its own end")


def test_broken_gzip_gives_every_byte_before_the_damage(tmp_path):
    raw = bytearray(gzip.compress(_NOISE, compresslevel=0))  # stored: a byte of the file is a byte of the content
    at, whole = 10, 0
    for _ in range(2):  # over the headers of the first two blocks
        length = int.from_bytes(raw[at + 1 : at + 3], "little")
        at, whole = at + 5 + length, whole + length
    raw[at + 1] ^= 0xFF  # the length of the third no longer matches its complement
    got, damage = _read(_written(tmp_path, bytes(raw)))
    assert got == _NOISE[:whole]
    assert damage is not None
    assert damage.startswith("the gzip stream is broken")


def test_wrong_checksum_is_damage_but_loses_nothing(tmp_path):
    raw = bytearray(gzip.compress(_TEXT))
    raw[-8] ^= 1
    got, damage = _read(_written(tmp_path, bytes(raw)))
    assert got == _TEXT
    assert damage is not None
    assert "incorrect data check" in damage


def test_broken_zstd_is_damage(tmp_path):
    raw = bytearray(_zstd(_TEXT))
    raw[len(raw) // 2 :] = b"\xff" * (len(raw) - len(raw) // 2)
    got, damage = _read(_written(tmp_path, bytes(raw)))
    assert damage is not None
    assert "zstd stream" in damage
    assert len(got) < len(_TEXT)


def test_several_gzip_members_and_padding(tmp_path):
    raw = gzip.compress(b"one ") + b"\0" * 700 + gzip.compress(b"two ") + gzip.compress(b"three") + b"\0" * 70_000
    assert _read(_written(tmp_path, raw)) == (b"one two three", None)


def test_what_follows_the_last_gzip_member_is_ignored(tmp_path):
    assert _read(_written(tmp_path, gzip.compress(b"one") + b"trailer")) == (b"one", None)


def test_second_gzip_member_cut(tmp_path):
    got, damage = _read(_written(tmp_path, gzip.compress(b"one") + gzip.compress(b"two")[:-6]))
    assert got == b"onetwo"
    assert damage == "the gzip stream ends before its own end"


def test_member_boundary_at_the_boundary_of_a_read(tmp_path):
    first = gzip.compress(_NOISE[: 64 * 1024 - 41], compresslevel=0)
    assert len(first) < 64 * 1024
    padding = b"\0" * (64 * 1024 - len(first) - 1)
    raw = first + padding + gzip.compress(b"after")  # the second member's first byte is the last of the first read
    assert _read(_written(tmp_path, raw)) == (_NOISE[: 64 * 1024 - 41] + b"after", None)


def test_several_zstd_frames_with_a_skippable_one(tmp_path):
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"
    raw = _zstd(b"one ") + skippable + _zstd(b"two", write_checksum=True)
    assert _read(_written(tmp_path, raw)) == (b"one two", None)


def test_tiny_input_that_unpacks_to_much_comes_in_pieces(tmp_path):
    got, damage = _read(_written(tmp_path, gzip.compress(bytes(30 << 20))))
    assert (len(got), damage) == (30 << 20, None)


def test_head_is_the_beginning_of_the_content(tmp_path):
    assert head(_written(tmp_path, gzip.compress(_TEXT))) == _TEXT[:HEAD_BYTES]
    assert head(_written(tmp_path, _zstd(_TEXT)), 100) == _TEXT[:100]
    assert head(_written(tmp_path, b"short")) == b"short"
    assert head(_written(tmp_path, gzip.compress(_TEXT)[:300]))[:30] == _TEXT[:30]


def test_copy_decompressed_tells_the_damage(tmp_path):
    out = tmp_path / "out"
    assert copy_decompressed(_written(tmp_path, gzip.compress(b"all")), out) is None
    assert out.read_bytes() == b"all"
    assert copy_decompressed(_written(tmp_path, gzip.compress(b"all")[:-3]), out) is not None
    assert out.read_bytes() == b"all"

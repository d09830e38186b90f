import contextlib
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.errors import GapscopeError, InputError, MalformedTraceError, UnknownFormatError
from gapscope.loadgen import read_latencies
from tests.loadgen.files import SGLANG_FILE, VLLM_FILE, Request, sglang, vllm, write


@pytest.mark.parametrize("make", [vllm, sglang])
def test_compressed_is_the_same(tmp_path, make):
    plain, packed = (write(tmp_path / name, make([Request()] * 3)) for name in ("r.json", "r.json.gz"))
    assert read_latencies(plain).requests.equals(read_latencies(packed).requests)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", UnknownFormatError, "empty"),
        (b"gapscope mark log 1\n", UnknownFormatError, "starts with"),
        (b"[1, 2]", UnknownFormatError, "does not hold JSON objects"),
        (b'{"traceEvents": []}', UnknownFormatError, "traceEvents"),
        (b"{}", UnknownFormatError, "none"),
        (b'{"a": ' + b"[" * 200_000, MalformedTraceError, "breaks"),
        (b'{"a": 1' + b"0" * 5000 + b"}", MalformedTraceError, "breaks"),
        (b"\xff\xfe{}", UnknownFormatError, "does not hold"),
    ],
)
def test_what_is_no_result_says_so(tmp_path, content, error, says):
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(error, match=says):
        read_latencies(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="cannot be opened"):
        read_latencies(tmp_path / "no.json")
    with pytest.raises(InputError, match="no regular file"):
        read_latencies(tmp_path)


def test_a_cut_file_is_no_run(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(VLLM_FILE.read_bytes()[:-500])
    with pytest.raises(MalformedTraceError, match="cut off"):
        read_latencies(path)


def test_runs_before_the_cut_count(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(SGLANG_FILE.read_bytes() * 2)
    path.write_bytes(path.read_bytes()[:-500])
    read = read_latencies(path)
    assert read.requests.equals(read_latencies(SGLANG_FILE).requests)
    assert [f.code for f in read.findings] == ["load_file_damaged"]


def test_a_broken_stream_whose_text_is_whole_is_said(tmp_path):
    path = tmp_path / "r.json.gz"
    path.write_bytes(gzip.compress(VLLM_FILE.read_bytes())[:-8])  # the checksum at its end is missing
    assert [f.code for f in read_latencies(path).findings] == ["load_file_damaged"]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, len(VLLM_FILE.read_bytes()) - 1), st.integers(1, 255))
def test_one_flipped_byte_never_ends_in_another_error(tmp_path_factory, at, bits):
    data = bytearray(VLLM_FILE.read_bytes())
    data[at] ^= bits
    path = tmp_path_factory.mktemp("flipped") / "r.json"
    path.write_bytes(data)
    with contextlib.suppress(GapscopeError):
        assert read_latencies(path).requests.height >= 24


FIELDS = sorted(json.loads(VLLM_FILE.read_text()))
ODD = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.floats(), st.integers(), st.lists(st.none(), max_size=30)
)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(FIELDS), st.one_of(ODD, st.dictionaries(st.text(max_size=2), ODD, max_size=2)))
def test_an_odd_field_never_ends_in_another_error(tmp_path_factory, name, value):
    record = json.loads(VLLM_FILE.read_text()) | {name: value}
    path = write(tmp_path_factory.mktemp("odd") / "r.json", record)
    assert read_latencies(path).requests.height >= 24

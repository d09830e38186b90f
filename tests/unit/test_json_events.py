"""The scanner against a reading of the same bytes by json.loads, on real files, on random ones and on damaged ones."""

from __future__ import annotations

import decimal
import gzip
import json
import re
import string
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.readers import kineto_scan
from gapscope.readers.base import no_progress
from gapscope.readers.json_events import CLASS, DURATION, NAME, NULL, PID, PID_IS_TEXT, START, TEXTS, TID, TID_IS_TEXT
from gapscope.readers.kineto_fields import COLUMNS, Arg, Row
from gapscope.readers.kineto_strings import StringTable, repaired

SHARED = Path(__file__).parents[2].parent / "shared" / "traces"
REAL = [p for part in ("lab", "public") for p in sorted((SHARED / part).rglob("*.json*"))]

CLASSES = {
    "kernel": Row.KERNEL, "gpu_memcpy": Row.MEMCPY, "memcpy": Row.MEMCPY, "gpu_memset": Row.MEMSET,
    "cuda_runtime": Row.CALL, "cuda_driver": Row.CALL, "runtime": Row.CALL, "cuda_sync": Row.SYNC,
    "user_annotation": Row.ANNOTATION, "gpu_user_annotation": Row.GPU_SPAN, "overhead": Row.OVERHEAD,
    "cpu_op": None, "operator": None,
}  # fmt: skip
INTEGERS = {
    "External id": Arg.EXTERNAL, "external id": Arg.EXTERNAL, "correlation": Arg.CORRELATION, "stream": Arg.STREAM,
    "device": Arg.DEVICE, "context": Arg.CONTEXT, "bytes": Arg.BYTES, "graph node id": Arg.GRAPH_NODE,
    "wait_on_cuda_event_id": Arg.EVENT_ID, "wait_on_cuda_event_record_corr_id": Arg.RECORD_CORRELATION,
    "wait_on_stream": Arg.WAIT_ON_STREAM, "In msg nelems": Arg.IN_ELEMENTS, "Out msg nelems": Arg.OUT_ELEMENTS,
    "Group size": Arg.GROUP_SIZE, "Src Rank": Arg.SRC_RANK, "Dst Rank": Arg.DST_RANK, "Rank": Arg.RANK, "Seq": Arg.SEQ,
    "fromDevice": Arg.FROM_DEVICE, "toDevice": Arg.TO_DEVICE,
}  # fmt: skip
TEXTS_OF = {
    "cuda_sync_kind": Arg.SYNC_KIND, "Collective name": Arg.COLLECTIVE, "dtype": Arg.DTYPE,
    "Process Group Name": Arg.GROUP, "Process Group Ranks": Arg.GROUP_RANKS, "kind": Arg.KIND, "name": Arg.TITLE,
}  # fmt: skip
TEXT_COLUMNS = {NAME, *TEXTS_OF.values()}


# ---- the oracle ------------------------------------------------------------------------------------------------------


def nanoseconds(value):
    text = Decimal(value) if isinstance(value, str) else value
    with decimal.localcontext(prec=60):
        return int((Decimal(text) * 1000).to_integral_value(decimal.ROUND_HALF_EVEN))


def integer(value):
    if isinstance(value, str):
        if re.fullmatch(r"-?\d+", value):
            return int(value) if abs(int(value)) < 9223372036854775800 else None
        return int(value, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]+", value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def class_of(event):
    name = event.get("name", "")
    if event.get("ph") == "M":
        return {"thread_name": Row.THREAD_NAME, "process_name": Row.PROCESS_NAME}.get(name)
    if event.get("ph") != "X":
        return None
    category = event.get("cat")
    if category is None:
        return Row.ANNOTATION if name.startswith("gapscope::") else None
    found = CLASSES.get(category.lower())
    if category.lower() in ("cpu_op", "operator"):
        is_op = name.startswith("gapscope::") or name == "c10d::send"
        found = Row.COMM if name == "record_param_comms" else Row.OP if is_op else None
        if name.startswith("autograd::engine::evaluate_function"):
            found = Row.AUTOGRAD
    return found


def expected_rows(events):
    """Rows as dictionaries of the columns with a value; threads of autograd once."""
    rows, autograd = [], set()
    for event in events:
        if (row := class_of(event)) is None:
            continue
        out = {CLASS: row}
        if "name" in event:
            out[NAME] = event["name"]
        for key, column in (("pid", PID), ("tid", TID)):
            if key in event:
                number = integer(event[key])
                out[column] = event[key] if number is None else number
        if row == Row.AUTOGRAD:
            if (out.get(PID), out.get(TID)) in autograd:
                continue
            autograd.add((out.get(PID), out.get(TID)))
        if "ts" in event:
            out[START] = nanoseconds(event["ts"])
        if "dur" in event:
            out[DURATION] = nanoseconds(event["dur"])
        args = event.get("args")
        for key, value in (args if isinstance(args, dict) else {}).items():
            if key in INTEGERS:
                out.pop(INTEGERS[key], None)  # two keys of one column: the last one counts
                if (number := integer(value)) is not None:
                    out[INTEGERS[key]] = number
            elif key in TEXTS_OF and isinstance(value, str):
                out[TEXTS_OF[key]] = value
        rows.append(out)
    return rows


class Memory:
    """Stands for a file whose content is at hand."""

    content = b""
    damage = None

    def __init__(self, path):
        del path
        self.compressed_bytes = 0

    def __iter__(self):
        yield from (self.content[k : k + 777] for k in range(0, len(self.content), 777))


def scan(content, monkeypatch, piece=1 << 16):
    """Scan bytes; return what was found, and the rows as `expected_rows` has them."""
    found, rows, texts, _ = scan_raw(content, monkeypatch, piece)
    return found, [_decoded(row, texts) for row in rows]


def scan_raw(content, monkeypatch, piece):
    monkeypatch.setattr(Memory, "content", content)
    monkeypatch.setattr(kineto_scan, "ByteStream", Memory)
    monkeypatch.setattr(kineto_scan, "_PIECE", piece)
    parts = [np.empty((0, COLUMNS), dtype=np.int64)]
    found = kineto_scan.scan_file(Path(__file__), lambda rows: parts.append(rows.copy()), no_progress)
    texts, repairs = found.strings.readable(found.string_count)
    return found, np.concatenate(parts).tolist(), texts.to_list(), repairs


def _decoded(row, texts):
    out = {column: value for column, value in enumerate(row) if value != NULL and column != TEXTS}
    for column in TEXT_COLUMNS & out.keys():
        out[column] = texts[out[column]]
    for column, bit in ((PID, PID_IS_TEXT), (TID, TID_IS_TEXT)):
        if row[TEXTS] & bit:
            out[column] = texts[out[column]]
    return out


def comparable(rows):
    """Autograd rows may come more than once, and only their pid and tid count."""
    plain = [row for row in rows if row[CLASS] != Row.AUTOGRAD]
    return plain, {(row.get(PID), row.get(TID)) for row in rows if row[CLASS] == Row.AUTOGRAD}


def loads(content):
    return json.loads(content, parse_float=Decimal, strict=False)


# ---- real files ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL, reason="the shared recordings are not here")
@pytest.mark.parametrize("path", REAL, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_real_files_are_read_as_json_reads_them(path, monkeypatch):
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    document = loads(content)
    found, rows = scan(content, monkeypatch)
    expected = expected_rows(document["traceEvents"])
    assert comparable(rows) == comparable(expected)
    assert len(expected) > 10
    assert found.events == len(document["traceEvents"])
    assert found.whole
    assert (found.damaged, found.stream_damage, found.size) == (0, None, len(content))
    for key in ("baseTimeNanoseconds", "schemaVersion", "distributedInfo", "deviceProperties"):
        assert found.values.get(key) == document.get(key)
    kept = sum(row[CLASS] != Row.AUTOGRAD for row in rows)
    assert sum(found.dropped.values()) + kept == found.events


# ---- random files ----------------------------------------------------------------------------------------------------

_texts = st.one_of(
    st.sampled_from(
        ["gapscope::submit src=0 dst=1 seq=7", "record_param_comms", "aten::mm", "stream 7", "", "a\\b", '"']
    ),
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40),
)
_numbers = st.one_of(
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.sampled_from([-1, 4294967295, "0x0", "0x1f", "2560", "x1", 4096.0, None, True, 0.5]),
)
_times = st.one_of(
    st.integers(-(10**15), 2 * 10**15),
    st.decimals(-(10**12), 10**13, places=3),
    st.decimals(0, 10**6, places=7),
    st.builds(lambda m, e: Decimal(f"{m}e{e}"), st.integers(0, 99999), st.integers(-12, 9)),
)
_deep = st.recursive(
    st.one_of(_texts, _numbers),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=6,
)
_args = st.dictionaries(
    st.one_of(st.sampled_from([*INTEGERS, *TEXTS_OF, "grid", "Ev Idx"]), _texts),
    st.one_of(_numbers, _texts, _deep),
    max_size=8,
)


@st.composite
def _events(draw):
    event = {"ph": draw(st.sampled_from(["X", "X", "X", "M", "s", "f", "i"]))}
    optional = {
        "cat": st.sampled_from([*CLASSES, "Kernel", "CPU_OP", "ac2g", "python_function", "strange"]),
        "name": st.one_of(st.sampled_from(["thread_name", "process_name", "record_param_comms"]), _texts),
        "pid": st.one_of(st.integers(-1, 10**7), _texts),
        "tid": st.one_of(st.integers(0, 10**15), _texts),
        "dur": _times,
        "args": _args,
        "id": st.integers(0, 9),
        "bp": st.just("e"),
    }
    for key, strategy in optional.items():
        if draw(st.integers(0, 9)):
            event[key] = draw(strategy)
    if "args" in event:  # other values of these are kept as they are written
        event["args"] = {k: str(v) if k in TEXTS_OF else v for k, v in event["args"].items()}
    event["ts"] = draw(_times)
    return {key: event[key] for key in draw(st.permutations(list(event)))}


class _Writer:
    """Writes JSON with white space and escapes as they come."""

    def __init__(self, choices):
        self._choices = choices
        self._at = 0

    def _choose(self, options):
        self._at += 1
        return options[self._choices[self._at % len(self._choices)] % len(options)]

    def _space(self):
        return self._choose(["", " ", "\n  ", "\t", "", "\r\n" + " " * 40])

    def write(self, value):
        if isinstance(value, dict):
            inner = self._join(
                f"{self.write(k)}{self._space()}:{self._space()}{self.write(v)}" for k, v in value.items()
            )
            return "{" + inner + "}"
        if isinstance(value, list):
            return "[" + self._join(self.write(v) for v in value) + "]"
        if isinstance(value, Decimal):
            return self._choose([f"{value:f}", f'"{value:f}"', f"{value:e}", f"{value:E}"])
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=self._choose([True, False])).replace("/", self._choose(["/", "\\/"]))
        return json.dumps(value)

    def _join(self, parts):
        return self._space() + f"{self._space()},{self._space()}".join(parts) + self._space()


@pytest.mark.parametrize("text", ["`", "@", "/", ":", "g", "0x`", "0xG", "0x@", "1`", "-`"])
def test_signs_beside_the_digits_are_no_digits(text, monkeypatch):
    event = {"ph": "X", "cat": "kernel", "tid": text, "ts": 0, "dur": 1}
    _, rows = scan(json.dumps({"traceEvents": [event]}).encode(), monkeypatch)
    assert [row[TID] for row in rows] == [text]


@settings(max_examples=300, deadline=None)
@given(
    events=st.lists(_events(), min_size=1, max_size=12),
    choices=st.lists(st.integers(0, 999), min_size=1, max_size=50),
    bare=st.booleans(),
    piece=st.sampled_from([256, 700, 1 << 16]),
)
def test_random_events_are_read_as_json_reads_them(events, choices, bare, piece):
    writer = _Writer(choices)
    text = writer.write(events if bare else {"before": [1, {"ph": "X"}], "traceEvents": events, "after": "]}"})
    document = loads(text)
    with pytest.MonkeyPatch.context() as monkeypatch:
        found, rows = scan(text.encode(), monkeypatch, piece)
    expected = expected_rows(document if bare else document["traceEvents"])
    assert comparable(rows) == comparable(expected)
    assert found.whole
    assert (found.events, found.damaged) == (len(events), 0)


_lines = st.text(alphabet=string.printable + "äß\u2028𝄞", max_size=30)


@settings(max_examples=200, deadline=None)
@given(st.lists(_lines, max_size=200), st.integers(1, 64))
def test_the_table_of_strings_grows_and_knows_each_string_once(texts, room):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kineto_scan, "StringTable", lambda arena_bytes: StringTable(arena_bytes=1024, strings=16))
        rows = [{"ph": "X", "cat": "user_annotation", "ts": k, "dur": 1, "name": t} for k, t in enumerate(texts * 2)]
        found, got = scan(json.dumps(rows).encode(), monkeypatch, piece=256 * room)
    assert [row[NAME] for row in got] == texts * 2
    assert found.string_count == len(set(texts))


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0.0", 0),
        ("-12.5", -12_500),
        ("1712345678901234.567", 1_712_345_678_901_234_567),
        ("1712345678901234", 1_712_345_678_901_234_000),
        ("5111274489795.443", 5_111_274_489_795_443),
        ("100.7", 100_700),
        ("0.0005", 0),  # halves to the even neighbour
        ("0.0015", 2),
        ("0.00150000000000000001", 2),
        ("0.00250000000000000001", 3),
        ("0.0004999999", 0),
        ("-0.0016", -2),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ("12345e-4", 1_234),  # 1234.5
        ("12355e-4", 1_236),  # 1235.5
        ("1.7123456789012345678e15", 1_712_345_678_901_234_568),
        ("0.000000000000000000001e24", 1_000_000),
        ("0e999999999", 0),
        ('"1712345678901234.567"', 1_712_345_678_901_234_567),
        ('"7"', 7_000),
        ("000012.5", 12_500),
    ],
)
def test_times_are_exact(text, value, monkeypatch):
    content = f'[{{"ph": "X", "cat": "kernel", "ts": {text}, "dur": {text}}}]'.encode()
    found, rows = scan(content, monkeypatch)
    assert found.damaged == 0
    assert (rows[0][START], rows[0][DURATION]) == (value, value)


@pytest.mark.parametrize(
    "text",
    [
        *["NaN", "nan", "-nan", "inf", "-inf", "Infinity", "-Infinity", "-nan(ind)", "1.#INF", "null", "true"],
        *["-", "--1", "1e", "1.2.3", "1e400", "9999999999999999999", '""', '"x"', '"1 2"', "[1]", '{"a": 1}'],
    ],
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_an_impossible_time_costs_its_event_only(key, text, monkeypatch):
    times = {"ts": "5", "dur": "6"} | {key: text}
    bad = f'{{"ph": "X", "cat": "kernel", "ts": {times["ts"]}, "dur": {times["dur"]}, "args": {{"stream": 1}}}}'
    good = '{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "args": {"stream": 7}}'
    found, rows = scan(f"[{good}, {bad}, {good}]".encode(), monkeypatch)
    assert [row[Arg.STREAM] for row in rows] == [7, 7]
    assert (found.events, found.damaged, found.first_damage) == (3, 1, 3 + len(good))


@pytest.mark.parametrize("text", ["NaN", "nan", "-nan", "inf", "-inf", "Infinity", "-Infinity", "-nan(ind)"])
def test_bare_infinities_in_arguments_are_no_value(text, monkeypatch):
    args = f'{{"bytes": {text}, "GB/s": {text}, "stream": 3}}'
    content = f'[{{"ph": "X", "cat": "gpu_memcpy", "ts": 1, "dur": 0, "args": {args}}}]'
    found, rows = scan(content.encode(), monkeypatch)
    assert rows == [{CLASS: Row.MEMCPY, START: 1_000, DURATION: 0, Arg.STREAM: 3}]
    assert (found.non_finite, found.damaged) == (2, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096.0", 4096),
        ("4.096e3", 4096),
        ('"0x0"', 0),
        ('"0xFF"', 255),
        ('"-1"', -1),
        ("4294967295", 2**32 - 1),
        ("18446744073709551615", None),
        ("12884901890", 12_884_901_890),
        ("3000000000000000000", 3 * 10**18),
        ("0.5", None),
        ("null", None),
        ('""', None),
        ('"12 "', None),
        ("[1, 2]", None),
        ('{"a": "}"}', None),
    ],
)
def test_integers_of_arguments(text, value, monkeypatch):
    content = f'[{{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "args": {{"graph node id": {text}, "stream": 3}}}}]'
    found, rows = scan(content.encode(), monkeypatch)
    assert found.damaged == 0
    assert rows[0].get(Arg.GRAPH_NODE) == value
    assert rows[0][Arg.STREAM] == 3


# ---- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text", "bad"),
    [
        (rb"plain", "plain", -1),
        (rb"a\u00e4\n\"\\\/", 'a\xe4\n"\\/', -1),
        ("ä𝄞".encode(), "ä𝄞", -1),
        (rb"\ud834\udd1e", "𝄞", -1),
        (rb"x\ud834y", "x\ufffdy", -1),
        (b"a\x01b\x1fc", "a\ufffdb\ufffdc", 1),
        (b"ab\xffc", "ab\ufffdc", 2),
        (b"\xff\x01", "\ufffd\ufffd", 0),
        (rb"a\cuda\new", "a\\cuda\new", 1),
        (rb"a\tmp", "a\tmp", -1),
        (rb"a\users", "a\\users", 1),
        (rb"\u12", "\\u12", 0),
        (rb"C:\dir" + b"\\", "C:\\dir\\", 2),
        (b"\x01" + rb"\q", "\ufffd\\q", 0),
        ("ä".encode() + rb"\\\q", "ä\\\\q", 4),
        (b"", "", -1),
    ],
)
def test_texts_are_repaired_and_the_first_offence_is_told(raw, text, bad):
    assert repaired(raw) == (text, bad)
    repaired(raw)[0].encode()


def test_offsets_of_repaired_texts_are_those_of_the_file(monkeypatch):
    content = b'[{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "name": "ab\xffc"},\n' * 3 + b"]"
    _, rows, texts, repairs = scan_raw(content.replace(b"\n[", b"\n"), monkeypatch, piece=256)
    assert [texts[row[NAME]] for row in rows] == ["ab\ufffdc"] * 3
    assert (repairs.uses, repairs.first_byte) == (3, content.index(b"\xff"))


def test_text_of_a_windows_path_that_swallows_its_quote(monkeypatch):
    content = (
        rb'[{"ph": "X", "cat": "kernel", "name": "C:\dir\", "pid": 7, "ts": 1, "dur": 2}, {"ph": "M", "name": "x"}]'
    )
    found, rows = scan(content, monkeypatch)
    assert rows == [{CLASS: Row.KERNEL, NAME: "C:\\dir\\", PID: 7, START: 1_000, DURATION: 2_000}]
    assert (found.events, found.damaged) == (2, 0)


# ---- damage ----------------------------------------------------------------------------------------------------------

_KINETO = b"""{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "H"}],
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9,
    "ts": 10.001, "dur": 3.5,
    "args": {
      "External id": 1, "Input Dims": [[1, 2], [], [[3]]], "Concrete Inputs": ["", "[1, 2]"]
    }
  },
  {
    "ph": "s", "id": 5, "pid": 9, "tid": 9, "ts": 10.001,
    "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "void f<int [2]>(char const*, {x})", "pid": 0, "tid": 7,
    "ts": 11.002, "dur": 4.000,
    "args": {
      "device": 0, "stream": 7, "correlation": 5, "grid": [1, 1, 1], "blocks per SM": 0.5
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
    "ts": 10.003, "dur": 0.800,
    "args": {
      "cbid": 211, "correlation": 5
    }
  },
  {
    "name": "thread_name", "ph": "M", "ts": 10.000, "pid": 9, "tid": 9,
    "args": {
      "name": "thread 9 (python3)"
    }
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "gapscope::step step=9", "pid": 9, "tid": 9,
    "ts": 9.004, "dur": 8.000,
    "args": {
      "External id": 2
    }
  }
  ],
  "baseTimeNanoseconds": 1790857026000000000
}"""
_OPENS = [m.start() for m in re.finditer(rb"(?<=\n)  \{\n", _KINETO)]
_LIST = (_OPENS[0], _KINETO.index(b"\n  ],"))


def _by_event(rows):
    """Rows by the position of their event: each has another start."""
    return {row.get(START): row for row in rows}


_WHOLE = _by_event(expected_rows(loads(_KINETO)["traceEvents"]))
_STARTS = [10_001, 10_001, 11_002, 10_003, 10_000, 9_004]  # of the six events, in the order of the file


def _event_at(position):
    return max(sum(at <= position for at in _OPENS) - 1, 0)


@pytest.mark.parametrize("piece", [256, 1 << 16])
@pytest.mark.parametrize("change", [b"", b'"', b"{", b"}", b"[", b"]", b"\\", b",", b":", b"\0", b"\xff", b"7"])
def test_any_one_byte_broken_costs_at_most_the_event_it_is_in(change, piece, monkeypatch):
    """Each byte of the list is taken out or replaced; events before and after come out unchanged."""
    step = 1 if piece == 256 else 3
    for position in range(*_LIST, step):
        if _KINETO[position : position + 1] == change:
            continue
        content = _KINETO[:position] + change + _KINETO[position + 1 :]
        found, rows = scan(content, monkeypatch, piece)
        got = _by_event(rows)
        hit = _STARTS[_event_at(position)]
        for start, row in _WHOLE.items():
            if start != hit:
                assert got.get(start) == row, (position, content[position - 20 : position + 20])
        assert found.values.get("baseTimeNanoseconds") == 1790857026000000000, position
        assert found.whole, position
        assert found.damaged <= 1, position
        assert found.first_damage in range(-1, position + 20), position


@pytest.mark.parametrize("piece", [256, 1 << 16])
def test_cut_anywhere_keeps_the_whole_events(piece, monkeypatch):
    ends = [m.start() + 3 for m in re.finditer(rb"\n  \}", _KINETO)]
    for cut in range(_LIST[0], len(_KINETO)):
        found, rows = scan(_KINETO[:cut], monkeypatch, piece)
        whole = sum(end < cut for end in ends)
        assert found.events == whole, cut
        assert {row[START] for row in rows} == set(_STARTS[2:whole]), cut
        assert found.damaged == 0
        assert not found.whole


def test_a_long_stretch_of_garbage_costs_what_it_covers(monkeypatch):
    garbage = bytes(range(1, 256)) * 40
    at = _OPENS[3] + 30
    content = _KINETO[:at] + garbage + _KINETO[at:]
    found, rows = scan(content, monkeypatch, piece=256)
    assert _by_event(rows) == {start: row for start, row in _WHOLE.items() if start != 10_003}
    assert found.damaged >= 1
    assert found.whole


def test_a_value_longer_than_the_limit_is_damage(monkeypatch):
    monkeypatch.setattr(kineto_scan, "_LONGEST", 4096)
    content = _KINETO.replace(b'"aten::mm"', b'"gapscope::' + b"x" * 50_000 + b'"')
    found, rows = scan(content, monkeypatch, piece=256)
    assert _by_event(rows) == _WHOLE
    assert found.damaged == 1


@pytest.mark.parametrize("rest", [b"", b"]", b",", b", ]", b"}", b"]}", b"\0\0\0", b"]\n\n"])
@pytest.mark.parametrize("bare", [False, True])
def test_brackets_missing_at_the_end(rest, bare, monkeypatch):
    event = b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2}'
    found, rows = scan((b"[" if bare else b'{"traceEvents": [') + event + b"," + event + rest, monkeypatch)
    assert len(rows) == 2
    assert (found.events, found.damaged) == (2, 0)
    assert found.whole == (b"]" in rest and (bare or rest == b"]}"))


def test_commas_too_many_or_missing_lose_nothing(monkeypatch):
    event = b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2, "args": {"stream": 3,},}'
    found, rows = scan(b'{"traceEvents": [,' + event + b" " + event + b",,\n" + event + b",],}", monkeypatch)
    assert [row[Arg.STREAM] for row in rows] == [3, 3, 3]
    assert found.whole
    assert found.damaged == 0


def test_elements_that_are_no_events_are_damage(monkeypatch):
    event = b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 2}'
    found, rows = scan(b"[" + event + b', {"name": "no type"}, {}, ' + event + b"]", monkeypatch)
    assert len(rows) == 2
    assert (found.events, found.damaged) == (4, 2)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, len(_KINETO)), st.integers(0, 300), st.sampled_from([256, 1 << 16]))
def test_any_content_ends_without_an_error(noise, at, skipped, piece):
    with pytest.MonkeyPatch.context() as monkeypatch:
        found, rows = scan(_KINETO[:at] + noise + _KINETO[at + skipped :], monkeypatch, piece)
        scan(noise, monkeypatch, piece)
        scan(b"[" + noise, monkeypatch, piece)
    assert len(rows) <= found.events

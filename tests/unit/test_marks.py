"""Marks of text and compact form become one table."""

from __future__ import annotations

import polars as pl
import pytest
from gapscope_instrumentation.contract import HOST_MEMORY, SEQ_MODULUS, format_mark, pack_group, pack_pair, unpack

from gapscope.marks import parse_marks, unwrap, without_definitions
from gapscope.schema import MARKS, conform
from gapscope.testing import Recording, trace


def ranges(*rows):
    default = {"process": 1, "thread": 1, "start_ns": 0, "end_ns": 1, "kind": "push_pop"}
    return conform(pl.DataFrame([{**default, **r} for r in rows], infer_schema_length=None), "ranges").lazy()


def one(**row):
    marks, findings = parse_marks(ranges(row), "f")
    assert findings == []
    return marks.row(0, named=True)


def test_text_form_in_any_order_with_unknown_fields_kept():
    m = one(name="gapscope::submit seq=57 bytes=24576 dst=1 src=0 step=9 color=blue mb=2 dir=bwd channel=3 slot=1")
    wanted = {"mark": "submit", "src": 0, "dst": 1, "seq": 57, "size_bytes": 24576, "step": 9, "mb": 2, "dir": "bwd"}
    assert {k: m[k] for k in wanted} == wanted
    assert (m["channel"], m["slot"], m["form"]) == (3, 1, "text")
    assert "color=blue" in m["fields"]


def test_defaults_are_channel_and_slot_zero_and_nothing_else():
    m = one(name="gapscope::receive src=3 dst=4 seq=0")
    assert (m["channel"], m["slot"]) == (0, 0)
    assert [m[k] for k in ("step", "mb", "size_bytes", "dir", "group", "job", "stated_rank")] == [None] * 7


def test_host_memory_is_an_end():
    m = one(name="gapscope::submit src=2 dst=host:0 seq=5 kind=kv")
    assert (m["src"], m["dst"], m["kind"]) == (2, -1, "kv")


def test_a_field_name_within_another_is_not_that_field():
    m = one(name="gapscope::produce src=0 dst=1 seq=1 src_stage=7 dst_stage=8 xstep=3")
    assert (m["src"], m["dst"], m["src_stage"], m["dst_stage"], m["step"]) == (0, 1, 7, 8, None)


@pytest.mark.parametrize("message", ["gapscope::submit", "submit"])
def test_compact_form(message):
    m = one(name=message, domain="gapscope", payload=pack_pair(300, 17, 5, 12345))
    wanted = {"mark": "submit", "src": 300, "dst": 17, "channel": 5, "seq": 12345, "form": "compact", "group": None}
    assert {k: m[k] for k in wanted} == wanted


def test_compact_group():
    m = one(name="gapscope::submit", domain="gapscope", payload=pack_group(9, 1, 77))
    assert (m["group"], m["src"], m["dst"], m["channel"], m["seq"]) == ("9", None, None, 1, 77)


def test_a_foreign_domain_with_a_mark_name_and_payload_is_no_mark():
    marks, findings = parse_marks(ranges({"name": "submit", "domain": "other", "payload": 5}), "f")
    assert (marks.height, findings) == (0, [])


def test_gpu_spans_are_no_marks():
    marks, _ = parse_marks(ranges({"name": "gapscope::submit src=0 dst=1 seq=1", "kind": "gpu_span"}), "f")
    assert marks.height == 0


@pytest.mark.parametrize(
    "name",
    [
        "gapscope::submit src=0 dst=1",
        "gapscope::submit src=x dst=1 seq=1",
        "gapscope::submit src=-1 dst=1 seq=1",
        "gapscope::submit src=2147483648 dst=1 seq=1",
        "gapscope::nonsense src=0 dst=1 seq=1",
    ],
)
def test_a_mark_without_a_key_is_counted_and_named(name):
    marks, findings = parse_marks(ranges({"name": name}, {"name": "gapscope::step step=4"}), "f")
    assert marks["mark"].to_list() == ["step"]
    assert (findings[0].code, findings[0].count) == ("unusable_marks", 1)
    assert name in findings[0].message


def compact(seq, start, mark="submit"):
    return {
        "name": f"gapscope::{mark}",
        "domain": "gapscope",
        "payload": pack_pair(0, 1, 0, seq),
        "start_ns": start,
        "end_ns": start + 1,
    }


def test_the_sequence_number_is_unwrapped_alike_on_both_ends():
    top = SEQ_MODULUS - 2
    sends, _ = parse_marks(ranges(*[compact(top + i, 100 * i) for i in range(5)]), "f")
    late, _ = parse_marks(ranges(*[compact(top + i, 100 * i + 50, "receive") for i in range(3, 5)]), "g")
    both = unwrap(pl.concat([late, sends]))
    assert both["seq"].to_list() == [top + 3, top + 4, top, top + 1, top + 2, top + 3, top + 4]


def test_host_memory_in_compact_form():
    m = one(name="gapscope::submit", domain="gapscope", payload=pack_pair(-1, 0, 0, 3))
    assert (m["src"], m["dst"], m["seq"]) == (-1, 0, 3)
    m = one(name="gapscope::submit", domain="gapscope", payload=pack_pair(2, -6, 1, 4))
    assert (m["src"], m["dst"], m["channel"]) == (2, -6, 1)
    m = one(name="gapscope::submit", domain="gapscope", payload=pack_pair(HOST_MEMORY - 1, 0, 0, 3))
    assert m["src"] == HOST_MEMORY - 1


def test_a_request_in_compact_form_has_the_number_within_its_process():
    m = one(name="gapscope::request", domain="gapscope", payload=12)
    assert (m["seq"], m["step"], m["fields"]) == (12, None, None)


def test_name_is_that_of_the_handoff():
    m = one(name="gapscope::submit src=0 dst=1 seq=1 name=hidden")
    assert (m["name"], m["text"]) == ("hidden", "gapscope::submit src=0 dst=1 seq=1 name=hidden")
    assert one(name="gapscope::submit src=0 dst=1 seq=1")["name"] is None


def test_definitions_are_usable_and_no_marks_of_handoffs():
    rows = [
        {"name": "gapscope::process rank=3 host=a pid=9 gpu=GPU-1 contract=2", "kind": "instant", "domain": "gapscope"},
        {"name": "gapscope::group group=tp0 number=17 rank=3", "kind": "instant", "domain": "gapscope"},
        {"name": "gapscope::step step=4"},
    ]
    marks, findings = parse_marks(ranges(*rows), "f")
    assert findings == []
    assert marks.select("mark", "stated_rank", "group").rows() == [
        ("process", 3, None),
        ("group", 3, "tp0"),
        ("step", None, None),
    ]
    assert without_definitions(marks)["mark"].to_list() == ["step"]


@pytest.mark.parametrize("full", [3 * SEQ_MODULUS + 5, 5, SEQ_MODULUS])
def test_a_number_in_full_tells_the_multiple(full):
    low = full % SEQ_MODULUS
    rows = [compact((low + i) % SEQ_MODULUS, 100 * i) for i in range(4)]
    text = {"name": f"gapscope::submit src=0 dst=1 seq={full + 2}", "start_ns": 205, "end_ns": 206}
    marks, _ = parse_marks(ranges(*rows, text), "f")
    seqs = unwrap(marks).filter(pl.col("form") == "compact")["seq"].to_list()
    assert seqs == [full + i for i in range(4)]


def test_the_nearest_number_in_full_counts():
    rows = [compact(5, 1_000), compact(6, 1_100)]
    texts = [
        {"name": f"gapscope::submit src=0 dst=1 seq={k * SEQ_MODULUS + 5}", "start_ns": at, "end_ns": at + 1}
        for k, at in ((1, 0), (2, 990), (3, 5_000))
    ]
    marks, _ = parse_marks(ranges(*rows, *texts), "f")
    seqs = unwrap(marks).filter(pl.col("form") == "compact")["seq"].to_list()
    assert seqs == [2 * SEQ_MODULUS + 5, 2 * SEQ_MODULUS + 6]


def test_units_are_not_unwrapped():
    rows = [
        {"name": "gapscope::request", "domain": "gapscope", "payload": n, "start_ns": n, "end_ns": n}
        for n in (SEQ_MODULUS + 7, 3)
    ]
    marks, _ = parse_marks(ranges(*rows), "f")
    assert unwrap(marks)["seq"].to_list() == [SEQ_MODULUS + 7, 3]


def test_step_in_compact_form():
    assert one(name="gapscope::step", domain="gapscope", payload=12)["step"] == 12


def test_contract_packs_and_checks():
    assert unpack(pack_pair(65535, 65534, 15, SEQ_MODULUS - 1)) == (False, 65535, 65534, 15, SEQ_MODULUS - 1)
    assert 0 <= pack_group(65535, 15, SEQ_MODULUS - 1) < 2**63
    with pytest.raises(ValueError, match="src=65536 does not fit into 16 bits"):
        pack_pair(65536, 0, 0, 0)
    with pytest.raises(ValueError, match="unknown mark"):
        format_mark("send", src=0)
    with pytest.raises(ValueError, match="one word"):
        format_mark("submit", name="two words")


def test_marks_table_has_the_columns_of_the_schema():
    r = Recording("a", pid=5)
    r.mark("submit src=0 dst=1 seq=1", 0, 1)
    marks = trace(r).marks
    assert marks.columns == list(MARKS)
    assert marks["rank"].to_list() == [0]

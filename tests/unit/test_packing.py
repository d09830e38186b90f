"""Packed tables give back what was put in, whatever is null."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gapscope.readers.packing import is_packed, joined, packed, unpacked
from gapscope.schema import READER_TABLES, conform, empty_reader_table

NUMBERS = st.none() | st.integers(-5, 5) | st.integers(-(2**62), 2**62)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "process": st.integers(0, 2**40),
            "start_ns": NUMBERS,
            "end_ns": NUMBERS,
            "correlation": NUMBERS,
            "device": st.none() | st.integers(0, 7),
            "kind": st.sampled_from(["kernel", "memcpy"]),
            "name": st.sampled_from(["a", "b"]),
            "copy_kind": st.none() | st.just("HtoD"),
        }
    ),
    max_size=6,
)


def ops(rows):
    return conform(pl.DataFrame(rows, infer_schema_length=None), "ops") if rows else empty_reader_table("ops")


@settings(deadline=None, max_examples=200)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_what_is_packed_comes_back(parts):
    frames = [ops(rows) for rows in parts]
    whole = joined(packed(frame) for frame in frames)
    assert is_packed(whole.schema, "ops")
    assert_frame_equal(unpacked(whole.lazy(), "ops").collect(), pl.concat(frames))


def test_columns_without_a_value_are_left_out_and_read_as_null():
    frame = ops([{"process": 5, "start_ns": 1, "end_ns": 3, "kind": "kernel", "name": "a"}] * 3)
    few = packed(frame)
    assert few.columns == ["process", "start_ns", "duration_ns", "kind", "name"]
    assert few["duration_ns"].dtype == pl.Int8
    assert unpacked(few.lazy(), "ops").select("graph_node").collect()["graph_node"].to_list() == [None] * 3
    assert unpacked(few.lazy(), "ops").filter(pl.col("stream").is_null()).select("end_ns").collect().height == 3


@pytest.mark.parametrize("table", READER_TABLES)
def test_empty_tables_have_all_columns(table):
    empty = empty_reader_table(table)
    assert_frame_equal(unpacked(packed(empty).lazy(), table).collect(), empty)
    assert is_packed(packed(empty).schema, table)


@pytest.mark.parametrize(
    "schema",
    [
        {"process": pl.Int64, "start_ns": pl.Int64, "unknown": pl.Int64},
        {"process": pl.Int64, "start_ns": pl.Int64, "kind": pl.String},
        {"start_ns": pl.Int64},
    ],
)
def test_other_columns_are_no_table(schema):
    assert not is_packed(pl.Schema(schema), "ops")

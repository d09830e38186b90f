"""Looking rows up by correlation id and putting them in order of their lanes, against plain versions."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.clocks import align
from gapscope.correlation import Rows, expand, greatest, groups, places
from gapscope.events import find_ends
from gapscope.graph.items import find_items
from gapscope.lanes import lanes_of, order_by_lane
from gapscope.testing import Recording, trace

EXAMPLES = settings(max_examples=60, deadline=None)
SMALL = st.integers(0, 3)
ROWS = st.lists(st.tuples(SMALL, SMALL, st.none() | st.integers(-3, 6)), max_size=30)
SCHEMA = {"source": pl.Int32, "process": pl.Int64, "correlation": pl.Int64}


def frame(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@EXAMPLES
@given(ROWS, ROWS)
def test_spans_hold_exactly_the_rows_with_the_id_in_their_order(rows, asked):
    index = Rows(frame(rows))
    low, high = index.spans(frame(asked))
    found = [index.order[a:b].tolist() for a, b in zip(low, high, strict=True)]
    assert found == [[i for i, row in enumerate(rows) if row == key and key[2] is not None] for key in asked]
    assert index.first(frame(asked)).tolist() == [rows_found[0] if rows_found else -1 for rows_found in found]


@EXAMPLES
@given(ROWS)
def test_rows_stand_where_the_whole_order_says(rows):
    index = Rows(frame(rows))
    places_asked = np.arange(len(index.order), dtype=np.int32)[::-1]
    assert index.at(places_asked).tolist() == index.order[::-1].tolist()


@EXAMPLES
@given(ROWS, st.sampled_from([1, 4096]))
def test_places_of_a_table_that_is_not_made_are_its_groups(rows, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gapscope.correlation._FEW", few)
        found, expected = places(frame(rows).lazy(), len(rows)), groups(frame(rows))
    numbers = np.arange(len(rows))
    assert {k: numbers[w].tolist() for k, w in found.items()} == {k: numbers[w].tolist() for k, w in expected.items()}


def test_processes_that_take_turns_are_told_apart():
    rows = [(0, k % 2, k // 2) for k in range(20_000)]  # more turns than are looked at one by one
    where = groups(frame(rows))
    assert {key: len(of_key) for key, of_key in where.items()} == {(0, 0): 10_000, (0, 1): 10_000}
    index = Rows(frame(rows))
    assert index.first(frame([(0, 1, 7), (0, 0, 9_999), (0, 1, 10_000)])).tolist() == [15, 19_998, -1]


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=12), st.data())
def test_expand_and_greatest_say_what_stands_in_spans(spans, data):
    low, high = (np.array(part, np.int32) for part in ([a for a, _ in spans], [a + n for a, n in spans]))
    at, span = expand(low, high)
    expected = [(a + k, i) for i, (a, n) in enumerate(spans) for k in range(n)]
    assert list(zip(at.tolist(), span.tolist(), strict=True)) == expected
    values = data.draw(st.lists(st.integers(0, 3), min_size=10, max_size=10))
    full = high > low
    best = [max(range(a, a + n), key=lambda k: (values[k], k)) for a, n in spans if n]
    assert greatest(low[full], high[full], np.array(values, np.int64)).tolist() == best


@pytest.mark.parametrize("step", [1, 7, 16, 17, 33, 500, -1, -90])
def test_ids_are_found_however_far_the_next_one_is(step):
    ids = np.cumsum(np.random.default_rng(3).integers(0, 4, 5_000))  # some repeat, some are not there
    asked = np.arange(ids[0] - 2, ids[-1] + 3)[::step]
    one = {"source": 0, "process": 1}
    index = Rows(pl.DataFrame({"correlation": ids}).with_columns(**{k: pl.lit(v) for k, v in one.items()}))
    low, high = index.spans(pl.DataFrame({"correlation": asked}).with_columns(**{k: pl.lit(v) for k, v in one.items()}))
    there = np.isin(asked, ids)
    assert (high > low).tolist() == there.tolist()
    assert low[there].tolist() == np.searchsorted(ids, asked[there]).tolist()
    assert high[there].tolist() == np.searchsorted(ids, asked[there], side="right").tolist()


LANES = st.lists(st.tuples(SMALL, st.none() | SMALL, st.integers(0, 5), st.integers(0, 5)), max_size=40)


@EXAMPLES
@given(LANES, st.booleans(), st.booleans())
def test_rows_are_ordered_by_lane_and_keys_and_equal_ones_stay(rows, nulls_last, second_down):
    schema = {"process": pl.Int64, "stream": pl.Int64, "one": pl.Int64, "two": pl.Int64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    lanes, code = lanes_of(table, ["process", "stream"], nulls_last=nulls_last)
    keys = [table["one"].to_numpy(), table["two"].to_numpy()]
    order = order_by_lane(code, lanes.height, keys, second_down=second_down)
    numbered = table.with_row_index()
    down = [False, False, False, second_down]
    expected = numbered.sort(
        "process", "stream", "one", "two", descending=down, maintain_order=True, nulls_last=nulls_last
    )["index"].to_list()
    assert (list(range(len(rows))) if order is None else order.tolist()) == expected
    assert (order is None) == (expected == list(range(len(rows))))
    assert lanes[code].rows() == table.select("process", "stream").rows()


@pytest.mark.parametrize("piece", [1 << 17, 97])
def test_many_lanes_are_told_apart(piece, monkeypatch):
    monkeypatch.setattr("gapscope.lanes._PIECE", piece)
    n = 5_000
    table = pl.DataFrame({"process": [k % 71 for k in range(n)], "stream": [k % 67 for k in range(n)]})
    lanes, code = lanes_of(table, ["process", "stream"], nulls_last=True)
    lazily, same = lanes_of(table.lazy(), ["process", "stream"], nulls_last=True)
    assert (lazily.rows(), same.tolist()) == (lanes.rows(), code.tolist())
    assert lanes.rows() == sorted(set(table.rows()))
    assert lanes[code].rows() == table.rows()


def items_of(recording):
    recorded = trace(recording)
    ends = find_ends(recorded)
    return find_items(recorded, align(recorded, ends), ends)


def test_what_was_enqueued_around_a_call():
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 100)
    r.kernel(10, 200, 210)  # correlation 1
    r.kernel(20, 220, 230, stream=9)  # 2
    replayed = r.call(30, family="graph_launch")  # 3
    r.op(replayed, 240, 260)
    r.op(replayed, 250, 255)
    r.kernel(40, 300, 310)  # 4
    items = items_of(r)
    asked = pl.DataFrame(
        {"source": 0, "process": 10, "device": 0, "stream": [7, 7, 7, 9, 8, 7], "id": [0, 1, 3, 3, 3, None]},
        schema={"source": pl.Int32, "process": pl.Int64, "device": pl.Int32, "stream": pl.Int64, "id": pl.Int64},
    )
    up_to = items.streams.beside(asked, "device", "stream", "id", "op", behind=False)["op"]
    starts = [None if op is None else int(items.start[op]) for op in up_to]
    assert starts == [None, 200, 250, 220, None, None]  # of a replayed graph the last
    from_on = items.streams.beside(asked, "device", "stream", "id", "op", behind=True)["op"]
    starts = [None if op is None else int(items.start[op]) for op in from_on]
    assert starts == [200, 200, 240, None, None, None]  # of a replayed graph the first
    keys = asked.with_columns(id=pl.Series([1, 2, 3, 4, 5, None]))
    first = items.by_correlation(keys, "id", "op")["op"]
    assert [None if op is None else int(items.start[op]) for op in first] == [200, 220, 240, 300, None, None]
    last = items.by_correlation(keys, "id", "op", last=True)["op"]
    assert [None if op is None else int(items.end[op]) for op in last] == [210, 230, 260, 310, None, None]
    calls = items.calls_by_correlation(keys, "id", "call")["call"]
    assert [None if c is None else int(items.start[c]) for c in calls] == [10, 20, 30, 40, None, None]
    assert items.ops_at(up_to.drop_nulls())["correlation"].dtype == pl.Int64  # whatever is kept
    items.forget()
    assert items.by_correlation(keys, "id", "op")["op"].to_list() == first.to_list()


def test_streams_say_where_their_operations_stand():
    r = Recording("rank0", pid=10)
    r.mark("produce src=0 dst=1 seq=1", 0, 100)
    for k in range(4):
        r.kernel(10 + k, 100 * k + 100, 100 * k + 150, stream=(9, 7)[k % 2])
    assert items_of(r).streams.table.select("stream", "first", "until").rows() == [(7, 0, 2), (9, 2, 4)]

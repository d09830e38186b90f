"""Tiles by cause and rank: what each handoff spends on them, against plain sums."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.cause_names import CAUSE, CAUSES
from gapscope.whatif.classes import Classes

CLASSES = st.tuples(st.sampled_from(list(CAUSES)[:3]), st.sampled_from([None, -1, 0, 7, 10**12]))
HANDOFFS = st.lists(st.lists(st.tuples(CLASSES, st.integers(1, 99)), max_size=6), max_size=6)


@settings(deadline=None)  # compiled on the way
@given(HANDOFFS)
def test_classes_equal_plain_sums(handoffs):
    rows = [(9 - number, *of, length) for number, tiles in enumerate(handoffs) for of, length in tiles]
    schema = {"handoff": pl.UInt32, "cause": CAUSE, "rank": pl.Int64, "length_ns": pl.Int64}
    found = Classes.of(pl.DataFrame(rows, schema=schema, orient="row"))
    classes = found.table.rows()
    assert len(set(classes)) == len(classes)
    assert [classes[k] for k in found.number] == [row[1:3] for row in rows]
    for i, row in enumerate(rows):
        same = [j for j, other in enumerate(rows) if other[:3] == row[:3]]
        assert found.total_ns[i] == sum(rows[j][3] for j in same)
        assert found.is_first[i] == (i == same[0])

"""Blocks of data: what goes into a page comes out of it."""

from __future__ import annotations

import polars as pl
import pytest

from gapscope.page.payload import frame_columns, pack

FRAME = pl.DataFrame(
    {
        "at_ns": [1795970127961275803, 1795970127961275904, 1795970127000000000],
        "far_ns": [5, 1795970127961275803, None],
        "lowest_ns": [-(2**63) + 10, 0, 2**62],
        "same": [7, 7, 7],
        "nothing": pl.Series([None, None, None], dtype=pl.Int64),
        "length_ns": [3_000_111, 12, 9_007_199_254_740_991],
        "maybe": [1, None, 3],
        "share": [0.1, None, 2.5],
        "is": [True, False, None],
        "name": pl.Series(["</script>", "µs → \N{SNOWMAN}", None], dtype=pl.Categorical),
    }
)
ZERO_NS = 1795970127961275803


@pytest.fixture
def decoded(seen):
    """Return a function that decodes columns with the page's own code."""
    page = seen()
    return lambda columns: page.evaluate("columns => gapscope.frameOf(columns)", columns)


def expected(values, zero_ns=0):
    """Integers that a double does not hold arrive as text."""
    shifted = [v if v is None or not zero_ns else v - zero_ns for v in values]
    return [str(v) if isinstance(v, int) and abs(v) >= 2**53 else v for v in shifted]


def test_a_frame_comes_back_as_it_was(decoded):
    frame = decoded(frame_columns(FRAME, ZERO_NS, ["at_ns", "far_ns"]))
    assert frame.pop("n") == 3
    zero = {"at_ns": ZERO_NS, "far_ns": ZERO_NS}
    assert frame == {name: expected(FRAME[name].to_list(), zero.get(name, 0)) for name in FRAME.columns}


def test_an_empty_frame_comes_back_empty(decoded):
    frame = decoded(frame_columns(FRAME.clear()))
    assert frame == {"n": 0, **{name: [] for name in FRAME.columns}}


def test_long_columns_are_compact():
    n = 100_000
    frame = pl.DataFrame({"at_ns": pl.int_range(n, eager=True) * 1_000 + ZERO_NS, "kind": ["kernel"] * n})
    assert len(pack(frame_columns(frame, ZERO_NS, ["at_ns"]))) < 2_000


def test_what_json_cannot_say_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        pack({"share": float("nan")})


def test_absolute_times_are_exact(seen):
    page = seen()
    zero = "1795970127961275803"
    shown = page.evaluate(
        "zero => [101, '-1795970127961275800', null].map(relative => gapscope.absoluteNs(relative, zero))", zero
    )
    assert shown == ["1795970127961275904", "3", "-"]

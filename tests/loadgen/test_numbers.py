import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.loadgen.numbers import DecimalText, nanoseconds, rate, seconds_text, total_nanoseconds, whole

NS = st.integers(0, 4 * 10**18)


@settings(deadline=None)
@given(NS)
def test_nanoseconds_survive_a_round_trip_through_decimal_seconds(ns):
    assert nanoseconds(DecimalText(seconds_text(ns))) == ns


@settings(deadline=None)
@given(NS, st.integers(-30, 30))
def test_an_exponent_changes_nothing(ns, exponent):
    text = (
        f"{Decimal(ns).scaleb(-9 - exponent)}E{exponent}" if "E" not in str(Decimal(ns).scaleb(-9 - exponent)) else None
    )
    if text is not None:
        assert nanoseconds(DecimalText(text)) == ns


def test_a_time_that_a_float_does_not_hold_is_exact():
    text = "1796033562.123456789"
    assert round(float(text) * 1e9) != 1_796_033_562_123_456_789
    assert nanoseconds(DecimalText(text)) == 1_796_033_562_123_456_789


@settings(deadline=None)
@given(st.floats(0, 1e6))
def test_what_python_writes_is_read_to_the_nearest_nanosecond(seconds):
    assert abs(nanoseconds(DecimalText(repr(seconds))) - Decimal(repr(seconds)) * 10**9) <= Decimal("0.5")


@settings(deadline=None)
@given(st.lists(NS.map(lambda ns: ns % 10**12), max_size=50))
def test_a_sum_is_the_sum(values):
    assert total_nanoseconds([DecimalText(seconds_text(ns)) for ns in values]) == sum(values)


@pytest.mark.parametrize(
    "odd", ["0.5", None, True, [], {}, -1, 5 * 10**9, *map(DecimalText, ("NaN", "Infinity", "-0.5", "1e300", "1e-99"))]
)
def test_what_is_no_duration_is_none(odd):
    expected = 0 if odd == "1e-99" else None
    assert nanoseconds(odd) == expected
    assert total_nanoseconds([DecimalText("0.5"), odd]) == (None if expected is None else 500_000_000)


def test_counts_and_rates():
    assert [whole(v) for v in (0, 7, True, -1, None, "7", 2**63)] == [0, 7, None, None, None, None, None]
    assert [rate(v) for v in ("inf", DecimalText("Infinity"), DecimalText("0.5"), 2)] == [math.inf, math.inf, 0.5, 2.0]
    assert [rate(v) for v in (0, -1, "trace", None, True, DecimalText("NaN"))] == [None] * 6

"""Numbers in the page are written as everywhere else."""

from __future__ import annotations

import random

from gapscope.wording import duration, percent, size


def numbers():
    rng = random.Random(7)
    edges = [scale * k + d for scale in (1, 10**3, 10**6, 10**9) for k in (1, 5, 10, 99, 100, 999) for d in (-1, 0, 1)]
    ties = [1_125, 2_375, 2_125, 10_250, 12_750, 99_950, 100_500, 101_500, 2_125_000, 12_250_000, 999_950, 9_995]
    spread = [rng.randrange(10 ** rng.randrange(1, 15)) for _ in range(4_000)]
    return [0, *edges, *ties, *spread, *(-v for v in ties), -940, 123_456_789_012_345]


def test_durations(seen):
    page = seen()
    values = numbers()
    shown = page.evaluate("values => values.map(v => gapscope.duration(v))", values)
    assert dict(zip(values, shown, strict=True)) == {v: duration(v) for v in values}


def test_durations_below_what_the_clocks_resolve(seen):
    page = seen()
    pairs = [(940, 2_900), (2_899, 2_900), (2_900, 2_900), (-5, 10), (0, 0), (0, 1)]
    shown = page.evaluate("pairs => pairs.map(([v, floor]) => gapscope.duration(v, floor))", pairs)
    assert shown == [duration(*pair) for pair in pairs]


def test_sizes_and_shares(seen):
    page = seen()
    sizes = [None, 0, 512, 1_023, 1_024, 24_576, 1_048_575, 4_194_304, 2**31, 3 * 2**40]
    assert page.evaluate("values => values.map(gapscope.sizeInBytes)", sizes) == [size(v) for v in sizes]
    shares = [0, 1e-9, 0.004, 0.005, 0.015, 0.025, 0.126, 0.5, 0.995, 1]
    assert page.evaluate("values => values.map(gapscope.percent)", shares) == [percent(v) for v in shares]

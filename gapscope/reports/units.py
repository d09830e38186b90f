"""Numbers as people read them, with their unit."""

from __future__ import annotations

_STEPS = ((1_000, "ns", 1), (1_000_000, "µs", 1_000), (1_000_000_000, "ms", 1_000_000))


def duration(ns: int | None, floor_ns: int = 0) -> str:
    """Return a duration with three significant digits or more and its unit.

    Args:
        ns: The duration; None is shown as a dash.
        floor_ns: What the clocks cannot resolve: smaller amounts are not printed.

    >>> [duration(n) for n in (None, 0, 940, 2_155, 401_300, 2_555_000, 1_684_000_000)]
    ['-', '0 ns', '940 ns', '2.15 µs', '401 µs', '2.56 ms', '1.68 s']
    >>> duration(940, floor_ns=2_900)
    '< 2.90 µs'
    """
    if ns is None:
        return "-"
    if abs(ns) < floor_ns:
        return f"< {duration(floor_ns)}"
    for limit, unit, scale in _STEPS:
        if abs(ns) < limit:
            return f"{ns} ns" if scale == 1 else f"{_three(ns / scale)} {unit}"
    return f"{_three(ns / 1e9)} s"


def signed(ns: int | None, unknown: str = "-") -> str:
    """Return a duration with its sign.

    >>> [signed(n) for n in (None, 0, -39_218, 55_003)]
    ['-', '0 ns', '-39.2 µs', '+55.0 µs']
    """
    if ns is None:
        return unknown
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def size(size_bytes: int | None) -> str:
    """Return a size with its unit.

    >>> [size(n) for n in (None, 512, 24_576, 4_194_304)]
    ['-', '512 B', '24.0 KiB', '4.00 MiB']
    """
    if size_bytes is None:
        return "-"
    if size_bytes < 1024:
        return f"{size_bytes} B"
    for unit, scale in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if size_bytes < scale * 1024 or unit == "GiB":
            return f"{_three(size_bytes / scale)} {unit}"
    raise AssertionError


def percent(share: float) -> str:
    """Return a share in whole percent; what is not nothing is not shown as nothing.

    >>> [percent(share) for share in (0.0, 0.004, 0.126, 1.0)]
    ['0%', '< 1%', '13%', '100%']
    """
    return "< 1%" if 0 < share < 0.005 else f"{share:.0%}"


def _three(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"

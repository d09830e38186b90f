"""How numbers, kernels and edges are written: the same in every report, figure and page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STEPS = ((1_000, "ns", 1), (1_000_000, "µs", 1_000), (1_000_000_000, "ms", 1_000_000))
_RETURN_TYPE = re.compile(r"\bvoid (?=[\w(:])")
_OPENS = {"<": ">", "(": ")"}

EVENT_WORDS = {
    "producer_finish": "producer finish",
    "submit": "submit",
    "receive_post": "receive post",
    "arrival": "arrival",
    "movement_start": "movement start",
    "available": "available",
    "consumer_start": "consumer start",
}
"""Events as figures and texts write them."""


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


def in_words(op: str | None, detail: str | None) -> str:
    """Return what a tile is of: the operation, and what is known beside; kernels without their arguments.

    >>> in_words("void add<4, half>(int)", "4096 bytes at 1.5 GB/s"), in_words("cudaX", "host time before cudaX")
    ('add: 4096 bytes at 1.5 GB/s', 'host time before cudaX')
    """
    if detail is None or (op and op in detail):
        return without_arguments(detail or op or "")
    return without_arguments(f"{op}: {detail}" if op else detail)


def without_arguments(text: str) -> str:
    """Return a text with every kernel in it short: no return type, template arguments or parameters.

    What does not close is left as it is, for then it is no kernel's name as a demangler writes it.

    >>> without_arguments("after void ns::(anonymous namespace)::add<4, std::array<int, 2> >(int, F()) of rank 0")
    'after ns::(anonymous namespace)::add of rank 0'
    >>> without_arguments("Memcpy HtoD (Pinned -> Device)"), without_arguments("f<(a"), without_arguments("a < b")
    ('Memcpy HtoD (Pinned -> Device)', 'f<(a', 'a < b')
    """
    kept: list[str] = []
    awaited: list[str] = []
    for char in text:
        after_name = bool(kept) and (kept[-1].isalnum() or kept[-1] == "_")
        if char in _OPENS and (awaited or after_name):
            awaited.append(_OPENS[char])
        elif awaited:
            if char == awaited[-1]:
                awaited.pop()
        else:
            kept.append(char)
    return text if awaited else _RETURN_TYPE.sub("", "".join(kept))


def edge_name(edge: Mapping[str, Any]) -> str:
    """Return an edge as people write it."""
    name = f"{_end(edge['src_rank'])} → {_end(edge['dst_rank'])}"
    if edge["group"] is not None:
        name = f"{edge['group']}: {name}"
    if edge["channel"]:
        name += f" ch {edge['channel']}"
    return name + (f" {edge['direction']}" if edge["direction"] else "")


def _end(rank: int | None) -> str:
    if rank is None:
        return "?"
    return f"host:{-1 - rank}" if rank < 0 else str(rank)

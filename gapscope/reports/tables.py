"""What the parts of the text report share: plain tables, and how an edge is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.table import Table

_RETURN_TYPE = re.compile(r"\bvoid (?=[\w(:])")
_OPENS = {"<": ">", "(": ")"}


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


def plain_table(*columns: str) -> Table:
    """Return an empty table; a ``>`` before a column's name sets it to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


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

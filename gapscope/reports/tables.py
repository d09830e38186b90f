"""What the parts of the text report share: plain tables, and how an edge is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.table import Table

_ARGUMENTS = re.compile(r"[<(].*")


def in_words(op: str | None, detail: str | None) -> str:
    """Return what a tile is of: the operation, a kernel without its arguments, and what is known beside.

    >>> in_words("void add<4, half>(int)", "4096 bytes at 1.5 GB/s"), in_words("cudaX", "host time before cudaX")
    ('add: 4096 bytes at 1.5 GB/s', 'host time before cudaX')
    """
    name = "" if op is None else _ARGUMENTS.sub("", op.removeprefix("void ")) or op
    if detail is None or (op and op in detail):
        return detail or name
    return f"{name}: {detail}" if name else detail


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

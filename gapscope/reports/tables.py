"""What the parts of the text report share: plain tables."""

from __future__ import annotations

from rich.table import Table


def plain_table(*columns: str) -> Table:
    """Return an empty table; a ``>`` before a column's name sets it to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table

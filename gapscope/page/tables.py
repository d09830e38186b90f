"""The tables of the text report as tables of a page: the same rows and words, made by the same functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


class Column(NamedTuple):
    """Head of a column; numbers stand to the right."""

    name: str
    is_number: bool = False


class PageTable(NamedTuple):
    """A table of a page.

    Attributes:
        columns: Heads.
        rows: Texts of the cells, as many as columns.
        edges: Number of the edge that each row is about; None: of none. Empty: no row is about an edge.
        colors: Name of a cause per row, whose color is shown before its first cell; empty: none.
    """

    columns: list[Column]
    rows: list[list[str]]
    edges: list[int | None] = []  # noqa: RUF012 - never changed
    colors: list[str] = []  # noqa: RUF012


Block = PageTable | str
"""A table, or a paragraph."""


def blocks(*parts: RenderableType) -> list[Block]:
    r"""Return what a report renders as tables and paragraphs; empty ones are left out.

    >>> blocks(Text("a"), Text(""), Group(Text("b\nc")))
    ['a', 'b', 'c']
    """
    return list(_blocks(parts))


def _blocks(parts: Iterable[RenderableType]) -> Iterator[Block]:
    for part in parts:
        if isinstance(part, Group):
            yield from _blocks(part.renderables)
        elif isinstance(part, Table):
            if part.row_count:
                yield page_table(part)
        else:
            yield from (line for line in _text(part).splitlines() if line.strip())


def page_table(table: Table) -> PageTable:
    """Return a table of the text report."""
    columns = [Column(_text(c.header), c.justify == "right") for c in table.columns]
    cells = [[_text(cell) for cell in column.cells] for column in table.columns]
    return PageTable(columns, [list(row) for row in zip(*cells, strict=True)])


def _text(part: object) -> str:
    return part.plain if isinstance(part, Text) else str(part)

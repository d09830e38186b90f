"""What the parts of the text report share: plain tables, and texts shown as they were recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline


class LiteralTable(Table):
    """A table whose texts are no markup: a kernel may be called ``void k[/](int)``."""

    def add_row(
        self, *renderables: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """Add a row; cells given as ``str`` are shown as they are."""
        cells = (Text(cell) if isinstance(cell, str) else cell for cell in renderables)
        super().add_row(*cells, style=style, end_section=end_section)


class Literal:
    """A report for a terminal: no text in it is markup, and no control character of a recorded name reaches it.

    They are left out, since they take no room in a line: an escape sequence in a name would move the cursor, rename
    the window, or hide lines.
    """

    def __init__(self, report: RenderableType) -> None:
        self._report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the report piece by piece."""
        for piece in console.render(self._report, options.update(markup=False, highlight=False)):
            yield piece if piece.control else Segment(without_controls(piece.text), piece.style)


def plain_table(*columns: str) -> Table:
    """Return an empty table; a ``>`` before a column's name sets it to the right."""
    table = LiteralTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        right = name.startswith(">")
        head = Text(name.removeprefix(">"))
        table.add_column(head, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def without_controls(text: str) -> str:
    r"""Return a text without what a terminal would act on; lines and tabs stay.

    >>> without_controls("k\x1b[31m\x07\tx")
    'k[31m\tx'
    """
    return _CONTROLS.sub("", text)

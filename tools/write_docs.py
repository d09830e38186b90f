"""Write the generated parts of the documentation: the command line, the tables, the files, the list of causes.

    python -m tools.write_docs

A generated part stands in a page between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``; what stands around
it is written by hand. `tests/docs/test_generated.py` fails where a page is not what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tools import docs_cli, docs_files, docs_tables, pictures

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"

PARTS: Mapping[str, Callable[[], str]] = {
    **docs_cli.PARTS,
    **docs_files.PARTS,
    **docs_tables.PARTS,
    **pictures.PARTS,
}
"""Name of a part to what makes it."""

PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w -]+) -->\n).*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL)


def names(text: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [match["name"] for match in PART.finditer(text)]


def filled(text: str) -> str:
    """Return a page with its generated parts made anew.

    Raises:
        KeyError: A part has a name that nothing makes.
    """
    return PART.sub(lambda m: f"{m['begin']}\n{PARTS[m['name']]().strip()}\n\n{m['end']}", text)


def pages() -> list[Path]:
    """Return all pages, in order of their paths."""
    return sorted(DOCS.rglob("*.md"))


def main() -> None:
    """Write all pages."""
    for page in pages():
        before = page.read_text()
        after = filled(before)
        if after != before:
            page.write_text(after)
            print(page.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()

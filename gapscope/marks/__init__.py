"""Marks: what the recordings hold of the contract, in all its forms, as one table.

`parsing` reads marks out of ranges, in text and in compact form; `compact` gives compact keys back what does not fit
into them, by all marks of a run; `logs` puts the marks of a trace and of the mark log of the same process together.
"""

from gapscope.marks.compact import unwrap, with_group_names
from gapscope.marks.logs import Link, adopt, fill, find_links
from gapscope.marks.parsing import parse_marks, without_definitions

__all__ = [
    "Link",
    "adopt",
    "fill",
    "find_links",
    "parse_marks",
    "unwrap",
    "with_group_names",
    "without_definitions",
]

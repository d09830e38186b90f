"""The tables as a page: every column with its type and its sentence, as `gapscope.schema` defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from gapscope import schema
from gapscope.analysis import TABLES
from gapscope.cause_names import CAUSES, OUTSIDE
from gapscope.graph.edges import EVIDENCE

ROWS_OF = {
    "handoffs": "handoff. A collective has one row per rank that waited.",
    "tiles": "tile: a stretch of one gap that one dependency held.",
    "units": "step or request that marks name.",
    "exposure": "part of a step's or request's own path.",
    "fixes": "cause and rank, replayed as gone from all handoffs (and all listed ones at once).",
    "slack": "handoff whose gap is explained: how much later it could have come.",
    "messages": "handoff whose bytes moved in two messages or more.",
    "interference": "kind of operation that was compared alone and beside others.",
    "waiting": "rank, and rank that its communication kernels waited for.",
    "alignment": "clock and window, against the reference or another clock.",
    "ops": "GPU operation: kernel, copy, fill, or a whole graph.",
    "calls": "host API call.",
    "syncs": "event record, wait or synchronization.",
    "ranges": "host annotation that is kept: NVTX, torch.",
    "comms": "record of a communication (peer, group, size).",
    "threads": "host thread.",
    "processes": "process of a file.",
    "streams": "CUDA stream of which the file says how it was made.",
    "sources": "file.",
    "marks": "mark of gapscope.",
}
"""Table to what a row of it is."""

_TYPES = {"Int64": "int64", "Int32": "int32", "String": "text", "Boolean": "bool", "Float64": "float64"}


def written_tables() -> str:
    """Return a section per table that an analysis writes."""
    return "\n\n".join(_section(name, getattr(schema, name.upper())) for name in TABLES)


def trace_tables() -> str:
    """Return a section per table of a loaded trace."""
    inner = {**schema.READER_TABLES, "sources": schema.SOURCES, "marks": schema.MARKS}
    return "\n\n".join(_section(name, table) for name, table in inner.items())


def _section(name: str, table: schema.Table) -> str:
    rows = [f"| `{column}` | {_type(c.dtype)} | {_cell(c.doc)} |" for column, c in table.items()]
    return "\n".join(
        [
            f"### {name}",
            "",
            f"One row per {ROWS_OF[name]}",
            "",
            "| column | type | what it says |",
            "|---|---|---|",
            *rows,
        ]
    )


def _type(dtype: pl.DataType | type[pl.DataType]) -> str:
    """Return the name of a type, of enumerations with their values."""
    if isinstance(dtype, pl.Enum):
        return "one of " + ", ".join(f"`{value}`" for value in dtype.categories)
    if isinstance(dtype, pl.List):
        return f"list of {_type(dtype.inner)}"
    if isinstance(dtype, pl.Struct):
        return "struct of " + ", ".join(f"`{field.name}` {_type(field.dtype)}" for field in dtype.fields)
    if dtype == pl.Categorical:
        return "text"
    return _TYPES[str(dtype)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def causes(of: Mapping[str, str], *, with_pages: bool) -> str:
    """Return a table of names and their meaning."""
    rows = [f"| {f'[`{name}`]({name}.md)' if with_pages else f'`{name}`'} | {text} |" for name, text in of.items()]
    return "\n".join(["| | the time was held by |" if with_pages else "| | |", "|---|---|", *rows])


def evidence() -> str:
    """Return the levels of evidence, strongest first."""
    return " > ".join(f"`{level}`" for level in EVIDENCE)


PARTS: Mapping[str, Callable[[], str]] = {
    "written tables": written_tables,
    "trace tables": trace_tables,
    "causes": partial(causes, CAUSES, with_pages=True),
    "outside": partial(causes, OUTSIDE, with_pages=False),
    "evidence": evidence,
}

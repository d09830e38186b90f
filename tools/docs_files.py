"""The files that an analysis writes, as a page: each with what it holds, and every key of ``summary.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import gapscope
from gapscope.analysis import OUTPUTS, TABLES
from gapscope.findings import Finding
from gapscope.schema import SCHEMA_VERSION
from tools.docs_tables import ROWS_OF

DATA = Path(__file__).parents[1] / "tests" / "data"

RUNS = (
    ("two-gpus/mailbox_late_submit_nsys.sqlite.gz",),
    ("causes/late_rank_marked_rank0.json.gz", "causes/late_rank_marked_rank1.json.gz"),
    ("causes/fragmented_nccl_rank0.json.gz", "causes/fragmented_nccl_rank1.json.gz"),
    ("causes/interference_nccl_rank0.json.gz", "causes/interference_nccl_rank1.json.gz"),
    (
        "examples/pp_1f1b_torch_rank0.json.gz", "examples/pp_1f1b_torch_rank1.json.gz",
        "examples/pp_1f1b_torch_rank0.gslog", "examples/pp_1f1b_torch_rank1.gslog",
    ),
)  # fmt: skip
"""Recordings that together fill every part of ``summary.json``."""

SUMMARY = {
    "schema_version": "version of all tables and files",
    "recordings": "one entry per process: rank, file, tool, window, counts, clock",
    "clocks": "where each clock stands against the reference, with bounds",
    "handoffs": "how many there are, by status, order and origin",
    "selection": "what was chosen with `--steps`, `--ranks` and `--warmup`",
    "start_up_rule": "which handoffs count as start-up, in words",
    "edges": "per pair of ranks (and channel, direction): sizes, and gap and phases as percentiles",
    "groups": "collectives: how long ranks waited for the last, and what the transfer took",
    "causes": "per cause, edge and rank: handoff time, wall time and exposure, kept apart",
    "fixes": "what steps or requests would have taken without a cause, replayed: a range, no promise",
    "waiting": "how long ranks sat in communication kernels and waited for another",
    "interference": "kinds of operations alone and beside others",
    "messages": "handoffs of many messages, by edge",
    "marks_cost": "what the marks themselves took, where a mark log says it",
    "findings": "how many findings of each level",
}
"""Top-level key of ``summary.json`` to what it holds."""

FINDING = {
    "code": "stable name of the kind of finding",
    "level": "`error`: something could not be read; `warning`: numbers are missing or weaker; `info`",
    "message": "what was found, in a sentence",
    "hint": "what to do about it; empty: nothing can be done",
    "path": "the file; null: it is about the run",
    "rank": "the rank; null: unknown, or all",
    "count": "how many records or handoffs; null: it is no count",
}

JSON_FILES = {
    "findings.json": "What is missing, weak or odd, and what to do about it ([below](#findingsjson)).",
    "summary.json": "Every number of the text report ([below](#summaryjson)).",
}


def outputs() -> str:
    """Return the files of ``--out``."""
    tables = {f"{name}.parquet": f"[`{name}`](tables.md#{name}): one row per {ROWS_OF[name]}" for name in TABLES}
    said = tables | JSON_FILES
    rows = [f"| `{name}` | {said[name]} |" for name in OUTPUTS]
    return "\n".join(["| file | holds |", "|---|---|", *rows, "", f"`schema_version` is {SCHEMA_VERSION}."])


def findings() -> str:
    """Return the keys of a finding."""
    rows = [f"| `{f.name}` | {FINDING[f.name]} |" for f in fields(Finding)]
    return "\n".join(["| key | says |", "|---|---|", *rows])


def summary() -> str:
    """Return the keys of ``summary.json``: of each top-level key a table of what stands inside."""
    found = summary_keys()
    parts = []
    for top, said in SUMMARY.items():
        inside = [
            f"| `{path}` | {', '.join(sorted(types))} |" for path, types in found[top].items() if _told(path, types)
        ]
        table = ["", "| key | type |", "|---|---|", *inside] if inside else []
        parts.append("\n".join([f"#### {top}", "", f"{said[0].upper()}{said[1:]}.", *table]))
    return "\n\n".join(parts)


@cache
def summary_keys() -> dict[str, dict[str, set[str]]]:
    """Return, by top-level key, the paths below it and the JSON types that they have in the recordings of `RUNS`."""
    found: dict[str, dict[str, set[str]]] = {}
    for run in RUNS:
        analysis = gapscope.analyze([DATA / name for name in run])
        for top, value in json.loads(json.dumps(analysis.summary)).items():
            for path, kind in _walk(value):
                found.setdefault(top, {}).setdefault(path, set()).add(kind)
    return found


def _told(path: str, types: set[str]) -> bool:
    """Tell if a path is worth a line: not the value itself, and no entry of a list whose own keys follow."""
    return bool(path) and not (path.endswith("[]") and types == {"object"})


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield the paths in a JSON value, entries of a list as ``[]``, each with its type."""
    if isinstance(value, dict):
        yield path, "object"
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from _walk(inner, f"{path}[]")
    else:
        yield path, {bool: "bool", int: "integer", float: "number", str: "text"}.get(type(value), "null")


PARTS: Mapping[str, Callable[[], str]] = {"outputs": outputs, "findings": findings, "summary": summary}

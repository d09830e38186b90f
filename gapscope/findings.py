"""Findings: problems of the data that do not stop the analysis, each counted and named."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]
_ORDER = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader of the results has to know.

    Attributes:
        code: Stable snake_case name of the kind of finding.
        level: ``error`` (something could not be read), ``warning`` (numbers are missing or weaker), ``info``.
        message: One sentence: what was found.
        hint: One sentence: what to do about it; empty if nothing can be done.
        path: The file it is about; None if it is about the run.
        rank: The rank it is about; None if unknown or about all.
        count: How many events, records or handoffs are concerned; None if it is not a count.
    """

    code: str
    level: Level
    message: str
    hint: str = ""
    path: str | None = None
    rank: int | None = None
    count: int | None = None


def plural(n: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "handoff"), plural(1240, "handoff")
    ('1 handoff', '1,240 handoffs')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in a stable order: errors first, then by code, file, rank and message."""
    return sorted(
        dict.fromkeys(findings),
        key=lambda f: (_ORDER[f.level], f.code, f.path or "", -1 if f.rank is None else f.rank, f.message),
    )


def findings_to_json(findings: Iterable[Finding], schema_version: int) -> str:
    """Return ``findings.json``: an object with ``schema_version`` and a list ``findings``."""
    rows = [asdict(f) for f in findings]
    return json.dumps({"schema_version": schema_version, "findings": rows}, indent=1) + "\n"

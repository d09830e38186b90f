"""What is run on the inputs: a case is a way to work on an input, as one command.

Commands are written with names in braces, so that the page shows them as a reader would type them:
``{python}`` (that of gapscope), ``{peers}`` (that of the peers), ``{files}``, ``{out}`` and ``{cache}`` (folders of the
run), ``{engine}`` (the folder of the trace processor), ``{programs}``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.performance.inputs import INPUTS

PROGRAMS = Path(__file__).parent / "programs"
BASE = "first"
"""The way that others are compared with."""


@dataclass(frozen=True)
class Way:
    """One way to work on an input.

    Attributes:
        name: Its name in cases.
        title: What the page calls it.
        work: What it does, in the page's words: the work is unequal.
        command: The command, with names in braces.
        needs: Distribution that the peers' Python must have.
        fills: The way that has to run before on the same cache.
        once: One round is enough, because it takes minutes.
        attempts: How often it may fail and be tried again.
        daemons: Program that has to be up, such as a cluster; what it prints is its address.
    """

    name: str
    title: str
    work: str
    command: str
    needs: str | None = None
    fills: str | None = None
    once: bool = False
    attempts: int = 1
    daemons: str | None = None


_ANALYZE = "{python} -m gapscope analyze {files} --out {out}"
_EVERYTHING = "everything: tables, clocks, handoffs, tiles, causes, all written"
_PARSE = "parses, keeps nothing"

_OWN = [
    Way("first", "gapscope analyze, first run", _EVERYTHING, _ANALYZE),
    Way("second", "gapscope analyze, second run", _EVERYTHING, _ANALYZE, fills="first"),
]
_COMPILE = Way(
    "compile", "gapscope analyze, first run after installing", f"{_EVERYTHING}; compiles what is compiled once",
    "env NUMBA_CACHE_DIR={cache} " + _ANALYZE, once=True,
)  # fmt: skip
_LOAD = Way(
    "load", "gapscope load, first run", "all tables, no analysis", "{python} {programs}/gapscope_load.py {files}"
)
_TORCH = [
    *_OWN,
    _LOAD,
    Way("hta_load", "HolisticTraceAnalysis, load", "makes its frames, no analysis",
        "{peers} {programs}/hta_analysis.py load {files}", "HolisticTraceAnalysis"),
    Way("hta_analyses", "HolisticTraceAnalysis, load and three analyses",
        "frames, temporal and idle breakdown, critical path of one step of one rank",
        "{peers} {programs}/hta_analysis.py analyses {files}", "HolisticTraceAnalysis"),
    Way("perfetto", "Perfetto's trace processor (WebAssembly)", "its tables, each rank for itself",
        "node {programs}/trace_processor.cjs {engine} {files}"),
    Way("perfetto_native", "Perfetto's trace processor (native)", "its tables, each rank for itself",
        "{peers} {programs}/perfetto_native.py {files}", "perfetto"),
    Way("json", "json", _PARSE, "{peers} {programs}/parsers.py json {files}"),
    Way("orjson", "orjson", _PARSE, "{peers} {programs}/parsers.py orjson {files}", "orjson"),
    Way("msgspec", "msgspec, typed", _PARSE, "{peers} {programs}/parsers.py msgspec {files}", "msgspec"),
    Way("simdjson", "pysimdjson", _PARSE, "{peers} {programs}/parsers.py simdjson {files}", "pysimdjson"),
]  # fmt: skip
_READS = "reads kernels and API calls, keeps nothing"
_NSYS = [
    *_OWN,
    _LOAD,
    Way("nsys_ai_cold", "nsys-ai diagnose, cold", "its diagnosis of one GPU; makes its cache",
        "{peers} {programs}/nsys_ai_diagnose.py {cache} {files}", "nsys-ai", once=True, attempts=6),
    Way("nsys_ai_cached", "nsys-ai diagnose, from its cache", "its diagnosis of one GPU",
        "{peers} {programs}/nsys_ai_diagnose.py {cache} {files}", "nsys-ai", fills="nsys_ai_cold", once=True,
        attempts=2),
    Way("sqlite3", "sqlite3, fetchall", _READS, "{peers} {programs}/sqlite_readers.py sqlite3 {files}"),
    Way("adbc", "adbc, to Arrow", _READS, "{peers} {programs}/sqlite_readers.py adbc {files}", "adbc-driver-sqlite"),
    Way("connectorx", "connectorx, to Arrow, two parts", _READS,
        "{peers} {programs}/sqlite_readers.py connectorx {files}", "connectorx"),
]  # fmt: skip
_RAY = Way(
    "ray", "gapscope analyze --engine ray, two nodes", f"{_EVERYTHING}; the cluster is up before",
    _ANALYZE + " --engine ray", daemons="ray_cluster.py",
)  # fmt: skip

WAYS: Mapping[str, list[Way]] = {
    "torch_50MB": [*_TORCH, _COMPILE],
    "torch_500MB": _TORCH,
    "torch_1GB": _OWN,
    "nsys_0.5M": _NSYS,
    "nsys_1M": _OWN,
    "nsys_5M": _NSYS,
    "nsys_10M": _OWN,
    "nsys_50M": _OWN,
    "ranks_1": _OWN,
    "ranks_2": _OWN,
    "ranks_8": [*_OWN, _RAY],
    "ranks_64": _OWN,
}
"""Input to the ways that are measured on it."""

assert WAYS.keys() == INPUTS.keys()


@dataclass(frozen=True)
class Places:
    """Where things are on this machine; the page never shows it."""

    files: Path
    peers: str
    engine: str = ""
    python: str = sys.executable

    def words(self, way: Way, names: list[Path], out: Path, cache: Path) -> list[str]:
        """Return the command of a way."""
        known = {
            "{python}": [self.python],
            "{peers}": [self.peers],
            "{files}": [str(name) for name in names],
            "{out}": [str(out)],
            "{cache}": [str(cache)],
            "{engine}": [self.engine],
        }
        words = way.command.replace("{programs}", str(PROGRAMS)).split(" ")
        made = [each for word in words for each in known.get(word, [word])]
        return [word.replace("={cache}", f"={cache}") for word in made]


def shown(way: Way, files: tuple[str, ...]) -> str:
    """Return the command of a way as a reader would type it."""
    first, *others = files
    names = first if not others else f"{first} {others[0]}" if len(others) == 1 else f"{first} ... {others[-1]}"
    known = {
        "{python} -m gapscope": "gapscope",
        "{python}": "python",
        "{peers}": "PEERS",
        "{files}": names,
        "{out}": "OUT",
        "{cache}": "CACHE",
        "{engine}": "ENGINE",
        "{programs}": "benchmarks/performance/programs",
    }
    text = way.command
    for name, word in known.items():
        text = text.replace(name, word)
    return text

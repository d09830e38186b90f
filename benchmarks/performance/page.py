"""Makes `docs/performance.md` from the lines of `benchmarks/performance.jsonl` alone: no number is written by hand."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.performance.cases import BASE, WAYS, Way
from benchmarks.performance.inputs import INPUTS
from benchmarks.performance.records import Measurements, Record, Series

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"

INTRO = """# Performance

How long gapscope takes for a recording and how much memory, beside other tools and bare parsers on the same files.
This page is made from `benchmarks/performance.jsonl`, one line per process that ran; a test checks that it is.

**The work is unequal.** gapscope reads all ranks, puts their clocks together, finds the handoffs, explains each of them
and writes all tables. HolisticTraceAnalysis and nsys-ai answer other questions, each rank or GPU for itself. Perfetto's
trace processor fills its tables. Parsers and database drivers read and keep nothing: they are the floor for anything
that reads the file. The column *work* says what each does.
"""

COLUMNS = """## How it is measured

- Each row is whole processes, start and imports included, on files in the page cache. Rows of one table take turns,
  round by round, so that a drift of the machine meets all of them; rows marked ‡ are of another series and did not.
- **Seconds** is the median over the rounds, with the smallest and the largest; *n* is how many there were.
- **MB/s** (10⁶ bytes) and **events/s** are the whole input by that median. An event is an entry of `traceEvents`, or a
  kernel, copy or API call of an nsys export, counted without gapscope.
- **Peak memory** is the largest over the rounds, in units of 10⁹ bytes: the proportional set size of the process and of
  all that it started, sampled; at least the largest resident set that the kernel saw of one process. Mapped files
  count.
- **Time against gapscope** is the median by that of *gapscope analyze, first run* in the same table.
- *Load before a run* is the system's, an average over the minute before: mostly that of the run before.
- *--engine ray* finds a cluster of two nodes of one processor each that is up already
  (`benchmarks/performance/programs/ray_cluster.py` starts it, and prints the address for `RAY_ADDRESS`).
- *First run* begins with an empty cache of gapscope, *second run* has the cache of the first. What gapscope compiles
  once is compiled before, except in the row that says so.
- A run of nsys-ai counts only if its cache has all tables and no analysis was skipped: with the DuckDB extension that
  can be installed from a package, DuckDB sometimes lists only a part of the tables of an attached SQLite file.
- The files are a recording of two processes with a mailbox between them, tiled to the size with ids that stay unique.
  Those of many ranks are a pair on two GPUs, again and again with other ranks, processes and GPUs: pipelines of two
  stages side by side. The recordings and the program that tiles them are not in the repository (`--recordings`,
  `--tiler`).
"""

COMMANDS_INTRO = """## The commands

`python -m benchmarks.performance run --files FOLDER --peers PEERS --engine ENGINE` makes the files, runs all of them
and keeps the lines; `python -m benchmarks.performance render` makes this page. PEERS is a Python that has the other
tools, ENGINE the folder of the trace processor's WebAssembly build, OUT an empty folder, CACHE a folder of the run;
gapscope's cache (`GAPSCOPE_CACHE`) is a folder of the run as well, empty for a first run.
"""

TABLES = [
    ("torch.profiler JSON", ["torch_500MB", "torch_50MB", "torch_1GB"]),
    ("nsys SQLite", ["nsys_5M", "nsys_0.5M", "nsys_1M"]),
]
GROWTH = [
    (
        "Growth with events",
        [["torch_50MB", "torch_500MB", "torch_1GB"], ["nsys_1M", "nsys_5M", "nsys_10M", "nsys_50M"]],
    ),
    ("Growth with ranks", [["ranks_1", "ranks_2", "ranks_8", "ranks_64"]]),
]
ENGINES = ("ranks_8", ["first", "ray"])
MAIN = ("torch_500MB/first", "torch_500MB/json", "nsys_5M/first", "nsys_5M/sqlite3")
"""Two rows that matter, each with one beside it that no change of gapscope touches."""


def render(measured: Measurements) -> str:
    """Return the page."""
    parts = [INTRO, *_machines(measured)]
    for title, names in TABLES:
        tables = [_comparison(measured, name) for name in names if _runs(measured, name, WAYS[name])]
        parts += [f"## {title}\n", *tables] if tables else []
    for title, rows in GROWTH:
        tables = [table for names in rows if (table := _growth(measured, names))]
        parts += [f"## {title}\n", *tables] if tables else []
    name, ways = ENGINES
    if measured.newest(f"{name}/ray"):
        parts += ["## Engines\n", _comparison(measured, name, ways)]
    parts += [_every_series(measured), COLUMNS, _not_measured(measured), COMMANDS_INTRO, _commands(measured)]
    return "\n".join(parts).rstrip() + "\n"


# Machine ----------------------------------------------------------------------------------------------------------


def _machines(measured: Measurements) -> list[str]:
    """Return the machine and versions of every series that the page shows."""
    used = {
        id(one): one for name, ways in WAYS.items() for way in ways if (one := measured.newest(f"{name}/{way.name}"))
    }
    shown_series = [one for one in measured.series if id(one) in used]
    parts = ["## Where and with what\n"]
    for one in shown_series:
        about, machine = one.about, one.about["machine"]
        runs = [run for case in one.runs.values() for run in case]
        load = statistics.median(run["load_before"] for run in runs)
        memory = machine["memory_bytes"] / 1e9
        kind = "a virtual machine, " if machine["virtual"] else ""
        own, peers = dict(about["versions"]), about["peers"]
        name, code = own.pop("gapscope"), own.pop("code")
        parts.append(
            f"- **{one.id[:16].replace('T', ' ')} UTC**: {kind}{machine['processor']}, {machine['cores']} cores, "
            f"{memory:.1f} GB of memory, Linux {machine['kernel']}. Load before a run, median: {load:.1f}. "
            f"gapscope {name} (code {code}) on {_versions(own)}. Peers: {_versions(peers)}.\n"
        )
    if not shown_series:
        parts.append("Nothing is measured yet.\n")
    return parts


def _versions(found: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "none"


# Tables -----------------------------------------------------------------------------------------------------------


def _runs(measured: Measurements, name: str, ways: Sequence[Way]) -> bool:
    return any(measured.newest(f"{name}/{way.name}") for way in ways)


def _comparison(measured: Measurements, name: str, only: Sequence[str] | None = None) -> str:
    """Return the table of one input: a row for each way that ran or was tried."""
    about = measured.inputs[name]
    base = measured.newest(f"{name}/{BASE}")
    lines = [
        f"### {INPUTS[name].title}{': engines' if only else ''}\n",
        _holds(about) + "\n",
        "| way | work | n | seconds, median (min-max) | MB/s | M events/s | peak memory | time against gapscope |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way in WAYS[name]:
        if only and way.name not in only:
            continue
        case = f"{name}/{way.name}"
        series = measured.newest(case)
        if series is None:
            continue
        seconds = [run["seconds"] for run in series.runs[case]]
        middle = statistics.median(seconds)
        ratio = "-"
        if base is not None:
            other = statistics.median(run["seconds"] for run in base.runs[f"{name}/{BASE}"])
            ratio = f"{middle / other:.2f}{'' if series is base else ' ‡'}"
        lines.append(
            f"| {way.title} | {way.work} | {len(seconds)} | {_spread(seconds)} | {_rate(_size(about) / 1e6 / middle)} "
            f"| {_rate(about['events'] / 1e6 / middle)} | {_peak(series, case)} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def _growth(measured: Measurements, names: Sequence[str]) -> str:
    """Return how time and memory grow over inputs, or nothing if fewer than two were measured."""
    there = [name for name in names if measured.newest(f"{name}/{BASE}")]
    if len(there) < 2:
        return ""
    lines = [
        "| input | MB | M events | first run, seconds | seconds per M events | MB/s | peak memory "
        "| second run, seconds | handoffs | edges |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in there:
        about, series = measured.inputs[name], measured.newest(f"{name}/{BASE}")
        assert series is not None
        case = f"{name}/{BASE}"
        first = [run["seconds"] for run in series.runs[case]]
        middle = statistics.median(first)
        again = measured.newest(f"{name}/second")
        second = _spread([run["seconds"] for run in again.runs[f"{name}/second"]]) if again else "-"
        found = series.runs[case][-1]["found"]
        millions = about["events"] / 1e6
        lines.append(
            f"| {INPUTS[name].title} | {_size(about) / 1e6:,.0f} | {millions:,.2f} | {_spread(first)} "
            f"| {middle / millions:.2f} | {_rate(_size(about) / 1e6 / middle)} | {_peak(series, case)} | {second} "
            f"| {found.get('handoffs', 0):,} | {found.get('edges', 0):,} |"
        )
    return "\n".join(lines) + "\n"


def _every_series(measured: Measurements) -> str:
    """Return the main rows of all series: what became faster, and how much of that is the machine."""
    titles = []
    for case in MAIN:
        name, way = case.split("/")
        titles.append(f"{INPUTS[name].title}: {next(one.title for one in WAYS[name] if one.name == way)}")
    lines = [
        "## Every series\n",
        "Machines of one description differ in speed, and so does one machine over an evening. Only rows of one series "
        "compare; the parsers show what the machine did.\n",
        f"| series | code | {' | '.join(titles)} |",
        "|---" * (2 + len(MAIN)) + "|",
    ]
    for one in measured.series:
        found = [[run["seconds"] for run in one.runs.get(case, [])] for case in MAIN]
        if any(found):
            cells = [_spread(seconds) if seconds else "" for seconds in found]
            code = one.about["versions"]["code"]
            lines.append(f"| {one.id[:16].replace('T', ' ')} | {code} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _holds(about: Record) -> str:
    files = about["files"]
    sizes = [file["bytes"] / 1e6 for file in files]
    each = f"{sizes[0]:,.1f} MB" if len(files) == 1 else f"{len(files)} files, {sum(sizes):,.1f} MB"
    return f"{each}, {about['events']:,} events, of which {about['kernels']:,} kernels."


def _size(about: Record) -> int:
    return int(sum(file["bytes"] for file in about["files"]))


def _spread(seconds: Sequence[float]) -> str:
    if len(seconds) == 1:
        return f"{seconds[0]:.2f}"
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"


def _rate(rate: float) -> str:
    """Return a rate to two digits at least."""
    return f"{rate:,.{0 if rate >= 10 else 1 if rate >= 1 else 2 if rate >= 0.1 else 3}f}"


def _peak(series: Series, case: str) -> str:
    return f"{max(run['peak_bytes'] for run in series.runs[case]) / 1e9:.2f} GB"


# What else --------------------------------------------------------------------------------------------------------


def _not_measured(measured: Measurements) -> str:
    """Return what has no row, with the reason where it was tried."""
    lines = ["## What was not measured\n"]
    for name, ways in WAYS.items():
        missing = [way for way in ways if measured.newest(f"{name}/{way.name}") is None]
        if len(missing) == len(ways) and not any(measured.why_absent(f"{name}/{way.name}") for way in ways):
            lines.append(f"- {INPUTS[name].title}: nothing was run.")
            continue
        for way in missing:
            reason = measured.why_absent(f"{name}/{way.name}")
            lines.append(
                f"- {INPUTS[name].title}, {way.title}: {f'failed: {_plain(reason)}' if reason else 'not run'}."
            )
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a message as text of a page: nothing in it is markup."""
    return "`" + text.replace("`", "'").strip(" .") + "`"


def _commands(measured: Measurements) -> str:
    """Return the command of each row, as it ran."""
    parts = []
    for name, ways in WAYS.items():
        rows = []
        for way in ways:
            case = f"{name}/{way.name}"
            if series := measured.newest(case):
                rows.append(f"# {way.title}\n{series.runs[case][-1]['command']}")
        if rows:
            parts.append(f"{INPUTS[name].title} (`--only {name}`):\n\n```text\n" + "\n".join(rows) + "\n```\n")
    return "\n".join(parts)

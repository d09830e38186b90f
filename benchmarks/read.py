"""How fast recordings are read: gapscope beside parsers and analyzers, on the same file in the same run.

Every case is a whole process (start and imports included); cases take turns, round by round, so that a drift of the
machine meets all of them; the median is shown, with the ratio to gapscope. Peak memory is that of the process.

    python benchmarks/read.py torch rank0.json --rounds 3
    python benchmarks/read.py nsys run.sqlite --rounds 3 --peers /path/to/python

Make the files by tiling a real recording, for example with a copy of `tests/data/two-gpus/` and a tiler that keeps
correlation ids unique. Peers that are not installed in the interpreter given by ``--peers`` are named and left out:
``pip install 'pandas<3' HolisticTraceAnalysis orjson msgspec adbc-driver-sqlite pyarrow nsys-ai``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

GAPSCOPE = """
import sys
from pathlib import Path
from gapscope.readers import ReadOptions, find_reader
path = Path(sys.argv[1])
source = find_reader(path).read(path, ReadOptions(), lambda what, fraction: None)
rows = sum(frame.collect().height for frame in source.tables.values())
print(source.info.events)
"""

GAPSCOPE_LOAD = """
import sys, gapscope
trace = gapscope.load(sys.argv[1])
print(trace.sources["events"].sum())
"""

TORCH = {
    "json": "import json, sys; print(len(json.load(open(sys.argv[1]))['traceEvents']))",
    "orjson": "import orjson, sys; print(len(orjson.loads(open(sys.argv[1], 'rb').read())['traceEvents']))",
    "msgspec (typed, no columns)": """
import msgspec, sys
class Args(msgspec.Struct, gc=False):
    correlation: int | None = None
    stream: int | str | None = None
    device: int | None = None
    bytes: int | str | None = None
class Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    args: Args | None = None
class Trace(msgspec.Struct):
    traceEvents: list[Event]
print(len(msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Trace).traceEvents))
""",
    "HolisticTraceAnalysis (parse)": """
import logging, sys, os
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
t = Trace({0: sys.argv[1]}, os.path.dirname(sys.argv[1]))
t.parse_traces(use_multiprocessing=False)
print(len(t.get_trace(0)))
""",
}

_KERNEL = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName"
_CALL = "start, end, globalTid, correlationId, nameId"
NSYS = {
    "sqlite3 (kernels and calls, fetchall)": f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(sum(len(db.execute(q).fetchall()) for q in (
    "SELECT {_KERNEL} FROM CUPTI_ACTIVITY_KIND_KERNEL", "SELECT {_CALL} FROM CUPTI_ACTIVITY_KIND_RUNTIME")))
""",
    "adbc (kernels and calls, Arrow)": f"""
import sys
import adbc_driver_sqlite.dbapi as dbapi
n = 0
with dbapi.connect("file:" + sys.argv[1] + "?mode=ro&immutable=1") as db, db.cursor() as cursor:
    for q in ("SELECT {_KERNEL} FROM CUPTI_ACTIVITY_KIND_KERNEL", "SELECT {_CALL} FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
        cursor.execute(q)
        n += cursor.fetch_arrow_table().num_rows
print(n)
""",
    "nsys-ai info (cold)": """
import os, shutil, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as d:
    copy = os.path.join(d, "copy.sqlite")
    os.link(sys.argv[1], copy) if os.stat(sys.argv[1]).st_dev == os.stat(d).st_dev else shutil.copy(sys.argv[1], copy)
    program = os.path.join(os.path.dirname(sys.executable), "nsys-ai")
    env = dict(os.environ, HOME=d, XDG_CACHE_HOME=d)
    r = subprocess.run([program, "info", copy], capture_output=True, text=True, env=env)
    if r.returncode:
        sys.exit(r.stderr[-300:])
print(0)
""",
}


@dataclass
class Case:
    """One way to read the file, and what it took in each round."""

    name: str
    command: list[str]
    env: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    events: int = 0
    failed: str = ""

    def run(self, cpu: int | None) -> None:
        """Run once; the kernel accounts time and memory of the finished process."""
        if self.failed:
            return
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            began = time.perf_counter()
            pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
            process = subprocess.Popen([*pinned, *self.command], env=self.env, stdout=out, stderr=err)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if process.returncode:
                lines = err.read().decode(errors="replace").strip().splitlines()
                self.failed = lines[-1][:100] if lines else f"exit {process.returncode}"
                return
            self.seconds.append(seconds)
            self.peak_bytes.append(usage.ru_maxrss * 1024)
            self.events = int(out.read().split()[-1])


def cases(kind: str, path: Path, peers: str, cache: str) -> list[Case]:
    """Return what is compared."""
    env = dict(os.environ, GAPSCOPE_CACHE=cache, PYTHONWARNINGS="ignore")
    own = [
        Case("gapscope (all tables)", [sys.executable, "-c", GAPSCOPE, str(path)], env),
        Case("gapscope load, from its cache", [sys.executable, "-c", GAPSCOPE_LOAD, str(path)], env),
    ]
    others = TORCH if kind == "torch" else NSYS
    return own + [Case(name, [peers, "-c", code, str(path)], env) for name, code in others.items()]


def report(path: Path, table: list[Case]) -> str:
    """Return the table as Markdown."""
    size = path.stat().st_size / 1e6
    base = statistics.median(table[0].seconds) if table[0].seconds else float("nan")
    lines = [
        f"{path.name}: {size:,.1f} MB, {table[0].events:,} events",
        "",
        "| way | seconds, median (min-max) | MB/s | M events/s | peak MB | time against gapscope |",
        "|---|---|---|---|---|---|",
    ]
    for case in table:
        if not case.seconds:
            lines.append(f"| {case.name} | not run: {case.failed} | | | | |")
            continue
        s = statistics.median(case.seconds)
        lines.append(
            f"| {case.name} | {s:.2f} ({min(case.seconds):.2f}-{max(case.seconds):.2f}) | {size / s:,.0f} "
            f"| {table[0].events / s / 1e6:.2f} | {max(case.peak_bytes) / 1e6:,.0f} | {s / base:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description="Compare how fast a recording is read.")
    parser.add_argument("kind", choices=["torch", "nsys"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="Python in which the peers are installed.")
    parser.add_argument("--cpu", type=int, help="Pin every case to this one processor.")
    parser.add_argument("--skip", default="", help="Leave out cases whose name contains one of these words, by comma.")
    options = parser.parse_args()
    skipped = [w for w in options.skip.split(",") if w]
    with tempfile.TemporaryDirectory() as cache:
        table = [
            c for c in cases(options.kind, options.path, options.peers, cache) if not any(w in c.name for w in skipped)
        ]
        warm_up = Case("warm-up", [sys.executable, "-c", GAPSCOPE_LOAD, str(options.path)], table[0].env)
        warm_up.run(None)  # compiles what is compiled once, fills the cache, and brings the file into memory
        for _ in range(options.rounds):
            for case in table:
                case.run(options.cpu)
    print(report(options.path, table))


if __name__ == "__main__":
    main()

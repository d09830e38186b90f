"""How fast two ranks' tables become tiles, and in how much memory: all that `gapscope analyze` does after reading.

Builds a pipeline of two ranks as nsys records it (a mailbox in pinned host memory: copy out, flag, copy in). Times are
those that a GPU and a host could have: kernels start when they are launched and the one before has ended, hosts run
ahead and synchronize with every fourth handoff, some sends are late, some consumers are busy. The tables lie on disk
as Parquet, as `gapscope.load` keeps them; what is measured begins there and ends with table ``tiles``. Parsing of
profiler files is not in it: that is `benchmarks/read.py`.

An operation is a row of table ``ops`` (kernel or copy) or of table ``calls`` (host API call).

    python benchmarks/graph.py
    python benchmarks/graph.py --handoffs 20000 --kernels 249
    python benchmarks/graph.py --files run.sqlite

Each case is a process of its own; memory is the peak of that process up to the end of the stage, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

import gapscope
from gapscope.causes import explain
from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph import build_graph
from gapscope.handoffs import build_handoffs
from gapscope.load import assemble
from gapscope.readers.base import SourceInfo, SourceTables
from gapscope.schema import READER_TABLES, conform

Ints = npt.NDArray[np.int64]
T = TypeVar("T")

BASE_NS = 1_790_000_000_000_000_000
THREAD = 1
COMPUTE, COPIES = 7, 13
BLOCK = 4
"""Handoffs between two synchronizations of the host."""

CASES = [(1_000, 249), (10_000, 249), (20_000, 249)]
KERNELS = [f"kernel_{k}_of_a_layer" for k in range(40)]
SIZE_BYTES = 16 << 20


class Lane:
    """A stream: what is enqueued begins when it is ready and what came before has ended."""

    def __init__(self) -> None:
        self.free = 0

    def run(self, ready: Ints, lasts: Ints) -> Ints:
        """Return the starts of operations that follow each other."""
        before = np.concatenate([[0], np.cumsum(lasts)[:-1]])
        start = np.maximum(np.maximum.accumulate(ready - before), self.free) + before
        self.free = int(start[-1] + lasts[-1])
        return start


LAUNCH, COPY, RECORD, WAIT, WRITE_FLAG, WAIT_FLAG, SYNC = range(7)
CALLS = [
    ("cudaLaunchKernel_v7000", "launch"),
    ("cudaMemcpyAsync_v3020", "memcpy"),
    ("cudaEventRecord_v3020", "event_record"),
    ("cudaStreamWaitEvent_v3020", "stream_wait"),
    ("cuStreamWriteValue32_v11070", "stream_memop"),
    ("cuStreamWaitValue32_v11070", "stream_memop"),
    ("cudaStreamSynchronize_v3020", "stream_sync"),
]
SYNC_KINDS = ["event_record", "stream_wait", "stream_sync"]
MARKS = ["produce", "submit", "receive", "consume"]
DTOH, HTOD = -2, -3


class Rank:
    """A host thread with two streams, and the rows of its recording, gathered as arrays."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.now, self.correlation = rng, 0, 0
        self.compute, self.copies = Lane(), Lane()
        self.columns: dict[str, dict[str, list[Ints]]] = {"ops": {}, "calls": {}, "syncs": {}, "marks": {}}

    def stage(self, mark: int, seq: int, kernels: int, speed: float) -> None:
        """Launch the kernels of a stage."""
        begun = self.now
        every, inside = self.rng.integers(4_500, 6_500, kernels), self.rng.integers(2_000, 4_000, kernels)
        lasts = (self.rng.gamma(4.0, 2_000.0, kernels) * speed).astype(np.int64) + 1_500
        calls = self.now + np.cumsum(every) - every
        correlation = self._calls(calls, inside, LAUNCH)
        start = self.compute.run(calls + inside + 1_000, lasts + 900)  # 900 ns from one kernel to the next
        self._ops(start, lasts, correlation, stream=COMPUTE, name=np.arange(kernels) % len(KERNELS))
        self.now += int(every.sum())
        self._mark(mark, seq, begun)

    def send(self, seq: int) -> int:
        """Record an event, let the copy stream wait for it, copy, write the flag; return when the flag is written."""
        begun = self.now
        self._sync(self._call(RECORD), COMPUTE, 0, seq + 1)
        self._sync(self._call(WAIT), COPIES, 1, seq + 1)
        self._copy(DTOH, self.compute.free + 1_200)
        self._call(WRITE_FLAG)
        self._mark(1, seq, begun)
        return max(self.copies.free, self.now)

    def receive(self, seq: int, flag: int) -> None:
        """Let the copy stream wait for the flag, copy, and let the compute stream wait for that."""
        begun = self.now
        self._call(WAIT_FLAG)
        self._copy(HTOD, flag + 1_500)
        self._sync(self._call(RECORD), COPIES, 0, seq + 1)
        self._sync(self._call(WAIT), COMPUTE, 1, seq + 1)
        self.compute.free = max(self.compute.free, self.copies.free + 1_200)
        self._mark(2, seq, begun)

    def synchronize(self) -> None:
        """Let the host wait for the compute stream."""
        until = max(self.compute.free, self.now) + 4_000
        self._sync(self._call(SYNC, until - self.now), COMPUTE, 2, -1)

    def frame(self, table: str) -> pl.DataFrame:
        """Return the rows of a table."""
        return pl.DataFrame({name: np.concatenate(parts) for name, parts in self.columns[table].items()})

    def _copy(self, name: int, ready: int) -> None:
        correlation = self._call(COPY, 3_000)
        lasts = self.rng.integers(30_000, 60_000, 1)
        start = self.copies.run(np.array([max(self.now, ready)]), lasts)
        self._ops(start, lasts, np.array([correlation]), stream=COPIES, name=np.array([name]))

    def _call(self, name: int, lasts: int = 1_500) -> int:
        correlation = self._calls(np.array([self.now]), np.array([lasts]), name)
        self.now += lasts + 500
        return int(correlation[0])

    def _calls(self, start: Ints, lasts: Ints, name: int) -> Ints:
        correlation = np.arange(len(start)) + self.correlation + 1
        self.correlation += len(start)
        names = np.full(len(start), name)
        self._add("calls", start_ns=start, end_ns=start + lasts, correlation=correlation, name=names)
        return correlation

    def _ops(self, start: Ints, lasts: Ints, correlation: Ints, *, stream: int, name: Ints) -> None:
        row = {"stream": np.full(len(start), stream), "correlation": correlation, "name": name}
        self._add("ops", start_ns=start, end_ns=start + lasts, **row)

    def _sync(self, correlation: int, stream: int, kind: int, event: int) -> None:
        row = {"correlation": correlation, "stream": stream, "kind": kind, "event_sync": event}
        self._add("syncs", **{n: np.array([v]) for n, v in row.items()})

    def _mark(self, mark: int, seq: int, begun: int) -> None:
        row = {"mark": mark, "seq": seq, "start_ns": begun, "end_ns": self.now}
        self._add("marks", **{n: np.array([v]) for n, v in row.items()})
        self.now += 500

    def _add(self, table: str, **columns: Ints) -> None:
        for name, values in columns.items():
            self.columns[table].setdefault(name, []).append(values)


def simulate(handoffs: int, kernels: int, seed: int = 1) -> tuple[Rank, Rank]:
    """Return the recordings of the source and the destination."""
    rng = np.random.default_rng(seed)
    source, destination = Rank(rng), Rank(rng)
    flags, late = [], rng.random(handoffs) < 0.05
    for h in range(handoffs):
        source.stage(0, h, kernels, 1.0)
        source.now += 300_000 if late[h] else 2_000
        flags.append(source.send(h))
        if h % BLOCK == BLOCK - 1:
            source.synchronize()
    for h, speed in enumerate(rng.uniform(0.7, 1.1, handoffs)):
        destination.receive(h, flags[h])
        destination.stage(3, h, kernels, speed)
        if h % BLOCK == BLOCK - 1:
            destination.synchronize()
    return source, destination


def write(rank: Rank, number: int, folder: Path) -> None:
    """Write the tables of a rank as Parquet."""
    pid = 100 + number
    index = pl.col("name").cast(pl.Int64)
    is_copy = index < 0
    spell = {"return_dtype": pl.Categorical()}
    ops = rank.frame("ops").with_columns(
        device=0, context=1, kind=pl.when(is_copy).then(pl.lit("memcpy")).otherwise(pl.lit("kernel")),
        copy_kind=pl.when(index == DTOH).then(pl.lit("DtoH")).when(index == HTOD).then(pl.lit("HtoD")),
        size_bytes=pl.when(is_copy).then(SIZE_BYTES),
        name=index.replace_strict(
            {**dict(enumerate(KERNELS)), DTOH: "memcpy DtoH", HTOD: "memcpy HtoD"}, **spell
        ),
    ).sort("start_ns")  # fmt: skip
    calls = rank.frame("calls").with_columns(
        thread=THREAD,
        family=index.replace_strict({k: f for k, (_, f) in enumerate(CALLS)}, return_dtype=pl.String),
        name=index.replace_strict({k: n for k, (n, _) in enumerate(CALLS)}, **spell),
    )
    syncs = rank.frame("syncs").with_columns(
        kind=pl.col("kind").replace_strict(dict(enumerate(SYNC_KINDS)), return_dtype=pl.String), device=0, context=1,
        event_sync=pl.when(pl.col("event_sync") > 0).then("event_sync"),
    )  # fmt: skip
    ranges = rank.frame("marks").select(
        thread=THREAD, start_ns="start_ns", end_ns="end_ns", kind=pl.lit("push_pop"),
        name=pl.format(
            "gapscope::{} src=0 dst=1 seq={} bytes={}",
            pl.col("mark").replace_strict(dict(enumerate(MARKS)), return_dtype=pl.String), "seq", pl.lit(SIZE_BYTES),
        ),
    )  # fmt: skip
    found = {"ops": ops, "calls": calls, "syncs": syncs, "ranges": ranges}
    folder.mkdir()
    for name in READER_TABLES:
        frame = found.get(name, pl.DataFrame({"pid": [pid]} if name == "processes" else None))
        frame = frame.with_columns(process=pl.lit(pid, dtype=pl.Int64))
        times = [pl.col(c) + BASE_NS for c in ("start_ns", "end_ns") if c in frame.columns and name != "syncs"]
        frame = conform(frame.with_columns(times), name) if frame.height else conform(frame.clear(), name)
        frame.write_parquet(folder / f"{name}.parquet", compression="lz4", statistics=False)


def build(handoffs: int, kernels: int, folder: Path) -> None:
    """Write the recordings of a run, unless they are there."""
    if folder.exists():
        return
    staging = Path(tempfile.mkdtemp(dir=folder.parent))
    for number, rank in enumerate(simulate(handoffs, kernels)):
        write(rank, number, staging / f"rank{number}")
    staging.rename(folder)


def read(folder: Path) -> list[SourceTables]:
    """Return the tables of a run, on disk still."""
    return [
        SourceTables(
            SourceInfo(path=f"rank{number}.sqlite", format="built", tool="nsys", host="one"),
            {name: pl.scan_parquet(folder / f"rank{number}" / f"{name}.parquet") for name in READER_TABLES},
        )
        for number in range(2)
    ]


def run(paths: list[Path]) -> None:
    """Go the whole way; print times, memory and counts as JSON."""
    stages: list[tuple[str, float, float, int]] = []

    def stage(name: str, what: Callable[[], T]) -> T:
        begun, cpu = time.perf_counter(), time.process_time()
        found = what()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        stages.append((name, time.perf_counter() - begun, time.process_time() - cpu, peak))
        return found

    is_built = len(paths) == 1 and paths[0].is_dir() and (paths[0] / "rank0").is_dir()
    trace = stage("load (tables stay on disk)", lambda: assemble(read(paths[0])) if is_built else gapscope.load(paths))
    ends = stage("events", lambda: find_ends(trace))
    alignment = stage("clocks", lambda: align(trace, ends))
    handoffs = stage("handoffs", lambda: build_handoffs(trace, ends, alignment).table)
    graph = stage("graph", lambda: build_graph(trace, alignment, ends))
    explained = stage("walks and causes", lambda: explain(graph, handoffs))
    counts = {t: trace.scan(t).select(pl.len()).collect().item() for t in ("ops", "calls", "syncs")}
    counts |= {"handoffs": handoffs.height, "tiles": explained.tiles.height}
    if is_built:
        complete = handoffs.filter((pl.col("status") == "complete") & (pl.col("order") == "ok")).height
        assert complete == handoffs.height == explained.handoffs["dominant_cause"].count(), "not all were explained"
    by_cause = explained.tiles.group_by("cause").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    causes = {c: ns / explained.tiles["duration_ns"].sum() for c, ns in by_cause.iter_rows()}
    print(json.dumps({"stages": stages, "counts": counts, "causes": causes}))


def show(found: dict[str, Any], wall: float) -> None:
    """Print a case as Markdown."""
    counts, stages = found["counts"], found["stages"]
    n = counts["ops"] + counts["calls"]
    held = ", ".join(f"{c} {share:.0%}" for c, share in list(found["causes"].items())[:5])
    print(
        f"{n:,} operations: {counts['ops']:,} kernels and copies, {counts['calls']:,} host API calls; "
        f"{counts['handoffs']:,} handoffs, {counts['tiles']:,} tiles. Held by {held}.",
        "",
        "| stage | seconds | CPU seconds | peak memory so far | M operations/s |",
        "|---|---|---|---|---|",
        sep="\n",
    )
    print(f"| start and imports | {wall - sum(s for _, s, _, _ in stages):.2f} | | | |")
    for name, seconds, cpu, peak in stages:
        print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {peak / 1e9:.2f} GB | {n / seconds / 1e6:.2f} |")
    cpu = sum(c for _, _, c, _ in stages)
    print(f"| all | {wall:.2f} | {cpu:.2f} | {stages[-1][3] / 1e9:.2f} GB | {n / wall / 1e6:.2f} |\n", flush=True)


def measured(paths: list[Path]) -> tuple[dict[str, Any], float]:
    """Run one case in a process of its own; return what it printed, and how long it took."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--one", *(str(p) for p in paths)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout), time.perf_counter() - begun


def main() -> None:
    """Run all cases, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handoffs", type=int)
    parser.add_argument("--kernels", type=int, default=249, help="Kernels of each stage.")
    parser.add_argument(
        "--files", type=Path, nargs="+", help="Recordings instead of a built run; kept tables are used."
    )
    parser.add_argument("--keep", type=Path, help="Where built tables are kept; default: they are removed.")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=Path, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(options.handoffs, options.kernels, options.build)
        return
    if options.one:
        run(options.one)
        return
    print(f"{len(os.sched_getaffinity(0))} processors, Python {sys.version.split()[0]}, polars {pl.__version__}\n")
    with tempfile.TemporaryDirectory() as passing:
        kept = options.keep or Path(passing)
        kept.mkdir(parents=True, exist_ok=True)

        def built(handoffs: int, kernels: int) -> list[Path]:
            folder = kept / f"{handoffs}x{kernels}"
            # In another process: what this one had held would count as the peak of its children.
            command = [sys.executable, __file__, "--build", str(folder), "--handoffs", str(handoffs)]
            subprocess.run([*command, "--kernels", str(kernels)], check=True)
            return [folder]

        measured(built(40, 20))  # compiles what is compiled once
        if options.files:
            measured(options.files)  # fills the cache
            show(*measured(options.files))
            return
        for case in [(options.handoffs, options.kernels)] if options.handoffs else CASES:
            show(*measured(built(*case)))


if __name__ == "__main__":
    main()

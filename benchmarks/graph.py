"""How fast, and in how much memory, two ranks' tables become tiles: the whole way that `gapscope analyze` goes after reading.

Builds a pipeline of two ranks as nsys records it (a mailbox in pinned host memory: copy out, flag, copy in), with
integer times that a GPU and a host could have: kernels start when they are launched and the one before has ended, hosts
run ahead and synchronize with every fourth handoff, some sends are late, some consumers are. The tables lie on disk as
Parquet, as `gapscope.load` keeps them. What is measured begins there and ends with table `tiles`; parsing of profiler
files is `benchmarks/read.py`. An operation is a row of table ``ops`` (kernel or copy) or of table ``calls`` (host API call).

    python benchmarks/graph.py
    python benchmarks/graph.py --handoffs 20000 --kernels 249

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
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes import explain
from gapscope.clocks import align
from gapscope.events import find_ends
from gapscope.graph import build_graph
from gapscope.handoffs import build_handoffs
from gapscope.load import assemble
from gapscope.readers.base import SourceInfo, SourceTables
from gapscope.schema import READER_TABLES, conform

Ints = npt.NDArray[np.int64]

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


class Rank:
    """The rows of one rank's recording, gathered as arrays."""

    def __init__(self) -> None:
        self.columns: dict[str, dict[str, list[Ints]]] = {"ops": {}, "calls": {}, "syncs": {}, "marks": {}}
        self.correlation = 0

    def calls(self, start: Ints, lasts: Ints, name: int) -> Ints:
        """Add API calls; return their correlation ids."""
        correlation = np.arange(len(start)) + self.correlation + 1
        self.correlation += len(start)
        self._add("calls", start_ns=start, end_ns=start + lasts, correlation=correlation, name=np.full(len(start), name))
        return correlation

    def ops(self, start: Ints, lasts: Ints, correlation: Ints, stream: int, name: Ints) -> None:
        """Add GPU operations; ``name`` from -2 downward are copies."""
        row = {"stream": np.full(len(start), stream), "correlation": correlation, "name": name}
        self._add("ops", start_ns=start, end_ns=start + lasts, **row)

    def sync(self, correlation: int, stream: int, kind: int, event: int) -> None:
        """Add what the tool knows of a synchronization."""
        row = {"correlation": correlation, "stream": stream, "kind": kind, "event_sync": event}
        self._add("syncs", **{n: np.array([v]) for n, v in row.items()})

    def mark(self, kind: int, seq: int, start: int, end: int) -> None:
        """Add a bracket."""
        self._add("marks", **{n: np.array([v]) for n, v in {"k": kind, "seq": seq, "s": start, "e": end}.items()})

    def _add(self, table: str, **columns: Ints) -> None:
        for name, values in columns.items():
            self.columns[table].setdefault(name, []).append(values)

    def frame(self, table: str) -> pl.DataFrame:
        """Return the rows of a table."""
        return pl.DataFrame({name: np.concatenate(parts) for name, parts in self.columns[table].items()})


LAUNCH, COPY, RECORD, WAIT, WRITE_FLAG, WAIT_FLAG, SYNC = range(7)
CALLS = [
    ("cudaLaunchKernel_v7000", "launch"), ("cudaMemcpyAsync_v3020", "memcpy"), ("cudaEventRecord_v3020", "event_record"),
    ("cudaStreamWaitEvent_v3020", "stream_wait"), ("cuStreamWriteValue32_v11070", "stream_memop"),
    ("cuStreamWaitValue32_v11070", "stream_memop"), ("cudaStreamSynchronize_v3020", "stream_sync"),
]  # fmt: skip
SYNC_KINDS = ["event_record", "stream_wait", "stream_sync"]
MARKS = ["produce", "submit", "receive", "consume"]
DTOH, HTOD = -2, -3


def simulate(handoffs: int, kernels: int, seed: int = 1) -> tuple[Rank, Rank]:
    """Return the recordings of both ranks."""
    rng = np.random.default_rng(seed)
    ranks = Rank(), Rank()
    flag = np.zeros(handoffs, np.int64)
    for number, rank in enumerate(ranks):
        compute, copies, now = Lane(), Lane(), 0
        speed = rng.uniform(0.7, 1.1, handoffs) if number else np.ones(handoffs)
        late = rng.random(handoffs) < 0.05
        for h in range(handoffs):
            if number:
                now = _receive(rank, rng, h, now, int(flag[h]), compute, copies)
            begun = now
            now = _stage(rank, rng, kernels, float(speed[h]), now, compute)
            rank.mark(3 if number else 0, h, begun, now)
            now += 500
            if not number:
                now += 300_000 if late[h] else 2_000
                now, flag[h] = _send(rank, rng, h, now, compute, copies)
            if h % BLOCK == BLOCK - 1:
                until = max(compute.free, now) + 4_000
                done = rank.calls(np.array([now]), np.array([until - now]), SYNC)
                rank.sync(int(done[0]), COMPUTE, 2, -1)
                now = until + 5_000
    return ranks


def _stage(rank: Rank, rng: np.random.Generator, kernels: int, speed: float, now: int, compute: Lane) -> int:
    """Launch the kernels of a stage; return when the host is done."""
    every, inside = rng.integers(4_500, 6_500, kernels), rng.integers(2_000, 4_000, kernels)
    lasts = (rng.gamma(4.0, 2_000.0, kernels) * speed).astype(np.int64) + 1_500
    calls = now + np.cumsum(every) - every
    correlation = rank.calls(calls, inside, LAUNCH)
    start = compute.run(calls + inside + 1_000, lasts + 900)  # a stream takes 900 ns from one kernel to the next
    rank.ops(start, lasts, correlation, COMPUTE, np.arange(kernels) % len(KERNELS))
    return int(now + every.sum())


def _one(rank: Rank, now: int, name: int, lasts: int = 1_500) -> tuple[int, int]:
    """Add one call; return its correlation id and when the host goes on."""
    return int(rank.calls(np.array([now]), np.array([lasts]), name)[0]), now + lasts + 500


def _send(rank: Rank, rng: np.random.Generator, h: int, now: int, compute: Lane, copies: Lane) -> tuple[int, int]:
    """Record an event, let the copy stream wait for it, copy, write the flag; return host time and time of the flag."""
    begun = now
    record, now = _one(rank, now, RECORD)
    rank.sync(record, COMPUTE, 0, h + 1)
    wait, now = _one(rank, now, WAIT)
    rank.sync(wait, COPIES, 1, h + 1)
    copy, now = _one(rank, now, COPY, 3_000)
    lasts = rng.integers(30_000, 60_000, 1)
    start = copies.run(np.array([max(now, compute.free + 1_200)]), lasts)
    rank.ops(start, lasts, np.array([copy]), COPIES, np.array([DTOH]))
    _, now = _one(rank, now, WRITE_FLAG)
    rank.mark(1, h, begun, now)
    return now + 500, max(copies.free, now)


def _receive(
    rank: Rank, rng: np.random.Generator, h: int, now: int, flag: int, compute: Lane, copies: Lane
) -> int:
    """Let the copy stream wait for the flag, copy, and the compute stream wait for that; return host time."""
    begun = now
    _, now = _one(rank, now, WAIT_FLAG)
    copy, now = _one(rank, now, COPY, 3_000)
    lasts = rng.integers(30_000, 60_000, 1)
    start = copies.run(np.array([max(now, flag + 1_500)]), lasts)
    rank.ops(start, lasts, np.array([copy]), COPIES, np.array([HTOD]))
    record, now = _one(rank, now, RECORD)
    rank.sync(record, COPIES, 0, h + 1)
    wait, now = _one(rank, now, WAIT)
    rank.sync(wait, COMPUTE, 1, h + 1)
    compute.free = max(compute.free, copies.free + 1_200)
    rank.mark(2, h, begun, now)
    return now + 500


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
        thread=THREAD, start_ns="s", end_ns="e", kind=pl.lit("push_pop"),
        name=pl.format(
            "gapscope::{} src=0 dst=1 seq={} bytes={}",
            pl.col("k").replace_strict(dict(enumerate(MARKS)), return_dtype=pl.String), "seq", pl.lit(SIZE_BYTES),
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


def run(folder: Path) -> None:
    """Go the whole way; print times, memory and counts as JSON."""
    stages: list[tuple[str, float, int]] = []

    def stage(name: str, what: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = what()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        stages.append((name, time.perf_counter() - begun, peak))
        return found

    stage("start and imports", lambda: None)
    trace = stage("load (tables stay on disk)", lambda: assemble(read(folder)))
    ends = stage("events", lambda: find_ends(trace))
    alignment = stage("clocks", lambda: align(trace, ends))
    handoffs = stage("handoffs", lambda: build_handoffs(trace, ends, alignment).table)
    graph = stage("graph", lambda: build_graph(trace, alignment, ends))
    explained = stage("walks and causes", lambda: explain(graph, handoffs))
    counts = {t: trace.scan(t).select(pl.len()).collect().item() for t in ("ops", "calls", "syncs")}
    counts |= {"handoffs": handoffs.height, "tiles": explained.tiles.height}
    complete = handoffs.filter((pl.col("status") == "complete") & (pl.col("order") == "ok")).height
    assert explained.handoffs["dominant_cause"].count() == complete, "a complete handoff was not explained"
    by_cause = explained.tiles.group_by("cause").agg(pl.col("duration_ns").sum()).sort("duration_ns", descending=True)
    causes = {c: ns / explained.tiles["duration_ns"].sum() for c, ns in by_cause.iter_rows()}
    print(json.dumps({"stages": stages, "counts": counts, "causes": causes}))


def show(found: dict[str, Any]) -> None:
    """Print a case as Markdown."""
    counts = found["counts"]
    n = counts["ops"] + counts["calls"]
    print(
        f"{n:,} operations: {counts['ops']:,} kernels and copies, {counts['calls']:,} host API calls; "
        f"{counts['handoffs']:,} handoffs, {counts['tiles']:,} tiles. Held by "
        + ", ".join(f"{c} {share:.0%}" for c, share in list(found["causes"].items())[:5]) + ".",
        "",
        "| stage | seconds | peak memory so far | M operations/s |",
        "|---|---|---|---|",
        sep="\n",
    )  # fmt: skip
    for name, seconds, peak in found["stages"]:
        rate = f"{n / seconds / 1e6:.2f}" if seconds > 0.001 else ""
        print(f"| {name} | {seconds:.2f} | {peak / 1e9:.2f} GB | {rate} |")
    total = sum(s for _, s, _ in found["stages"])
    print(f"| all | {total:.2f} | {found['stages'][-1][2] / 1e9:.2f} GB | {n / total / 1e6:.2f} |", flush=True)


def main() -> None:
    """Run all cases, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handoffs", type=int)
    parser.add_argument("--kernels", type=int, default=249, help="Kernels of each stage.")
    parser.add_argument("--keep", type=Path, help="Where built tables are kept; default: they are removed.")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.one)
        return
    cases = [(options.handoffs, options.kernels)] if options.handoffs else CASES
    print(f"{len(os.sched_getaffinity(0))} processors, Python {sys.version.split()[0]}, polars {pl.__version__}\n")
    with tempfile.TemporaryDirectory() as passing:
        kept = options.keep or Path(passing)
        kept.mkdir(parents=True, exist_ok=True)
        for handoffs, kernels in [(40, 20), *cases]:  # the first compiles what is compiled once
            folder = kept / f"{handoffs}x{kernels}"
            build(handoffs, kernels, folder)
            done = subprocess.run([sys.executable, __file__, "--one", str(folder)], capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            if (handoffs, kernels) != (40, 20):
                show(json.loads(done.stdout))
                print()


if __name__ == "__main__":
    main()

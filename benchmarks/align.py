"""How long the clocks take to solve, and how wide the bounds come out, over ranks and constraints.

Builds runs of many ranks with known offsets (all-reduces of 15 µs at least, hosts that drift by up to 20 ppm), aligns
them and checks that every true offset lies within its bounds. Each case is a process of its own.

    python benchmarks/align.py
    python benchmarks/align.py --ranks 64 --collectives 100
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time

from gapscope.clocks import align
from gapscope.testing import Recording, trace

BASE_NS = 1_790_000_000_000_000_000
SPAN_NS = 20_000_000_000
CASES = [(2, 400), (8, 400), (8, 4000), (64, 25), (64, 100), (64, 400)]


def build(ranks: int, collectives: int, seed: int = 1) -> tuple[list[Recording], list[int], list[float]]:
    """Return recordings, the true offset of each rank's clock at the start, and its true drift in parts per billion."""
    rng = random.Random(seed)
    offsets = [0] + [rng.randrange(-5_000_000, 5_000_000) for _ in range(ranks - 1)]
    drifts = [rng.uniform(-20_000, 20_000) for _ in range(ranks)]
    files = [Recording(f"rank{r}.json", pid=100 + r, tool="torch") for r in range(ranks)]
    for k in range(collectives):
        begin = k * SPAN_NS // collectives
        arrived = [begin + int(rng.expovariate(1 / 50_000)) for _ in range(ranks)]
        done = max(arrived) + 15_000 + int(rng.expovariate(1 / 10_000))
        for r, file in enumerate(files):
            shown = [
                t - int(t * drifts[r] / 1e9) - offsets[r] + BASE_NS for t in (arrived[r] - 8_000, arrived[r], done)
            ]
            file.communication("allreduce", *shown, seq=k)
    return files, offsets, drifts


def run(ranks: int, collectives: int) -> None:
    """Align one built run and print a row of the table."""
    files, offsets, drifts = build(ranks, collectives)
    recorded = trace(*files)
    begun = time.perf_counter()
    alignment = align(recorded)
    table = alignment.table
    seconds = time.perf_counter() - begun
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    clocks = alignment.domains.table
    gpu = {row["rank"]: row["domain"] for row in clocks.filter(clocks["device"].is_not_null()).to_dicts()}
    between = alignment.against([(gpu[r], gpu[0]) for r in range(1, ranks)])
    wide = (between["hi_ns"] - between["lo_ns"]).median()
    inside = all(
        row["lo_ns"] <= offsets[row["rank"]] + (t - BASE_NS) * (drifts[row["rank"]] - drifts[0]) / 1e9 <= row["hi_ns"]
        for row in between.iter_rows(named=True)
        for t in (max(row["window_start_ns"], BASE_NS), min(row["window_end_ns"], BASE_NS + SPAN_NS))
    )
    facts = sum(alignment.counts.values())
    print(
        f"| {ranks} | {collectives:,} | {facts:,} | {seconds:.2f} s | {rss_mb} MB | {wide / 1000:.1f} µs | "
        f"{'yes' if inside else 'NO'} | {table.height:,} |",
        flush=True,
    )


def main() -> None:
    """Run all cases, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--collectives", type=int, default=100)
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(*options.one)
        return
    cases = [(options.ranks, options.collectives)] if options.ranks else CASES
    print(
        "| ranks | all-reduces in 20 s | constraints | align | peak memory | interval, median | truth inside | rows |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for ranks, collectives in cases:
        subprocess.run([sys.executable, __file__, "--one", str(ranks), str(collectives)], check=True)


if __name__ == "__main__":
    main()

"""A two-stage pipeline on the CPU: rank 0 hands a tensor to rank 1 over gloo, with marks at every handoff.

    python gloo_pipeline.py --out DIR [--profile] [--steps 3] [--sleep-ms 20]

Runs its two ranks as processes of their own. Marks are text, as NVTX push/pop ranges of the default domain (where
the package nvtx can be imported) and inside them as torch.profiler annotations, so the same job can be recorded by
either tool. ``--profile`` writes ``rank0.json`` and ``rank1.json`` of torch.profiler into DIR. In any case the job
writes what it knows itself, ``truth0.json`` and ``truth1.json``: for each mark the host time (``time.time_ns``)
right before and right after each of its two ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MICROBATCHES = 2
ELEMENTS = 4096
ELEMENT_BYTES = 4  # float32


def main() -> None:
    """Run the job: without ``--rank`` start both ranks, with it be that rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument("--profile", action="store_true", help="record with torch.profiler")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="host sleep of rank 0 before each send")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is None:
        start_ranks(options.out)
    else:
        run_rank(options)


def start_ranks(out: Path) -> None:
    """Run both ranks with the same options, and fail if one of them does."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "rendezvous").unlink(missing_ok=True)
    # Both ranks are on this machine, and what its host name resolves to is of no concern.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
    ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in (0, 1)]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(f"gloo_pipeline: the ranks ended with {codes}")


def run_rank(options: argparse.Namespace) -> None:
    """Be one rank: take part in every handoff, then write what was recorded."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    rendezvous = f"file://{options.out.resolve()}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=options.rank, world_size=2)
    truth: list[dict[str, object]] = []
    recorder = profile(activities=[ProfilerActivity.CPU]) if options.profile else contextlib.nullcontext()
    weights = torch.eye(64)
    tensor = torch.ones(64, 64)
    assert tensor.numel() == ELEMENTS
    with recorder as recording:
        dist.barrier()  # both record from here on
        for step in range(1, options.steps + 1):
            with mark(truth, "step", step=step, rank=options.rank):
                for microbatch in range(MICROBATCHES):
                    key = {
                        "src": 0,
                        "dst": 1,
                        "seq": (step - 1) * MICROBATCHES + microbatch + 1,
                        "step": step,
                        "mb": microbatch,
                        "bytes": ELEMENTS * ELEMENT_BYTES,
                        "transport": "gloo",
                        "device": "cpu",
                    }
                    if options.rank == 0:
                        with mark(truth, "produce", **key):
                            produced = tensor @ weights
                        if options.sleep_ms:
                            time.sleep(options.sleep_ms / 1000)
                        with mark(truth, "submit", **key):
                            dist.send(produced, dst=1)
                    else:
                        with mark(truth, "receive", **key):
                            dist.recv(tensor, src=0)
                        with mark(truth, "consume", **key):
                            torch.relu(tensor @ weights)
        dist.barrier()
    if options.profile:
        recording.export_chrome_trace(str(options.out / f"rank{options.rank}.json"))
    (options.out / f"truth{options.rank}.json").write_text(json.dumps(truth))
    dist.destroy_process_group()


@contextlib.contextmanager
def mark(truth: list[dict[str, object]], name: str, **fields: object) -> Iterator[None]:
    """Mark what runs inside in both ways, and note when the marks were set by the job's own clock."""
    from gapscope_instrumentation.contract import format_mark
    from torch.profiler import record_function

    text = format_mark(name, **fields)
    before_start = time.time_ns()
    push_range(text)
    with record_function(text):
        after_start = time.time_ns()
        yield
        before_end = time.time_ns()
    pop_range()
    after_end = time.time_ns()
    truth.append({"mark": name, **fields, "start_ns": [before_start, after_start], "end_ns": [before_end, after_end]})


try:
    from nvtx import pop_range, push_range
except ImportError:

    def push_range(message: str) -> None:
        """Mark nothing: there is no nvtx."""

    def pop_range() -> None:
        """Mark nothing: there is no nvtx."""


if __name__ == "__main__":
    main()

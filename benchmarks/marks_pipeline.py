"""The pipeline of `benchmarks/marks.py`: `examples/two_stages.py`, with marks in every other block of steps.

Two blocks that follow each other are a pair, and which of them has the marks is drawn by lot, the same on both ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from mailbox import Mailbox

import gapscope_instrumentation as gs
from over_gloo import OverGloo
from two_stages import LAYERS, ROWS, Stage, first_stage, second_stage

BLOCK = 20


def run_rank(rank: int, result: str, steps: int, device_times: bool, folder: str) -> None:
    """Be one rank; rank 0 writes the blocks' mean step times."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29541", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    stage = Stage(LAYERS, device)
    given = torch.randn(ROWS, stage.weight.shape[0], device=device).to(stage.weight.dtype)
    transport = Mailbox(Path(folder) / "slot", given.nbytes) if cuda else OverGloo(given.nbytes)
    edge = gs.Edge(src=0, dst=1, transport=transport.name, **({} if cuda else {"device": "cpu"}))
    pipeline = (first_stage if rank == 0 else second_stage)("none", edge, transport, stage, given, 1)
    for _ in range(50):
        next(pipeline)
    drawn = random.Random(1)
    found: dict[str, list[float]] = {"on": [], "off": []}
    for _ in range(steps // (2 * BLOCK)):
        first = drawn.random() < 0.5
        for marked in (first, not first):
            capture = gs.capture(folder, device_times=device_times)
            if marked:
                capture.start()
            dist.barrier()
            next(pipeline)  # what starts with a capture is not part of a step
            began = time.perf_counter_ns()
            for n in range(BLOCK):
                with gs.step(n):
                    next(pipeline)
            found["on" if marked else "off"].append((time.perf_counter_ns() - began) / BLOCK)
            capture.stop()
    if rank == 0:
        what = f"two processes, {transport.name}, {'GPU' if cuda else 'CPU'}"
        Path(result).write_text(json.dumps({**found, "what": what, "brackets": 3}))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Start both ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("steps", type=int)
    parser.add_argument("--device-times", action="store_true")
    options = parser.parse_args()
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        mp.spawn(run_rank, args=(options.result, options.steps, options.device_times, folder), nprocs=2)


if __name__ == "__main__":
    main()

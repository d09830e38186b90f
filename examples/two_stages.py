"""A pipeline of two stages, marked by hand: rank 0 computes, hands its activation over, rank 1 computes with it.

    GAPSCOPE_DIR=out python two_stages.py --transport gloo --out out
    gapscope analyze out

Whichever recording runs gets the marks: start it under ``nsys profile -t cuda,nvtx``, or let ``--profile torch``
record each rank with torch.profiler. ``--cause`` puts one known reason for lateness in, so that you can check what
gapscope says.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from mailbox import Mailbox
from pathlib import Path
from typing import Any

import gapscope_instrumentation as gs
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from copy_engine import CopyEngine
from over_gloo import OverGloo

HIDDEN, ROWS, LAYERS = 4096, 3, 16
WARM = 8
"""Steps before the recording begins."""

CAUSES = {
    "none": "nothing",
    "late_submit": "rank 0 sleeps 2 ms on the host between produce and submit",
    "late_launch": "rank 1 sleeps 2 ms on the host between receive and consume",
    "consumer_busy": "rank 1 has 48 other layers in its compute stream ahead of the receive",
    "slow_consumer": "4 microbatches of 4 MiB, and rank 1 has three times as many layers; there is one slot",
}


class Stage:
    """Layers of a matrix product and a ReLU."""

    def __init__(self, layers: int, device: torch.device) -> None:
        width = HIDDEN if device.type == "cuda" else 256
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.weight = (torch.randn(width, width, device=device) / width**0.5).to(kind)
        self.layers = layers

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Run them."""
        for _ in range(self.layers):
            x = torch.relu(x @ self.weight)
        return x


def run_rank(rank: int, options: argparse.Namespace) -> None:
    """Be one rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=options.port, RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    device = (
        torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    slow = options.cause == "slow_consumer"
    rows, microbatches, layers = (512, 4, LAYERS // 2) if slow else (ROWS, 1, LAYERS)
    stage = Stage(layers * 3 if slow and rank == 1 else layers, device)
    given = torch.randn(rows, stage.weight.shape[0], device=device).to(stage.weight.dtype)
    transport: Any
    if options.transport == "mailbox":
        transport = Mailbox(Path("/dev/shm") / f"gapscope-{options.port}", given.nbytes)
    elif options.transport == "copy_engine":
        transport = CopyEngine(rank, given.nbytes)
    else:
        transport = OverGloo(given.nbytes)

    # One edge from rank 0 to rank 1. Each side counts its handoffs, so both know the key without talking.
    of_all = {"transport": transport.name} | ({"device": "cpu"} if device.type == "cpu" else {})
    edge = gs.Edge(src=0, dst=1, **of_all)
    pipeline = (first_stage if rank == 0 else second_stage)(options.cause, edge, transport, stage, given, microbatches)
    steps = iter(range(1, 1_000_000))
    for _ in range(WARM):
        next(pipeline)
        next(steps)
    dist.barrier()
    with recording(rank, options):
        for _ in range(options.steps):
            with gs.step(next(steps)):
                next(pipeline)
        if device.type == "cuda":
            torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


def first_stage(
    cause: str, to_next: gs.Edge, transport: Any, stage: Stage, given: torch.Tensor, microbatches: int
) -> Iterator[None]:
    """Compute and hand over; one step for each ``next``."""
    token = torch.zeros(1, dtype=torch.int64)
    while True:
        for mb in range(microbatches):
            handoff = to_next.handoff(mb=mb, bytes=given.nbytes)
            with gs.produce(handoff):
                y = stage(given)
            if cause == "late_submit":
                time.sleep(0.002)
            with gs.submit(handoff):
                transport.send(y, handoff.seq + 1)
        dist.recv(token, 1)  # the token comes back, as in decoding
        yield


def second_stage(
    cause: str, from_first: gs.Edge, transport: Any, stage: Stage, given: torch.Tensor, microbatches: int
) -> Iterator[None]:
    """Receive and compute; one step for each ``next``."""
    token = torch.zeros(1, dtype=torch.int64)
    other = torch.randn_like(given)
    while True:
        for mb in range(microbatches):
            handoff = from_first.handoff(mb=mb, bytes=given.nbytes)
            if cause == "consumer_busy":
                for _ in range(3):
                    stage(other)
            with gs.receive(handoff):
                transport.receive(given, handoff.seq + 1)
            if cause == "late_launch":
                time.sleep(0.002)
            with gs.consume(handoff):
                y = stage(given)
        token[0] = int(y[0, 0].item() > 0)
        dist.send(token, 0)
        yield


@contextmanager
def recording(rank: int, options: argparse.Namespace) -> Iterator[None]:
    """Record what is inside: marks on, and the profiler that was asked for."""
    cuda = torch.cuda.is_available()
    if options.profile == "nsys" and cuda:
        torch.cuda.cudart().cudaProfilerStart()  # with --capture-range=cudaProfilerApi
    with gs.capture(options.out, device_times=options.device_times):
        if options.profile == "torch":
            kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * cuda
            syncs = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
            with torch.profiler.profile(activities=kinds, experimental_config=syncs) as profiler:
                yield
        else:
            yield
    if options.profile == "torch":
        profiler.export_chrome_trace(str(options.out / f"rank{rank}.json"))
    elif options.profile == "nsys" and cuda:
        torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    """Start both ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["mailbox", "copy_engine", "gloo"], default="gloo")
    parser.add_argument("--cause", choices=list(CAUSES), default="none")
    parser.add_argument("--profile", choices=["torch", "nsys", "none"], default="none")
    parser.add_argument(
        "--device-times", action="store_true", help="times of the device by CUDA events, without a profiler"
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("gapscope-marks"), help="folder for what is recorded")
    parser.add_argument("--port", default="29517")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    mp.spawn(run_rank, args=(options,), nprocs=2)


if __name__ == "__main__":
    main()

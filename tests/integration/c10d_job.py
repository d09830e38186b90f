"""Transfers and collectives of torch.distributed on the CPU, over gloo, without any mark: an adapter has to set them.

    python -m gapscope_instrumentation --attach c10d c10d_job.py --out DIR [--pipeline]

Runs two ranks as processes of their own, forked from one that the adapter is attached to already (the ranks of
``pipeline_job.py`` attach it themselves). ``--pipeline`` runs a step of a pipeline instead.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
from pathlib import Path

RANKS = 2
ELEMENTS = 6
PIPELINE_MICROBATCHES, PIPELINE_ROWS, PIPELINE_WIDTHS = 2, 2, (8, 3)
"""A stage hands on two tensors, of these widths."""


def main() -> None:
    """Run both ranks, and fail if one of them does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument("--pipeline", action="store_true", help="run a step of a pipeline instead")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    # What the ranks need is imported once: that takes longer than all that they do.
    importlib.import_module("torch.distributed.pipelining" if options.pipeline else "torch.distributed")
    fork = multiprocessing.get_context("fork")
    jobs = [fork.Process(target=run_rank, args=(options, rank)) for rank in range(RANKS)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    if any(job.exitcode for job in jobs):
        sys.exit(f"c10d_job: the ranks ended with {[job.exitcode for job in jobs]}")


def run_rank(options: argparse.Namespace, rank: int) -> None:
    """Be one rank."""
    import torch.distributed as dist

    store = dist.FileStore(str(options.out / "rendezvous"), RANKS)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    if options.pipeline:
        run_pipeline(rank)
    else:
        transfer(rank)
        collect()
    dist.destroy_process_group()


def transfer(rank: int) -> None:
    """Move tensors from rank 0 to rank 1, and one batch both ways."""
    import torch
    import torch.distributed as dist

    other = 1 - rank
    pair = dist.new_group([0, 1])
    given, taken = torch.ones(ELEMENTS), torch.zeros(ELEMENTS)
    if rank == 0:
        dist.send(given, 1)
        works = [dist.isend(given, 1, tag=tag) for tag in (1, 2)]
        dist.send(given, 1)  # to a receive from any rank
        dist.send(given[:1], 1, group=pair)
        dist.send(given[:2], 1)
    else:
        dist.recv(taken, 0)
        works = [dist.irecv(torch.zeros(ELEMENTS), 0, tag=tag) for tag in (2, 1)]  # not in the order of the sends
        dist.recv(taken)
        dist.recv(taken[:1], 0, group=pair)
        dist.recv(taken[:2], 0)
    for work in works:
        work.wait()
    batch = [dist.P2POp(dist.isend, given[:3], other), dist.P2POp(dist.irecv, taken[:3], other)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


def collect() -> None:
    """Run collectives, one of them while the job goes on."""
    import torch
    import torch.distributed as dist

    given = torch.ones(ELEMENTS)
    work = dist.all_reduce(given, async_op=True)
    work.wait()
    dist.broadcast(given, src=0)
    dist.all_gather([torch.zeros(ELEMENTS) for _ in range(RANKS)], given)


def run_pipeline(rank: int) -> None:
    """Run one step of a pipeline whose stages hand on two tensors."""
    import torch
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    width, other = PIPELINE_WIDTHS

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(width, width), torch.nn.Linear(width, other)

        def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(given), self.two(given)

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(width, width), torch.nn.Linear(other, width)

        def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
            return self.one(one) + self.two(two)

    stage = PipelineStage(First() if rank == 0 else Last(), rank, RANKS, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, PIPELINE_MICROBATCHES, loss_fn=torch.nn.MSELoss())
    rows = torch.randn(PIPELINE_ROWS * PIPELINE_MICROBATCHES, width)
    if rank == 0:
        schedule.step(rows)
    else:
        schedule.step(target=rows)


if __name__ == "__main__":
    main()

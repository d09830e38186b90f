"""Pipelines of torch.distributed.pipelining on the CPU, without any mark but their steps.

    python schedule_job.py --out DIR 1f1b-2 interleaved-4

Each is a schedule and how many ranks run it, one after the other. The ranks are processes of their own, over gloo, each
recorded with torch.profiler into ``<schedule>-<ranks>/rank<r>.json``. They are forked once torch is imported, which
takes longer than all their steps.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

MICROBATCHES = 4
STEPS = 2
WIDTH = 16


def main() -> None:
    """Run all ranks of each pipeline, and fail if one of them does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument("pipelines", nargs="+", help="1f1b-RANKS or interleaved-RANKS")
    options = parser.parse_args()
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    import torch.distributed.pipelining  # noqa: F401 - so that the ranks have it

    fork = multiprocessing.get_context("fork")
    for name in options.pipelines:
        schedule, ranks = name.split("-")
        folder = options.out / name
        folder.mkdir(parents=True)
        jobs = [fork.Process(target=run_rank, args=(folder, schedule, rank, int(ranks))) for rank in range(int(ranks))]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        if any(job.exitcode for job in jobs):
            sys.exit(f"schedule_job: the ranks of {name} ended with {[job.exitcode for job in jobs]}")


def run_rank(out: Path, name: str, rank: int, ranks: int) -> None:
    """Be one rank: run the schedule, record it, write the recording."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

    store = dist.FileStore(str(out / "rendezvous"), ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    of_rank = [rank, rank + ranks] if name == "interleaved" else [rank]
    stages = len(of_rank) * ranks

    def stage(index: int) -> PipelineStage:
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
        return PipelineStage(module, index, stages, torch.device("cpu"))

    loss = torch.nn.MSELoss()
    if name == "interleaved":
        schedule = ScheduleInterleaved1F1B([stage(i) for i in of_rank], MICROBATCHES, loss_fn=loss)
    else:
        schedule = Schedule1F1B(stage(rank), MICROBATCHES, loss_fn=loss)
    given = (torch.randn(2 * MICROBATCHES, WIDTH),) if 0 in of_rank else ()
    target = {"target": torch.randn(2 * MICROBATCHES, WIDTH)} if stages - 1 in of_rank else {}
    schedule.step(*given, **target)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for step in range(STEPS):
            with torch.profiler.record_function(f"gapscope::step step={step}"):
                schedule.step(*given, **target)
    profiler.export_chrome_trace(str(out / f"rank{rank}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A pipeline of torch.distributed.pipelining on the CPU, without any mark but its steps.

    python schedule_job.py --out DIR --schedule 1f1b|interleaved --ranks 2

Runs its ranks as processes of their own, over gloo, and records each with torch.profiler into ``rank<r>.json``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

MICROBATCHES = 4
STEPS = 2
WIDTH = 16


def main() -> None:
    """Run the job: without ``--rank`` start all ranks, with it be that rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument("--schedule", choices=["1f1b", "interleaved"], required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is None:
        start_ranks(options.out, options.ranks)
    else:
        run_rank(options)


def start_ranks(out: Path, ranks: int) -> None:
    """Run all ranks with the same options, and fail if one of them does."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "rendezvous").unlink(missing_ok=True)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
    jobs = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(ranks)]
    codes = [job.wait() for job in jobs]
    if any(codes):
        sys.exit(f"schedule_job: the ranks ended with {codes}")


def run_rank(options: argparse.Namespace) -> None:
    """Be one rank: run the schedule, record it, write the recording."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

    rank, ranks = options.rank, options.ranks
    store = dist.FileStore(str(options.out / "rendezvous"), ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    of_rank = [rank, rank + ranks] if options.schedule == "interleaved" else [rank]
    stages = len(of_rank) * ranks

    def stage(index: int) -> PipelineStage:
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
        return PipelineStage(module, index, stages, torch.device("cpu"))

    loss = torch.nn.MSELoss()
    if options.schedule == "interleaved":
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
    profiler.export_chrome_trace(str(options.out / f"rank{rank}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

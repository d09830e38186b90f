"""Pipelines of torch.distributed.pipelining on the CPU, over gloo, without any mark: an adapter has to set them.

    python -m gapscope_instrumentation --attach torch_pipelining \\
        pipeline_job.py --out DIR --schedules 1f1b interleaved --ranks 2 [--steps 2] [--profile]

Runs its ranks as processes of their own, and one schedule after the other. ``--profile`` records each rank with
torch.profiler into ``rank<r>.json``. Each rank writes what it knows itself into ``truth<r>.json``: of each schedule its
stages, the microbatches, and if there is a backward.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

MICROBATCHES = 4
MICROBATCH_ROWS = 2
WIDTH = 16
SCHEDULES = {
    # Name: the class, the stages of a rank ("one", "loop": r, r + ranks; "v": r, last - r).
    "forward_only": ("_ScheduleForwardOnly", "one"),
    "gpipe": ("ScheduleGPipe", "one"),
    "1f1b": ("Schedule1F1B", "one"),
    "looped_bfs": ("ScheduleLoopedBFS", "loop"),
    "interleaved": ("ScheduleInterleaved1F1B", "loop"),
    "interleaved_zero_bubble": ("ScheduleInterleavedZeroBubble", "loop"),
    "zbv": ("ScheduleZBVZeroBubble", "v"),
    "dualpipev": ("ScheduleDualPipeV", "v"),
}


def main() -> None:
    """Run the job: without ``--rank`` start all ranks, with it be that rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument("--schedules", choices=list(SCHEDULES), nargs="+", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="record each rank with torch.profiler")
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
        sys.exit(f"pipeline_job: the ranks ended with {codes}")


def stages_of(rank: int, ranks: int, placed: str) -> list[int]:
    """Return the stages that a rank has."""
    return {"one": [rank], "loop": [rank, rank + ranks], "v": [rank, 2 * ranks - 1 - rank]}[placed]


def run_rank(options: argparse.Namespace) -> None:
    """Be one rank: run the schedules, record them, write the recording."""
    import torch
    import torch.distributed as dist

    rank, ranks = options.rank, options.ranks
    store = dist.FileStore(str(options.out / "rendezvous"), ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    recorder = contextlib.nullcontext()
    if options.profile:
        recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with recorder as recording:
        dist.barrier()  # all ranks record from here on
        truth = [run_schedule(name, rank, ranks, options.steps) for name in options.schedules]
        dist.barrier()
    if options.profile:
        recording.export_chrome_trace(str(options.out / f"rank{rank}.json"))
    (options.out / f"truth{rank}.json").write_text(json.dumps(truth))
    dist.destroy_process_group()


def run_schedule(name: str, rank: int, ranks: int, steps: int) -> dict[str, object]:
    """Run some steps of a schedule; return what is true of it."""
    import torch
    from torch.distributed.pipelining import PipelineStage, schedules

    kind, placed = SCHEDULES[name]
    of_rank = stages_of(rank, ranks, placed)
    stages = len(of_rank) * ranks
    # DualPipeV takes no fewer microbatches than stages.
    microbatches = max(MICROBATCHES, stages) if name == "dualpipev" else MICROBATCHES
    rows = MICROBATCH_ROWS * microbatches

    def stage(index: int) -> PipelineStage:
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
        return PipelineStage(module, index, stages, torch.device("cpu"))

    made = [stage(index) for index in of_rank]
    loss = None if name == "forward_only" else torch.nn.MSELoss()
    schedule = getattr(schedules, kind)(made[0] if placed == "one" else made, microbatches, loss_fn=loss)
    given = (torch.randn(rows, WIDTH),) if 0 in of_rank else ()
    target = {"target": torch.randn(rows, WIDTH)} if loss is not None and stages - 1 in of_rank else {}
    for _ in range(steps):
        schedule.step(*given, **target)
    return {"schedule": name, "stages": of_rank, "microbatches": microbatches, "backward": loss is not None}


if __name__ == "__main__":
    main()

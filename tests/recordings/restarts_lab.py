"""Records restarts of one job for `tests/data/restarts`: what `gapscope compare` needs before it may claim anything.

Needs two GPUs of one host with peer access, and torch with CUDA; from the root of the repository:

    python -m tests.recordings.restarts_lab --out recordings

Each run is two fresh processes under torch.profiler, started one after the other:

- `plain` and `late`: the same pipeline over NCCL; in `late` rank 0 spends 100 us on the host between produce and
  submit, in every step. Taken in turn (plain, late, late, plain, ...), so that what drifts in time cancels.
- `again`: `plain` once more, for how far it is from itself.
- `sweep_nccl`, `sweep_copy_engine`: one handoff a step of 4 KiB to 256 MiB, the sizes in a fixed shuffled order.
"""

import argparse
import gzip
import json
import os
import random
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, record_function

from tests.recordings.lab import MIB, SMALL, US, Lab, now

WARM, STEPS, LATE_US = 4, 24, 100
SIZES = [4096 << (2 * i) for i in range(9)]
ROUNDS = 5

ORDER = [
    *(f"{arm}_{i // 2 + 1}" for i, arm in enumerate(["plain", "late", "late", "plain"] * 3)),
    *(f"again_{i}" for i in range(1, 5)),
    *(f"sweep_{transport}_{i}" for i in range(1, 5) for transport in ("nccl", "copy_engine")),
]


def sizes_of(run):
    """Return the bytes of each step."""
    if not run.startswith("sweep"):
        return [SMALL] * STEPS
    shuffled = random.Random(0)
    return [size for _ in range(ROUNDS) for size in shuffled.sample(SIZES, len(SIZES))]


def step_of(lab, step, size, is_late):
    key = lab.key(step, step, size)
    if lab.rank == 0:
        with lab.mark("produce", key):
            lab.stage(4, 0)
        if is_late:
            lab.until(now() + LATE_US * US)
        with lab.mark("submit", key):
            lab.send(size, step)
        y = None
    else:
        y = lab.destination(key, size, step)
    lab.end_step(y)


def worker(rank, run, out, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    os.environ.update(NCCL_NVLS_ENABLE="0")  # no run uses NVLink multicast
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=rank, world_size=2)
    torch.manual_seed(0)
    sizes, is_late = sizes_of(run), run.startswith("late")
    lab = Lab(rank, "copy_engine" if "copy_engine" in run else "nccl", queue, max(MIB, *sizes), marked=True)
    for step, size in enumerate(sorted(set(sizes)) + sizes[:WARM], start=-len(set(sizes)) - WARM + 1 + 100):
        step_of(lab, step, size, is_late)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], experimental_config=config) as recorded:
        dist.all_reduce(lab.token)  # on the host: both ranks' profilers run from here on
        for step, size in enumerate(sizes, start=101):
            with record_function(f"gapscope::step step={step}"):
                step_of(lab, step, size, is_late)
        torch.cuda.synchronize()
    path = Path(out) / f"{run}_rank{rank}.json"
    recorded.export_chrome_trace(str(path))
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb", 9) as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
    print(run, rank, "ok", Path(f"{path}.gz").stat().st_size, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", default=ORDER)
    parser.add_argument("--out", default="recordings")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a run; one that hangs is ended")
    args = parser.parse_args()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    for number, run in enumerate(args.runs):
        queue = context.Queue()
        ranks = [context.Process(target=worker, args=(r, run, args.out, 29700 + number, queue)) for r in (0, 1)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(args.limit)
        for process in ranks:
            if process.is_alive():
                print(run, "hung", flush=True)
                process.kill()
    about = {"order": args.runs, "late_us": LATE_US, "sizes": SIZES, "torch": torch.__version__}
    (Path(args.out) / "about.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()

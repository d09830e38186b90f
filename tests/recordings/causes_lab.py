"""Records small two-rank runs on two GPUs, each with one injected cause, for `tests/data/causes`.

Needs two GPUs of one host with peer access, and torch with CUDA; from the root of the repository:

    python -m tests.recordings.causes_lab --out recordings [RUN ...]

Each run is two fresh processes under torch.profiler. Steps alternate: what is injected happens in even steps, and odd
steps are the control (unless the run says otherwise). Beside the recordings, `<run>_truth<rank>.json` says what was
injected when, by the host's clock.
"""

import argparse
import gzip
import json
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, record_function

from tests.recordings.lab import HIDDEN, MIB, MS, ROWS, SMALL, US, Lab, now

WARM = 4
"""Steps before the recording begins."""


def behind_kernel(lab, step, inject):
    """A kernel of 1 ms, launched before the send, runs on the stream that the transfer is enqueued on."""
    key = lab.key(step, step, SMALL)
    if lab.rank == 1:
        return lab.destination(key, SMALL, step)
    with lab.mark("produce", key):
        lab.stage(4, 0)
    with torch.cuda.stream(lab.via.stream):
        if inject:
            lab.spin(step, MS)
        with lab.mark("submit", key):
            if lab.via.in_order:
                lab.via.stream.wait_stream(torch.cuda.default_stream())
            lab.send(SMALL, step)
    return None


def behind_handoff(lab, step, inject):
    """A small handoff (mb=1) is sent behind one of 128 MiB (mb=0); in control steps it goes first."""
    sizes, seqs = (128 * MIB, SMALL), (2 * step - 1, 2 * step)
    keys = [lab.key(step, seqs[mb], sizes[mb], mb) for mb in (0, 1)]
    order = (0, 1) if inject else (1, 0)
    if lab.rank == 0:
        for mb in (0, 1):
            with lab.mark("produce", keys[mb]):
                lab.stage(4, mb)
        for mb in order:
            with lab.mark("submit", keys[mb]):
                lab.send(sizes[mb], seqs[mb], mb)
        return None
    # Receives of a communicator are posted in the order of its sends; flags are waited for as they are needed.
    arrived = {}

    def post(mb):
        with lab.mark("receive", keys[mb]):
            arrived[mb] = lab.post(sizes[mb], seqs[mb], mb)

    for mb in order if lab.via.in_order else ():
        post(mb)
    for mb in (1, 0):
        if mb not in arrived:
            post(mb)
        arrived[mb]()
        with lab.mark("consume", keys[mb]):
            y = lab.stage(4, mb)
    return y


def late_receive(lab, step, inject):
    """The destination posts its receive 2 ms late."""
    key = lab.key(step, step, SMALL)
    if lab.rank == 0:
        return lab.source(key, SMALL, step)
    if inject:
        lab.nap(step, 2 * MS)
    return lab.destination(key, SMALL, step)


def large(lab, step, inject):
    """A payload of 256 MiB; 1 MiB in control steps."""
    size = 256 * MIB if inject else MIB
    key = lab.key(step, step, size)
    return lab.source(key, size, step) if lab.rank == 0 else lab.destination(key, size, step)


def second_close(lab, step, inject):
    """The consumer's stream is busy while the source submits late; the data comes shortly before, or after, its end.

    The busy kernel is longer by 25 us in each step, so the distance goes from "data last" to some 150 us of headroom.
    """
    del inject
    key = lab.key(step, step, SMALL)
    if lab.rank == 0:
        dist.recv(lab.token, 1)
        start = int(lab.token[0])
        lab.until(start + 40 * US)
        with lab.mark("produce", key):
            lab.stage(1, 0)
        lab.until(start + 500 * US)
        with lab.mark("submit", key):
            lab.send(SMALL, step)
        return None
    start = now() + 500 * US
    lab.token[0] = start
    dist.send(lab.token, 0)
    with lab.mark("receive", key):
        arrived = lab.post(SMALL, step)
    lab.until(start)
    lab.spin(step, (600 + 25 * max(step - WARM - 1, 0)) * US)
    arrived()
    with lab.mark("consume", key):
        return lab.stage(4, 0)


def all_reduces(lab, step, inject, prepare, reduce):
    """Three all-reduces: one rank's host late by 1.5 ms, none late, the other rank's GPU late by 1 ms.

    The late host is rank 1's in even steps and rank 0's in odd ones.
    """
    late = 1 if inject else 0
    for i in range(3):
        key = f"group=tp seq={3 * (step - 1) + i + 1} step={step} bytes={SMALL}"
        with lab.mark("produce", key):
            z = prepare(lab.stage(2))
        if i == 0 and lab.rank == late:
            lab.nap(step, 1.5 * MS)
        if i == 2 and lab.rank != late:
            lab.spin(step, MS)
        with lab.mark("receive", key), lab.mark("submit", key):
            y = reduce(z)
        with lab.mark("consume", key):
            lab.x = torch.clamp(y / 2, -1, 1)
    float(lab.x[0, 0])


def late_rank(lab, step, inject):
    """All-reduces by NCCL."""

    def reduce(z):
        dist.all_reduce(z)
        return z

    all_reduces(lab, step, inject, lambda z: z, reduce)


def one_shot(lab, step, inject):
    """All-reduces by a kernel that reads its peer's memory (no NVLink multicast)."""
    import torch.distributed._symmetric_memory as symmetric

    group = dist.group.WORLD.group_name
    if not hasattr(lab, "shared"):
        lab.shared = symmetric.empty(ROWS, HIDDEN, device=f"cuda:{lab.rank}", dtype=torch.bfloat16)
        symmetric.rendezvous(lab.shared, group)

    def reduce(z):
        return torch.ops.symm_mem.one_shot_all_reduce(z, "sum", group)

    all_reduces(lab, step, inject, lab.shared.copy_, reduce)


def interference(lab, step, inject):
    """In even steps 1 GiB (channel 1) moves beside both ranks' matrix products; the handoff between them is small."""
    if not hasattr(lab, "square"):
        lab.square = torch.randn(HIDDEN, HIDDEN, device="cuda").bfloat16()
        lab.other = dist.new_group([0, 1])
    kv, key = lab.key(step, step, 1024 * MIB, channel=1), lab.key(step, step, SMALL)
    if lab.rank == 0:
        if inject:
            lab.source(kv, 1024 * MIB, step)
        with lab.mark("produce", key):
            for _ in range(8):
                lab.square @ lab.weight
            lab.stage(1, 1)
        with lab.mark("submit", key):
            dist.isend(lab.tensor(SMALL, 1), 1, group=lab.other)
        return None
    if inject:
        with lab.mark("receive", kv):
            arrived = lab.post(1024 * MIB, step)
    with lab.mark("receive", key):
        dist.irecv(lab.tensor(SMALL, 1), 0, group=lab.other).wait()
    with lab.mark("consume", key):
        y = lab.stage(1, 1)
        for _ in range(8):
            lab.square @ lab.weight
    if inject:
        arrived()
        with lab.mark("consume", kv):
            y = lab.stage(1, 0)
    return y


def fragmented(lab, step, inject, messages=64):
    """One handoff of many messages: small ones with host work between them (even), large ones back to back (odd)."""
    size = 64 * 1024 if inject else 2048 * MIB // messages
    key = lab.key(step, step, size)
    parts = lab.buffers[0].view(torch.uint8)[: size * messages].view(messages, size)
    if lab.rank == 0:
        with lab.mark("produce", key):
            lab.stage(4, 0)
    for slot in range(messages):
        about = (parts[slot], step, slot, slot * size)
        if lab.rank == 0:
            with lab.mark("submit", f"{key} slot={slot}"):
                if slot == 0:
                    lab.via.after(torch.cuda.default_stream())
                lab.via.send(*about)
            if inject:
                lab.until(now() + 30 * US)
        else:
            with lab.mark("receive", f"{key} slot={slot}"):
                arrived = lab.via.post(*about)
    if lab.rank == 0:
        return None
    arrived()
    with lab.mark("consume", key):
        return lab.stage(4, 0)


def fragmented_nccl(lab, step, inject):
    """As `fragmented`, of 16 messages."""
    return fragmented(lab, step, inject, messages=16)


def bidirectional(lab, step, inject):
    """Two batches of a send and a receive, as in 1F1B; before the second the host of one rank is late by 1 ms.

    The late rank is 1 in even steps and 0 in odd ones. Rank 0 sends 4 MiB, rank 1 sends 2 MiB.
    """
    sizes = (4 * MIB, 2 * MIB)
    peer = 1 - lab.rank
    for batch in (0, 1):
        y = lab.stage(4)
        lab.head(0).copy_(y)
        if batch and lab.rank == (1 if inject else 0):
            lab.nap(step, MS)
        sent, received = lab.tensor(sizes[lab.rank]), lab.tensor(sizes[peer], 1)
        ops = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
        for work in dist.batch_isend_irecv(ops if lab.rank == 0 else ops[::-1]):
            work.wait()
        y = lab.head(1)
        for _ in range(2):
            y = torch.relu(y @ lab.weight)
    float(y[0, 0])


# name: (function, transport, recorded steps, bytes of a buffer, marks of handoffs)
RUNS = {
    "behind_kernel_nccl": (behind_kernel, "nccl", 9, MIB, True),
    "behind_kernel_copy_engine": (behind_kernel, "copy_engine", 9, MIB, True),
    "behind_handoff_nccl": (behind_handoff, "nccl", 9, 128 * MIB, True),
    "behind_handoff_copy_engine": (behind_handoff, "copy_engine", 9, 128 * MIB, True),
    "late_receive_nccl": (late_receive, "nccl", 9, MIB, True),
    "late_receive_copy_engine": (late_receive, "copy_engine", 9, MIB, True),
    "large_nccl": (large, "nccl", 9, 256 * MIB, True),
    "large_copy_engine": (large, "copy_engine", 9, 256 * MIB, True),
    "second_close_nccl": (second_close, "nccl", 11, MIB, True),
    "late_rank_marked": (late_rank, "nccl", 7, MIB, True),
    "late_rank_unmarked": (late_rank, "nccl", 7, MIB, False),
    "one_shot_marked": (one_shot, "nccl", 7, MIB, True),
    "one_shot_unmarked": (one_shot, "nccl", 7, MIB, False),
    "interference_nccl": (interference, "nccl", 13, 1024 * MIB, True),
    "fragmented_copy_engine": (fragmented, "copy_engine", 5, 2048 * MIB, True),
    "fragmented_nccl": (fragmented_nccl, "nccl", 5, 2048 * MIB, True),
    "bidirectional_nccl": (bidirectional, "nccl", 9, 4 * MIB, False),
}
WITHOUT_TOKEN = (late_rank, one_shot, bidirectional)


def worker(rank, name, out, port, queue):
    function, transport, steps, room, marked = RUNS[name]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    # No run uses NVLink multicast.
    os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=rank, world_size=2)
    torch.manual_seed(0)
    lab = Lab(rank, transport, queue, room, marked)

    def run(step):
        y = function(lab, step, step % 2 == 0)
        if function not in WITHOUT_TOKEN:
            lab.end_step(y)

    for step in range(1, WARM + 1):
        run(step)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    lab.truth.clear()
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], experimental_config=config) as recorded:
        dist.all_reduce(lab.token)  # on the host: both ranks' profilers run from here on
        for step in range(WARM + 1, WARM + 1 + steps):
            with record_function(f"gapscope::step step={step}"):
                run(step)
        torch.cuda.synchronize()
    path = Path(out) / f"{name}_rank{rank}.json"
    recorded.export_chrome_trace(str(path))
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb", 9) as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
    about = {"run": name, "rank": rank, "transport": transport, "steps": steps, "injected": lab.truth}
    (Path(out) / f"{name}_truth{rank}.json").write_text(json.dumps(about))
    print(name, rank, "ok", Path(f"{path}.gz").stat().st_size, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", default=list(RUNS))
    parser.add_argument("--out", default="recordings")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a run; one that hangs is ended")
    args = parser.parse_args()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    for number, name in enumerate(args.runs):
        queue = context.Queue()
        ranks = [
            context.Process(target=worker, args=(rank, name, args.out, 29600 + number, queue), daemon=True)
            for rank in (0, 1)
        ]
        for process in ranks:
            process.start()
        deadline = time.monotonic() + args.limit
        for process in ranks:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
        print(name, [process.exitcode for process in ranks], flush=True)


if __name__ == "__main__":
    main()

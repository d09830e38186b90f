"""Two gloo ranks on the CPU whose handoffs are marked with gapscope_instrumentation.

    python marked_job.py --rendezvous FILE [--steps 3] [--exit-code 0] [--own-profiler]

Starts its two ranks as processes of their own. Marks are on where the environment says so; the job records nothing.
With ``--own-profiler`` rank 1 runs a torch.profiler of its own from the start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

MICROBATCHES = 2
ELEMENTS = 4096
ELEMENT_BYTES = 4  # float32


def main() -> None:
    """Run the job: without ``--rank`` start both ranks, with it be that rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rendezvous", type=Path, required=True, help="file through which the ranks find each other")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--exit-code", type=int, default=0, help="code that the job ends with after its work")
    parser.add_argument("--own-profiler", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options)
        return
    options.rendezvous.unlink(missing_ok=True)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
    ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in (0, 1)]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        sys.exit(f"marked_job: the ranks ended with {codes}")
    print("the job is done")
    sys.exit(options.exit_code)


def run_rank(options: argparse.Namespace) -> None:
    """Be one rank: mark every handoff of its side."""
    import gapscope_instrumentation as gs
    import torch
    import torch.distributed as dist

    store = f"file://{options.rendezvous.resolve()}"
    dist.init_process_group("gloo", init_method=store, rank=options.rank, world_size=2)
    edge = gs.Edge(src=0, dst=1, device="cpu", transport="gloo")
    weights, tensor = torch.eye(64), torch.ones(64, 64)
    assert tensor.numel() == ELEMENTS
    own = torch.profiler.profile() if options.own_profiler and options.rank == 1 else contextlib.nullcontext()
    with own:
        for step in range(1, options.steps + 1):
            with gs.step(step):
                for microbatch in range(MICROBATCHES):
                    handoff = edge.handoff(mb=microbatch, bytes=ELEMENTS * ELEMENT_BYTES)
                    if options.rank == 0:
                        with gs.produce(handoff):
                            produced = tensor @ weights
                        with gs.submit(handoff):
                            dist.send(produced, dst=1)
                    else:
                        with gs.receive(handoff):
                            dist.recv(tensor, src=0)
                        with gs.consume(handoff):
                            torch.relu(tensor @ weights)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

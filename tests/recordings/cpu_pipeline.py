"""Records `tests/data/cpu_pipeline_rank*.gslog`: two ranks of a pipeline on the host, joined by a socket.

    python tests/recordings/cpu_pipeline.py FOLDER

Rank 0 computes (sleeps) and sends 4,096 bytes, rank 1 receives inside its consume bracket: 20 steps of one handoff. The
names of host and boot and the pids are replaced.
"""

import os
import socket
import sys
import time
from multiprocessing import get_context
from pathlib import Path

STEPS = 20
SIZE_BYTES = 4096


def rank_main(rank, folder, wire):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    import gapscope_instrumentation as gi
    from gapscope_instrumentation import identity

    about = {"host": "lab", "boot_id": "00000000-0000-4000-8000-000000000001", "pid": 700 + rank, "python": "3.11"}
    identity.host_name = lambda: "lab"
    identity._unchanging = lambda pid: about
    with gi.capture(folder):
        edge = gi.Edge(0, 1, device="cpu", kind="pp", transport="gloo", name="activation")
        for step in range(STEPS):
            with gi.step(step):
                handoff = edge.handoff(mb=0, bytes=SIZE_BYTES, dir="fwd")
                if rank == 0:
                    send(handoff, wire, gi)
                else:
                    receive(handoff, wire, gi)


def send(handoff, wire, gi):
    with gi.produce(handoff):
        time.sleep(0.002)
    with gi.submit(handoff):
        wire.sendall(bytes(SIZE_BYTES))


def receive(handoff, wire, gi):
    with gi.consume(handoff):
        with gi.receive(handoff):
            left = SIZE_BYTES
            while left:
                left -= len(wire.recv(left))
        time.sleep(0.001)


def main(folder):
    process = get_context("fork").Process
    ranks = [process(target=rank_main, args=(rank, folder, wire)) for rank, wire in enumerate(socket.socketpair())]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    for path in Path(folder).glob("rank*-*.gslog"):
        path.rename(path.with_name(f"cpu_pipeline_{path.name.partition('-')[0]}.gslog"))


if __name__ == "__main__":
    main(sys.argv[1])

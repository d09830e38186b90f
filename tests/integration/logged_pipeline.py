"""A job that marks itself by the instrumentation: two ranks on the host, joined by a socket; each writes its mark log.

python logged_pipeline.py FOLDER STEPS
"""

import os
import socket
import subprocess
import sys

SIZE_BYTES = 4096


def main(folder, steps):
    ranks = []
    for rank, wire in enumerate(socket.socketpair()):
        command = [sys.executable, __file__, folder, steps, str(rank), str(wire.fileno())]
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        ranks.append(subprocess.Popen(command, pass_fds=[wire.fileno()], env=environment))
    return sum(one.wait() for one in ranks)


def run_rank(folder, steps, rank, wire):
    import gapscope_instrumentation as gi

    with gi.capture(folder):
        edge = gi.Edge(0, 1, channel=3, device="cpu", kind="pp", transport="gloo")
        for number in range(steps):
            with gi.request(f"r{number}"), gi.step(number, requests=[f"r{number}"]):
                handoff = edge.handoff(mb=number % 2, bytes=SIZE_BYTES, dir="fwd")
                if rank == 0:
                    with gi.produce(handoff):
                        sum(range(1000))
                    with gi.submit(handoff):
                        wire.sendall(bytes(SIZE_BYTES))
                    wire.recv(1)  # ranks that never run at one time are not of one run
                else:
                    with gi.receive(handoff):
                        left = SIZE_BYTES
                        while left:
                            left -= len(wire.recv(left))
                    with gi.consume(handoff):
                        sum(range(1000))
                    wire.sendall(b".")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(main(sys.argv[1], sys.argv[2]))
    run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), socket.socket(fileno=int(sys.argv[4])))

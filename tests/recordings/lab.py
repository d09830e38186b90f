"""What the recorders share: two transports between two ranks, a small stage, marks, and a list of what was injected."""

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.profiler import record_function

HIDDEN, ROWS = 4096, 3
SMALL = ROWS * HIDDEN * 2
MIB, US, MS = 1 << 20, 1_000, 1_000_000
CYCLES_PER_US = 1_980  # of an H200 at its boost clock; the recording has the true length


def now():
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) > 1 else None


class Nccl:
    """Two-sided send and receive; a communicator's operations run in the order of its calls."""

    name, in_order = "nccl", True

    def __init__(self, lab, queue):
        del queue
        self.stream = lab.side

    def after(self, stream):
        """NCCL waits for the stream that its call is made on."""

    def send(self, tensor, seq, slot=0, offset=0):
        dist.isend(tensor, 1)

    def post(self, tensor, seq, slot=0, offset=0):
        return dist.irecv(tensor, 0).wait


class CopyEngine:
    """One-sided copy into the receiver's memory on the sender's own stream, then a flag; each slot has its own."""

    name, in_order = "copy_engine", False

    def __init__(self, lab, queue):
        from cuda.bindings import driver

        self.driver, self.stream = driver, torch.cuda.Stream()
        if lab.rank == 1:
            self.base = int(ok(driver.cuMemAlloc(MIB + 2 * lab.room)))
            ok(driver.cuMemsetD8(self.base, 0, MIB))
            torch.cuda.synchronize()
            queue.put(bytes(ok(driver.cuIpcGetMemHandle(self.base)).reserved))
        else:
            handle = driver.CUipcMemHandle()
            handle.reserved = queue.get()
            self.base = int(ok(driver.cuIpcOpenMemHandle(handle, 1)))

    def after(self, stream):
        self.stream.wait_stream(stream)

    def send(self, tensor, seq, slot=0, offset=0):
        q, to = self.stream.cuda_stream, self.base + MIB + offset
        ok(self.driver.cuMemcpyDtoDAsync(to, tensor.data_ptr(), tensor.nbytes, q))
        ok(self.driver.cuStreamWriteValue64(q, self.base + 256 * slot, seq, 0))

    def post(self, tensor, seq, slot=0, offset=0):
        q, source = torch.cuda.current_stream().cuda_stream, self.base + MIB + offset
        ok(self.driver.cuStreamWaitValue64(q, self.base + 256 * slot, seq, 0))
        ok(self.driver.cuMemcpyDtoDAsync(tensor.data_ptr(), source, tensor.nbytes, q))
        return lambda: None


class Lab:
    """What a rank has: its stage, buffers, marks, and the list of what was injected."""

    def __init__(self, rank, transport, queue, room, marked):
        self.rank, self.room, self.marked, self.truth = rank, room, marked, []
        self.weight = (torch.randn(HIDDEN, HIDDEN, device="cuda") / 64).bfloat16()
        self.x = torch.randn(ROWS, HIDDEN, device="cuda").bfloat16()
        self.buffers = [torch.zeros(n // 2, dtype=torch.bfloat16, device="cuda") for n in (room, room)]
        self.side = torch.cuda.Stream()
        self.token = torch.zeros(1, dtype=torch.int64)
        self.via = {"nccl": Nccl, "copy_engine": CopyEngine}[transport](self, queue)

    def tensor(self, size, which=0):
        return self.buffers[which][: size // 2]

    def head(self, which=0):
        return self.buffers[which][: ROWS * HIDDEN].view(ROWS, HIDDEN)

    def key(self, step, seq, size, mb=0, channel=0):
        more = f" channel={channel}" if channel else ""
        return f"src=0 dst=1 seq={seq}{more} step={step} mb={mb} bytes={size} transport={self.via.name}"

    def mark(self, kind, key):
        return record_function(f"gapscope::{kind} {key}") if self.marked else nullcontext()

    def stage(self, layers, which=None):
        """Run layers on the head of a buffer; the source writes what it will send there."""
        x = self.x if which is None or self.rank == 0 else self.head(which)
        for _ in range(layers):
            x = torch.relu(x @ self.weight)
        if which is not None and self.rank == 0:
            self.head(which).copy_(x)
        return x

    def nap(self, step, ns):
        start = now()
        time.sleep(ns / 1e9)
        self.truth.append({"step": step, "rank": self.rank, "what": "host_sleep", "start_ns": start, "end_ns": now()})

    def until(self, deadline):
        while now() < deadline:
            pass

    def spin(self, step, ns):
        torch.cuda._sleep(int(ns / US * CYCLES_PER_US))
        self.truth.append({"step": step, "rank": self.rank, "what": "spin_kernel", "about_ns": ns})

    def end_step(self, y):
        """Rank 1 reads its result, and a token goes back: a round trip, as in decoding."""
        if self.rank == 0:
            dist.recv(self.token, 1)
        else:
            float(y[0, 0])
            dist.send(self.token, 0)

    def send(self, size, seq, which=0):
        self.via.after(torch.cuda.default_stream())
        self.via.send(self.tensor(size, which), seq, which, which * self.room)

    def post(self, size, seq, which=0):
        return self.via.post(self.tensor(size, which), seq, which, which * self.room)

    def source(self, key, size, seq):
        with self.mark("produce", key):
            self.stage(4, 0)
        with self.mark("submit", key):
            self.send(size, seq)

    def destination(self, key, size, seq):
        with self.mark("receive", key):
            self.post(size, seq)()
        with self.mark("consume", key):
            return self.stage(4, 0)

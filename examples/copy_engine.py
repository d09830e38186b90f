"""A one-sided copy: the source writes into the destination's own memory (CUDA IPC), then raises a flag there.

The destination's compute stream waits for the flag (``cuStreamWaitValue64``), copies out of the buffer and frees it.
No kernel moves the data, and the destination's host has no part in the movement.
"""

from __future__ import annotations

from mailbox import call

import torch
import torch.distributed as dist

DATA, FREE, BUFFER = 0, 256, 4096


class CopyEngine:
    """One end of the buffer in the destination's memory.

    Args:
        rank: 0 sends, 1 receives.
        size_bytes: Size of a message.
    """

    name = "copy_engine"

    def __init__(self, rank: int, size_bytes: int) -> None:
        from cuda.bindings import driver

        self.size_bytes = size_bytes
        self.stream = torch.cuda.Stream()
        handle: list[object] = [None]
        if rank == 1:
            self.base = int(call("cuMemAlloc", BUFFER + size_bytes))
            call("cuMemsetD8", self.base, 0, BUFFER + size_bytes)
            torch.cuda.synchronize()
            handle = [bytes(call("cuIpcGetMemHandle", self.base).reserved)]
        dist.broadcast_object_list(handle, src=1)
        if rank == 0:
            opened = driver.CUipcMemHandle()
            opened.reserved = handle[0]
            self.base = int(call("cuIpcOpenMemHandle", opened, 1))  # 1: allow access between two GPUs, lazily

    def send(self, tensor: torch.Tensor, number: int) -> None:
        """Enqueue message ``number`` (from 1) on a stream of its own."""
        self.stream.wait_stream(torch.cuda.current_stream())
        stream = self.stream.cuda_stream
        if number > 1:
            call("cuStreamWaitValue64", stream, self.base + FREE, number - 1, 0)
        call("cuMemcpyDtoDAsync", self.base + BUFFER, tensor.data_ptr(), self.size_bytes, stream)
        call("cuStreamWriteValue64", stream, self.base + DATA, number, 0)

    def receive(self, tensor: torch.Tensor, number: int) -> None:
        """Enqueue the receive of message ``number`` on the current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        call("cuStreamWaitValue64", stream, self.base + DATA, number, 0)
        call("cuMemcpyDtoDAsync", tensor.data_ptr(), self.base + BUFFER, self.size_bytes, stream)
        call("cuStreamWriteValue64", stream, self.base + FREE, number, 0)

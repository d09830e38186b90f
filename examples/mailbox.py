"""A mailbox: one slot of pinned host memory that both ranks see, and two flags, all in stream order.

Source: wait until the slot is free, copy device to host, raise the data flag. Destination: wait for the data flag,
copy host to device, free the slot. The host only enqueues; a wait is a command of the stream
(``cuStreamWaitValue32``).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import torch

DATA, FREE, SLOT = 0, 64, 4096  # offsets: data flag, flag that the slot is free, the slot


class Mailbox:
    """One end of the mailbox.

    Args:
        path: File in shared memory (``/dev/shm``) that both ranks name.
        size_bytes: Size of a message.
        holds_slot: The destination frees the slot only when `release` is called.
    """

    name = "mailbox"

    def __init__(self, path: Path, size_bytes: int, *, holds_slot: bool = False) -> None:
        self.holds_slot = holds_slot
        room = SLOT + size_bytes
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, room)
        self.memory = torch.frombuffer(mmap.mmap(file, room), dtype=torch.uint8)
        assert int(torch.cuda.cudart().cudaHostRegister(self.memory.data_ptr(), room, 2)) == 0
        self.base = int(call("cuMemHostGetDevicePointer", self.memory.data_ptr(), 0))
        self.slot = self.memory[SLOT:]
        self.stream = torch.cuda.Stream()

    def send(self, tensor: torch.Tensor, number: int) -> None:
        """Enqueue message ``number`` (from 1) on the transfer stream."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if number > 1:
                call("cuStreamWaitValue32", self.stream.cuda_stream, self.base + FREE, number - 1, 0)
            self.slot.copy_(tensor.view(torch.uint8).view(-1), non_blocking=True)
            call("cuStreamWriteValue32", self.stream.cuda_stream, self.base + DATA, number, 0)

    def receive(self, tensor: torch.Tensor, number: int) -> None:
        """Enqueue the receive of message ``number``; the current stream waits for it."""
        with torch.cuda.stream(self.stream):
            call("cuStreamWaitValue32", self.stream.cuda_stream, self.base + DATA, number, 0)
            tensor.view(torch.uint8).view(-1).copy_(self.slot, non_blocking=True)
            if not self.holds_slot:
                call("cuStreamWriteValue32", self.stream.cuda_stream, self.base + FREE, number, 0)
        torch.cuda.current_stream().wait_stream(self.stream)

    def release(self, number: int) -> None:
        """Free the slot of message ``number``, after what the current stream has to do before."""
        call("cuStreamWriteValue32", torch.cuda.current_stream().cuda_stream, self.base + FREE, number, 0)


def call(name: str, *arguments: object) -> object:
    """Call the CUDA driver, and fail if it does."""
    from cuda.bindings import driver

    error, *result = getattr(driver, name)(*arguments)
    assert int(error) == 0, (name, error)
    return result[0] if result else None

"""Runs one command and tells how long it took and how much memory it and all that it started had at most.

Time is from the start of the process to its end. Memory is sampled as the proportional set size (PSS: a page that n
processes share counts 1/n in each) of every process that carries the mark of this run in its environment, so that
workers and daemons count; a process alone can be larger between two samples, so that the largest resident set that
the kernel saw of one process is a lower bound.
"""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "GAPSCOPE_BENCHMARK_RUN"
_PERIOD_S = 0.05
_SHARE = 20  # sampling takes at most one part in so many of the time


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes:
        seconds: Wall time.
        cpu_seconds: User and system time of the process and of those that it waited for.
        peak_bytes: Largest sum of PSS of all processes of the run, at least the largest resident set of one.
        processes: Most processes at once.
        code: Exit status; negative for a signal, None when it ran past its limit and was ended.
        out: What it printed.
        err: The end of what it printed as errors.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    processes: int
    code: int | None
    out: str
    err: str


class Sampler(threading.Thread):
    """Adds up the memory of all processes that carry a mark."""

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self._mark = f"{MARK}={mark}".encode()
        self._others = set(_pids())
        self._own: set[int] = set()
        self._over = threading.Event()
        self.peak_bytes = 0
        self.processes = 0

    def run(self) -> None:
        """Sample until stopped."""
        pause = 0.0
        while not self._over.wait(pause):
            began = time.perf_counter()
            sizes = [size for pid in self._family() if (size := _pss_bytes(pid))]
            self.peak_bytes = max(self.peak_bytes, sum(sizes))
            self.processes = max(self.processes, len(sizes))
            pause = max(_PERIOD_S, (_SHARE - 1) * (time.perf_counter() - began))

    def stop(self) -> None:
        """End sampling."""
        self._over.set()
        self.join()

    def _family(self) -> set[int]:
        # A process that has just been forked still shows the environment of its parent: only a yes is remembered.
        there = set(_pids())
        self._own &= there
        self._own |= {pid for pid in there - self._others - self._own if self._mark in _read(pid, "environ")}
        return self._own


def measure(command: Sequence[str], env: Mapping[str, str], limit_s: float, daemons: str | None = None) -> Measured:
    """Run a command.

    Args:
        command: Program and arguments.
        env: Its environment.
        limit_s: After so many seconds it is ended.
        daemons: The mark of processes that were started before and do the work; theirs is counted as well.
    """
    mark = daemons or secrets.token_hex(8)
    sampler = Sampler(mark)
    if daemons:
        sampler._others.clear()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sampler.start()
        began = time.perf_counter()
        process = subprocess.Popen(
            list(command),
            env={**env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        late = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        late.cancel()
        sampler.stop()
        # Until it runs its program, a process counts as large as the one that it was forked from.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        ended = process.returncode == -signal.SIGKILL and seconds >= limit_s
        return Measured(
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=max(sampler.peak_bytes, usage.ru_maxrss * 1024 if usage.ru_maxrss > own else 0),
            processes=max(sampler.processes, 1),
            code=None if ended else process.returncode,
            out=out.read().decode(errors="replace"),
            err=err.read().decode(errors="replace")[-2000:],
        )


def warm(paths: Sequence[Path]) -> None:
    """Read files once, so that they are in the page cache."""
    buffer = bytearray(1 << 22)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are enough


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - twenty times a second
            return file.read()
    except OSError:
        return b""


def _pss_bytes(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0

"""Runs the job: its output passes through untouched, and signals reach it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gapscope.errors import UsageError

_BY_SIGNAL = 128  # a shell's exit code for a program that a signal ended is this and the number of the signal
_NOT_FOUND = "is not found. Give the job's command after --, such as: gapscope record -- python train.py"


def must_exist(program: str) -> None:
    """Refuse a program that is not there, before anything is removed or started.

    Raises:
        UsageError: It is neither on PATH nor a file that can be run.
    """
    if shutil.which(program) is None:
        raise UsageError(f"{program}: {_NOT_FOUND}")


def run_job(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command until it ends, and return its exit code as a shell would show it.

    Ctrl-C and the wish to terminate go to the job; this process waits for it.

    Raises:
        UsageError: The command cannot be started.
    """
    try:
        process = subprocess.Popen(list(command), env=dict(environment))
    except FileNotFoundError:
        raise UsageError(f"{command[0]}: {_NOT_FOUND}") from None
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be run ({error.strerror or error}).") from error
    with _passed_on(process):
        code = process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


@contextmanager
def _passed_on(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Let signals reach the job instead of ending this process."""

    def terminate(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    def interrupt(number: int, _: FrameType | None) -> None:
        # A terminal has sent it to the job as well: it is in the same group of processes.
        if not _in_foreground():
            terminate(number, None)

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGINT: interrupt,
        signal.SIGTERM: terminate,
    }
    try:
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:  # not on the main thread: signals are not for us
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Tell if a terminal sends its signals to this group of processes."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123 - a device
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False

"""What the machine has: GPU and driver, room for recordings, a clock that is kept."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 30
_QUERY = ("--query-gpu=name,driver_version", "--format=csv,noheader")
_TIME_ERROR = 5  # of adjtimex: the clock is not synchronized
_TIMEX_BYTES, _MAXERROR_AT = 512, 24


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs that the driver lists.

    Attributes:
        count: How many; None: nvidia-smi is not there or fails.
        text: What they are, or why nothing is known.
    """

    count: int | None
    text: str


def find_gpus() -> Gpus:
    """Ask nvidia-smi, where it is."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Gpus(None, "no nvidia-smi")
    try:
        done = subprocess.run(
            [program, *_QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Gpus(None, f"nvidia-smi cannot be run ({error})")
    lines = [line.strip() for line in done.stdout.splitlines() if "," in line]
    if done.returncode != 0 or not lines:
        words = (done.stdout.strip() or done.stderr.strip() or f"exit status {done.returncode}").splitlines()
        return Gpus(None, f"nvidia-smi fails: {words[0]}")
    names = [line.rpartition(",")[0].strip() for line in lines]
    kinds = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
    return Gpus(len(lines), f"{kinds}, driver {lines[0].rpartition(',')[2].strip()}")


def room_in(folder: Path) -> tuple[int | None, str]:
    """Return the free bytes where a folder is or would be made, and why it cannot be written (empty: it can)."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return None, f"{there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return None, f"{there} cannot be written by this user"
    try:
        return shutil.disk_usage(there).free, ""
    except OSError as error:
        return None, f"{there}: {error.strerror or error}"


def clock_is_kept() -> tuple[bool | None, str]:
    """Ask the kernel if something synchronizes the clock (adjtimex, changing nothing).

    Returns:
        True or False; None: not known here. And one phrase with the largest error that the kernel allows for.
    """
    try:
        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None, "not known on this system"
    if state < 0:
        return None, "the kernel does not tell"
    if state == _TIME_ERROR:
        return False, "nothing synchronizes the clock of this host"
    error_us = int.from_bytes(buffer.raw[_MAXERROR_AT : _MAXERROR_AT + 8], "little", signed=True)
    return True, f"synchronized, at most {error_us / 1000:.1f} ms off"

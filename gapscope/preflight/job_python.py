"""What the interpreter of the job has: asked in a process of its own, since gapscope never imports torch or nvtx."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.errors import UsageError
from gapscope.readers.nsys_export import Version, version_numbers

_SECONDS = 180  # a first import of torch from a slow disk
_SCRIPT = Path(__file__).with_name("asked.py")
_OLDEST = (3, 10)
_PYTHON = re.compile(r"(?:python|pypy)\d*(?:\.\d+)?t?$")


@dataclass(frozen=True, slots=True)
class JobPython:
    """What one interpreter has.

    Attributes:
        executable: The program.
        version: Its version as text.
        nvtx: Version of the package nvtx; None: not installed.
        torch: Version of torch; None: not installed.
        has_instrumentation: It can import gapscope_instrumentation by itself.
        torch_details: What torch says of itself when imported (`gapscope.preflight.asked`); None: not asked.
    """

    executable: str
    version: str
    nvtx: str | None
    torch: str | None
    has_instrumentation: bool
    torch_details: dict[str, Any] | None = None

    @property
    def runs_marks(self) -> bool:
        """The instrumentation runs on this version."""
        return version_numbers(self.version) >= _OLDEST

    @property
    def torch_records(self) -> bool:
        """Torch has a profiler that writes recordings, as far as was asked."""
        if self.torch is None:
            return False
        details = self.torch_details
        return True if details is None else bool(details.get("kineto"))


def ask_python(executable: str | None = None, *, deep: bool) -> JobPython:
    """Ask an interpreter what it has.

    Args:
        executable: The program; None: the one that runs gapscope.
        deep: Import torch there, which takes seconds.

    Raises:
        UsageError: It cannot be run, or is no Python.
    """
    program = executable or sys.executable
    command = [shutil.which(program) or program, str(_SCRIPT), *(["--deep"] if deep else [])]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, errors="replace"
        )
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except OSError as error:
        raise UsageError(
            f"{program}: cannot be run ({error.strerror or error}). Name the job's Python with --python."
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{program}: gave no answer within {_SECONDS} s. Name the job's Python with --python."
        ) from None
    except (ValueError, IndexError):
        words = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise UsageError(
            f"{program}: is no Python that works ({words}). Name the job's Python with --python."
        ) from None
    return JobPython(
        executable=answer["executable"] or program,
        version=answer["python"],
        nvtx=answer["nvtx"],
        torch=answer["torch"],
        has_instrumentation=answer["instrumentation"],
        torch_details=answer["torch_details"],
    )


def python_of(command: Sequence[str]) -> str | None:
    """Return the interpreter that a command runs: named in it, or in the first line of its script; None: not seen."""
    for word in command:
        if _PYTHON.fullmatch(Path(word).name):
            return shutil.which(word) or word
        found = shutil.which(word)
        if found is not None:
            python = _of_script(Path(found))
            if python is not None:
                return python
    return None


def _of_script(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode(errors="replace").split()
    named = [w for w in words if _PYTHON.fullmatch(Path(w).name)]
    return (shutil.which(named[0]) or named[0]) if named else None


def nvtx_is_heard(nvtx: str | None, nsys: Version) -> bool | None:
    """Judge by the versions if marks of this nvtx package get into reports of this nsys.

    Returns:
        True or False where it was tried with such versions; None: nobody knows.
    """
    if nvtx is None:
        return False
    package = version_numbers(nvtx)
    if not package or not nsys:
        return None
    if nsys < (2024,):  # 2023.4 tells nvtx 0.2.12 and later that each domain is disabled
        return package < (0, 2, 12)
    return True if nsys >= (2025,) else None

"""On and off: which emitters marks go to, and since when."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path
from types import TracebackType

from gapscope_instrumentation import capturing, identity, marking
from gapscope_instrumentation.contract import CONTRACT_VERSION
from gapscope_instrumentation.emitters.base import Emitter
from gapscope_instrumentation.emitters.kineto import open_kineto
from gapscope_instrumentation.emitters.log import LogEmitter
from gapscope_instrumentation.emitters.nvtx import REMEDY, open_nvtx, tool_attached
from gapscope_instrumentation.profiling import open_window

DIRECTORY = "gapscope-marks"
"""Folder of mark logs, under the current one, unless ``GAPSCOPE_DIR`` names another."""

LOOKS = 64
_looks = 0
_lock = threading.RLock()
_on = 0
_found: dict[str, str] = {}
_log: LogEmitter | None = None
_settings: tuple[str | os.PathLike[str] | None, bool] = (None, False)


class capture:  # noqa: N801 - used like a function
    """Switch marks on: as a context, or from `start` to `stop`.

    Whichever recording runs gets them: NVTX if a tool listens, torch.profiler while one is on, and the mark log.

    Args:
        directory: Folder of the mark log; None: ``GAPSCOPE_DIR``, or ``gapscope-marks`` under the current folder.
        rank: Rank of this process; None: as torch.distributed or the launcher's environment says.
        log: Write the mark log.
        device_times: Write times of the device into the log, by CUDA events (`device_times`): for runs with no
        profiler.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        log: bool = True,
        device_times: bool = False,
    ) -> None:
        self._directory, self._rank, self._log, self._device = directory, rank, log, device_times
        self._running = False
        self._before: int | None = None

    def start(self) -> capture:
        """Switch on. Does nothing while it is on."""
        global _on, _settings  # noqa: PLW0603 - one state per process
        with _lock:
            if not self._running:
                self._running = True
                _on += 1
                if self._rank is not None:
                    self._before = identity.state_rank(self._rank)
                if _on == 1:
                    _settings = (self._directory if self._log else "", self._device)
                _open()
        return self

    def stop(self) -> None:
        """Switch off and write what is left. Other captures of this process go on."""
        global _on  # noqa: PLW0603 - as above
        with _lock:
            if self._running:
                self._running = False
                _on -= 1
                if _on == 0:
                    _close()
                if self._rank is not None:
                    identity.state_rank(self._before)

    def __enter__(self) -> capture:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def status() -> dict[str, str]:
    """Return where marks go, per emitter, in one phrase each; of one that is not used, why not.

    Adapters of ``GAPSCOPE_ATTACH`` stand there as ``adapter NAME``: attached, what they wait for, or why they are not.
    """
    on_import = sys.modules.get("gapscope_instrumentation.adapters.on_import")
    adapters = {} if on_import is None else {f"adapter {name}": state for name, state in on_import.states.items()}
    failed = {name: f"given up: {why}" for name, why in marking.failed.items() if name in _found}
    return {"marks": "on" if _on else "off"} | _found | failed | adapters


def log_path() -> Path | None:
    """Return the mark log of this process; None before its first marks are written, and without one."""
    return None if _log is None else _log.path


def flush() -> None:
    """Write what is left of the marks now."""
    for emitter in marking.emitters():
        if isinstance(emitter, LogEmitter):
            emitter.flush()


def looks_due() -> bool:
    """Tell if it is time to `notice` again: at each of the first steps, then rarely."""
    global _looks  # noqa: PLW0603 - as above
    _looks += 1
    return _looks <= LOOKS or _looks % LOOKS == 0


def notice() -> None:
    """Look again at what the job has loaded and started since."""
    marking.notice_torch()
    identity.notice_gpu()
    if _on:
        capturing.watch()
        late = (_found.get("torch", ""), _found.get("device", ""))
        if "torch is not loaded" in late and "torch" in sys.modules:
            with _lock:
                _open()


def _open() -> None:
    """Open what can be opened now and is not yet."""
    marking.notice_torch()
    capturing.watch()
    identity.notice_gpu()
    there = {emitter.name: emitter for emitter in marking.emitters()}
    openers = {
        "window": _open_window,
        "nvtx": _open_nvtx,
        "torch": _open_torch,
        "log": _open_log,
        "device": _open_device,
    }
    for name, opener in openers.items():
        if name not in there and (opened := opener()) is not None:
            there[name] = opened
    order = ("window", "nvtx", "torch", "device", "log")  # the first opens a bracket first and closes it last
    marking.set_emitters(tuple(there[name] for name in order if name in there))


def _open_window() -> Emitter | None:
    return open_window()


def _open_nvtx() -> Emitter | None:
    nvtx, _found["nvtx"] = open_nvtx()
    if nvtx is not None:
        nvtx.define("process", _definition())
    elif _found["nvtx"].startswith(REMEDY[:20]):
        _say_once(_found["nvtx"] + " Marks go to the mark log meanwhile.")
    return nvtx


def _open_torch() -> Emitter | None:
    torch, _found["torch"] = open_kineto()
    return torch


def _open_log() -> Emitter | None:
    global _log  # noqa: PLW0603 - as above
    directory, _ = _settings
    if directory == "" or os.environ.get("GAPSCOPE_LOG", "on").lower() in ("0", "off", "none"):
        _found["log"] = "switched off"
        return None
    _log = LogEmitter(directory or os.environ.get("GAPSCOPE_DIR") or DIRECTORY)
    _found["log"] = str(_log.directory)
    return _log


def _open_device() -> Emitter | None:
    _, wanted = _settings
    if _log is None or not (wanted or os.environ.get("GAPSCOPE_DEVICE_TIMES", "0") not in ("", "0", "off")):
        _found["device"] = "not asked for" if _log is not None else "needs the log"
        return None
    from gapscope_instrumentation.device_times import open_device_times

    device, _found["device"] = open_device_times(_log)
    return device


def _close() -> None:
    global _log  # noqa: PLW0603 - as above
    emitters: tuple[Emitter, ...] = marking.emitters()
    marking.set_emitters(())
    for emitter in emitters:
        emitter.close()
    capturing.unwatch()
    _found.clear()
    marking.failed.clear()
    _log = None


def _definition() -> str:
    known = identity.about_process()
    gpu = known.get("gpu") or {}
    fields = {"rank": known["rank"], "host": known["host"], "pid": known["pid"], "gpu": gpu.get("uuid")}
    said = [f"{key}={str(value).replace(' ', '_')}" for key, value in fields.items() if value is not None]
    return " ".join([*said, f"contract={CONTRACT_VERSION}"])


def _say_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        marking.say(text)


_told: set[str] = set()


def _after_fork() -> None:
    """A child does not go on with its parent's log: it starts its own, with its first mark."""
    global _lock, _log  # noqa: PLW0603 - the parent's lock may be held by a thread that is not here
    _lock = threading.RLock()
    if _on:
        marking.set_emitters(tuple(e for e in marking.emitters() if e.name in ("nvtx", "torch")))
        _log = None
        _open()


@atexit.register
def _at_exit() -> None:
    emitters = marking.emitters()
    marking.set_emitters(())
    for emitter in emitters:
        emitter.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def start_if_asked() -> None:
    """Switch on where the environment says so (``GAPSCOPE=1``), and attach what it names (``GAPSCOPE_ATTACH``).

    An adapter is attached when the job has loaded its framework, also while marks are off: it counts from then on. One
    that cannot be attached is a warning.
    """
    if not _on and os.environ.get("GAPSCOPE", "0").lower() in ("1", "on", "true", "yes"):
        capture().start()
    if names := os.environ.get("GAPSCOPE_ATTACH"):
        from gapscope_instrumentation.adapters.on_import import attach_on_import

        attach_on_import(names)


__all__ = ["capture", "flush", "log_path", "notice", "start_if_asked", "status", "tool_attached"]

"""A torch.profiler of our own around the marks: one window per process, for recordings without Nsight Systems.

``GAPSCOPE_TORCH_PROFILE=DIR`` asks for it (``gapscope record`` does). The window opens with the first mark after torch
was loaded, closes when the process ends, and is written to ``DIR/rank<N>.json``; without a known rank to
``DIR/pid<N>.json``. ``GAPSCOPE_TORCH_PROFILE_STEPS=a:b`` opens it with step a and closes it after step b.

torch has one profiler per process. Where the job runs its own, ours stands back, or ends early, and says so.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from gapscope_instrumentation import identity, marking
from gapscope_instrumentation.emitters.kineto import KinetoEmitter, open_kineto
from gapscope_instrumentation.handoff import Handoff
from gapscope_instrumentation.worker_end import at_end_of_worker

DIRECTORY_VARIABLE = "GAPSCOPE_TORCH_PROFILE"
STEPS_VARIABLE = "GAPSCOPE_TORCH_PROFILE_STEPS"


class _Profiler(Protocol):
    """What we use of ``torch.profiler.profile``."""

    def stop(self) -> None: ...

    def export_chrome_trace(self, path: str) -> object: ...


class ProfileWindow:
    """Runs torch.profiler from the first mark on. It is an emitter, the first, so that each mark finds the profiler on.

    Args:
        directory: Where the recording goes.
        steps: First and last step of the window; None: open on that side.
    """

    name = "window"

    def __init__(self, directory: Path, steps: tuple[int | None, int | None] = (None, None)) -> None:
        self.directory, self._steps = directory, steps
        self.over = False
        self.pid = os.getpid()
        self._profiler: _Profiler | None = None
        self._thread: int | None = None  # the only one that may stop the profiler; None: any
        self._everywhere: KinetoEmitter | None = None  # where torch records all threads, marks go through this one
        self._late: KinetoEmitter | None = None  # takes the mark that opened the window
        self._undo: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._rank: int | None = None  # a job may have taken torch.distributed down before the end

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open the window where it has to be; return what ``end`` needs."""
        if self.over:
            return None
        kineto = self._everywhere
        if self._profiler is None:
            if not self._opens(mark, handoff):
                return None
            kineto = self._everywhere or self._late
        if self._rank is None and mark == marking.STEP:
            self._rank = identity.rank()
        inner = None if kineto is None else kineto.begin(mark, handoff)
        ends = mark == marking.STEP and self._is_last(handoff)
        return (kineto, inner, ends) if inner is not None or ends else None

    def end(self, token: object) -> None:
        """Close the window after its last step."""
        kineto, inner, ends = cast("tuple[KinetoEmitter, object, bool]", token)
        if inner is not None:
            kineto.end(inner)
        if ends:
            self.close()

    def point(self, mark: int, handoff: Handoff) -> None:
        """Open the window where it has to be."""
        token = self.begin(mark, handoff)
        if token is not None:
            self.end(token)

    def close(self) -> None:
        """Stop the profiler and write the recording. The second time does nothing."""
        with self._lock:
            profiler = self._profiler
            if profiler is None or self.over or self.pid != os.getpid():
                return
            if self._thread not in (None, threading.get_ident()):
                return  # torch takes a stop from the thread of the start alone; the end of the process is left
            self.over, self._profiler = True, None
            self._undo()
            try:
                profiler.stop()
                path = self._write(profiler)
            except Exception as error:  # a recording must not end the job
                _say(f"the recording of torch.profiler is lost ({type(error).__name__}: {error}).")
            else:
                _say(f"torch.profiler of {path.stem}: {path}")
            _take_out(self)

    @property
    def recording(self) -> bool:
        """The profiler is on."""
        return self._profiler is not None

    def _is_last(self, handoff: Handoff) -> bool:
        last = self._steps[1]
        return last is not None and handoff.step is not None and handoff.step >= last

    def _opens(self, mark: int, handoff: Handoff) -> bool:
        """Start the profiler if its time has come."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "ops"):  # not loaded, or being loaded
            return False
        first, last = self._steps
        if first is not None or last is not None:
            step = handoff.step if mark == marking.STEP else None
            if step is None or step < (step if first is None else first):
                return False
            if last is not None and step > last:
                self.over = True
                _say(f"step {step} is the first seen, and {STEPS_VARIABLE} ends with {last}: torch.profiler stays off.")
                return False
        with self._lock:
            if self._profiler is None and not self.over:
                try:
                    self._start(torch)
                except Exception as error:  # as above
                    self._stand_back(f"it cannot be started ({type(error).__name__}: {error})")
        return self._profiler is not None

    def _start(self, torch: ModuleType) -> None:
        if torch.autograd._profiler_enabled():
            self._stand_back("the parent's was on at the fork" if _forked_while_on else "the job's own is on")
            return
        everywhere = threading.current_thread() is not threading.main_thread()
        library: Any = import_module("torch.profiler")
        activities = [library.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(library.ProfilerActivity.CUDA)
        profiler: Any = library.profile(
            activities=activities, experimental_config=_config(len(activities) > 1, everywhere)
        )
        profiler.start()
        self._thread = None if everywhere else threading.get_ident()
        self._profiler = profiler
        self._rank = identity.rank()
        self._undo = self._watch_for_others(torch)
        if torch.autograd._profiler_enabled():
            self._catch_up()
        else:  # profilers of all threads are not seen by the emitter's question
            kineto, _ = open_kineto()
            if kineto is not None:
                self._everywhere = KinetoEmitter(lambda: True, kineto._enter, kineto._leave, kineto._off)
        _at_end(self)

    def _catch_up(self) -> None:
        """Let marks go to torch from now on, should it have been loaded since the last look."""
        from gapscope_instrumentation import recorder

        if not any(emitter.name == "torch" for emitter in marking.emitters()):
            recorder.notice()
            # The mark that is being written knows the emitters of before: it is passed on from here.
            self._late = next((e for e in marking.emitters() if isinstance(e, KinetoEmitter)), None)

    def _watch_for_others(self, torch: ModuleType) -> Callable[[], None]:
        """End the window where the job starts a profiler; return what stops the watch."""
        kind = torch.autograd.profiler.profile
        own = kind.__dict__.get("_prepare_trace")
        if own is None:
            return lambda: None

        def prepare(profiler: object, *args: object, **kwargs: object) -> object:
            if not self.over:
                _say("the job starts a torch.profiler of its own; ours ends here.")
                self.close()
            return own(profiler, *args, **kwargs)

        def undo() -> None:
            if kind.__dict__.get("_prepare_trace") is prepare:
                kind._prepare_trace = own

        kind._prepare_trace = prepare
        return undo

    def _stand_back(self, why: str) -> None:
        self.over = True
        _say(f"torch.profiler is not started: {why}.")
        _take_out(self)

    def _write(self, profiler: _Profiler) -> Path:
        """Write the recording under a name that no other process has."""
        self.directory.mkdir(parents=True, exist_ok=True)
        rank = self._rank if self._rank is not None else identity.rank()
        stem = f"pid{self.pid}" if rank is None else f"rank{rank}"
        unfinished = (
            self.directory / f".{stem}-{self.pid}.json"
        )  # hidden: a job that is killed meanwhile leaves no half file
        profiler.export_chrome_trace(str(unfinished))
        path = self.directory / f"{stem}.json"
        try:
            os.link(unfinished, path)
        except OSError:  # taken by another process of this rank, or a file system without links
            path = self.directory / f"{stem}-{self.pid}.json"
            unfinished.replace(path)
        else:
            unfinished.unlink()
        return path


def open_window() -> ProfileWindow | None:
    """Return the window of this process; None if none is asked for or it is over."""
    global _forked_while_on  # noqa: PLW0603 - one state per process
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return None
    window = _windows.get(os.getpid())
    if window is None:
        _forked_while_on |= any(parent.recording for parent in _windows.values())
        _windows.clear()  # of the parent, before the fork
        try:
            steps = parse_steps(os.environ.get(STEPS_VARIABLE, ""))
        except ValueError as error:
            _say(f"{STEPS_VARIABLE}: {error}; the whole run is recorded.")
            steps = (None, None)
        window = _windows[os.getpid()] = ProfileWindow(Path(directory), steps)
    return None if window.over else window


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last step of ``a:b``; either may be left out, and ``a`` alone is one step.

    Raises:
        ValueError: It is something else.

    >>> parse_steps("10:20"), parse_steps(":5"), parse_steps("7"), parse_steps("")
    ((10, 20), (None, 5), (7, 7), (None, None))
    """
    low, colon, high = text.partition(":")
    try:
        first = int(low) if low else None
        last = (int(high) if high else None) if colon else first
    except ValueError:
        raise ValueError(f"{text!r} is no step and no range such as 10:20") from None
    return first, last


_windows: dict[int, ProfileWindow] = {}
_forked_while_on = False


def _config(cuda: bool, everywhere: bool) -> object:
    """Return torch's settings that are not settled yet; those that this torch does not know are left out."""
    kind: Any = import_module("torch._C._profiler")._ExperimentalConfig
    wanted = {"enable_cuda_sync_events": cuda, "profile_all_threads": everywhere}
    config = {}
    for name in (n for n, on in wanted.items() if on):
        try:
            kind(**{name: True})
        except TypeError:
            if name == "profile_all_threads":
                raise RuntimeError(
                    "the first mark is not set by the main thread, and this torch records one thread"
                ) from None
            continue
        config[name] = True
    return kind(**config)


def _take_out(window: ProfileWindow) -> None:
    emitters = marking.emitters()
    if window in emitters:
        marking.set_emitters(tuple(e for e in emitters if e is not window))


def _at_end(window: ProfileWindow) -> None:
    """Close the window when the process ends, before torch takes itself down."""
    atexit.register(window.close)
    at_end_of_worker(window.close)


def _say(text: str) -> None:
    print(f"gapscope: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the one way to tell the user

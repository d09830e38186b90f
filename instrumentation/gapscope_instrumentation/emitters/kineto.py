"""Marks as torch.profiler annotations (``user_annotation``), while a profiler is on.

``record_function`` costs microseconds even with no profiler, so the profiler is asked first (54 ns). The text form
survives in every version; arguments would need ``record_shapes``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gapscope_instrumentation.contract import MARKS, PREFIX
from gapscope_instrumentation.handoff import Handoff


class KinetoEmitter:
    """Marks in whatever torch profiler runs."""

    name = "torch"

    def __init__(
        self, enabled: Callable[[], bool], enter: Callable[..., Any], leave: Callable[[Any], Any], off: Any
    ) -> None:
        self._enabled, self._enter, self._leave, self._off = enabled, enter, leave, off
        self._names = [PREFIX + mark for mark in MARKS]

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open an annotation, if a profiler is on."""
        if not self._enabled():
            return None
        return self._enter(self._names[mark] + handoff.text, None)

    def end(self, token: object) -> None:
        """Close an annotation."""
        if token is not None:
            with self._off():  # as torch's own record_function does: subclasses of tensors must not see the call
                self._leave(token)

    def point(self, mark: int, handoff: Handoff) -> None:
        """Write an annotation of no length."""
        self.end(self.begin(mark, handoff))

    def close(self) -> None:
        """Nothing is left to write."""


def open_kineto() -> tuple[KinetoEmitter | None, str]:
    """Return the emitter, None where torch is not loaded or has no profiler, and one phrase on what was found."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "ops"):
        return None, "torch is not loaded"
    try:
        enabled = torch.autograd._profiler_enabled
        enter = torch.ops.profiler._record_function_enter_new.default
        leave = torch.ops.profiler._record_function_exit._RecordFunction
        off = torch._C.DisableTorchFunctionSubclass
    except AttributeError as error:
        return None, f"torch {torch.__version__} has no {error.name}"
    return KinetoEmitter(enabled, enter, leave, off), f"torch {torch.__version__}, while a profiler is on"

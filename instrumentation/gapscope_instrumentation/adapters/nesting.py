"""What adapters share: brackets around one call of a framework, who marks what two adapters see, and subclasses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from gapscope_instrumentation import marking
from gapscope_instrumentation.handoff import Handoff

marked_above: ContextVar[bool] = ContextVar("gapscope_marked_above", default=False)
"""True inside a transfer that an adapter has marked: one that sees the layer below counts it, and marks nothing."""

_told: set[str] = set()


class Around:
    """Brackets around one call, opened in the order given and closed in the reverse order, whatever the call raises.

    Args:
        marks: What to open: the mark (position in `gapscope_instrumentation.contract.MARKS`) and its handoff.
        transfer: The call moves data, and what it calls must not be marked again (`marked_above`).
    """

    __slots__ = ("_marks", "_open", "_token", "_transfer")

    def __init__(self, marks: list[tuple[int, Handoff]], transfer: bool = False) -> None:
        self._marks, self._transfer = marks, transfer
        self._open: list[marking.Bracket] = []

    def __enter__(self) -> None:
        if self._transfer:
            self._token = marked_above.set(True)
        self._open.extend(marking.bracket(mark, handoff).start() for mark, handoff in self._marks)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in reversed(self._open):
            opened.end()
        if self._transfer:
            marked_above.reset(self._token)


def say_once(adapter: str, error: Exception) -> None:
    """Warn that an adapter could not tell what to mark; the framework goes on without that mark."""
    text = f"gapscope: {adapter} could not mark a handoff ({type(error).__name__}: {error})."
    if text not in _told:
        _told.add(text)
        with suppress(RuntimeWarning):  # where warnings are errors, it must not end the job either
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def with_subclasses(owner: Any, name: str) -> Iterator[Any]:
    """Yield a class and those below it that have a function of their own of that name."""
    if name in vars(owner):
        yield owner
    for below in owner.__subclasses__():
        yield from with_subclasses(below, name)

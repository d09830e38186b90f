"""Say when loops are compiled: once after installing, which can take a minute that looks like a standstill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from gapscope.readers.base import Progress

COMPILING = "compiling, once after installing"


@contextmanager
def compiling_told(progress: Progress) -> Iterator[Progress]:
    """Yield a progress function that passes on what is said, and says `COMPILING` while a loop is compiled.

    Args:
        progress: Called with what is going on and the fraction done; from the thread that compiles as well.
    """
    telling = _Telling(progress)
    with event.install_listener("numba:compile", telling):
        yield telling.said


class _Telling(event.Listener):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = ("", 0.0)
        self._depth = 0  # a loop is compiled within another; never two at once, numba has one lock for all

    def said(self, what: str, fraction: float) -> None:
        self._last = (what, fraction)
        self._progress(what, fraction)

    def on_start(self, _: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            self._progress(COMPILING, self._last[1])

    def on_end(self, _: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._progress(*self._last)

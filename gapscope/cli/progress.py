"""A progress bar on stderr, for what takes longer than a second."""

from __future__ import annotations

from threading import Lock, Timer
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_PATIENCE_S = 1.0


class LateProgress:
    """Shows nothing for a second, then a bar that goes away when done; never on a pipe.

    The bar comes by itself: what takes longest may have said its last word before the second was over.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._said = ("", 0.0)
        self._bar: Progress | None = None
        self._is_over = False
        self._lock = Lock()  # several threads tell how far they are
        self._timer = Timer(_PATIENCE_S, self._show)
        self._timer.daemon = True

    def __enter__(self) -> LateProgress:
        if self._console.is_terminal:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, what: str, fraction: float) -> None:
        """Show what is going on and how far it is (0 to 1)."""
        with self._lock:
            self._said = (what, fraction)
            if self._bar is not None:
                self._bar.update(self._task, description=what, completed=fraction)

    def _show(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with self._lock:
            if self._is_over:
                return
            what, fraction = self._said
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(what, total=1.0)
            self._bar.update(self._task, completed=fraction)

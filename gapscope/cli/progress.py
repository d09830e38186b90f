"""A progress bar on stderr, for what takes longer than a second."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_PATIENCE_S = 1.0


class LateProgress:
    """Shows nothing for a second, then a bar that goes away when done; never on a pipe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._console = Console(stderr=True)
        self._bar: Progress | None = None

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, fraction: float) -> None:
        """Show what is going on and how far it is (0 to 1)."""
        if self._bar is None:
            if not self._console.is_terminal or time.monotonic() - self._began < _PATIENCE_S:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(what, total=1.0)
        self._bar.update(self._task, description=what, completed=fraction)

"""The engine of one machine: threads of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np  # noqa: F401 - polars imports it on first use, which is not safe from several threads at once

from gapscope.inputs import expand
from gapscope.load.engines.base import Asked, Recording
from gapscope.load.fetching import expand_url, is_url, without_scheme
from gapscope.load.one_file import Read, read_file, shown_path
from gapscope.readers.base import Progress, ReadOptions


class LocalEngine:
    """Reads files of this machine, and those behind URLs.

    Args:
        workers: Files read at once; None: one per processor, four at most.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def session(self) -> AbstractContextManager[None]:
        """Hold nothing."""
        return nullcontext()

    def find(self, asked: Sequence[Asked]) -> list[Recording]:
        """Return the recordings; see `gapscope.load.engines.base.Engine`."""
        found: dict[Path, Recording] = {}
        for a in asked:
            for file in [] if is_url(a.given) else expand([without_scheme(a.given)]):
                key = file.path.resolve()
                before = found.get(key)
                job = a.job or (before.job if before else None)
                best = file if before is None or file.named else before.file
                assert not isinstance(best, str)
                found[key] = Recording(best, shown_path(file.path), job)
        return [*(found[key] for key in sorted(found)), *find_urls(asked)]

    def read(self, recordings: Sequence[Recording], options: ReadOptions, progress: Progress) -> list[Read]:
        """Return what became of each recording; see `gapscope.load.engines.base.Engine`."""
        if not recordings:
            return []
        parts = Parts(progress, len(recordings))
        workers = self._workers or min(4, os.cpu_count() or 1, len(recordings))

        def read(number: int) -> Read:
            recording = recordings[number]
            try:
                return read_file(recording.file, recording.shown, options, parts.of(number))
            finally:
                parts.done(number, f"reading {Path(recording.shown).name}")

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(read, range(len(recordings))))


def find_urls(asked: Sequence[Asked]) -> list[Recording]:
    """Return the recordings behind URLs, each once, ordered by URL.

    Raises:
        UsageError: There is nothing behind one of them, or it cannot be looked into.
    """
    found: dict[str, Recording] = {}
    for a in asked:
        for file in expand_url(a.given) if is_url(a.given) else []:
            before = found.get(file.url)
            best = file if before is None or file.named else before.file
            found[file.url] = Recording(best, file.url, a.job or (before.job if before else None))
    return [found[url] for url in sorted(found)]


class Parts:
    """Adds up the progress of several files.

    Args:
        progress: Told the fraction done of all.
        total: How many there are.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._fractions = [0.0] * total
        self._lock = threading.Lock()

    def of(self, number: int) -> Progress:
        """Return what one file reports to."""

        def report(what: str, fraction: float) -> None:
            with self._lock:
                self._fractions[number] = min(fraction, 1.0)
                self._progress(what, sum(self._fractions) / len(self._fractions))

        return report

    def done(self, number: int, what: str) -> None:
        """Note that one file is done."""
        self.of(number)(what, 1.0)

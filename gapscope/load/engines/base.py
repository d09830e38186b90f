"""What an engine is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from gapscope.inputs import InputFile
from gapscope.load.fetching import RemoteFile
from gapscope.load.one_file import Read
from gapscope.readers.base import Progress, ReadOptions


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that the user named.

    Attributes:
        given: A file, a folder, a pattern or a URL.
        job: The job it is of; None where the marks tell it.
    """

    given: str
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording that was found.

    Attributes:
        file: What is read, as it is named where it lies.
        shown: Its name in reports and messages.
        job: The job it is of; None where the marks tell it.
        number: Its place in what the engine knows about it; engines use it as they like.
    """

    file: InputFile | RemoteFile
    shown: str
    job: str | None = None
    number: int = 0


class Engine(Protocol):
    """Finds and reads the recordings of a run."""

    def session(self) -> AbstractContextManager[None]:
        """Hold what finding and reading need; both are called inside.

        Raises:
            UsageError: It cannot be had.
        """
        ...

    def find(self, asked: Sequence[Asked]) -> list[Recording]:
        """Return the recordings behind what was asked for, each once, ordered by path, then URLs.

        Raises:
            UsageError: Something named is not there.
        """
        ...

    def read(self, recordings: Sequence[Recording], options: ReadOptions, progress: Progress) -> list[Read]:
        """Return what became of each recording, in their order.

        Args:
            recordings: What `find` returned.
            options: What the user set about reading.
            progress: Called with what is going on and the fraction done of all.
        """
        ...

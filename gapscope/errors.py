"""Errors that gapscope raises.

    GapscopeError
    ├── InputError              one file cannot be read; the others still are
    │   ├── UnknownFormatError      no reader knows the content
    │   ├── MalformedTraceError     the format is known, the content is broken
    │   ├── UnsupportedVersionError the format is known, the version is not
    │   └── ExporterError           a ``.nsys-rep`` could not be exported by ``nsys``
    ├── IdentityError           ranks contradict each other, files form several runs
    ├── ReplayError             an unchanged replay does not give back the recorded times
    └── UsageError              the call cannot be carried out as it was made

Every message says what was found and what to do next. Data problems that do not stop the
analysis are findings (`gapscope.findings`), not errors.
"""

from __future__ import annotations

from os import PathLike


class GapscopeError(Exception):
    """Root of all errors raised on purpose by gapscope."""


class InputError(GapscopeError):
    """One input file cannot be used.

    Args:
        path: The file.
        found: What is wrong with it, in one sentence.
        next_step: What the user can do about it, in one sentence; may be empty.
    """

    def __init__(self, path: str | PathLike[str], found: str, next_step: str = "") -> None:
        self.path = str(path)
        self.found = found
        self.next_step = next_step
        super().__init__(f"{self.path}: {found}" + (f" {next_step}" if next_step else ""))


class UnknownFormatError(InputError):
    """No reader recognizes the content of the file."""


class MalformedTraceError(InputError):
    """The format is known, but the content cannot be used at all."""


class UnsupportedVersionError(InputError):
    """The format is known, but this version of it is not."""


class ExporterError(InputError):
    """``nsys`` is missing, too old for the report, or failed to export it."""


class IdentityError(GapscopeError):
    """Who recorded what is contradictory: two ranks for one process, or several runs in one call."""


class UsageError(GapscopeError):
    """The call cannot be carried out as it was made."""


class ReplayError(GapscopeError):
    """What-if cannot be answered: the graph, replayed without a change, gives other times than were recorded.

    Args:
        node: What differs first, in words.
        at_ns: Its recorded time.
    """

    def __init__(self, node: str, at_ns: int) -> None:
        self.node, self.at_ns = node, at_ns
        super().__init__(
            f"What-if is refused: replayed without a change, {node} (recorded at {at_ns} ns) has another time. "
            "The other results stand; please report the recording."
        )


class LoopsNotKeptWarning(RuntimeWarning):
    """What was compiled could not be kept, so that the next run compiles it again."""

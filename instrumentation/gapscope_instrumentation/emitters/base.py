"""What an emitter is."""

from __future__ import annotations

from typing import Protocol

from gapscope_instrumentation.handoff import Handoff


class Emitter(Protocol):
    """Writes marks to one kind of recording.

    ``begin`` and ``end`` may be called on different threads and in any order; neither waits for the device, and
    neither raises for what the recording does not take. Brackets that are dropped without an end leave nothing behind.
    """

    @property
    def name(self) -> str:
        """Short name, as `gapscope_instrumentation.status` shows it."""
        ...

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open a bracket.

        Args:
            mark: Position in `gapscope_instrumentation.contract.MARKS`.
            handoff: What is marked; of a unit, its fields.

        Returns:
            What ``end`` needs; None: nothing was opened.
        """
        ...

    def end(self, token: object) -> None:
        """Close a bracket."""
        ...

    def point(self, mark: int, handoff: Handoff) -> None:
        """Mark a point."""
        ...

    def close(self) -> None:
        """Write what is left, and stop."""
        ...

"""What is asked of a trace, and the tables that answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from gapscope.errors import UsageError

if TYPE_CHECKING:
    from gapscope.clocks import AlignOptions

TABLES = (
    "handoffs", "tiles", "units", "exposure", "fixes", "slack", "messages", "interference", "waiting", "alignment",
)  # fmt: skip
"""Tables of an analysis; each is written as Parquet under its name."""


@dataclass(frozen=True)
class Request:
    """What is asked of a trace.

    Attributes:
        steps: Handoffs of these steps, first and last included; None at either end leaves it open.
        ranks: Handoffs that have one of these ranks as an end; None: all.
        warmup: Steps of each edge that count as start-up.
        clocks: What the user knows about the clocks.
        unmarked: Make handoffs of communication without marks also where there are marks.
        comm_kernels: Patterns of the names of kernels that communicate and are no NCCL.
    """

    steps: tuple[int | None, int | None] | None = None
    ranks: tuple[int, ...] | None = None
    warmup: int = 1
    clocks: AlignOptions | None = None
    unmarked: bool = False
    comm_kernels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check what is asked.

        Raises:
            UsageError: The steps are none, or a pattern is none.
        """
        low, high = self.steps or (None, None)
        if low is not None and high is not None and low > high:
            raise UsageError(f"Steps {low} to {high}: the first is behind the last.")
        for pattern in self.comm_kernels:
            _check(pattern)

    @property
    def selection(self) -> dict[str, Any]:
        """What was chosen, as reports say it."""
        steps, ranks = self.steps and list(self.steps), None if self.ranks is None else list(self.ranks)
        return {"steps": steps, "ranks": ranks, "warmup": self.warmup}


def _check(pattern: str) -> None:
    """Raise if the engine that will match a pattern does not take it."""
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError as error:
        reason = next((t for t in str(error).splitlines() if t.startswith("error: ")), "error: it cannot be read")
        raise UsageError(
            f"{pattern!r} is no pattern for names of kernels: {reason.removeprefix('error: ')}. "
            "Give a regular expression, such as one_shot."
        ) from error

"""What the families of evidence work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from gapscope.clocks.domains import Domains
from gapscope.clocks.observations import Evidence, observations, thin
from gapscope.comms.calls_by_id import CallsById
from gapscope.events import Ends
from gapscope.trace import Trace


@dataclass(frozen=True)
class Context:
    """What the families of evidence work with.

    Attributes:
        trace: The recordings.
        domains: Their clocks.
        ends: The events of the handoffs that marks name; None: there are none.
    """

    trace: Trace
    domains: Domains
    ends: Ends | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def several_clocks(self) -> bool:
        """Tell if there is more than one host clock."""
        return int(self.domains.is_host.sum()) > 1

    @cached_property
    def calls(self) -> CallsById:
        """All host calls by correlation id."""
        return CallsById(self.trace)

    def call_number(self) -> pl.Expr:
        """Return what a call is known by, as text: from ``correlation, process, source``."""
        paths = dict(self.trace.sources.select("source", "path").iter_rows())
        file = pl.col("source").replace_strict(paths, return_dtype=pl.String)
        return pl.format("{} of process {} in {}", "correlation", "process", file)

    def evidence(
        self,
        frame: pl.DataFrame,
        kind: str,
        texts: tuple[pl.Expr, pl.Expr],
        instance: pl.Expr,
        about: Callable[[pl.DataFrame], pl.DataFrame] = lambda kept: kept,
    ) -> Evidence:
        """Return evidence of one kind.

        Rows without a clock or a time, and rows within one clock, say nothing and are left out.

        Args:
            frame: ``earlier, later, earlier_ns, later_ns`` and what the texts need.
            kind: A key of `gapscope.clocks.observations.KINDS`.
            texts: What the earlier and the later moment are called.
            instance: What both belong to.
            about: Adds what else the texts need, to the rows that are kept.
        """
        wanted = ["earlier", "later", "earlier_ns", "later_ns"]
        useful = frame.drop_nulls(wanted).filter(pl.col("earlier") != pl.col("later"))
        named = about(thin(useful)).with_columns(
            kind=pl.lit(kind), instance=instance, earlier_what=texts[0], later_what=texts[1]
        )
        return Evidence(observations(named), counts={kind: useful.height} if useful.height else {})


def nothing() -> Evidence:
    """Return no evidence."""
    return Evidence(observations(pl.DataFrame(schema=_EMPTY)))


_EMPTY = {
    "earlier": pl.Int32,
    "later": pl.Int32,
    "earlier_ns": pl.Int64,
    "later_ns": pl.Int64,
    "kind": pl.String,
    "instance": pl.String,
    "earlier_what": pl.String,
    "later_what": pl.String,
}

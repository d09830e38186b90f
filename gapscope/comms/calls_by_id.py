"""Calls by correlation id: of millions, the few that are asked for, without a join."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import Rows, places
from gapscope.trace import Trace

Indices = npt.NDArray[np.int32]


class CallsById:
    """All host calls of a trace, looked up by source, process and correlation id.

    Args:
        trace: The recordings.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def _rows(self) -> Rows:
        calls = self._trace.scan("calls")
        ids = calls.select("correlation").collect()
        return Rows(ids, places=places(calls, ids.height))

    def spans(self, frame: pl.DataFrame, column: str = "correlation") -> tuple[Indices, Indices]:
        """Return between which places the calls with each id stand: from the first to before the second.

        Args:
            frame: Has ``source``, ``process`` and ``column``.
            column: Column of ids; a null has no calls.
        """
        return self._rows.spans(frame, column)

    def at(self, places: Indices) -> Indices:
        """Return the numbers of the calls at some places."""
        return self._rows.at(places)

    def column(self, name: str, calls: Indices) -> pl.Series:
        """Return one column of some calls.

        Args:
            name: A column of table ``calls``.
            calls: Their numbers.
        """
        return self._trace.scan("calls").select(name).collect().to_series().gather(calls)

"""The edges of a page: numbers that everything shown carries, so that one can be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from gapscope.summary import COUNTED, EDGE
from gapscope.wording import edge_name


class Edges:
    """The edges of a summary, by number.

    Attributes:
        names: Names, as reports write them; those that share one are numbered.
        handoffs: How many handoffs each has.
    """

    def __init__(self, summary: Mapping[str, Any]) -> None:
        edges = summary["edges"]
        names = [edge_name(edge) for edge in edges]
        again = [f" ({names[:i].count(name) + 1})" if names.count(name) > 1 else "" for i, name in enumerate(names)]
        self.names = [name + suffix for name, suffix in zip(names, again, strict=True)]
        self.handoffs = [int(edge["handoffs"]) for edge in edges]
        self._number = {_key(edge): i for i, edge in enumerate(edges)}

    def number(self, edge: Mapping[str, Any]) -> int | None:
        """Return the number of the edge that a row of a table is about; None: of none."""
        return self._number.get(_key(edge))

    def numbers(self, handoffs: pl.DataFrame) -> pl.Series:
        """Return the number of each handoff's edge."""
        keys = handoffs.select(EDGE).iter_rows()
        return pl.Series("edge", [self._number[key] for key in keys], dtype=pl.Int64)


def is_counted() -> pl.Expr:
    """Tell which handoffs the percentiles and sums are over."""
    return COUNTED.fill_null(value=False)


def _key(edge: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(edge[column] for column in EDGE)

"""When steps and requests begin and end, and by how much sooner they would have after a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.causes.units import NO_NODE, Units
from gapscope.graph.forward import Forward

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """Steps and requests that have both ends, in the order of their ends.

    Attributes:
        table: ``unit, id, job, steady, before_ns`` (how long each took).
        begin: Where the node that each begins with stands in the replay; -1: none is known.
        before: Row of the unit of the same kind and job that ended before it; -1: none did.
        is_step: Whether it is a step: those begin when the one before is over.
        row: Row of the unit that each rank ended.
        node: Where what it ended it with stands in the replay; -1: none is known.
        end_ns: When it had.
        until_ns: When the last rank had; 0 where none is known.
    """

    table: pl.DataFrame
    begin: Ints
    before: Ints
    is_step: npt.NDArray[np.bool_]
    row: Ints
    node: Ints
    end_ns: Ints
    until_ns: Ints

    @classmethod
    def of(cls, units: Units, forward: Forward) -> Timeline:
        """Return the units of which it is known what they ended with."""
        table = units.table.with_columns(
            position=pl.int_range(pl.len(), dtype=pl.Int64),
            first=pl.Series(units.first),
            before_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        known = pl.Series(units.last != NO_NODE, dtype=pl.Boolean)
        table = table.filter(pl.col("before_ns").is_not_null() & known).sort(
            "unit", "end_ns", "id", maintain_order=True
        )
        table = table.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
        before = table.select(pl.col("row").shift(1, fill_value=-1).over("unit", "job")).to_series().to_numpy()
        row_of = np.full(units.table.height, -1, np.int64)
        row_of[table["position"].to_numpy()] = table["row"].to_numpy()
        row = row_of[units.ends["position"].to_numpy()]
        node, end_ns = (units.ends[c].to_numpy()[row >= 0] for c in ("node", "end_ns"))
        row = row[row >= 0]
        until = np.full(table.height, np.iinfo(np.int64).min)
        np.maximum.at(until, row, end_ns)
        return cls(
            table.select("unit", "id", "job", "steady", pl.col("before_ns").cast(pl.Int64)),
            _placed(forward, table["first"].to_numpy()), before, (table["unit"] == "step").to_numpy(), row,
            _placed(forward, node), end_ns, until,
        )  # fmt: skip

    def earlier(self, sooner: Ints) -> tuple[Ints, Ints]:
        """Return by how much sooner each unit begins and ends; another rank may be the last to end it then.

        Args:
            sooner: By how much sooner each node of the replay would have happened.
        """
        now = np.full(len(self.begin), np.iinfo(np.int64).min)
        np.maximum.at(now, self.row, self.end_ns - np.where(self.node < 0, 0, sooner[self.node]))
        end = self.until_ns - now
        began = np.where(self.begin < 0, 0, sooner[self.begin])
        # A step begins when the one before it is over, whichever rank opens it first: hosts run ahead of their GPUs.
        over = np.where(self.before < 0, 0, end[self.before])
        return np.where(self.is_step, over, began), end


def _placed(forward: Forward, nodes: Ints) -> Ints:
    places = np.where(nodes == NO_NODE, NO_NODE, nodes)
    places[nodes != NO_NODE] = forward.places(nodes[nodes != NO_NODE])
    return places

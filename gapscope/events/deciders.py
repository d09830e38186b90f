"""Of the operations of each mark, the one that started first and the one that ended last: one compiled pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from gapscope.correlation import NONE
from gapscope.loops import loop
from gapscope.schema import OP_KIND

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_UNTIMED = np.iinfo(np.int64).min
_GRAPH = OP_KIND.categories.to_list().index("graph")
_NO_KIND = 255
_MOST_NAMES = 8


def deciders(launched: pl.DataFrame, transfers: pl.Series) -> pl.DataFrame:
    """Return per mark the first start and last end, and whether something without a time could have been it.

    Args:
        launched: Result of `gapscope.events.launched.launched_inside`.
        transfers: ``mark_id`` of the marks of which ``copy_kinds`` and ``kernels`` are wanted; null: others, or none.
    """
    marks = launched["mark_id"].to_numpy()
    start, end = (launched[c].fill_null(_UNTIMED).to_numpy() for c in ("start_ns", "end_ns"))
    kind = launched["kind"].to_physical().fill_null(_NO_KIND).to_numpy()
    n_marks = int(marks.max()) + 1 if len(marks) else 0
    n_rows, has_graph, first, last = _pass(marks, start, end, kind == _GRAPH, n_marks)
    there = np.flatnonzero(n_rows).astype(np.uint32)
    found = pl.DataFrame(
        {"mark_id": there, "n_rows": n_rows[there].astype(np.uint32), "has_graph": has_graph[there]},
        schema_overrides={"mark_id": launched.schema["mark_id"]},
    ).hstack([*_of(launched, first[there], "first", "start_ns"), *_of(launched, last[there], "last", "end_ns")])
    named = launched.filter(pl.col("mark_id").is_in(transfers.implode())) if len(transfers) else launched.clear()
    of_kernels = pl.col("name").head(_MOST_NAMES).alias("kernels")
    for column, listed, rows in (
        ("copy_kind", pl.col("copy_kind").alias("copy_kinds"), named),
        ("name", of_kernels, named.filter(pl.col("kind") == "kernel")),
    ):
        texts = rows.select("mark_id", column).drop_nulls().unique().cast({column: pl.String}).sort("mark_id", column)
        lists = texts.group_by("mark_id", maintain_order=True).agg(listed)
        found = found.join(lists, on="mark_id", how="left", maintain_order="left")
    undecided = _undecided(launched, found)
    flags = [c for c in undecided.columns if c != "mark_id"]
    return (
        found.drop("first_call_ns", "last_call_ns")
        .join(undecided, on="mark_id", how="left", maintain_order="left")
        .with_columns(pl.col(flags).fill_null(value=False))
    )


def _of(launched: pl.DataFrame, row: Indices, which: str, time: str) -> list[pl.Series]:
    """Return what decides an end of each mark; null: nothing has a time."""
    at = pl.Series(row)
    at = at.set(at == NONE, None).cast(pl.UInt32)
    columns = {"op_ns": time, "call_ns": "call_ns", "device": "device", "correlation": "call_correlation"}
    return [launched[column].gather(at).alias(f"{which}_{name}") for name, column in columns.items()]


def _undecided(launched: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return per mark with operations without a time whether one could have been the first or the last."""
    known = pl.col("kind").is_not_null()
    rows = launched.filter(pl.col("start_ns").is_null()).join(
        found.select("mark_id", "first_call_ns", "last_call_ns"), on="mark_id", how="left"
    )
    spanned = pl.col("call_ns").is_null()  # no call recorded: it has a time, and no place among the calls
    before = (pl.col("call_ns") <= pl.col("first_call_ns")).fill_null(value=True)
    behind = (pl.col("call_ns") >= pl.col("last_call_ns")).fill_null(value=True)
    return rows.group_by("mark_id").agg(
        first_untimed=(known & before).any(),
        last_untimed=(known & behind).any(),
        first_missing=(~known & before & ~spanned).any(),
        last_missing=(~known & behind & ~spanned).any(),
    )


@loop
def _pass(
    marks: npt.NDArray[np.uint32], start: Ints, end: Ints, is_graph: Bools, n: int
) -> tuple[Indices, Bools, Indices, Indices]:
    """Return per mark: rows, whether one is a graph, the row that started first and the one that ended last."""
    n_rows, has_graph = np.zeros(n, np.int32), np.zeros(n, np.bool_)
    first, last = np.full(n, NONE, np.int32), np.full(n, NONE, np.int32)
    for row in range(len(marks)):
        mark = marks[row]
        n_rows[mark] += 1
        has_graph[mark] |= is_graph[row]
        if start[row] != _UNTIMED and (first[mark] == NONE or start[row] < start[first[mark]]):
            first[mark] = row
        if end[row] != _UNTIMED and (last[mark] == NONE or end[row] > end[last[mark]]):
            last[mark] = row
    return n_rows, has_graph, first, last

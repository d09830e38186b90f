"""Two series joined by key, and what has no counterpart.

A request that is missing in one arm is not zero, and leaving out requests that one arm lost makes that arm look better.
So what is missing is listed, and beyond one percent the arms are no longer compared pair by pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from gapscope.errors import UsageError
from gapscope.statistics.arrays import Floats, observed

MOST_UNPAIRED = 0.01
"""Of all keys; beyond, the arms are compared without pairs."""

_PLACE = "__place"


@dataclass(frozen=True)
class Pairing:
    """Two series joined by key.

    Attributes:
        rows: One row per pair: the key, `a_ns`, `b_ns`; neither is null. In the order of arm A.
        a_values: All of arm A that have a value: the key, `a_ns`; in its order.
        b_values: All of arm B that have a value: the key, `b_ns`; in its order.
        missing_in_a: Keys that arm B has a value for and arm A has none: the key, and `reason` (``absent``, or ``null``
            where the row is there without a value).
        missing_in_b: Keys that arm A has a value for and arm B has none, likewise.
        without_value: Keys that have a value in neither arm.
        without_key: Rows of both arms that have a null in their key: they belong to no pair.
        unpaired_share: Of all keys (and rows without one), how many are no pair; null where there is none at all.
        paired: Whether to compare pair by pair: there are pairs, and at most `MOST_UNPAIRED` is unpaired.
        note: What is missing, and what follows, in words; empty where everything is paired.
    """

    rows: pl.DataFrame
    a_values: pl.DataFrame
    b_values: pl.DataFrame
    missing_in_a: pl.DataFrame
    missing_in_b: pl.DataFrame
    without_value: int
    without_key: int
    unpaired_share: float | None
    paired: bool
    note: str

    def series(self) -> tuple[Floats, Floats]:
        """Return the values of both arms: of the pairs if `paired`, else of all keys, which then do not correspond."""
        if self.paired:
            return observed(self.rows["a_ns"].to_numpy()), observed(self.rows["b_ns"].to_numpy())
        return observed(self.a_values["a_ns"].to_numpy()), observed(self.b_values["b_ns"].to_numpy())


def pair(a: pl.DataFrame, b: pl.DataFrame, key: Sequence[str], value: str) -> Pairing:
    """Return two series joined by key.

    Args:
        a: One row per key of arm A, in order of time.
        b: One row per key of arm B.
        key: Columns of the key: those of a handoff, `step`, or the id of a request.
        value: The column to compare; null means not observed.

    Raises:
        UsageError: If a key occurs twice in an arm, or columns are missing or of different kinds.
    """
    columns = list(key)
    first, without_a = _arm(a, columns, value, "A", "a_ns")
    second, without_b = _arm(b, columns, value, "B", "b_ns")
    first, second = _same_keys(first, second, columns)
    joined = first.join(second, on=columns, how="full", coalesce=True, suffix="_b").sort(
        _PLACE, f"{_PLACE}_b", nulls_last=True
    )
    has_a, has_b = pl.col("a_ns").is_not_null(), pl.col("b_ns").is_not_null()
    rows = joined.filter(has_a & has_b)
    missing_in_a = joined.filter(has_b & ~has_a).select(*columns, _reason(_PLACE))
    missing_in_b = joined.filter(has_a & ~has_b).select(*columns, _reason(f"{_PLACE}_b"))
    missing = {
        "missing in A": missing_in_a.height,
        "missing in B": missing_in_b.height,
        "without a value in both": joined.filter(~has_a & ~has_b).height,
        "without a key": without_a + without_b,
    }
    total = rows.height + sum(missing.values())
    share = (total - rows.height) / total if total else None
    paired = rows.height > 0 and share is not None and share <= MOST_UNPAIRED
    return Pairing(
        rows=rows.select(*columns, "a_ns", "b_ns"),
        a_values=first.filter(has_a).drop(_PLACE),
        b_values=second.filter(has_b).drop(_PLACE),
        missing_in_a=missing_in_a,
        missing_in_b=missing_in_b,
        without_value=missing["without a value in both"],
        without_key=missing["without a key"],
        unpaired_share=share,
        paired=paired,
        note=_note(rows.height, missing, paired),
    )


def _arm(arm: pl.DataFrame, key: list[str], value: str, name: str, value_name: str) -> tuple[pl.DataFrame, int]:
    """Return the key, the value and the place of the rows that have a key, and how many have none."""
    if absent := [column for column in [*key, value] if column not in arm.columns]:
        raise UsageError(f"Arm {name} has no column {', '.join(absent)}. It has {', '.join(arm.columns)}.")
    if not key:
        raise UsageError("Pairs need a key: the columns of a handoff, step or request id.")
    rows = arm.select(*key, pl.col(value).alias(value_name)).with_row_index(_PLACE).select(*key, value_name, _PLACE)
    known = rows.drop_nulls(key)
    twice = known.group_by(key, maintain_order=True).len().filter(pl.col("len") > 1)
    if twice.height:
        example = ", ".join(f"{column}={twice[column][0]}" for column in key)
        raise UsageError(
            f"Arm {name} has {twice.height} keys more than once, first {example} ({twice['len'][0]} times). "
            "Give one row per key: add what tells them apart to the key, or leave out what was recorded twice."
        )
    return known, rows.height - known.height


def _same_keys(a: pl.DataFrame, b: pl.DataFrame, key: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both arms with keys of one type.

    Raises:
        UsageError: If one arm has numbers where the other has text.
    """
    for column in key:
        kinds = (a.schema[column], b.schema[column])
        if kinds[0] == kinds[1]:
            continue
        if all(kind.is_integer() for kind in kinds):
            common: type[pl.DataType] = pl.Int64
        elif all(isinstance(kind, pl.String | pl.Categorical | pl.Enum) for kind in kinds):
            common = pl.String
        else:
            raise UsageError(f"The key {column} is {kinds[0]} in arm A and {kinds[1]} in arm B. Give both one type.")
        a, b = a.with_columns(pl.col(column).cast(common)), b.with_columns(pl.col(column).cast(common))
    return a, b


def _reason(place: str) -> pl.Expr:
    """Return why an arm has no value: it has no row of that key, or a null in it."""
    return pl.when(pl.col(place).is_null()).then(pl.lit("absent")).otherwise(pl.lit("null")).alias("reason")


def _note(pairs: int, missing: dict[str, int], paired: bool) -> str:
    """Return what is missing, and what follows."""
    total = pairs + sum(missing.values())
    if total == 0:
        return "no rows in either arm"
    if total == pairs:
        return ""
    listed = ", ".join(f"{count:,} {words}" for words, count in missing.items() if count)
    follows = "" if paired else f"; compared without pairs (more than {MOST_UNPAIRED:.0%} unpaired)"
    return f"{pairs:,} of {total:,} paired, {listed}{follows}"

"""Frames and numbers as text that a page can hold: columns, compact, and exact.

A block is JSON, deflated (zlib) and in base64; the page inflates it with ``DecompressionStream``. In it a frame is
``{"n": rows, "columns": {name: column}}``, and a column is one of

- ``{"c": value}``: the same value in every row,
- ``{"v": [...]}``: one value per row, null where it is not known,
- ``{"d": [...]}``: integers without null as differences, each to the row before, the first to 0,
- ``{"s": [...], "i": column}``: distinct texts, and one position per row in them, null where it is not known.

Absolute times are relative to a zero that the page adds as a big integer, since a double holds no Unix nanoseconds.
What is beyond a double even then (clocks that are not aligned may be decades apart) is written as text of digits.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection
from typing import Any

import polars as pl

_LARGEST_EXACT = 2**53 - 1

Column = dict[str, Any]


def pack(content: object) -> str:
    """Return JSON content as deflated base64.

    Raises:
        ValueError: A number in it is infinite or none, which JSON cannot say.
    """
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def frame_columns(frame: pl.DataFrame, zero_ns: int = 0, absolute: Collection[str] = ()) -> dict[str, Any]:
    """Return a frame as columns (see the module).

    Args:
        frame: Columns of integers, booleans, texts and floats.
        zero_ns: What absolute times are relative to.
        absolute: Columns with absolute times.

    >>> frame_columns(pl.DataFrame({"at_ns": [1007, 1010], "rank": [0, 0], "name": ["a", None]}), 1000, ["at_ns"])
    {'n': 2, 'columns': {'at_ns': {'d': [7, 3]}, 'rank': {'c': 0}, 'name': {'s': ['a'], 'i': {'v': [0, None]}}}}
    """
    shifted = [pl.col(name) - zero_ns for name in absolute]
    frame = frame.with_columns(shifted)
    return {"n": frame.height, "columns": {c.name: _column(c) for c in frame.iter_columns()}}


def _column(values: pl.Series) -> Column:
    if values.dtype.is_integer():
        values = values.cast(pl.Int64)
    if values.is_empty():
        return {"v": []}
    if values.n_unique() == 1:
        return {"c": _exact(values.head(1))[0]}
    if values.dtype in (pl.String, pl.Categorical, pl.Enum):
        return _coded(values.cast(pl.String))
    if values.dtype.is_integer() and not values.null_count():
        plain = _exact(values)
        # differences pay where neighbors are near: of durations they are longer than the values themselves
        steps = values.diff().fill_null(values[0]) if not isinstance(plain[0], str) else None
        if steps is not None and _digits(steps) < _digits(values) and _fits(values) and _fits(steps):
            return {"d": steps.to_list()}
        return {"v": plain}
    return {"v": _exact(values)}


def _coded(values: pl.Series) -> Column:
    names = values.drop_nulls().unique(maintain_order=True)
    codes = values.replace_strict(names, pl.Series(range(len(names)), dtype=pl.Int64), default=None)
    return {"s": names.to_list(), "i": _column(codes)}


def _exact(values: pl.Series) -> list[Any]:
    """Return the values; integers that a double does not hold as text."""
    if not values.dtype.is_integer() or _fits(values):
        return values.to_list()
    return [str(v) if v is not None and abs(v) > _LARGEST_EXACT else v for v in values.to_list()]


def _fits(values: pl.Series) -> bool:
    known = values.drop_nulls()
    return known.is_empty() or bool(known.is_between(-_LARGEST_EXACT, _LARGEST_EXACT).all())


def _digits(values: pl.Series) -> int:
    return int(values.cast(pl.Float64).abs().log1p().sum())

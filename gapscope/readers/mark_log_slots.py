"""Slots of a mark log: what each is, and the texts that span several.

The layout is that of `gapscope_instrumentation.contract`. Nothing here loops over slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from gapscope_instrumentation.contract import LOG_COLUMNS, LOG_SLOT_BYTES

MARK, TEXT, MORE_TEXT, ANCHOR, DEVICE_TIME = 1, 2, 3, 4, 5
"""The first byte of a slot."""

_MARK_TYPE = np.dtype([(name, f"<{kind}" if kind != "u1" else kind) for name, kind in LOG_COLUMNS])
_HEAD_BYTES = 64
_MORE_BYTES = LOG_SLOT_BYTES - 1
_TEXT_TYPE = np.dtype(
    [
        ("type", "u1"),
        ("what", "u1"),
        ("flags", "u1"),
        ("zero", "u1"),
        ("bytes", "<u4"),
        ("thread", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("text", "u1", (_HEAD_BYTES,)),
    ]
)
assert _MARK_TYPE.itemsize == _TEXT_TYPE.itemsize == LOG_SLOT_BYTES

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Slots:
    """The slots of one log, sorted out.

    Attributes:
        marks: Columns `LOG_COLUMNS` of marks and times of the device, in the order of the file.
        texts: ``what, flags, thread, start_ns, end_ns, text``.
        anchors: ``before, unix, after`` in the order of the file.
        total: Slots after the head, whole ones.
        dropped: Slots that cannot be used, by reason.
    """

    marks: pl.DataFrame
    texts: pl.DataFrame
    anchors: pl.DataFrame
    total: int
    dropped: dict[str, int]


def split_slots(data: bytes) -> Slots:
    """Sort out the slots of a log.

    Args:
        data: All slots after the head; bytes after the last whole one are left to the caller.
    """
    total = len(data) // LOG_SLOT_BYTES
    raw: Bytes = np.frombuffer(data, np.uint8, total * LOG_SLOT_BYTES).reshape(total, LOG_SLOT_BYTES)
    kind = raw[:, 0]
    empty = int((kind == 0).sum())
    unknown = int((kind > DEVICE_TIME).sum())
    marks = _marks(raw[(kind == MARK) | (kind == DEVICE_TIME)])
    texts, broken = _texts(raw, kind)
    heads = raw[kind == ANCHOR].view(_TEXT_TYPE).ravel()
    anchors = pl.DataFrame({"before": heads["thread"], "unix": heads["start_ns"], "after": heads["end_ns"]})
    dropped = {"damaged": empty + broken, "unknown_type": unknown}
    return Slots(marks, texts, anchors, total, {reason: n for reason, n in dropped.items() if n})


def _marks(raw: Bytes) -> pl.DataFrame:
    found: Any = np.ascontiguousarray(raw).view(_MARK_TYPE).ravel()
    return pl.DataFrame({name: np.ascontiguousarray(found[name]) for name, _ in LOG_COLUMNS})


def _texts(raw: Bytes, kind: Bytes) -> tuple[pl.DataFrame, int]:
    """Return the texts, and how many slots belong to none or to one that is not whole."""
    at = np.flatnonzero(kind == TEXT)
    heads: Any = raw[at].view(_TEXT_TYPE).ravel()
    length = heads["bytes"].astype(np.int64)
    more = np.maximum(0, -(-(length - _HEAD_BYTES) // _MORE_BYTES))
    # How many slots of more text follow each slot without a break.
    is_other = np.append(kind != MORE_TEXT, True)
    next_other = np.flatnonzero(is_other)
    following = next_other[np.searchsorted(next_other, at + 1)] - at - 1
    whole = more <= following
    used = int(more[whole].sum())
    broken = int((kind == MORE_TEXT).sum()) - used + int((~whole).sum())
    parts = []
    for count in np.unique(more[whole]).tolist():
        chosen = np.flatnonzero(whole & (more == count))
        of_count = heads[chosen]
        rest = raw[(at[chosen][:, None] + 1 + np.arange(count)[None, :]), 1:].reshape(len(chosen), count * _MORE_BYTES)
        parts.append(
            pl.DataFrame(
                {
                    "at": at[chosen],
                    **{c: np.ascontiguousarray(of_count[c]) for c in ("what", "flags", "thread", "start_ns", "end_ns")},
                    "text": _strings(np.concatenate([of_count["text"], rest], axis=1), length[chosen]),
                }
            )
        )
    schema = {"at": pl.Int64, "what": pl.UInt8, "flags": pl.UInt8, "thread": pl.Int64, "start_ns": pl.Int64}
    empty = pl.DataFrame(schema={**schema, "end_ns": pl.Int64, "text": pl.String})
    frame = pl.concat([empty, *parts]).sort("at").drop("at")
    readable = frame.filter(pl.col("text").is_not_null())
    return readable, broken + frame.height - readable.height


def _strings(matrix: Bytes, length: npt.NDArray[np.int64]) -> pl.Series:
    """Return the first ``length`` bytes of each row as text; null where they are no UTF-8."""
    width = matrix.shape[1]
    cut = np.where(np.arange(width)[None, :] < length[:, None], matrix, np.uint8(0))
    fixed = np.ascontiguousarray(cut).view(f"S{width}").ravel()
    texts: list[bytes] = fixed.tolist()
    try:
        return pl.Series(texts, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:  # one of them is no UTF-8
        return pl.Series([_decoded(text) for text in texts], dtype=pl.String)


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None

"""Protobuf as bytes: small messages field by field, and columns of rows in compiled loops.

Only what a Perfetto trace needs of the wire format: varints, fixed 64-bit numbers, and what has a length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gapscope.loops import loop

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = tuple[Ints, Ints]

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_DEBUG_ANNOTATION, _FLOW_ID = 4, 47  # fields of TrackEvent
_NAME_IID, _INT, _BOOL, _STRING_IID, _DOUBLE = 1, 4, 2, 17, 5  # fields of DebugAnnotation

INT, BOOL, STRING, DOUBLE = _INT, _BOOL, _STRING_IID, _DOUBLE
"""Kinds of values that a row can be annotated with."""


class Rows(NamedTuple):
    """Bytes of many rows: those of row ``i`` are ``data[begin[i]:begin[i + 1]]``."""

    data: Bytes
    begin: Ints


def varint(value: int) -> bytes:
    """Return a number in base 128, lowest digits first.

    >>> varint(300).hex(), varint(-1).hex()
    ('ac02', 'ffffffffffffffffff01')
    """
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """Return a field: a number as varint, text or a message with its length."""
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    data = value.encode(errors="replace") if isinstance(value, str) else value
    return varint(number << 3 | _LENGTH) + varint(len(data)) + data


def annotated(names: Ints, kinds: Ints, values: Ints, present: Bools, flows: Rows | None) -> Rows:
    """Return the annotations and flows of rows, as they stand in a track event.

    Args:
        names: Interned number of each column's name.
        kinds: `INT`, `BOOL`, `STRING` (interned numbers) or `DOUBLE` (its bits), per column.
        values: Rows by columns.
        present: Which of them there are.
        flows: Numbers of the flows that pass a row, 8 bytes each; None: no row has any.
    """
    if flows is None:
        flows = Rows(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    begin = np.zeros(len(values) + 1, np.int64)
    _annotation_sizes((names, kinds), values, present, flows, begin)
    np.cumsum(begin, out=begin)
    out = Rows(np.empty(begin[-1], np.uint8), begin)
    _put_annotations((names, kinds), values, present, flows, out)
    return out


@loop
def varint_size(value: int) -> int:
    """Return how many bytes a number takes."""
    size, rest = 1, np.uint64(value) >> np.uint64(7)
    while rest:
        size, rest = size + 1, rest >> np.uint64(7)
    return size


@loop
def put_varint(out: Bytes, at: int, value: int) -> int:
    """Write a number at a place; return the place behind it."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@loop
def _annotation_size(name: int, kind: int, value: int) -> int:
    of_value = 8 if kind == _DOUBLE else varint_size(value)
    return 1 + varint_size(name) + varint_size(kind << 3) + of_value


@loop
def _annotation_sizes(columns: Columns, values: Ints, present: Bools, flows: Rows, out: Ints) -> None:
    names, kinds = columns
    for i in range(values.shape[0]):
        size = 10 * ((flows.begin[i + 1] - flows.begin[i]) // 8)
        for k in range(values.shape[1]):
            if present[i, k]:
                inner = _annotation_size(names[k], kinds[k], values[i, k])
                size += 1 + varint_size(inner) + inner
        out[i + 1] = size


@loop
def _put_annotations(columns: Columns, values: Ints, present: Bools, flows: Rows, to: Rows) -> None:
    (names, kinds), out = columns, to.data
    for i in range(values.shape[0]):
        at = to.begin[i]
        for k in range(values.shape[1]):
            if not present[i, k]:
                continue
            at = put_varint(out, at, _DEBUG_ANNOTATION << 3 | _LENGTH)
            at = put_varint(out, at, _annotation_size(names[k], kinds[k], values[i, k]))
            at = put_varint(out, at, _NAME_IID << 3)
            at = put_varint(out, at, names[k])
            if kinds[k] == _DOUBLE:
                at = put_varint(out, at, _DOUBLE << 3 | _FIXED64)
                for byte in range(8):
                    out[at + byte] = np.uint8((values[i, k] >> (8 * byte)) & 0xFF)
                at += 8
            else:
                at = put_varint(out, at, kinds[k] << 3)
                at = put_varint(out, at, values[i, k])
        for flow in range(flows.begin[i], flows.begin[i + 1], 8):
            at = put_varint(out, at, _FLOW_ID << 3 | _FIXED64)
            out[at : at + 8] = flows.data[flow : flow + 8]
            at += 8

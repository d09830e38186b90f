"""JSON objects of a file: one, or several one after the other, as tools append them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gapscope.errors import InputError, MalformedTraceError, UnknownFormatError
from gapscope.findings import Finding
from gapscope.loadgen.numbers import DecimalText
from gapscope.readers.compression import ByteStream

Record = dict[str, Any]
"""One JSON object; numbers with a point or exponent, and NaN and infinity, are `DecimalText`."""

_SPACE = " \t\r\n"


def read_records(path: Path) -> tuple[list[Record], list[Finding]]:
    """Return the objects of a file, plain or compressed, and what was wrong with it.

    Objects before the place where the text breaks are returned, with a finding.

    Raises:
        InputError: The file cannot be opened.
        UnknownFormatError: It does not hold JSON objects.
        MalformedTraceError: No object in it is whole.
    """
    text, damage = _text(path)
    records: list[Record] = []
    decoder = json.JSONDecoder(parse_float=DecimalText, parse_constant=DecimalText)
    at = _skip_space(text, 0)
    if text[at : at + 1] != "{":
        shown = text[at : at + 24]
        what = "it is empty" if not shown else f"it starts with {shown!r}"
        raise UnknownFormatError(path, f"does not hold JSON objects ({what}).", "Give the result file of a benchmark.")
    while at < len(text):
        try:
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            damage = damage or f"the JSON breaks ({_reason(error)})"
            break
        if isinstance(record, dict):
            records.append(record)
        else:
            damage = damage or "something between its objects is none"
        at = _skip_space(text, at)
    if not records:
        raise MalformedTraceError(
            path, f"cannot be used: {damage}.", "It may have been cut off; copy it again, or run the benchmark again."
        )
    if damage is None:
        return records, []
    message = f"Of the load generator's file only the first {len(records)} runs could be read: {damage}."
    return records, [Finding("load_file_damaged", "warning", message, "Copy the file again.", path=str(path))]


def _text(path: Path) -> tuple[str, str | None]:
    try:
        if path.exists() and not path.is_file():
            raise InputError(path, "is no regular file.", "Give the result file of a benchmark.")
        stream = ByteStream(path)
        data = b"".join(stream)
    except OSError as error:
        raise InputError(path, f"cannot be opened ({error.strerror or error}).") from error
    return data.decode("utf-8-sig", "replace"), stream.damage


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at character {error.pos:,}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:80]

"""The texts of a trace: table of distinct strings for the scanner, and their readable form."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from gapscope.readers.json_events import ARENA, MAX_TEXTS, STRINGS, Ints, Strings, rehash

_BATCH = 1 << 16
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|)", re.DOTALL)
_RAW_ESCAPE = re.compile(rb'\\(u[0-9a-fA-F]{4}|["\\/bfnrt]|)')
_PLAIN_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile(r"[\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Repairs:
    """Texts that are no legal JSON and were repaired.

    Attributes:
        uses: How often such texts occur in kept events.
        first_byte: Offset of the first offending byte in the decompressed file; -1 if there is none.
    """

    uses: int = 0
    first_byte: int = -1


class StringTable:
    """Distinct strings of one file, growing."""

    def __init__(self, arena_bytes: int, strings: int = 1 << 12) -> None:
        self.arrays = _empty(strings, arena_bytes)

    def grow(self, state: Ints, arena_bytes: int) -> None:
        """Make room for twice as many strings and at least ``arena_bytes`` more bytes."""
        old, count, used = self.arrays, int(state[STRINGS]), int(state[ARENA])
        room, space = len(old.uses), len(old.arena)
        if count + MAX_TEXTS >= room:
            room *= 2
        while used + arena_bytes > space:
            space *= 2
        new = _empty(room, space)
        for name in ("hashes", "uses", "where"):
            getattr(new, name)[:count] = getattr(old, name)[:count]
        new.start[: count + 1] = old.start[: count + 1]
        new.arena[:used] = old.arena[:used]
        rehash(new, count)
        self.arrays = new

    def readable(self, count: int) -> tuple[pl.Series, Repairs]:
        """Return the first ``count`` strings, unescaped and repaired where they are no legal JSON; forget them here.

        Bytes that are no UTF-8 and bare control bytes become U+FFFD; a backslash that escapes nothing stays.
        """
        parts, uses, first = [pl.Series(dtype=pl.String)], 0, -1
        for begin in range(0, count, _BATCH):
            end = min(begin + _BATCH, count)
            texts, broken = self._batch(begin, end)
            parts.append(pl.Series(texts, dtype=pl.String))
            for number, at in broken:
                uses += int(self.arrays.uses[number])
                byte = int(self.arrays.where[number]) + at
                first = byte if first < 0 else min(first, byte)
        self.arrays = _empty(1, 1)
        return pl.concat(parts).alias("text"), Repairs(uses, first)

    def _batch(self, begin: int, end: int) -> tuple[list[str], list[tuple[int, int]]]:
        bounds = self.arrays.start[begin : end + 1] - self.arrays.start[begin]
        blob = self.arrays.arena[self.arrays.start[begin] : self.arrays.start[end]].copy()
        odd = (blob < 0x20) | (blob >= 0x80) | (blob == 0x5C)
        odd[bounds[1:] - 1] = False  # the scanner separates them by line feeds
        suspects = np.unique(np.searchsorted(bounds, np.flatnonzero(odd), side="right") - 1)
        raw = {int(k): blob[bounds[k] : bounds[k + 1] - 1].tobytes() for k in suspects}
        blob[odd] = 0x20
        texts, broken = blob.tobytes().decode("ascii").split("\n")[:-1], []
        for k, content in raw.items():
            texts[k], bad = repaired(content)
            if bad >= 0:
                broken.append((begin + k, bad))
        return texts, broken


def _empty(strings: int, arena_bytes: int) -> Strings:
    return Strings(
        slots=np.full(2 * strings, -1, dtype=np.int32),
        hashes=np.zeros(strings, dtype=np.uint64),
        start=np.zeros(strings + 1, dtype=np.int64),
        uses=np.zeros(strings, dtype=np.int64),
        where=np.zeros(strings, dtype=np.int64),
        arena=np.zeros(arena_bytes, dtype=np.uint8),
    )


def repaired(raw: bytes) -> tuple[str, int]:
    r"""Return the text between the quotes of a JSON string, and where it breaks the rules of JSON (-1: nowhere).

    >>> repaired(rb"a\tmp"), repaired(rb"a\cuda\users")
    (('a\tmp', -1), ('a\\cuda\\users', 1))
    """
    bad = len(raw)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text, bad = raw.decode("utf-8", "replace"), error.start
    if control := _CONTROL.search(text):
        bad = min(bad, raw.index(control[0].encode()))
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    if "\\" in text:
        try:
            text = json.loads(f'"{text}"')
        except ValueError:
            bad = min([bad, *(m.start() for m in _RAW_ESCAPE.finditer(raw) if not m[1])])
            text = _ESCAPE.sub(_unescaped, text)
        # Halves of surrogate pairs would stop whoever writes the text as UTF-8.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text, bad if bad < len(raw) else -1


def _unescaped(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    return _PLAIN_ESCAPES.get(what, match[0])

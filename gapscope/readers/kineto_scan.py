"""One pass over a torch.profiler file: rows of wanted events, the values beside the event list, and what was lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gapscope.readers import json_events as scanner
from gapscope.readers.base import Progress
from gapscope.readers.compression import ByteStream
from gapscope.readers.json_events import NULL, PADDING, Bytes, Ints
from gapscope.readers.kineto_fields import CATEGORIES, COLUMNS, EVENTS_KEY, OUTER_WANTED, PHASES, spec
from gapscope.readers.kineto_strings import StringTable, repaired

_PIECE = 4 << 20
_LONGEST = 32 << 20  # an event or value longer than this is taken as damaged
_ROWS = 1 << 14
_KEY = re.compile(rb'"(' + "|".join((EVENTS_KEY, *OUTER_WANTED)).encode() + rb')"\s*:')
_END_OF_FILE = -1


@dataclass(slots=True)
class Scanned:
    """What one pass found, besides the rows.

    Attributes:
        values: Wanted values beside the event list, as Python objects; a value that cannot be read is missing.
        strings: The texts that the rows point to.
        string_count: Number of them.
        events: Events seen, damaged ones included.
        dropped: Events that made no row, by category.
        damaged: Events lost to broken content.
        first_damage: Offset of the first of them in the decompressed file; -1 if there is none.
        non_finite: Bare inf and nan instead of numbers.
        has_list: True if an event list was found.
        whole: True if the file has its own end.
        stream_damage: What is wrong with the compressed stream; None if nothing.
        size: Bytes of the decompressed file.
    """

    values: dict[str, object]
    strings: StringTable
    string_count: int = 0
    events: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    damaged: int = 0
    first_damage: int = -1
    non_finite: int = 0
    has_list: bool = False
    whole: bool = False
    stream_damage: str | None = None
    size: int = 0


def scan_file(path: Path, take_rows: Callable[[Ints], None], progress: Progress) -> Scanned:
    """Read a file once.

    Args:
        path: The file; gzip and zstd are seen by its content.
        take_rows: Called with rows of the scanner; they are overwritten afterwards.
        progress: Called for each piece.

    Raises:
        OSError: The file cannot be read.
    """
    return _Pass(path, take_rows, progress).run()


class _Window:
    """A part of the decompressed file that slides over it."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._stream = ByteStream(path)
        self._pieces = iter(self._stream)
        self._rest = memoryview(b"")
        self._size = max(path.stat().st_size, 1)
        self._progress = progress
        self.buf: Bytes = np.zeros(_PIECE + PADDING, dtype=np.uint8)
        self.n = 0
        self.base = 0  # offset of buf[0] in the file
        self.ended = False

    @property
    def damage(self) -> str | None:
        return self._stream.damage

    def advance(self, pos: int) -> None:
        """Drop what is before ``pos`` and read more; the window grows if little was dropped."""
        left = self.n - pos
        target = self.buf
        if left > len(self.buf) // 2:
            target = np.zeros(2 * len(self.buf), dtype=np.uint8)
        target[:left] = self.buf[pos : self.n].copy()
        self.buf, self.n, self.base = target, left, self.base + pos
        while not self.ended and self.n < len(self.buf) - PADDING:
            if not self._rest:
                piece = next(self._pieces, None)
                self.ended = piece is None
                self._rest = memoryview(piece or b"")
            room = min(len(self._rest), len(self.buf) - PADDING - self.n)
            self.buf[self.n : self.n + room] = np.frombuffer(self._rest[:room], dtype=np.uint8)
            self.n, self._rest = self.n + room, self._rest[room:]
        self.buf[self.n : self.n + PADDING] = 0
        self._progress("reading events", min(self._stream.compressed_bytes / self._size, 1.0))


class _Pass:
    """Walks the outermost level in Python and leaves the event list to the compiled scanner."""

    def __init__(self, path: Path, take_rows: Callable[[Ints], None], progress: Progress) -> None:
        self._window = _Window(path, progress)
        self._take_rows = take_rows
        self._pos = 0
        self._found = Scanned(values={}, strings=StringTable(arena_bytes=2 * _PIECE))
        self._rows: Ints = np.zeros((_ROWS, COLUMNS), dtype=np.int64)
        self._dropped: Ints = np.zeros((len(CATEGORIES), 128), dtype=np.int64)
        self._state: Ints = np.zeros(scanner.STATE_SIZE, dtype=np.int64)
        self._state[scanner.FIRST_DAMAGE] = -1

    def run(self) -> Scanned:
        self._window.advance(0)
        if self._window.buf[:3].tobytes() == b"\xef\xbb\xbf":
            self._pos = 3
        first = self._next_byte()
        if first == ord("["):
            self._pos += 1
            self._found.whole = self._events()
        elif first == ord("{"):
            self._pos += 1
            self._found.whole = self._object()
        while not self._window.ended:  # whatever follows the end: the checksum of the stream does
            self._window.advance(self._window.n)
        return self._result()

    def _result(self) -> Scanned:
        found, state = self._found, self._state
        found.string_count = int(state[scanner.STRINGS])
        found.events = int(state[scanner.EVENTS])
        found.damaged = int(state[scanner.DAMAGED])
        found.first_damage = int(state[scanner.FIRST_DAMAGE])
        found.non_finite = int(state[scanner.NO_VALUES])
        found.stream_damage = self._window.damage
        found.size = self._window.base + self._window.n
        found.dropped = _dropped_by_name(self._dropped)
        return found

    def _next_byte(self) -> int:
        """Skip white space and commas; return the byte there, or _END_OF_FILE."""
        while True:
            buf, n = self._window.buf, self._window.n
            while self._pos < n and (buf[self._pos] <= 0x20 or buf[self._pos] == ord(",")):
                self._pos += 1
            if self._pos < n:
                return int(buf[self._pos])
            if self._window.ended:
                return _END_OF_FILE
            self._advance()

    def _advance(self) -> None:
        self._window.advance(self._pos)
        self._pos = 0

    def _object(self) -> bool:
        """Read keys and values up to the closing brace; tell if it was there."""
        while True:
            first = self._next_byte()
            if first == ord("}"):
                self._pos += 1
                return True
            if first == _END_OF_FILE:
                return False
            if first == ord("{") and self._found.has_list:  # the list goes on: what looked like its end was none
                if not self._events():
                    return False
                continue
            key = self._value() if first == ord('"') else None
            if key is None or self._next_byte() != ord(":"):
                if not self._find_key():
                    return False
                continue
            self._pos += 1
            if not self._member(key[1:-1].decode("utf-8", "replace")):
                return False

    def _member(self, key: str) -> bool:
        """Read one value; False if the file ends in it."""
        if key == EVENTS_KEY and self._next_byte() == ord("["):
            self._pos += 1
            return self._events()
        if self._next_byte() == _END_OF_FILE:
            return False
        raw = self._value()
        if raw is None:
            return self._find_key()
        if key in OUTER_WANTED:
            value = _loaded(raw)
            if value is not None:
                self._found.values[key] = value
        return True

    def _value(self) -> bytes | None:
        """Return the JSON value at the position and go behind it; None if it is broken or cut."""
        while True:
            end = scanner.value_end(self._window.buf, self._pos, self._window.n, 0)
            if end >= 0:
                raw = self._window.buf[self._pos : end].tobytes()
                self._pos = end
                return raw
            if end != -1 or self._window.ended or self._window.n - self._pos > _LONGEST:
                return None
            self._advance()

    def _find_key(self) -> bool:
        """Go on at the next key that is of use, whatever lies before it; False if there is none."""
        self._pos += 1
        while True:
            content = self._window.buf[: self._window.n].tobytes()
            if match := _KEY.search(content, self._pos):
                self._pos = match.start()
                return True
            if self._window.ended:
                return False
            self._pos = max(self._pos, self._window.n - 256)
            self._advance()

    def _events(self) -> bool:
        """Scan the event list whose bracket was just passed; tell if its end was there."""
        self._found.has_list = True
        state, window, strings = self._state, self._window, self._found.strings
        spans = np.zeros(2 * scanner.MAX_TEXTS, dtype=np.int64)
        seen = np.full((1024, 2), NULL, dtype=np.int64)
        state[scanner.POS] = self._pos
        while True:
            state[scanner.FINAL], state[scanner.BASE] = window.ended, window.base
            state[scanner.OVERLONG] = window.n - state[scanner.POS] > _LONGEST
            code = scanner.scan(
                window.buf, window.n, self._rows, spans, self._dropped, seen, state, spec(), strings.arrays
            )
            self._pos = int(state[scanner.POS])
            if code == scanner.GROW:
                strings.grow(state, window.n - self._pos + scanner.MAX_TEXTS)
                continue
            self._hand_over()
            if code == scanner.END or (code == scanner.DATA and window.ended):
                return bool(code == scanner.END)
            if code == scanner.DATA:
                self._advance()
                state[scanner.POS] = 0

    def _hand_over(self) -> None:
        count = int(self._state[scanner.ROW])
        if count:
            self._take_rows(self._rows[:count])
            self._state[scanner.ROW] = 0


def _dropped_by_name(counts: Ints) -> dict[str, int]:
    dropped: dict[str, int] = {}
    for category, phase in zip(*np.nonzero(counts), strict=True):
        name = PHASES.get(int(phase), CATEGORIES[category][2])
        dropped[name] = dropped.get(name, 0) + int(counts[category, phase])
    return dict(sorted(dropped.items()))


def _loaded(raw: bytes) -> object:
    """Return a JSON value, lenient about its texts; None if it cannot be read."""
    text = re.sub(rb'"(?:[^"\\]|\\.)*"', lambda m: json.dumps(repaired(m[0][1:-1])[0]).encode(), raw, flags=re.DOTALL)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value

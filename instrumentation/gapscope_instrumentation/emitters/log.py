"""The mark log: one file per process, written with no profiler at all.

A mark is packed into a slot of 96 bytes (`gapscope_instrumentation.contract`) and put into a queue, without a lock: a
mark may come from a signal handler or from the garbage collector in the middle of another. The queue is written when it
holds `WRITTEN_AT` slots, and twice a second by a thread of its own, together with brackets that have been open for
long: of a job that hangs or is killed, the file has all but the last half second.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from gapscope_instrumentation import identity, marking
from gapscope_instrumentation.contract import (
    LOG_ANCHOR,
    LOG_GROUP,
    LOG_HEAD,
    LOG_MARK,
    LOG_OPEN,
    LOG_SLOT_BYTES,
    LOG_TEXT,
    LOG_TEXTS,
    MARKS,
    NULL64,
    PREFIX,
)
from gapscope_instrumentation.handoff import Handoff, one_word
from gapscope_instrumentation.worker_end import at_end_of_worker

WRITTEN_AT = 1024
PERIOD_S = 0.5
ANCHOR_EVERY_NS = 10_000_000_000
OPEN_KEPT = 1024  # brackets that are never closed are forgotten beyond this number
WORDS = 4096  # numbered words; names beyond them are written with each mark
_NOW = time.monotonic_ns
_HEAD = struct.Struct(LOG_MARK).pack
_TEXT, _ANCHOR = struct.Struct(LOG_TEXT), struct.Struct(LOG_ANCHOR)
_HEAD_BYTES = 64


class LogEmitter:
    """Marks in the log of this process.

    Args:
        directory: Where the file goes; it is made with the first mark.
    """

    name = "log"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.path: Path | None = None
        self._file: int | None = None
        self._queue: deque[bytes] = deque()
        self._open: dict[int, tuple[int, Handoff, int, int]] = {}
        self._shown: set[int] = set()
        self._words: dict[str, int] = {}
        self._thread = _Thread()
        self._writing = threading.Lock()
        self._anchored_ns = 0
        self._said: dict[str, Any] = {}
        self._notes: set[str] = set()
        self._failed = False
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Open a bracket."""
        token = (mark, handoff, self._thread.number, _NOW())
        self._open[id(token)] = token
        if len(self._open) > OPEN_KEPT:
            self._open.pop(next(iter(self._open), 0), None)
        return token

    def end(self, token: object) -> None:
        """Close a bracket."""
        end_ns = _NOW()
        mark, handoff, thread, start_ns = cast("tuple[int, Handoff, int, int]", token)
        self._open.pop(id(token), None)
        key, queue = handoff._key, self._queue
        if key is None or handoff._key_of is not self:
            queue.append(self._record(1, mark, handoff, 0, thread, start_ns, end_ns, NULL64))
        else:
            flags = 0 if handoff.group is None else LOG_GROUP
            queue.append(_HEAD(1, mark, flags, 0, thread, start_ns, end_ns, NULL64) + key)
        if len(queue) >= WRITTEN_AT or self._writer is None:
            self._see_to_writing()

    def point(self, mark: int, handoff: Handoff) -> None:
        """Write a point."""
        now = _NOW()
        self._put(self._record(1, mark, handoff, 0, self._thread.number, now, now, NULL64))

    def device_time(  # noqa: PLR0917 - columns are many
        self, mark: int, handoff: Handoff, at_ns: int, asked_ns: int, error_ns: int, thread: int
    ) -> None:
        """Write a time that the device gave, on the host's monotonic clock, with its error to either side.

        Args:
            mark: The point that it is of.
            handoff: What it is of.
            at_ns: The time.
            asked_ns: When the host asked for it, by the same clock.
            error_ns: How far off it may be.
            thread: The system's number of the thread that asked.
        """
        self._put(self._record(5, mark, handoff, 0, thread, at_ns, asked_ns, error_ns))

    def note(self, what: str, **fields: object) -> None:
        """Write a remark for the analyzer, once."""
        text = json.dumps({"note": what, **fields})
        if text not in self._notes and len(self._notes) < WORDS:
            self._notes.add(text)
            self._put(_text(LOG_TEXTS.index("note"), 0, text, self._thread.number, _NOW(), NULL64))

    def flush(self) -> None:
        """Write what is queued. Returns at once if another thread is at it."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._write()
        except OSError as error:
            self._give_up(error)
        finally:
            self._writing.release()

    def close(self) -> None:
        """Write what is left, brackets that are open included."""
        timed = list(marking.own_costs)
        if timed and (self._queue or self._file is not None):
            opening_ns, closing_ns = (sorted(times)[len(timed) // 2] for times in zip(*timed, strict=True))
            self.note("cost", brackets=len(timed), begin_ns=opening_ns, end_ns=closing_ns)
        self._stop.set()
        if self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(timeout=5)
        self._show_open(older_than_ns=0)
        self._anchored_ns = 0
        self.flush()
        with self._writing:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _record(  # noqa: PLR0917 - columns are many
        self, kind: int, mark: int, handoff: Handoff, flags: int, thread: int, start_ns: int, end_ns: int, error_ns: int
    ) -> bytes:
        if handoff.extra is None and handoff.job is None:
            try:
                key = handoff.key_record(self._word, self)
                if handoff.group is not None:
                    flags |= LOG_GROUP
                return _HEAD(kind, mark, flags, 0, thread, start_ns, end_ns, error_ns) + key
            except (struct.error, OverflowError, TypeError, ValueError):
                pass  # a field does not fit into its column, or there are too many words
        return _text(LOG_TEXTS.index("mark"), flags, PREFIX + MARKS[mark] + handoff.text, thread, start_ns, end_ns)

    def _put(self, record: bytes) -> None:
        self._queue.append(record)
        if len(self._queue) >= WRITTEN_AT or self._writer is None:
            self._see_to_writing()

    def _see_to_writing(self) -> None:
        if self._stop.is_set():
            return  # closed: a thread started while the interpreter goes down never runs, and start() waits for it
        if self._writer is None:
            self._start_writer()
        if len(self._queue) >= WRITTEN_AT:
            self.flush()

    def _word(self, text: str) -> int:
        number = self._words.get(text)
        if number is None:
            number = len(self._words) + 1
            if number > WORDS:
                raise OverflowError
            self._words[text] = number
            self._queue.append(_text(LOG_TEXTS.index("word"), 0, one_word(text), number, 0, 0))
        return number

    def _write(self) -> None:
        queue = self._queue
        if not queue or self._failed:
            queue.clear()
            return
        chunk = [queue.popleft() for _ in range(len(queue))]
        first = self._open_file() if self._file is None else b""
        about = self._about()
        anchor = b""
        if _NOW() - self._anchored_ns > ANCHOR_EVERY_NS:
            anchor = _anchor()
            self._anchored_ns = _NOW()
        data = memoryview(first + about + anchor + b"".join(chunk))
        assert self._file is not None
        while data:
            data = data[os.write(self._file, data) :]

    def _open_file(self) -> bytes:
        self.directory.mkdir(parents=True, exist_ok=True)
        rank = identity.rank()
        name = f"{identity.host_name()}-{os.getpid()}" if rank is None else f"rank{rank}-{os.getpid()}"
        for n in range(10_000):
            path = self.directory / (f"{name}.gslog" if n == 0 else f"{name}-{n}.gslog")
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                continue
            self.path = path
            return LOG_HEAD.ljust(LOG_SLOT_BYTES)
        raise FileExistsError(17, "ten thousand logs of one name", str(path))

    def _about(self) -> bytes:
        """Return a record on the process where something is new."""
        about = identity.about_process()
        if about == self._said:
            return b""
        self._said = about
        return _text(LOG_TEXTS.index("process"), 0, json.dumps(about), 0, _NOW(), NULL64)

    def _show_open(self, older_than_ns: int) -> None:
        """Queue brackets that are open for long, once each."""
        before = _NOW() - older_than_ns
        held = dict(self._open)
        self._shown &= set(held)
        for number, (mark, handoff, thread, start_ns) in held.items():
            if start_ns <= before and number not in self._shown:
                self._shown.add(number)
                self._queue.append(self._record(1, mark, handoff, LOG_OPEN, thread, start_ns, NULL64, NULL64))

    def _start_writer(self) -> None:
        at_end_of_worker(self.close)
        self._writer = threading.Thread(target=self._keep_writing, name="gapscope-log", daemon=True)
        with suppress(RuntimeError):  # the interpreter is shutting down; close() writes the rest
            self._writer.start()

    def _keep_writing(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._show_open(older_than_ns=int(2 * PERIOD_S * 1e9))
            self.flush()

    def _give_up(self, error: OSError) -> None:
        self._failed = True
        where = self.path or self.directory
        why = f"the mark log {where} cannot be written ({error.strerror or error})"
        marking.failed[self.name] = why
        marking.say(f"{why}; no more marks go there.")


class _Thread(threading.local):
    """The system's number of this thread, asked for once."""

    def __init__(self) -> None:
        self.number = threading.get_native_id()


def _text(what: int, flags: int, text: str, thread: int, start_ns: int, end_ns: int) -> bytes:  # noqa: PLR0917
    data = text.encode("utf-8", "backslashreplace")
    slots = [_TEXT.pack(2, what, flags, 0, len(data), thread, start_ns, end_ns, data[:_HEAD_BYTES])]
    rest = LOG_SLOT_BYTES - 1
    slots += [b"\x03" + data[at : at + rest].ljust(rest) for at in range(_HEAD_BYTES, len(data), rest)]
    return b"".join(slots)


def _anchor() -> bytes:
    """Return the narrowest of a few readings of both clocks."""
    best = None
    for _ in range(8):
        before, unix, after = _NOW(), time.time_ns(), _NOW()
        if best is None or after - before < best[2] - best[0]:
            best = (before, unix, after)
    assert best is not None
    return _ANCHOR.pack(4, 0, 0, 0, 0, *best, b"")

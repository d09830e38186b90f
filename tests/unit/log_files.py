"""Mark logs packed by hand, with exact times, and a whole run recorded in each form of the marks.

Times are given as nanoseconds since `ZERO_NS` of the host's monotonic clock, at which Unix time is `EPOCH_NS`.
"""

import json
import struct

from gapscope_instrumentation.contract import (
    DIRECTIONS,
    LOG_ANCHOR,
    LOG_GROUP,
    LOG_HEAD,
    LOG_KEY,
    LOG_MARK,
    LOG_OPEN,
    LOG_SLOT_BYTES,
    LOG_TEXT,
    LOG_TEXTS,
    MARKS,
    NULL32,
    NULL64,
    PREFIX,
    pack_group,
    pack_pair,
)

from gapscope.marks.compact import group_number

ZERO_NS = 5_000_000_000
EPOCH_NS = 1_700_000_000_000_000_000


class LogFile:
    """A mark log of one process, slot by slot.

    Args:
        about: What the process record says beside ``pid``, ``host`` and ``boot_id``; None: there is no record.
        anchor: Half the width of the anchor in nanoseconds; None: there is no anchor.
        epoch_ns: Unix time at `ZERO_NS` by the anchor.
    """

    def __init__(self, rank=None, pid=10, host="a", boot_id="b", anchor=50, epoch_ns=EPOCH_NS, **about):
        self.slots = [LOG_HEAD.ljust(LOG_SLOT_BYTES)]
        self._words = {}
        if host is not None:
            self.process(rank=rank, pid=pid, host=host, boot_id=boot_id, **about)
        if anchor is not None:
            self.anchor(0, epoch_ns, anchor)

    def mark(self, mark, start_ns, end_ns=None, thread=1, **fields):
        """Add a mark; without an end it is open."""
        end = NULL64 if end_ns is None else ZERO_NS + end_ns
        flags = (LOG_OPEN if end_ns is None else 0) | (LOG_GROUP if "group" in fields else 0)
        key = self._key(**fields)
        self.slots.append(
            struct.pack(LOG_MARK, 1, MARKS.index(mark), flags, 0, thread, ZERO_NS + start_ns, end, NULL64) + key
        )

    def device_time(self, mark, at_ns, error_ns, thread=1, asked_ns=None, **fields):
        """Add a time of the device."""
        asked = NULL64 if asked_ns is None else ZERO_NS + asked_ns
        flags = LOG_GROUP if "group" in fields else 0
        head = struct.pack(LOG_MARK, 5, MARKS.index(mark), flags, 0, thread, ZERO_NS + at_ns, asked, error_ns)
        self.slots.append(head + self._key(**fields))

    def text_mark(self, text, start_ns, end_ns=None, thread=1):
        """Add a mark in text form; without an end it is open."""
        end = NULL64 if end_ns is None else ZERO_NS + end_ns
        self.text("mark", PREFIX + text, thread, ZERO_NS + start_ns, end, LOG_OPEN if end_ns is None else 0)

    def process(self, **about):
        self.text("process", json.dumps(about), 0, ZERO_NS, NULL64)

    def note(self, what, **fields):
        self.text("note", json.dumps({"note": what, **fields}), 1, ZERO_NS, NULL64)

    def anchor(self, at_ns, unix_ns, half_ns=50):
        """Add a reading of both clocks, ``half_ns`` to either side of ``at_ns``."""
        before, after = ZERO_NS + at_ns - half_ns, ZERO_NS + at_ns + half_ns
        self.slots.append(struct.pack(LOG_ANCHOR, 4, 0, 0, 0, 0, before, unix_ns, after, b""))

    def text(self, what, text, thread, start_ns, end_ns, flags=0):
        data = text.encode()
        head = struct.pack(LOG_TEXT, 2, LOG_TEXTS.index(what), flags, 0, len(data), thread, start_ns, end_ns, data[:64])
        self.slots.append(head)
        self.slots += [b"\x03" + data[at : at + 95].ljust(95) for at in range(64, len(data), 95)]

    def word(self, text):
        if text not in self._words:
            self._words[text] = len(self._words) + 1
            self.text("word", text, self._words[text], 0, 0)
        return self._words[text]

    def write(self, path):
        path.write_bytes(b"".join(self.slots))
        return path

    def _key(self, **f):
        def number(name, null):
            return null if f.get(name) is None else f[name]

        words = {name: self.word(f[name]) if f.get(name) else 0 for name in ("kind", "transport", "name", "device")}
        src = self.word(f["group"]) if "group" in f else number("src", NULL32)
        return struct.pack(
            LOG_KEY, f.get("slot", 0), words["kind"], f.get("channel", 0), src, number("dst", NULL32),
            number("mb", NULL32), number("src_stage", NULL32), number("dst_stage", NULL32), words["transport"],
            words["name"], words["device"], DIRECTIONS.index(f.get("dir", "")), number("seq", NULL64),
            number("step", NULL64), number("bytes", NULL64),
        )  # fmt: skip


def compact(recording, mark, start_ns, end_ns, thread=1, **fields):
    """Add a mark to a built recording as NVTX has it in compact form."""
    if mark in ("step", "request"):
        payload = fields["step" if mark == "step" else "seq"]
    elif "group" in fields:
        payload = pack_group(group_number(fields["group"]), fields.get("channel", 0), fields["seq"])
    else:
        payload = pack_pair(fields["src"], fields["dst"], fields.get("channel", 0), fields["seq"])
    row = {"kind": "start_end", "domain": "gapscope", "payload": payload, "thread": thread}
    recording.mark(mark, start_ns, end_ns, **row)


def define(recording, text, at_ns=0):
    """Add a definition to a built recording, as NVTX has it."""
    recording.mark(text, at_ns, at_ns, kind="instant", domain="gapscope")


def as_text(mark, **fields):
    """Return a mark in text form, without the prefix."""

    def word(name, value):
        return f"host:{-1 - value}" if name in ("src", "dst") and value < 0 else value

    return " ".join([mark, *(f"{name}={word(name, value)}" for name, value in fields.items() if value is not None)])

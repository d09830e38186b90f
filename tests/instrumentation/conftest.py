"""What these tests share: marks off before and after, an emitter that remembers, a plain log reader."""

from __future__ import annotations

import json
import struct
from collections import deque

import pytest
from gapscope_instrumentation import contract, identity, marking

SETTINGS = (
    "GAPSCOPE",
    "GAPSCOPE_ATTACH",
    "GAPSCOPE_DIR",
    "GAPSCOPE_LOG",
    "GAPSCOPE_NVTX",
    "GAPSCOPE_DEVICE_TIMES",
    "RANK",
)


@pytest.fixture(autouse=True)
def _marks_are_off(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(marking, "failed", {})
    monkeypatch.setattr(identity, "_stated", {})
    monkeypatch.setattr(marking, "own_costs", deque(maxlen=512))
    monkeypatch.setattr(marking, "_until_timed", 1)
    assert not marking.emitters()
    yield
    left, _ = marking.emitters(), marking.set_emitters(())
    assert not left


@pytest.fixture
def no_group(monkeypatch):
    """No process group, whatever other tests of this process have initialized."""
    monkeypatch.setattr(identity, "_distributed", lambda: None)


class Remembering:
    """An emitter that remembers every bracket and point as ``(mark, text, "begin" | "end" | "point", token)``."""

    name = "remembering"

    def __init__(self):
        self.events = []

    def begin(self, mark, handoff):
        token = object()
        self.events.append((contract.MARKS[mark], handoff.text.strip(), "begin", token))
        return token

    def end(self, token):
        (opened,) = [e for e in self.events if e[2] == "begin" and e[3] is token]
        self.events.append((*opened[:2], "end", token))

    def point(self, mark, handoff):
        self.events.append((contract.MARKS[mark], handoff.text.strip(), "point", None))

    def close(self):
        pass

    def said(self, what="begin"):
        """Return ``(mark, text)`` of all events of one kind, in order."""
        return [(mark, text) for mark, text, kind, _ in self.events if kind == what]

    def unclosed(self):
        ended = [e[3] for e in self.events if e[2] == "end"]
        return [e[:2] for e in self.events if e[2] == "begin" and e[3] not in ended]


@pytest.fixture
def remembered():
    """Marks on, into an emitter that remembers."""
    emitter = Remembering()
    marking.set_emitters((emitter,))
    yield emitter
    marking.set_emitters(())


@pytest.fixture
def read_log():
    """A function from the path of a log to its records; written from the format's description alone."""
    return _read_log


def _read_log(path):
    data = path.read_bytes()
    size = contract.LOG_SLOT_BYTES
    assert data.startswith(contract.LOG_HEAD)
    assert len(data) % size == 0
    slots = [data[i : i + size] for i in range(size, len(data), size)]
    names = [name for name, _ in contract.LOG_COLUMNS]
    words, records = {0: None}, []
    while slots:
        slot = slots.pop(0)
        if slot[0] in (1, 5):
            values = struct.unpack(contract.LOG_MARK + contract.LOG_KEY[1:], slot)
            record = dict(zip(names, values, strict=True))
            record = {k: None if v in (contract.NULL32, contract.NULL64) else v for k, v in record.items()}
            for name in ("kind", "transport", "name", "device"):
                record[name] = words[record[name]]
            record["mark"] = contract.MARKS[record["mark"]]
            record["dir"] = contract.DIRECTIONS[record["dir"]] or None
            if record["flags"] & contract.LOG_GROUP:
                record["group"], record["src"] = words[record["src"]], None
            records.append({"what": "mark" if slot[0] == 1 else "device", **record})
        elif slot[0] == 2:
            _, what, flags, _, n, thread, start, end, text = struct.unpack(contract.LOG_TEXT, slot)
            while len(text) < n:
                more = slots.pop(0)
                assert more[0] == 3
                text += more[1:]
            text = text[:n].decode()
            kind = contract.LOG_TEXTS[what]
            if kind == "word":
                words[thread] = text
            elif kind == "mark":
                records.append({"what": "text", "text": text, "flags": flags, "start_ns": start, "end_ns": end})
            else:
                records.append({"what": kind, **json.loads(text)})
        else:
            assert slot[0] == 4
            records.append({"what": "anchor"})
    return records

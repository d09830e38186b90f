"""What the tests of the engine adapters share: the stub frameworks, ranks as threads, and a recorder of marks."""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from gapscope_instrumentation import detach, identity, marking
from gapscope_instrumentation.adapters import on_import
from gapscope_instrumentation.adapters.base import Adapter
from gapscope_instrumentation.adapters.wires import Wires
from gapscope_instrumentation.contract import MARKS

torch = pytest.importorskip("torch")

STUBS = Path(__file__).parent / "stubs"
TOPS = ("megatron", "deepspeed", "vllm", "sglang", "stub_wire")
ENGINES = ("megatron", "deepspeed", "vllm", "sglang")
SHAPE = (2, 3)
BYTES = 24  # of a tensor of that shape in float32
Key = tuple[int, int, int, int]


def forget_frameworks():
    for name in [n for n in sys.modules if n.partition(".")[0] in TOPS]:
        del sys.modules[name]


def key(handoff) -> Key:
    return handoff.src, handoff.dst, handoff.channel, handoff.seq


class Recorder:
    """An emitter that keeps what is marked, per thread what is open, and which payload went under which key."""

    name = "test"

    def __init__(self):
        self.log = []
        self._open = threading.local()
        self.produced, self.sent, self.consumed = {}, {}, {}

    @property
    def here(self):
        if not hasattr(self._open, "brackets"):
            self._open.brackets = []
        return self._open.brackets

    def begin(self, mark, handoff):
        from stub_wire import here

        self.log.append((MARKS[mark], handoff, here.rank, here.stream))
        self.here.append((MARKS[mark], handoff))
        return MARKS[mark], handoff

    def end(self, token):
        self.here.remove(token)

    def point(self, mark, handoff):
        self.begin(mark, handoff)
        self.here.pop()

    def close(self):
        pass

    def of(self, mark):
        return [handoff for name, handoff, *_ in self.log if name == mark]

    def open(self, mark, direction=None):
        """The keys of what is open on this thread."""
        return [key(h) for name, h in self.here if name == mark and direction in (None, h.dir)]

    def watch_sends(self, number, direction):
        """Let the wire tell which payload goes under which key."""
        import stub_wire as wire

        def sent(src, dst, value):
            payload = number(value)
            if payload is not None and (found := self.open("submit", direction(payload))):
                self.sent[payload] = found[-1]

        wire.watchers.append(sent)

    def uses(self, payload, direction=None):
        for found in self.open("consume", direction):
            self.consumed[payload] = found

    def makes(self, payload, direction=None):
        for found in self.open("produce", direction):
            self.produced[payload] = found

    def assert_all_agree(self, payloads):
        """Each payload was produced, sent and consumed under one key, and each key is of one payload."""
        assert set(self.sent) == set(payloads)
        assert self.produced == self.sent
        assert self.consumed == self.sent
        assert len(set(self.sent.values())) == len(self.sent)
        received = {key(handoff) for handoff in self.of("receive")}
        assert received == set(self.sent.values())


def run_ranks(ranks: dict[int, Callable[[], None]]) -> None:
    """Run a function per rank on a thread of its own; raise what the first of them raises."""
    from stub_wire import here

    errors = []

    def run(rank, function):
        here.rank = rank
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in ranks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def as_it_stands(adapter: Adapter) -> list[object]:
    """What stands in the places of an adapter's targets."""
    found = []
    for target in adapter.targets:
        owner, name, _ = target.resolve()
        found.append(inspect.getattr_static(owner, name))
    return found


@pytest.fixture
def recorder(monkeypatch):
    forget_frameworks()
    monkeypatch.syspath_prepend(str(STUBS))
    wire = importlib.import_module("stub_wire")
    wire.reset()
    monkeypatch.setattr(identity, "rank", lambda: wire.here.rank)
    monkeypatch.setattr(on_import, "states", {})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ENGINES:
        monkeypatch.setattr(importlib.import_module(f"gapscope_instrumentation.adapters.{name}"), "_wires", Wires())
    found = Recorder()
    marking.set_emitters((found,))
    yield found
    marking.set_emitters(())
    for name in ENGINES:
        detach(name)
    wire.here.rank = 0
    forget_frameworks()


def wire():
    return sys.modules["stub_wire"]


def payload(number):
    return torch.full(SHAPE, float(number))


def number_of(value):
    """The payload's number; None for what is no payload."""
    if isinstance(value, dict):
        value = value.get("hidden_states")
    return int(value.flatten()[0]) if value is not None and value.shape == SHAPE else None


def sent_payloads(size, microbatches, chunks=1):
    """Numbers of all payloads that leave a stage: none of the last stage forward, none of the first backward."""
    every = [(mb, chunk, rank) for mb in range(microbatches) for chunk in range(chunks) for rank in range(size)]
    forward = [1 + m + 10 * c + 100 * r for m, c, r in every if (c, r) != (chunks - 1, size - 1)]
    return forward + [1001 + m + 10 * c + 100 * r for m, c, r in every if (c, r) != (0, 0)]


def marks_of(recorder):
    return [entry for entry in recorder.log if isinstance(entry, tuple)]


def on_one_side_only(recorder, sends, receives):
    """The sender marks all of it, the receiver the second half: the keys agree, and while off nothing is emitted."""
    for send in sends:
        send()
    half = len(receives) // 2
    marking.set_emitters(())
    seen = len(marks_of(recorder))
    for receive in receives[:half]:
        receive()
    assert len(marks_of(recorder)) == seen
    assert recorder.consumed == {}
    marking.set_emitters((recorder,))
    for receive in receives[half:]:
        receive()
    later = sorted(recorder.sent)[half:]
    assert len(later) == len(receives) - half
    assert recorder.consumed == {number: recorder.sent[number] for number in later}

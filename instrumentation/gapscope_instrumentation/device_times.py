"""Times of the device without a profiler: CUDA events into the mark log.

An event is recorded on the current stream where a bracket ends or begins, which costs the host a few microseconds and
never waits. Which moments that gives:

==================== ====================================== ===============================================
event of a handoff   recorded                               tells
==================== ====================================== ===============================================
``producer_finish``  at the end of ``produce``              when the stream was through with it
``available``        at the end of ``receive``              when the stream was past the receive
``consumer_start``   at the start of ``consume``            when the stream was free for it: its first
                                                            operation started no earlier
==================== ====================================== ===============================================

``movement_start`` is not seen: transfers run on streams of their own. A stream that was idle by the time the event came
to it tells only that the work before had ended, not when; the log has the time of the call as well, so that the
analyzer can tell the two apart.

A thread of its own asks now and then which events are done (it never waits for the job's streams) and gives the
events back to a pool. CUDA tells only the time between two events, so the same thread sets reference events on an
idle stream, each between two readings of the host's clock. The error that is written is half of the narrowest such
pair of readings, plus the resolution of events (about 0.5 microseconds, CUDA Runtime API, cudaEventElapsedTime), plus
`DRIFT` of the distance to the reference.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

from gapscope_instrumentation.emitters.log import LogEmitter
from gapscope_instrumentation.handoff import Handoff
from gapscope_instrumentation.marking import AVAILABLE, CONSUME, CONSUMER_START, PRODUCE, PRODUCER_FINISH, RECEIVE

PERIOD_S = 0.1
REFERENCE_EVERY_NS = 500_000_000
READINGS = 5
PENDING_KEPT = 65_536
RESOLUTION_NS = 500
DRIFT = 1e-5
"""Rate by which a device's clock and the host's may differ."""

_AT_END = {PRODUCE: PRODUCER_FINISH, RECEIVE: AVAILABLE}


@dataclass
class _Reference:
    """An event whose time on the host's clock is known to ``error_ns`` to either side."""

    event: Any
    at_ns: int
    error_ns: int


@dataclass
class _Device:
    """What is kept of one device."""

    number: int
    stream: Any
    pool: list[Any] = field(default_factory=list)
    pending: deque[tuple[Any, int, Handoff, int, int]] = field(default_factory=deque)
    references: deque[_Reference] = field(default_factory=lambda: deque(maxlen=4))


class DeviceTimes:
    """Records events beside the brackets, and writes their times into the log."""

    name = "device"

    def __init__(self, cuda: Any, log: LogEmitter) -> None:
        self._cuda, self._log = cuda, log
        self._devices: dict[int, _Device] = {}
        self._stop = threading.Event()
        self._resolver: threading.Thread | None = None
        self.lost = 0

    def begin(self, mark: int, handoff: Handoff) -> object:
        """Record an event where a consumer begins; remember what ends in one."""
        if handoff.device == "cpu":
            return None
        if mark == CONSUME:
            self._record(CONSUMER_START, handoff)
            return None
        return (mark, handoff) if mark in _AT_END else None

    def end(self, token: object) -> None:
        """Record an event where a producer or receive ends."""
        mark, handoff = cast("tuple[int, Handoff]", token)
        self._record(_AT_END[mark], handoff)

    def point(self, mark: int, handoff: Handoff) -> None:
        """Record an event at a point that an event can tell."""
        if mark in (PRODUCER_FINISH, AVAILABLE, CONSUMER_START) and handoff.device != "cpu":
            self._record(mark, handoff)

    def close(self) -> None:
        """Write the times of the events that are done within a second; others are counted as lost."""
        self._stop.set()
        if self._resolver is not None:
            self._resolver.join(timeout=5)
            until = time.monotonic() + 1
            while any(d.pending for d in self._devices.values()) and time.monotonic() < until:
                self._resolve()
                time.sleep(0.01)
        self.lost += sum(len(d.pending) for d in self._devices.values())
        if self.lost:
            self._log.note("device_times_lost", count=self.lost)

    def _record(self, mark: int, handoff: Handoff) -> None:
        device = self._device()
        if len(device.pending) >= PENDING_KEPT:
            self.lost += 1
            return
        event = device.pool.pop() if device.pool else self._cuda.Event(enable_timing=True)
        asked_ns = time.monotonic_ns()
        event.record()
        device.pending.append((event, mark, handoff, threading.get_native_id(), asked_ns))

    def _device(self) -> _Device:
        number = self._cuda.current_device()
        device = self._devices.get(number)
        if device is None:
            device = self._devices[number] = _Device(number, self._cuda.Stream(number))
            self._refer(device)  # once, on the job's thread: the first events need it
            if self._resolver is None:
                self._resolver = threading.Thread(
                    target=self._keep_resolving, name="gapscope-device-times", daemon=True
                )
                self._resolver.start()
        return device

    def _keep_resolving(self) -> None:
        last_ns = time.monotonic_ns()
        while not self._stop.wait(PERIOD_S):
            now = time.monotonic_ns()
            if now - last_ns > REFERENCE_EVERY_NS:
                last_ns = now
                for device in list(self._devices.values()):
                    self._refer(device)
            self._resolve()

    def _refer(self, device: _Device) -> None:
        """Set a reference: the best of a few events between two readings of the host's clock."""
        best: _Reference | None = None
        with self._cuda.device(device.number):
            for _ in range(READINGS):
                event = self._cuda.Event(enable_timing=True)
                before = time.monotonic_ns()
                event.record(device.stream)
                event.synchronize()  # of this stream, on which nothing else runs
                after = time.monotonic_ns()
                error = (after - before + 1) // 2
                if best is None or error < best.error_ns:
                    best = _Reference(event, before + error, error)
        assert best is not None
        device.references.append(best)

    def _resolve(self) -> None:
        """Write the times of what is done, oldest first, and give the events back."""
        for device in list(self._devices.values()):
            pending, references = device.pending, list(device.references)
            for _ in range(len(pending)):
                event, mark, handoff, thread, asked_ns = pending[0]
                if not event.query():
                    pending.rotate(-1)  # another stream may be ahead
                    continue
                pending.popleft()
                reference = min(references, key=lambda r, asked=asked_ns: abs(r.at_ns - asked))  # type: ignore[misc]
                distance_ns = round(reference.event.elapsed_time(event) * 1e6)
                error_ns = reference.error_ns + RESOLUTION_NS + round(abs(distance_ns) * DRIFT)
                self._log.device_time(mark, handoff, reference.at_ns + distance_ns, asked_ns, error_ns, thread)
                device.pool.append(event)


def open_device_times(log: LogEmitter) -> tuple[DeviceTimes | None, str]:
    """Return the emitter, None where there is no GPU, and one phrase on what was found."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None, "torch is not loaded"
    cuda = torch.cuda
    if not cuda.is_available():
        return None, "torch finds no GPU"
    return DeviceTimes(cuda, log), "CUDA events, into the mark log"

"""DeepSpeed's pipeline engine: its training (1F1B) and inference schedules.

The engine looks its instructions up in `PipelineEngine._INSTRUCTION_MAP`, so a copy of the map with other functions
is put on the class. Each end counts SendActivation, RecvActivation, SendGrad and RecvGrad; each tensor of a tuple is
a message with its own slot. What RecvActivation and RecvGrad clone and convert after the transfer belongs to the
receive.

Not marked: the exchange of shapes (``_send_tensor_meta``), which comes with the first batch or with
``dynamic_shape``, and engines with other instruction maps (DualPipeV of 0.19.8). ``wall_clock_breakdown`` and the
communication logger synchronize: leave them off while measuring.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from gapscope_instrumentation import marking, marks
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.wires import (
    BACKWARD,
    FORWARD,
    Fields,
    Wire,
    Wires,
    argument,
    marks_on,
    tensor_bytes,
    where,
)
from gapscope_instrumentation.errors import AdapterError
from gapscope_instrumentation.handoff import Handoff

_ENGINE = "deepspeed.runtime.pipe.engine"
_P2P = "deepspeed.runtime.pipe.p2p"
_INSTRUCTIONS = (
    "_exec_forward_pass", "_exec_backward_pass", "_exec_send_activations", "_exec_recv_activations", "_exec_send_grads",
    "_exec_recv_grads",
)  # fmt: skip

_wires = Wires()


class _Here(threading.local):
    """What the instruction that runs on this thread sends or receives."""

    handoff: Handoff | None = None
    mark: Callable[[Any], Any] | None = None
    slot = 0
    describes = False  # shapes are exchanged, not tensors


_here = _Here()


@dataclass
class _Engine:
    """What is kept of one engine.

    Attributes:
        batch: Microbatches so far in the schedule that runs, per instruction.
        received: Per channel and buffer, what was received into it and not used yet.
    """

    batch: dict[str, int] = field(default_factory=dict)
    received: dict[tuple[int, int], Handoff] = field(default_factory=dict)

    def microbatch(self, instruction: str) -> int:
        """Count one instruction: each kind takes the microbatches in order."""
        number = self.batch.get(instruction, 0)
        self.batch[instruction] = number + 1
        return number


_engines: WeakKeyDictionary[Any, _Engine] = WeakKeyDictionary()


def _of(engine: Any) -> _Engine:
    kept = _engines.get(engine)
    if kept is None:
        kept = _engines[engine] = _Engine()
    return kept


def _install(attached: Attached) -> None:
    engine, p2p = import_module(_ENGINE), import_module(_P2P)
    of = engine.PipelineEngine
    wrapped = {getattr(of, name): _INSTRUCTION[name](attached, getattr(of, name)) for name in _INSTRUCTIONS}
    instructions = dict(of._INSTRUCTION_MAP)
    missing = [function.__name__ for function in wrapped if function not in instructions.values()]
    if missing:
        raise AdapterError(
            f"{_ENGINE}.PipelineEngine._INSTRUCTION_MAP does not call {', '.join(missing)}: nothing was attached"
        )
    for instruction, function in instructions.items():
        instructions[instruction] = wrapped.get(function, function)
    attached.replace(of, "_INSTRUCTION_MAP", instructions)
    attached.replace(of, "_exec_schedule", _new_schedule(attached, of._exec_schedule))
    attached.replace(of, "_send_tensor_meta", _describing(of._send_tensor_meta))
    attached.replace(of, "_recv_tensor_meta", _describing(of._recv_tensor_meta))
    attached.replace(p2p, "send", _message(attached, p2p.send))
    attached.replace(p2p, "recv", _message(attached, p2p.recv))


def _new_schedule(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _exec_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        if attached.active:
            _engines[self] = _Engine()
        return original(self, *args, **kwargs)

    return _exec_schedule


def _describing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def describing(*args: Any, **kwargs: Any) -> Any:
        before, _here.describes = _here.describes, True
        try:
            return original(*args, **kwargs)
        finally:
            _here.describes = before

    return describing


def _message(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``p2p.send`` or ``p2p.recv``: one tensor of the handoff of the instruction that runs."""
    tensor = argument(original, "tensor")

    @functools.wraps(original)
    def message(*args: Any, **kwargs: Any) -> Any:
        handoff, mark = _here.handoff, _here.mark
        if handoff is None or mark is None or _here.describes or not marks_on(attached):
            return original(*args, **kwargs)
        moved = tensor(args, kwargs)
        slot, _here.slot = _here.slot, _here.slot + 1
        with mark(handoff.message(slot, tensor_bytes(moved), **where(None, [moved]))):
            return original(*args, **kwargs)

    return message


def _compute(consumes: int, produces: int) -> Callable[[Attached, Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper for ForwardPass or BackwardPass."""

    def wrap(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compute(self: Any, buffer_id: int) -> Any:
            if not attached.active:
                return original(self, buffer_id)
            kept = _of(self)
            mb = kept.microbatch(original.__name__)
            received = kept.received.pop((consumes, buffer_id), None)
            if not marking.emitters():
                return original(self, buffer_id)
            with ExitStack() as stack:
                if received is not None:
                    stack.enter_context(marks.consume(received))
                wire = _sending(self, produces)
                if wire is not None:
                    stack.enter_context(marks.produce(wire.announce(mb=mb, **_step(self))))
                return original(self, buffer_id)

        return compute

    return wrap


def _send(channel: int) -> Callable[[Attached, Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper for SendActivation or SendGrad."""

    def wrap(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def send(self: Any, buffer_id: int) -> Any:
            wire = _sending(self, channel) if attached.active else None
            if wire is None:
                return original(self, buffer_id)
            mb = _of(self).microbatch(original.__name__)
            with _moving(wire.next(mb=mb, **_step(self)), marks.submit):
                return original(self, buffer_id)

        return send

    return wrap


def _receive(channel: int) -> Callable[[Attached, Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper for RecvActivation or RecvGrad."""

    def wrap(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def receive(self: Any, buffer_id: int) -> Any:
            wire = _receiving(self, channel) if attached.active else None
            if wire is None:
                return original(self, buffer_id)
            kept = _of(self)
            handoff = wire.next(mb=kept.microbatch(original.__name__), **_step(self))
            if handoff is None:
                return original(self, buffer_id)
            with marks.receive(handoff), _moving(handoff, marks.receive):
                result = original(self, buffer_id)
            kept.received[channel, buffer_id] = handoff
            return result

        return receive

    return wrap


class _moving:  # noqa: N801 - used like a function
    """Let the messages on this thread be of a handoff."""

    def __init__(self, handoff: Handoff | None, mark: Callable[[Any], Any]) -> None:
        self._given = handoff, mark

    def __enter__(self) -> None:
        (_here.handoff, _here.mark), _here.slot = self._given, 0

    def __exit__(self, kind: object, error: object, at: object) -> None:
        _here.handoff = _here.mark = None


_INSTRUCTION = {
    "_exec_forward_pass": _compute(consumes=FORWARD, produces=FORWARD),
    "_exec_backward_pass": _compute(consumes=BACKWARD, produces=BACKWARD),
    "_exec_send_activations": _send(FORWARD),
    "_exec_recv_activations": _receive(FORWARD),
    "_exec_send_grads": _send(BACKWARD),
    "_exec_recv_grads": _receive(BACKWARD),
}


def _sending(engine: Any, channel: int) -> Wire | None:
    to = engine.stage_id + (1 if channel == FORWARD else -1)
    if not 0 <= to < engine.num_stages:
        return None
    rank = engine.grid.stage_to_global(stage_id=to)
    return _wires.out(engine.global_rank, rank, channel, _fields(channel, engine.stage_id, to))


def _receiving(engine: Any, channel: int) -> Wire | None:
    of = engine.stage_id - (1 if channel == FORWARD else -1)
    if not 0 <= of < engine.num_stages:
        return None
    rank = engine.grid.stage_to_global(stage_id=of)
    return _wires.into(rank, engine.global_rank, channel, _fields(channel, of, engine.stage_id))


def _fields(channel: int, src_stage: int, dst_stage: int) -> Fields:
    """Return what gives the fields of a wire: DeepSpeed sends in the group of all ranks."""
    return lambda: {
        "kind": "pp",
        "dir": "bwd" if channel == BACKWARD else "fwd",
        "src_stage": src_stage,
        "dst_stage": dst_stage,
        **where(None),
    }


def _step(engine: Any) -> dict[str, int]:
    """Return the step, unless the job has said one itself; evaluation is not part of a step."""
    if marking.current_step.get() is None and marking.emitters() and getattr(engine.module, "training", False):
        return {"step": int(engine.global_steps)}
    return {}


ADAPTER = Adapter(
    name="deepspeed",
    checked="DeepSpeed edaa7221 (0.19.6, in development), 0.19.8",
    targets=(
        *(Target(_ENGINE, f"PipelineEngine.{name}", ("self", "buffer_id")) for name in _INSTRUCTIONS),
        Target(_ENGINE, "PipelineEngine._INSTRUCTION_MAP"),
        Target(_ENGINE, "PipelineEngine._exec_schedule", ("self", "pipe_schedule")),
        Target(_ENGINE, "PipelineEngine._send_tensor_meta", ("self", "buffer", "recv_stage")),
        Target(_ENGINE, "PipelineEngine._recv_tensor_meta", ("self", "send_stage")),
        Target(_P2P, "send", ("tensor", "dest_stage", "async_op")),
        Target(_P2P, "recv", ("tensor", "src_stage", "async_op")),
    ),
    install=_install,
)

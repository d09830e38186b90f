"""Megatron-LM (megatron.core): pipelined schedules, with and without interleaving.

Two ways in::

    from gapscope_instrumentation.adapters import megatron
    forward_backward_func(..., p2p_communicator=megatron.communicator(pp_group, config), pg_collection=...)

marks what is sent and received, through a public parameter and without a change of Megatron. ``attach("megatron")``
does the same where the communicator cannot be passed, and marks the stages (``produce`` and ``consume``) in both
cases.

Both ends count what goes over each pair of neighbours in each direction; calls that send or receive nothing do not
count, so that virtual microbatches of an interleaved schedule need no special care. A tensor that is received bears
its handoff to the step that uses it.

Limits: of several tensors per microbatch, each is a handoff, and the first has the ``produce``. With
``overlap_moe_expert_parallel_comm`` and in multi-module models, stages are not marked. Megatron's own timers at log
level 2 and ``batch_p2p_sync`` synchronize the device: leave them off while measuring.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from math import prod
from typing import Any

from gapscope_instrumentation import identity, marking, marks
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.wires import (
    BACKWARD,
    FORWARD,
    Fields,
    Wires,
    argument,
    completed,
    marks_on,
    tensor_bytes,
    tie,
    tied,
    where,
)
from gapscope_instrumentation.handoff import Handoff

_P2P = "megatron.core.pipeline_parallel.p2p_communication"
_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_COMMUNICATE = (
    "self",
    "tensor_send_next",
    "tensor_send_prev",
    "recv_prev",
    "recv_next",
    "tensor_shape",
    "wait_on_reqs",
)
_SHAPES = ("self", "tensor_send_next", "tensor_send_prev", "recv_prev", "recv_next")

_COMMUNICATOR = (
    Target(_P2P, "P2PCommunicator.__init__", ("self", "pp_group", "config")),
    Target(_P2P, "P2PCommunicator._communicate", _COMMUNICATE),
    Target(_P2P, "P2PCommunicator._communicate_shapes", _SHAPES),
    Target(_P2P, "P2PCommunicator.recv_forward", ("self", "tensor_shapes", "is_first_stage")),
)
_STAGES = (
    Target(_SCHEDULES, "forward_step", ("input_tensor", "current_microbatch", "is_last_stage")),
    Target(_SCHEDULES, "backward_step", ("input_tensor", "output_tensor", "output_tensor_grad", "config")),
)
_MICROBATCH = "gapscope_microbatch"

_wires = Wires()
_now = threading.local()  # .communicator: of the schedule that runs; .sending: handoffs of the call that runs


class _Waited:
    """A receive that the schedule waits for later: the wait is marked, all else is the work's own."""

    def __init__(self, work: Any, handoff: Handoff) -> None:
        self._work, self._handoff = work, handoff

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        with marks.receive(self._handoff):
            return self._work.wait(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


class _Marked:
    """The methods of a communicator that marks; `communicator` puts it before Megatron's class."""

    _gapscope_marks = True

    def recv_forward(self, *args: Any, **kwargs: Any) -> Any:
        _now.communicator = self
        return super().recv_forward(*args, **kwargs)  # type: ignore[misc]

    def _communicate(self, **kwargs: Any) -> Any:
        return _communicate(self, super()._communicate, kwargs)  # type: ignore[misc]

    def _communicate_shapes(self, *args: Any, **kwargs: Any) -> Any:
        shapes = super()._communicate_shapes(*args, **kwargs)  # type: ignore[misc]
        _after_shapes()
        return shapes


@functools.cache
def _marked_class(of: type) -> type:
    return type(f"Marked{of.__name__}", (_Marked, of), {"__module__": __name__})


def communicator(pp_group: Any, config: Any) -> Any:
    """Return a `P2PCommunicator` that marks, for ``p2p_communicator=`` of Megatron's pipelined schedules.

    Args:
        pp_group: The pipeline's process group.
        config: The model's configuration, as `P2PCommunicator` takes it.

    Raises:
        AdapterError: Megatron is not installed, or its communicator is not as the adapter knows it.
    """
    for target in _COMMUNICATOR:
        target.resolve()
    return _marked_class(import_module(_P2P).P2PCommunicator)(pp_group, config)


def _install(attached: Attached) -> None:
    p2p, schedules = import_module(_P2P), import_module(_SCHEDULES)
    of = p2p.P2PCommunicator
    communicate, shapes, receive = of._communicate, of._communicate_shapes, of.recv_forward

    @functools.wraps(communicate)
    def _communicate_wrapped(self: Any, **kwargs: Any) -> Any:
        if not attached.active or getattr(self, "_gapscope_marks", False):
            return communicate(self, **kwargs)
        return _communicate(self, functools.partial(communicate, self), kwargs)

    @functools.wraps(shapes)
    def _communicate_shapes_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = shapes(self, *args, **kwargs)
        if attached.active and not getattr(self, "_gapscope_marks", False):
            _after_shapes()
        return result

    @functools.wraps(receive)
    def _recv_forward_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if attached.active:
            _now.communicator = self
        return receive(self, *args, **kwargs)

    attached.replace(of, "_communicate", _communicate_wrapped)
    attached.replace(of, "_communicate_shapes", _communicate_shapes_wrapped)
    attached.replace(of, "recv_forward", _recv_forward_wrapped)
    attached.replace(schedules, "forward_step", _forward_step(attached, schedules.forward_step))
    attached.replace(schedules, "backward_step", _backward_step(attached, schedules.backward_step))


def _communicate(communicator: Any, call: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Run a call that sends and receives with what it sends and receives marked."""
    own = identity.rank()
    if own is None:
        return call(**kwargs)
    sends = _sends(communicator, own, kwargs)
    from_previous, from_next = _receives(communicator, own, kwargs)
    if not sends and from_previous is None and from_next is None:
        return call(**kwargs)
    before, _now.sending = getattr(_now, "sending", ()), sends
    try:
        with ExitStack() as stack:
            for handoff in sends:
                stack.enter_context(marks.submit(handoff))
            for received in (from_previous, from_next):
                if received is not None:
                    stack.enter_context(marks.receive(received))
            result = call(**kwargs)
    finally:
        _now.sending = before
    tie(result[0], from_previous)
    tie(result[1], from_next)
    works = result[2]
    if isinstance(works, dict):  # not waited for yet
        for name, received in (("recv_prev", from_previous), ("recv_next", from_next)):
            if received is not None and name in works:
                works[name] = _Waited(works[name], received)
    return result


def _sends(communicator: Any, own: int, kwargs: dict[str, Any]) -> list[Handoff]:
    found = []
    to = (("tensor_send_next", communicator.next_rank, FORWARD), ("tensor_send_prev", communicator.prev_rank, BACKWARD))
    for name, rank, channel in to:
        tensor = kwargs.get(name)
        if tensor is not None:
            wire = _wires.out(own, rank, channel, _fields(communicator, channel, sends=True))
            if marking.emitters():  # bytes now: the schedule frees the tensor after the send
                size = {"bytes": tensor_bytes(tensor)} | where(communicator.pp_group, [tensor])
            else:
                size = {}
            handoff = wire.next(**size)
            if handoff is not None:
                found.append(handoff)
    return found


def _receives(communicator: Any, own: int, kwargs: dict[str, Any]) -> list[Handoff | None]:
    found: list[Handoff | None] = []
    of = (("recv_prev", communicator.prev_rank, FORWARD), ("recv_next", communicator.next_rank, BACKWARD))
    for name, rank, channel in of:
        handoff = None
        if kwargs.get(name):
            wire = _wires.into(rank, own, channel, _fields(communicator, channel, sends=False))
            handoff = wire.next(bytes=_expected_bytes(communicator.config, kwargs.get("tensor_shape")))
        found.append(handoff)
    return found


def _fields(communicator: Any, channel: int, *, sends: bool) -> Fields:
    """Return what gives the fields of all handoffs of a communicator in one direction."""

    def fields() -> dict[str, Any]:
        known = {"kind": "pp", "dir": "bwd" if channel == BACKWARD else "fwd"} | where(communicator.pp_group)
        if communicator.virtual_pipeline_model_parallel_size is None:  # otherwise a rank has several stages
            own = communicator.pp_group.rank()
            ahead = 1 if channel == FORWARD else -1
            known["src_stage"] = own if sends else own - ahead
            known["dst_stage"] = own + ahead if sends else own
        return known

    return fields


def _expected_bytes(config: Any, shape: Any) -> int | None:
    """Return the bytes that a receive expects; None where the sender tells the shape first."""
    size = getattr(config.pipeline_dtype, "itemsize", None)
    if shape is None or size is None or config.variable_seq_lengths or getattr(config, "mtp_standalone", False):
        return None
    expected: int = prod(shape) * int(size)
    return expected


def _after_shapes() -> None:
    """Tell the exchange of shapes, which goes first, from the movement of the tensor."""
    for handoff in getattr(_now, "sending", ()):
        marks.movement_start(handoff)


def _forward_step(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    inputs, last = argument(original, "input_tensor"), argument(original, "is_last_stage")
    microbatch = argument(original, "current_microbatch")

    @functools.wraps(original)
    def forward_step(*args: Any, **kwargs: Any) -> Any:
        given = inputs(args, kwargs)
        if not marks_on(attached) or isinstance(given, dict):  # a dict: a multi-module model
            return original(*args, **kwargs)
        mb = microbatch(args, kwargs)
        with ExitStack() as stack:
            for tensor in _listed(given):
                received = tied(tensor)
                if received is not None:
                    stack.enter_context(marks.consume(completed(received, mb=mb)))
            if not last(args, kwargs):
                _open_produce(stack, FORWARD, mb)
            result = original(*args, **kwargs)
        for tensor in _listed(result[0]):
            _remember_microbatch(tensor, mb)
        return result

    return forward_step


def _backward_step(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    inputs, outputs = argument(original, "input_tensor"), argument(original, "output_tensor")
    gradients = argument(original, "output_tensor_grad")

    @functools.wraps(original)
    def backward_step(*args: Any, **kwargs: Any) -> Any:
        if not marks_on(attached):
            return original(*args, **kwargs)
        mb = next((getattr(tensor, _MICROBATCH, None) for tensor in _listed(outputs(args, kwargs))), None)
        with ExitStack() as stack:
            for tensor in _listed(gradients(args, kwargs)):
                received = tied(tensor)
                if received is not None:
                    stack.enter_context(marks.consume(completed(received, mb=mb)))
            if any(tensor is not None for tensor in _listed(inputs(args, kwargs))):
                _open_produce(stack, BACKWARD, mb)
            return original(*args, **kwargs)

    return backward_step


def _open_produce(stack: ExitStack, channel: int, mb: int | None) -> None:
    own, current = identity.rank(), getattr(_now, "communicator", None)
    if own is None or current is None:
        return
    to = current.prev_rank if channel == BACKWARD else current.next_rank
    if to is not None and to != own:
        wire = _wires.out(own, to, channel, _fields(current, channel, sends=True))
        stack.enter_context(marks.produce(wire.announce(mb=mb)))


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, list | tuple) else [tensors]


def _remember_microbatch(tensor: Any, mb: int | None) -> None:
    """Leave the microbatch on a stage's output, which comes back with the backward step."""
    with suppress(AttributeError, TypeError):  # no room for attributes: the backward step's microbatch is not said
        setattr(tensor, _MICROBATCH, mb)


ADAPTER = Adapter(
    name="megatron",
    checked="Megatron-LM d98e8a64 (core 0.20.0, in development), megatron-core 0.16.1",
    targets=(*_COMMUNICATOR, *_STAGES),
    install=_install,
)

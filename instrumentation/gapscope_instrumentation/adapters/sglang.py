"""SGLang: the scheduler of a pipeline stage, with a stream for communication (``SGLANG_PP_COMM_OVERLAP``) or without.

Schedulers are processes that SGLang starts itself. With ``GAPSCOPE=1`` in their environment, the plugin (entry point
group ``sglang.srt.plugins``) attaches in each of them.

Messages are typed and may come in another order than they are asked for, so each type is counted for itself:
``proxy`` (activations, channel 0) and ``output`` (sampled tokens, which travel on from the last stage; channel 2,
kind ``pp_output``, with no producer and consumer). The brackets are opened where SGLang has switched to the stream
that is used: around the coordinator's send and receive, and around ``run_batch``. ``mb`` is the slot of the batch,
which is used again and again.

Not marked: the paired exchange of outputs on NPUs with two stages, and requests, which travel as pickled objects.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from gapscope_instrumentation import marking, marks
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.on_import import attach_on_import
from gapscope_instrumentation.adapters.wires import (
    FORWARD,
    Fields,
    Wire,
    Wires,
    argument,
    completed,
    is_tensor,
    marks_on,
    tensor_bytes,
    tie,
    tied,
    where,
)
from gapscope_instrumentation.handoff import Handoff

_STATE = "sglang.srt.distributed.parallel_state"
_MIXIN = "sglang.srt.managers.scheduler_pp_mixin"
_SCHEDULER = "sglang.srt.managers.scheduler"
_TYPE = "__msg_type__"
_CHANNELS = {"proxy": FORWARD, "output": 2}
_OTHER_CHANNEL = 3

_wires = Wires()


@dataclass
class _Scheduler:
    """What is kept of one scheduler.

    Attributes:
        stashed: Per type, handoffs that came while another type was asked for; None: marks were off.
        received: Per type, the handoff that came last.
    """

    stashed: defaultdict[str, deque[Handoff | None]] = field(default_factory=lambda: defaultdict(deque))
    received: dict[str, Handoff | None] = field(default_factory=dict)


class _Here(threading.local):
    """What this thread's scheduler does: sends, receives the type ``asked``, or launches the batch ``mb``."""

    scheduler: Any = None
    asked: str | None = None
    mb: int | None = None


_here = _Here()
_schedulers: WeakKeyDictionary[Any, _Scheduler] = WeakKeyDictionary()


def plugin() -> None:
    """Attach where ``GAPSCOPE`` is on, once a scheduler is loaded; SGLang calls it in all of its processes."""
    if os.environ.get("GAPSCOPE", "0").lower() in ("1", "on", "true", "yes"):
        attach_on_import("sglang")


def _install(attached: Attached) -> None:
    coordinator = import_module(_STATE).GroupCoordinator
    mixin = import_module(_MIXIN).SchedulerPPMixin
    scheduler = import_module(_SCHEDULER).Scheduler
    attached.replace(coordinator, "send_tensor_dict", _send(attached, coordinator.send_tensor_dict))
    attached.replace(coordinator, "recv_tensor_dict", _receive(attached, coordinator.recv_tensor_dict))
    name = "_pp_send_dict_to_next_stage"
    attached.replace(mixin, name, _sending(mixin._pp_send_dict_to_next_stage))
    attached.replace(mixin, "_pp_recv_typed_dict", _asking(attached, mixin._pp_recv_typed_dict))
    attached.replace(mixin, "_pp_recv_proxy_tensors", _proxy(attached, mixin._pp_recv_proxy_tensors))
    attached.replace(mixin, "_pp_launch_batch", _launch(mixin._pp_launch_batch))
    attached.replace(scheduler, "run_batch", _run(attached, scheduler.run_batch))


def _sending(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _pp_send_dict_to_next_stage(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, _here.scheduler = _here.scheduler, self
        try:
            return original(self, *args, **kwargs)
        finally:
            _here.scheduler = before

    return _pp_send_dict_to_next_stage


def _send(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    sent, to, gather = (argument(original, name) for name in ("tensor_dict", "dst", "all_gather_group"))

    @functools.wraps(original)
    def send_tensor_dict(*args: Any, **kwargs: Any) -> Any:
        group = args[0]
        if not _is_pipeline(attached, group) or to(args, kwargs) is not None:
            return original(*args, **kwargs)
        values = sent(args, kwargs)
        wire = _wire_out(group, values.get(_TYPE, "default"))
        if not marking.emitters():
            wire.next()
            return original(*args, **kwargs)
        handoff = wire.next(**_size(group, values.values(), gather(args, kwargs)))
        if handoff is None:
            return original(*args, **kwargs)
        with marks.submit(handoff):
            return original(*args, **kwargs)

    return send_tensor_dict


def _asking(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    asked = argument(original, "expected_kind")

    @functools.wraps(original)
    def _pp_recv_typed_dict(*args: Any, **kwargs: Any) -> Any:
        if not attached.active:
            return original(*args, **kwargs)
        kind = asked(args, kwargs)
        kept = _kept(args[0])
        stashed = kept.stashed[kind]
        before = _here.scheduler, _here.asked
        _here.scheduler, _here.asked = args[0], kind
        # SGLang looks at its own stash first, which is filled as ours is.
        kept.received[kind] = stashed.popleft() if stashed else None
        try:
            return original(*args, **kwargs)
        finally:
            _here.scheduler, _here.asked = before

    return _pp_recv_typed_dict


def _receive(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    of, gather = argument(original, "src"), argument(original, "all_gather_group")

    @functools.wraps(original)
    def recv_tensor_dict(*args: Any, **kwargs: Any) -> Any:
        group, asked = args[0], _here.asked
        if asked is None or not _is_pipeline(attached, group) or of(args, kwargs) is not None:
            return original(*args, **kwargs)
        with ExitStack() as stack:
            if marking.emitters():  # the type is known only afterwards: what is asked for will be it, or come next
                stack.enter_context(marks.receive(_wire_in(group, asked).announce()))
            values = original(*args, **kwargs)
            came = values.get(_TYPE, "default")
            handoff = _wire_in(group, came).next()
            if handoff is not None:
                handoff = completed(handoff, **_size(group, values.values(), gather(args, kwargs)))
                if came != asked:
                    marks.available(handoff)
        kept = _kept(_here.scheduler)
        if came == asked:
            kept.received[came] = handoff
        else:
            kept.stashed[came].append(handoff)
        return values

    return recv_tensor_dict


def _proxy(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _pp_recv_proxy_tensors(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = original(self, *args, **kwargs)
        if tensors is not None and marks_on(attached):
            tie(tensors, _kept(self).received.get("proxy"))
        return tensors

    return _pp_recv_proxy_tensors


def _launch(original: Callable[..., Any]) -> Callable[..., Any]:
    slot = argument(original, "mb_id")

    @functools.wraps(original)
    def _pp_launch_batch(*args: Any, **kwargs: Any) -> Any:
        _here.mb = slot(args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            _here.mb = None

    return _pp_launch_batch


def _run(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    proxy = argument(original, "pp_proxy_tensors")

    @functools.wraps(original)
    def run_batch(*args: Any, **kwargs: Any) -> Any:
        mb = _here.mb
        if mb is None or not marks_on(attached):
            return original(*args, **kwargs)
        group = args[0].pp_group
        with ExitStack() as stack:
            received = tied(proxy(args, kwargs))
            if received is not None:
                stack.enter_context(marks.consume(completed(received, mb=mb)))
            if not group.is_last_rank:
                stack.enter_context(marks.produce(_wire_out(group, "proxy").announce(mb=mb)))
            return original(*args, **kwargs)

    return run_batch


def _is_pipeline(attached: Attached, group: Any) -> bool:
    """Return whether a coordinator is the pipeline's, used by a scheduler; others are of the same class."""
    scheduler = _here.scheduler
    return attached.active and scheduler is not None and scheduler.pp_group is group and group.world_size > 1


def _kept(scheduler: Any) -> _Scheduler:
    kept = _schedulers.get(scheduler)
    if kept is None:
        kept = _schedulers[scheduler] = _Scheduler()
    return kept


def _wire_out(group: Any, kind: str) -> Wire:
    own, size = group.rank_in_group, group.world_size
    return _wires.out(group.ranks[own], group.ranks[(own + 1) % size], _channel(kind), _fields(group, kind))


def _wire_in(group: Any, kind: str) -> Wire:
    own, size = group.rank_in_group, group.world_size
    return _wires.into(group.ranks[(own - 1) % size], group.ranks[own], _channel(kind), _fields(group, kind))


def _channel(kind: str) -> int:
    return _CHANNELS.get(kind, _OTHER_CHANNEL)


def _fields(group: Any, kind: str) -> Fields:
    """Return what gives the fields of a wire. Outputs go round and have no direction."""
    about = {"kind": "pp", "dir": "fwd"} if kind == "proxy" else {"kind": f"pp_{kind}"}
    return lambda: about | where(group.device_group)


def _size(group: Any, values: Iterable[Any], gather: Any) -> dict[str, Any]:
    """Return the bytes that this rank moves (with tensor parallelism, a slice of most tensors), and by what."""
    moved = [value for value in values if is_tensor(value)]
    ranks = 1 if gather is None else gather.world_size
    size = sum(tensor_bytes(value) // (ranks if value.numel() % ranks == 0 else 1) for value in moved)
    return {"bytes": size} | where(group.device_group, moved)


_SEND = ("self", "tensor_dict", "dst", "all_gather_group", "async_send")
_LAUNCH = ("self", "mb_id", "cur_batch", "pp_proxy_tensors")

ADAPTER = Adapter(
    name="sglang",
    checked="SGLang 0.5.23",
    targets=(
        Target(_STATE, "GroupCoordinator.send_tensor_dict", _SEND),
        Target(_STATE, "GroupCoordinator.recv_tensor_dict", ("self", "src", "all_gather_group")),
        Target(_MIXIN, "SchedulerPPMixin._pp_send_dict_to_next_stage", ("self", "tensor_dict", "msg_type")),
        Target(_MIXIN, "SchedulerPPMixin._pp_recv_typed_dict", ("self", "expected_kind", "all_gather_group")),
        Target(_MIXIN, "SchedulerPPMixin._pp_recv_proxy_tensors", ("self",)),
        Target(_MIXIN, "SchedulerPPMixin._pp_launch_batch", _LAUNCH),
        Target(_SCHEDULER, "Scheduler.run_batch", ("self", "batch", "pp_proxy_tensors")),
    ),
    install=_install,
)

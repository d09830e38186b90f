"""vLLM (V1 engine): the worker of a pipeline stage.

Workers are processes that vLLM starts itself. With ``GAPSCOPE=1`` in their environment, the plugin (entry point group
``vllm.general_plugins``) attaches in each of them; nothing has to be edited.

Each end counts the tensor dictionaries that go through the coordinator of the pipeline group. Marks of one step of a
worker::

    receive   irecv_tensor_dict: metadata over the CPU group, which blocks the host, then the receives
    produce   from the start of execute_model until the send
    receive   wait_for_comm, at the first use of the tensors: waits, and with tensor parallelism the all-gather
    consume   from there to the end of execute_model
    submit    isend_tensor_dict

With tensor parallelism, ``bytes`` are those of this rank's slice. The sampled tokens that the newer model runner
broadcasts back are no handoff. No release read so far has a transport of its own for the pipeline: tensors that a
coordinator moves by a module with ``copy_engine`` in its name are marked as ``transport=copy_engine``.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from gapscope_instrumentation import marking, marks
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.on_import import attach_on_import
from gapscope_instrumentation.adapters.wires import (
    FORWARD,
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
from gapscope_instrumentation.marking import Bracket

_STATE = "vllm.distributed.parallel_state"
_WORKER = "vllm.v1.worker.gpu_worker"
_COPY_ENGINE = "copy_engine"

_wires = Wires()
_by_copy_engine: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class _Handles(list[Any]):
    """The handles of a receive, which bear its handoff to where they are waited for."""


class _Step(threading.local):
    """The step that this thread's worker runs: its number, and what is open in it."""

    number: int | None = None
    produce: Bracket | None = None
    consume: Bracket | None = None


_step = _Step()


def plugin() -> None:
    """Attach where ``GAPSCOPE`` is on, once a worker is loaded; vLLM calls it in all of its processes."""
    if os.environ.get("GAPSCOPE", "0").lower() in ("1", "on", "true", "yes"):
        attach_on_import("vllm")


def _install(attached: Attached) -> None:
    state, workers = import_module(_STATE), import_module(_WORKER)
    coordinator = state.GroupCoordinator
    attached.replace(coordinator, "isend_tensor_dict", _isend(attached, state, coordinator.isend_tensor_dict))
    attached.replace(coordinator, "irecv_tensor_dict", _irecv(attached, state, coordinator.irecv_tensor_dict))
    tensors = workers.AsyncIntermediateTensors
    attached.replace(tensors, "wait_for_comm", _wait(attached, tensors.wait_for_comm))
    worker = workers.Worker
    attached.replace(worker, "execute_model", _execute(attached, state, worker.execute_model))


def _isend(attached: Attached, state: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    sent, to = argument(original, "tensor_dict"), argument(original, "dst")
    gather, gathered = argument(original, "all_gather_group"), argument(original, "all_gather_tensors")

    @functools.wraps(original)
    def isend_tensor_dict(*args: Any, **kwargs: Any) -> Any:
        group = args[0]
        if not attached.active or not _is_pipeline(state, group):
            return original(*args, **kwargs)
        at = to(args, kwargs)
        dst = (group.rank_in_group + 1) % group.world_size if at is None else at
        wire = _wires.out(group.ranks[group.rank_in_group], group.ranks[dst], FORWARD, lambda: _fields(group))
        tensors = sent(args, kwargs)
        if not marking.emitters():
            wire.next()
            return original(*args, **kwargs)
        size = sum(
            tensor_bytes(value) // _slices(group, key, value, gather(args, kwargs), gathered(args, kwargs))
            for key, value in tensors.items()
            if is_tensor(value)
        )
        handoff = wire.next(bytes=size, **_number(), **_where(group, tensors.values()))
        if _step.produce is not None:
            _step.produce.end()
        if handoff is None:
            return original(*args, **kwargs)
        with marks.submit(handoff):
            return original(*args, **kwargs)

    return isend_tensor_dict


def _irecv(attached: Attached, state: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    of = argument(original, "src")

    @functools.wraps(original)
    def irecv_tensor_dict(*args: Any, **kwargs: Any) -> Any:
        group = args[0]
        if not attached.active or not _is_pipeline(state, group):
            return original(*args, **kwargs)
        at = of(args, kwargs)
        src = (group.rank_in_group - 1) % group.world_size if at is None else at
        wire = _wires.into(group.ranks[src], group.ranks[group.rank_in_group], FORWARD, lambda: _fields(group))
        handoff = wire.next(**_number())
        if handoff is None:
            return original(*args, **kwargs)
        with marks.receive(handoff):
            tensors, handles, after = original(*args, **kwargs)
        moved = [
            value for value in (tensors or {}).values() if is_tensor(value)
        ]  # slices, where they are gathered later
        bearing = _Handles(handles)
        tie(bearing, completed(handoff, bytes=sum(map(tensor_bytes, moved)), **_where(group, moved)))
        return tensors, bearing, after

    return irecv_tensor_dict


def _wait(attached: Attached, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait_for_comm(self: Any) -> Any:
        handoff = tied(getattr(self, "_comm_handles", None))
        if handoff is None or self._comm_waited or not marks_on(attached):
            return original(self)
        with marks.receive(handoff):
            result = original(self)
        if _step.number is not None and _step.consume is None:
            _step.consume = marks.consume(handoff).start()
        return result

    return wait_for_comm


def _execute(attached: Attached, state: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    scheduled = argument(original, "scheduler_output")
    steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @functools.wraps(original)
    def execute_model(*args: Any, **kwargs: Any) -> Any:
        worker = args[0]
        if not attached.active or not scheduled(args, kwargs).total_num_scheduled_tokens:
            return original(*args, **kwargs)
        # All stages run the same scheduler outputs in the same order, so their numbers agree.
        number = steps[worker] = steps.get(worker, -1) + 1
        if not marking.emitters():
            return original(*args, **kwargs)
        _step.number = number
        try:
            group = state.get_pp_group()
            if not group.is_last_rank:
                own, following = group.rank_in_group, group.rank_in_group + 1
                wire = _wires.out(group.ranks[own], group.ranks[following], FORWARD, lambda: _fields(group))
                _step.produce = marks.produce(wire.announce(**_number())).start()
            return original(*args, **kwargs)
        finally:
            for bracket in (_step.produce, _step.consume):
                if bracket is not None:
                    bracket.end()
            _step.number = _step.produce = _step.consume = None

    return execute_model


def _is_pipeline(state: Any, group: Any) -> bool:
    """Return whether a coordinator is the pipeline's; those of other kinds of parallelism are of the same class."""
    try:
        return group.world_size > 1 and state.get_pp_group() is group
    except AssertionError:  # vLLM's own: there is no pipeline group yet
        return False


def _number() -> dict[str, int]:
    """Return the step, unless the job has said one itself."""
    return {} if _step.number is None or marking.current_step.get() is not None else {"step": _step.number}


def _slices(group: Any, key: str, tensor: Any, gather: Any, gathered: Any) -> int:
    """Return how many ranks share the transfer of a tensor."""
    return gather.world_size if group._should_use_all_gather(key, tensor.numel(), gather, gathered) else 1


def _fields(group: Any) -> dict[str, Any]:
    return {"kind": "pp", "dir": "fwd"} | _where(group, ())


def _where(group: Any, values: Iterable[Any]) -> dict[str, Any]:
    known = {"transport": None} | where(group.device_group, [value for value in values if is_tensor(value)])
    if group not in _by_copy_engine:
        communicator = getattr(group, "device_communicator", None)
        parts = (group, *vars(group).values(), *getattr(communicator, "__dict__", {}).values())
        _by_copy_engine[group] = any(_COPY_ENGINE in type(part).__module__ for part in parts)
    if _by_copy_engine[group] and known.get("device") != "cpu":
        known["transport"] = _COPY_ENGINE
    return known


_SEND = ("self", "tensor_dict", "dst", "all_gather_group", "all_gather_tensors")
_GATHER = ("self", "key", "numel", "all_gather_group", "all_gather_tensors")

ADAPTER = Adapter(
    name="vllm",
    checked="vLLM 0.33.0",
    targets=(
        Target(_STATE, "get_pp_group"),
        Target(_STATE, "GroupCoordinator.isend_tensor_dict", _SEND),
        Target(_STATE, "GroupCoordinator.irecv_tensor_dict", ("self", "src", "all_gather_group", "all_gather_tensors")),
        Target(_STATE, "GroupCoordinator._should_use_all_gather", _GATHER),
        Target(_WORKER, "AsyncIntermediateTensors.wait_for_comm", ("self",)),
        Target(_WORKER, "Worker.execute_model", ("self", "scheduler_output")),
    ),
    install=_install,
)

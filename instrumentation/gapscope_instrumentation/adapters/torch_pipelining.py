"""torch.distributed.pipelining: every handoff of every schedule that it ships, without an edit of the job.

Keys. A handoff goes from stage ``s`` of one rank to a stage of another; both ranks know the microbatch and both
stages, and count the calls of ``schedule.step``. So both compute

    seq = (microbatches x stages of all steps before) + microbatch x stages + s

with channel 0 forward and 1 backward. It is unique for (src, dst, channel) wherever the stages are placed: of one
step, direction, microbatch and source stage there is one handoff to a rank, since a stage hands on to the stage after
it (before it in backward), and where connections skip stages, schedules have one stage per rank. Steps are counted
per process group, while marks are off as well. A pair of ranks that shares several pipeline groups has channels 2k
and 2k+1 for the k-th that it has run a step of; the first four fit into the compact form.

Marks. ``produce``: the forward, or the backward, of the sending stage (of a split backward the part that makes the
gradients of the inputs; the part for the weights produces nothing). ``submit``: the call that posts the sends, with
all tensors of the handoff and the sum of their bytes. ``receive``: posting, and waiting. ``consume``: the forward or
backward that uses what came, after the wait; with a split backward, the first stage uses it in the weights' part
alone. Where a batch has several handoffs, brackets nest. Between two stages of one rank (V schedules) nothing moves:
``transport=local``, with ``produce`` and ``consume`` alone. What a schedule exchanges to set itself up (warm-up,
shapes) is no handoff.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from gapscope_instrumentation import identity, marking, marks
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.nesting import Around, say_once, with_subclasses
from gapscope_instrumentation.adapters.torch_keys import (
    BACKWARD,
    DIRECTIONS,
    FORWARD,
    Group,
    Pipelines,
    Stage,
    Step,
    global_rank,
    size_bytes,
    sources,
    stages_after,
    stages_before,
)
from gapscope_instrumentation.handoff import Handoff
from gapscope_instrumentation.marking import CONSUME, PRODUCE, RECEIVE, SUBMIT

NAME = "torch_pipelining"
_STAGE = "torch.distributed.pipelining.stage"
_SCHEDULES = "torch.distributed.pipelining.schedules"
_STAMP = "gapscope_handoff"
_stepping: ContextVar[Any] = ContextVar("gapscope_stepping", default=None)
"""The schedule whose step is going on: its override and the function that it calls of its base are one step."""
_computing: ContextVar[Any] = ContextVar("gapscope_computing", default=None)
"""The stage that computes, likewise."""


def _own_chunk(stage: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> int:
    return int(args[0] if args else kwargs[name])


class _Received(list[Any]):
    """The works of a batch, with the handoffs that their wait receives."""

    handoffs: tuple[Handoff, ...] = ()


class _Marker:
    """Makes the functions that stand in the place of the framework's.

    Args:
        attached: Whether they mark at all.
    """

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._pipelines = Pipelines()

    def on(self) -> bool:
        """Tell if there is anything to mark for."""
        return self._attached.active and bool(marking._emitters) and not marking._compiling()

    def step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Count the steps of a schedule, and mark them if the job does not."""

        @functools.wraps(original)
        def step(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            # A subclass may call the step of its base: that is the same step.
            if not self._attached.active or _stepping.get() is schedule:
                return original(schedule, *args, **kwargs)
            begun = self._begin_step(schedule)
            if begun is None:
                return original(schedule, *args, **kwargs)
            group, number = begun
            token = _stepping.set(schedule)
            unit = None
            if marking._emitters and marking.current_step.get() is None:
                unit = marks.step(number, rank=identity.rank())
                unit.start()
            try:
                return original(schedule, *args, **kwargs)
            finally:
                group.step = None
                if unit is not None:
                    unit.end()
                _stepping.reset(token)

        return step

    def _begin_step(self, schedule: Any) -> tuple[Group, int] | None:
        try:
            stages = getattr(schedule, "_stages", None) or [schedule._stage]
            group = self._pipelines.group(stages[0])
            around = marking.current_step.get()
            group.step = Step(group.steps if around is None else around, group.handoffs)
            number = group.steps
            group.steps += 1
            group.handoffs += schedule._n_microbatches * stages[0].num_stages
            for stage in stages:
                known = self._pipelines._stages.get(stage)
                if known is not None:  # what a step left behind that was broken off
                    known.arrived.clear()
        except Exception as error:  # a mark must not end the job
            say_once(NAME, error)
            return None
        return group, number

    def ops(self, original: Callable[..., Any], way: int, sends: bool) -> Callable[..., Any]:
        """Stamp the operations of a stage with their handoffs; the batch that they end up in reads the stamps."""

        @functools.wraps(original)
        def ops(stage: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(stage, *args, **kwargs)
            if made and self.on():
                try:
                    mb = _own_chunk(stage, args, kwargs, f"{DIRECTIONS[way]}_chunk_id")
                    self._stamp(stage, made, way, sends, mb)
                except Exception as error:  # a mark must not end the job
                    say_once(NAME, error)
            return made

        return ops

    def _stamp(self, stage: Any, ops: list[Any], way: int, sends: bool, mb: int) -> None:
        if hasattr(ops[0], _STAMP):  # by the function of a base class, called by its override
            return
        known = self._pipelines.known(stage)
        if sends:
            others = stages_after(stage) if way == FORWARD else stages_before(stage, mb)
        else:
            others = sources((stage.args_recv_info if way == FORWARD else stage.grad_recv_info)[mb])
        of_rank = {global_rank(stage, other): other for other in others}
        for rank, other in of_rank.items():
            own = [op for op in ops if op.peer == rank]
            ends = (stage.stage_index, other) if sends else (other, stage.stage_index)
            handoff = known.handoff(stage, way, mb, ends, size_bytes(op.tensor for op in own)) if own else None
            if handoff is not None:
                for op in own:
                    setattr(op, _STAMP, (handoff, sends, known))

    def batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the sends and receives of a batch while it is posted."""

        @functools.wraps(original)
        def batch(p2p_ops: Any, *args: Any, **kwargs: Any) -> Any:
            stamps = [getattr(op, _STAMP, None) for op in p2p_ops] if p2p_ops and self.on() else []
            found = {id(stamp[0]): stamp for stamp in stamps if stamp is not None}
            if not found:
                return original(p2p_ops, *args, **kwargs)
            around = [(SUBMIT if sends else RECEIVE, handoff) for handoff, sends, _ in found.values()]
            with Around(around, transfer=True):
                works = original(p2p_ops, *args, **kwargs)
            received = []
            for handoff, sends, known in found.values():
                if not sends:
                    received.append(handoff)
                    way = DIRECTIONS.index(handoff.dir)
                    known.arrived.setdefault((way, handoff.mb), []).append(handoff)
            if received and type(works) is list:
                works = _Received(works)
                works.handoffs = tuple(received)
            return works

        return batch

    def wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the wait for the receives of a batch."""

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(work, _Received) or not self.on():
                return original(work, *args, **kwargs)
            with Around([(RECEIVE, handoff) for handoff in work.handoffs], transfer=True):
                return original(work, *args, **kwargs)

        return wait

    def local(self, original: Callable[..., Any], way: int) -> Callable[..., Any]:
        """Notice what one stage of this rank hands to another."""

        @functools.wraps(original)
        def local(stage: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(stage, *args, **kwargs)
            if self.on():
                try:
                    mb = args[1] if len(args) > 1 else kwargs["mb_index"]
                    outputs = args[0] if args else next(v for k, v in kwargs.items() if k != "mb_index")
                    self._arrive_locally(stage, outputs, int(mb), way)
                except Exception as error:  # a mark must not end the job
                    say_once(NAME, error)
            return result

        return local

    def _arrive_locally(self, stage: Any, outputs: Any, mb: int, way: int) -> None:
        known = self._pipelines.known(stage)
        tensors = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        tensors = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors]  # of a DTensor, what is here
        source = stage.stage_index - 1 if way == FORWARD else stage.stage_index + 1
        handoff = known.handoff(stage, way, mb, (source, stage.stage_index), size_bytes(tensors))
        if handoff is not None:
            known.arrived[way, mb] = [handoff]

    def forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the forward of a stage: it uses what came from the stage before and makes what the next one gets."""
        return self._compute(original, "fwd_chunk_id", self._forward_marks)

    def backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the backward of a stage, or the part of it that makes the gradients of the inputs."""
        return self._compute(original, "bwd_chunk_id", self._backward_marks)

    def weights(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the part of a backward that makes the gradients of the weights, if it is the first to use what came."""
        return self._compute(original, "bwd_chunk_id", self._weights_marks)

    def _compute(
        self,
        original: Callable[..., Any],
        name: str,
        find: Callable[[Any, int, tuple[Any, ...], dict[str, Any]], list[tuple[int, Handoff]]],
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def compute(stage: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.on() or _computing.get() is stage:
                return original(stage, *args, **kwargs)
            around: list[tuple[int, Handoff]] = []
            try:
                around = find(stage, _own_chunk(stage, args, kwargs, name), args[1:], kwargs)
            except Exception as error:  # a mark must not end the job
                say_once(NAME, error)
            token = _computing.set(stage)  # an override may call the function of its base
            try:
                with Around(around):
                    return original(stage, *args, **kwargs)
            finally:
                _computing.reset(token)

        return compute

    def _forward_marks(self, stage: Any, mb: int, args: Any, kwargs: Any) -> list[tuple[int, Handoff]]:
        known = self._pipelines.known(stage)
        around = [(CONSUME, handoff) for handoff in known.arrived.pop((FORWARD, mb), ())]
        return around + list(self._produced(stage, known, FORWARD, mb, stages_after(stage)))

    def _backward_marks(self, stage: Any, mb: int, args: Any, kwargs: Any) -> list[tuple[int, Handoff]]:
        if not stage.has_backward:
            return []
        known = self._pipelines.known(stage)
        full = kwargs.get("full_backward", args[1] if len(args) > 1 else True)
        around = []
        if full or not stage.is_first or stage.dw_builder is not None:
            around = [(CONSUME, handoff) for handoff in known.arrived.pop((BACKWARD, mb), ())]
        return around + list(self._produced(stage, known, BACKWARD, mb, stages_before(stage, mb)))

    def _weights_marks(self, stage: Any, mb: int, args: Any, kwargs: Any) -> list[tuple[int, Handoff]]:
        known = self._pipelines.known(stage)
        return [(CONSUME, handoff) for handoff in known.arrived.pop((BACKWARD, mb), ())]

    @staticmethod
    def _produced(stage: Any, known: Stage, way: int, mb: int, others: list[int]) -> Iterator[tuple[int, Handoff]]:
        for other in others:
            handoff = known.handoff(stage, way, mb, (stage.stage_index, other), None)
            if handoff is not None:
                yield PRODUCE, handoff


def _install(attached: Attached) -> None:
    from torch.distributed.pipelining import schedules, stage

    marker = _Marker(attached)
    of_stage: dict[str, Callable[[Any], Any]] = {
        "get_fwd_send_ops": functools.partial(marker.ops, way=FORWARD, sends=True),
        "get_fwd_recv_ops": functools.partial(marker.ops, way=FORWARD, sends=False),
        "get_bwd_send_ops": functools.partial(marker.ops, way=BACKWARD, sends=True),
        "get_bwd_recv_ops": functools.partial(marker.ops, way=BACKWARD, sends=False),
        "set_local_fwd_input": functools.partial(marker.local, way=FORWARD),
        "set_local_bwd_input": functools.partial(marker.local, way=BACKWARD),
        "forward_one_chunk": marker.forward,
        "backward_one_chunk": marker.backward,
        "backward_weight_one_chunk": marker.weights,
    }
    for name, make in of_stage.items():
        for owner in set(with_subclasses(stage._PipelineStageBase, name)):
            attached.replace(owner, name, make(vars(owner)[name]))
    for owner in set(with_subclasses(schedules._PipelineSchedule, "step")):
        if not getattr(vars(owner)["step"], "__isabstractmethod__", False):
            attached.replace(owner, "step", marker.step(vars(owner)["step"]))
    attached.replace(schedules, "_batch_p2p", marker.batch(schedules._batch_p2p))
    attached.replace(schedules, "_wait_batch_p2p", marker.wait(schedules._wait_batch_p2p))


ADAPTER = Adapter(
    name=NAME,
    checked="torch 2.11.0, 2.13.0 and 2.14.1",
    targets=(
        Target(_STAGE, "_PipelineStageBase.get_fwd_send_ops", ("self", "fwd_chunk_id")),
        Target(_STAGE, "_PipelineStageBase.get_fwd_recv_ops", ("self", "fwd_chunk_id")),
        Target(_STAGE, "_PipelineStageBase.get_bwd_send_ops", ("self", "bwd_chunk_id")),
        Target(_STAGE, "_PipelineStageBase.get_bwd_recv_ops", ("self", "bwd_chunk_id")),
        Target(_STAGE, "_PipelineStageBase.set_local_fwd_input", ("self", "prev_stage_outputs", "mb_index")),
        Target(_STAGE, "_PipelineStageBase.set_local_bwd_input", ("self", "next_stage_bwd_outputs", "mb_index")),
        Target(_STAGE, "_PipelineStageBase.forward_one_chunk", ("self", "fwd_chunk_id")),
        Target(_STAGE, "_PipelineStageBase.backward_one_chunk", ("self", "bwd_chunk_id", "loss", "full_backward")),
        Target(_STAGE, "_PipelineStageBase.backward_weight_one_chunk", ("self", "bwd_chunk_id")),
        Target(_SCHEDULES, "_batch_p2p", ("p2p_ops",)),
        Target(_SCHEDULES, "_wait_batch_p2p", ("work",)),
        Target(_SCHEDULES, "PipelineScheduleSingle.step", ("self",)),
        Target(_SCHEDULES, "PipelineScheduleMulti.step", ("self",)),
    ),
    install=_install,
)

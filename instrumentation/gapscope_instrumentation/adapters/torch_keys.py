"""The keys of torch.distributed.pipelining: what is counted, and what is known of the stages of this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from gapscope_instrumentation.handoff import Handoff

FORWARD, BACKWARD = 0, 1
DIRECTIONS = ("fwd", "bwd")
CHANNELS = 8
"""Channels of the compact form that are for pipeline groups; the c10d adapter has those from here on."""


class Step:
    """A call of ``schedule.step`` that is going on.

    Attributes:
        number: As handoffs bear it: the job's own step if there is one around, else the count of calls.
        base: ``seq`` of its first handoff.
    """

    __slots__ = ("base", "number")

    def __init__(self, number: int, base: int) -> None:
        self.number, self.base = number, base


class Group:
    """The ranks of a pipeline, and what this one has counted: the same as the others, step by step.

    Attributes:
        ranks: Global ranks.
        steps: Steps begun so far.
        handoffs: Numbers given to the handoffs of these steps.
        step: The step that is going on.
    """

    __slots__ = ("handoffs", "ranks", "step", "steps")

    def __init__(self, ranks: frozenset[int]) -> None:
        self.ranks = ranks
        self.steps = 0
        self.handoffs = 0
        self.step: Step | None = None


class Stage:
    """What is known of a stage object of the job.

    Attributes:
        group: Its pipeline.
        channels: Returns the first of the channels that a pair of ranks has for this pipeline.
        transport: Backend that moves its tensors.
        device: ``cpu``, or None for a GPU.
        arrived: Handoffs that a forward or backward will use, per direction and microbatch.
    """

    __slots__ = ("arrived", "channels", "device", "group", "transport")

    def __init__(self, stage: Any, group: Group, channels: Callable[[int, int], int]) -> None:
        self.group, self.channels = group, channels
        self.device = "cpu" if stage.device.type == "cpu" else None
        self.transport = _backend(stage)
        self.arrived: dict[tuple[int, int], list[Handoff]] = {}

    def handoff(self, stage: Any, way: int, mb: int, ends: tuple[int, int], nbytes: int | None) -> Handoff | None:
        """Return a handoff between two stages; None outside of a step, where there is no key.

        Args:
            stage: The stage object of the job.
            way: ``FORWARD`` or ``BACKWARD``.
            mb: Microbatch.
            ends: The stage that hands on, and the one that gets it.
            nbytes: Bytes of all its tensors; None: not known yet.
        """
        step = self.group.step
        if step is None:
            return None
        src_stage, dst_stage = ends
        src, dst = global_rank(stage, src_stage), global_rank(stage, dst_stage)
        made = Handoff(src, dst, step.base + mb * stage.num_stages + src_stage)
        made.set(
            channel=self.channels(src, dst) + way,
            step=step.number,
            mb=mb,
            dir=DIRECTIONS[way],
            src_stage=src_stage,
            dst_stage=dst_stage,
            bytes=nbytes,
            kind="pp",
            transport="local" if src == dst else self.transport,
            device=self.device,
        )
        return made


class Pipelines:
    """All pipelines of this process: steps are counted from the time of `attach` on."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._stages: WeakKeyDictionary[Any, Stage] = WeakKeyDictionary()

    def group(self, stage: Any) -> Group:
        """Return the pipeline of a stage."""
        import torch.distributed as dist

        group = stage.group or dist.distributed_c10d._get_default_group()
        name = group.group_name
        if name not in self._groups:
            self._groups[name] = Group(frozenset(dist.get_process_group_ranks(group)))
        return self._groups[name]

    def known(self, stage: Any) -> Stage:
        """Return what is known of a stage."""
        known = self._stages.get(stage)
        if known is None:
            group = self.group(stage)
            known = self._stages[stage] = Stage(stage, group, functools.partial(self._channel, group))
        return known

    def _channel(self, group: Group, src: int, dst: int) -> int:
        before = 0
        for other in self._groups.values():
            if other is group:
                break
            before += src in other.ranks and dst in other.ranks
        return 2 * before if 2 * before < CHANNELS else 2 * before + CHANNELS


def global_rank(stage: Any, stage_index: int) -> int:
    """Return the global rank that has a stage."""
    from torch.distributed import get_global_rank

    in_group = stage.stage_index_to_group_rank[stage_index]
    return int(get_global_rank(stage.group, in_group)) if stage.group is not None else int(in_group)


def _backend(stage: Any) -> str:
    import torch.distributed as dist

    group = stage.group or dist.distributed_c10d._get_default_group()
    return backend_of(group, stage.device.type)


def backend_of(group: Any, device: str) -> str:
    """Return the backend of a process group for a kind of device: ``gloo``, ``nccl``, ..."""
    from torch.distributed.distributed_c10d import get_backend_config

    for part in get_backend_config(group).split(","):
        kind, _, backend = part.rpartition(":")
        if kind in ("", device):
            return str(backend)
    return "unknown"


def size_bytes(tensors: Iterable[Any]) -> int:
    """Return the bytes of tensors together; those that are None have none."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def stages_after(stage: Any) -> list[int]:
    """Return the stages that a forward of this one hands on to."""
    return sorted({dst for dsts in stage.act_send_info.values() for dst in dsts if dst is not None})


def stages_before(stage: Any, mb: int) -> list[int]:
    """Return the stages that a backward of this one hands gradients to."""
    before = set()
    for index, info in enumerate(stage.args_recv_info.get(mb, ())):
        if (source := _source(info)) is not None and _has_gradient(stage, index):
            before.add(source)
    return sorted(before)


def _has_gradient(stage: Any, index: int) -> bool:
    """Tell if the gradient of an input is sent: the stage before may not have asked for it."""
    asked = getattr(stage, "_get_grad_send_meta", None)
    if asked is None:
        return True
    try:
        return asked(index) is not None
    except Exception:  # it raises where nothing is known; then the schedule will, too, if it matters
        return True


def sources(infos: Iterable[Any]) -> list[int]:
    """Return the stages that the received tensors come from."""
    return sorted({source for info in infos if (source := _source(info)) is not None})


def _source(info: Any) -> int | None:
    """Return the stage that a tensor comes from; None: the user gave it (until torch 2.12 a class of its own)."""
    return None if getattr(info, "is_root_arg", False) else getattr(info, "source", None)

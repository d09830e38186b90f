"""c10d: every point-to-point transfer and every collective that Python asks a process group for.

Where. ``ProcessGroup.send``, ``recv`` and the collectives, as attributes of the class: all that torch.distributed
offers ends there, and so does what was imported from it before. (A wrapped ``torch.distributed.isend`` would not do:
`P2POp` checks the function itself.) ``batch_isend_irecv`` is marked as a whole, since it may launch only when it
ends, and ``Work.wait``, where receives are waited for. What C++ asks for (functional collectives, the gradient
buckets of DDP) does not pass here.

Keys. The k-th transfer from one rank to another with one tag in one group is the k-th on both sides, since such
transfers are matched in order; it counts while nothing is marked as well. The channel is ``8 + n`` for the n-th group
that both ranks are in, by the order in which their groups were made (the same on both: making a group is a collective
call), and 1024 more per tag. A collective has the group's name, which is the same on all its ranks, and the count of
collectives in it.

Marks. ``submit`` around a send, ``receive`` around posting a receive and around its wait; a collective has both
around its call and ``receive`` around its wait. There is no ``produce`` and no ``consume``: what computes is not
known here, so by marks alone these handoffs are ``incomplete``: they have their bytes, both sides and the times of
the transfer.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from gapscope_instrumentation import marking, recorder
from gapscope_instrumentation.adapters.base import Adapter, Attached, Target
from gapscope_instrumentation.adapters.nesting import Around, marked_above, say_once, with_subclasses
from gapscope_instrumentation.adapters.torch_keys import CHANNELS, backend_of
from gapscope_instrumentation.errors import AdapterError
from gapscope_instrumentation.handoff import Handoff
from gapscope_instrumentation.marking import RECEIVE, SUBMIT

NAME = "c10d"
COLLECTIVES = {
    # Method of ProcessGroup: which of its arguments is what this rank gives (-1: it gives no tensor). Those that this
    # torch lacks are left out.
    "allreduce": 0,
    "allreduce_coalesced": 0,
    "broadcast": 0,
    "reduce": 0,
    "barrier": -1,
    "allgather": 1,
    "_allgather_base": 1,
    "all_gather_single": 1,
    "allgather_coalesced": 1,
    "allgather_into_tensor_coalesced": 1,
    "all_gather_single_coalesced": 1,
    "reduce_scatter": 1,
    "_reduce_scatter_base": 1,
    "reduce_scatter_single": 1,
    "reduce_scatter_tensor_coalesced": 1,
    "reduce_scatter_single_coalesced": 1,
    "alltoall": 1,
    "alltoall_base": 1,
    "all_to_all_single": 1,
    "gather": 1,
    "scatter": 1,
}
_PER_TAG = 1024
_BEYOND = 512  # channels of groups that do not fit into the compact form begin here
_C10D = "torch.distributed.distributed_c10d"
_batched: ContextVar[bool] = ContextVar("gapscope_batched", default=False)
"""True inside a batch, whose transfers were counted and marked as a whole."""


@dataclass(frozen=True)
class BoundTarget(Target):
    """A method of a class that C++ made: its parameters stand in its docstring alone."""

    def resolve(self) -> tuple[Any, str, Any]:
        """Return its owner, its name there, and itself as it stands in the owner.

        Raises:
            AdapterError: It is not there or has other parameters.
        """
        module, (kind, name) = import_module(self.module), self.path.split(".")
        owner = getattr(module, kind, None)
        found = inspect.getattr_static(owner, name, None)
        if found is None:
            raise AdapterError(f"{self.name} is not there: another version of torch?")
        said = getattr(getattr(owner, name), "__doc__", None) or ""
        at = [said.find(f"{parameter}:") for parameter in self.parameters]
        if -1 in at or at != sorted(at):
            wanted, there = ", ".join(self.parameters), said.partition("\n")[0] or "nothing about its parameters"
            raise AdapterError(f"{self.name} says {there!r}, and ({wanted}) is what the adapter was made for")
        return owner, name, found


class _Groups:
    """The process groups of this process in the order in which they were made, and what was counted in each."""

    def __init__(self) -> None:
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._pairs: defaultdict[tuple[str, int, int, int], Iterator[int]] = defaultdict(count)
        self._calls: defaultdict[str, Iterator[int]] = defaultdict(count)

    def transfer(self, group: Any, peer: int, tag: int, sends: bool) -> tuple[int, int, int]:
        """Return source, destination and number of the next transfer with a rank of the group."""
        name = group.group_name
        ranks = self._ranks.get(name) or self._look(name)
        own, other = ranks[group.rank()], ranks[peer]
        src, dst = (own, other) if sends else (other, own)
        return src, dst, next(self._pairs[name, src, dst, tag])

    def call(self, group: Any) -> int:
        """Return the number of the next collective of a group."""
        return next(self._calls[group.group_name])

    def _look(self, name: str) -> tuple[int, ...]:
        from torch.distributed import distributed_c10d

        recorder.notice()
        for group in list(distributed_c10d._world.pg_map):
            if group.group_name not in self._ranks:
                self._ranks[group.group_name] = tuple(distributed_c10d.get_process_group_ranks(group))
        return self._ranks[name]

    def channel(self, name: str, src: int, dst: int, tag: int) -> int:
        """Return the channel of a group and a tag for a pair of ranks."""
        before = 0
        for other, ranks in self._ranks.items():
            if other == name:
                break
            before += src in ranks and dst in ranks
        return _PER_TAG * tag + (CHANNELS if before < CHANNELS else _BEYOND) + before


class _Marker:
    """Makes the functions that stand in the place of torch's."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._groups = _Groups()
        self._waits: WeakKeyDictionary[Any, tuple[Handoff, ...]] = WeakKeyDictionary()
        self._unknown: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()

    def _counts(self) -> bool:
        return self._attached.active and not _batched.get() and not marking._compiling()

    def _transfer(self, group: Any, tensors: Any, peer: int, tag: int, sends: bool) -> Handoff | None:
        """Count a transfer; return its handoff if it is to be marked."""
        src, dst, seq = self._groups.transfer(group, int(peer), int(tag), sends)
        if not marking._emitters or marked_above.get():
            return None
        made = Handoff(src, dst, seq)
        channel = self._groups.channel(group.group_name, src, dst, int(tag))
        made.set(channel=channel, step=marking.current_step.get(), **_of_tensors(group, tensors))
        return made

    def point_to_point(self, original: Callable[..., Any], sends: bool) -> Callable[..., Any]:
        """Mark a send or a receive."""
        mark = SUBMIT if sends else RECEIVE

        @functools.wraps(original)
        def transfer(group: Any, *args: Any, **kwargs: Any) -> Any:
            handoff = failed = None
            if self._counts():
                try:
                    tensors, peer, tag = (*args, *kwargs.values())  # C++ knows no keywords in another order
                    handoff = self._transfer(group, tensors, peer, tag, sends)
                except Exception as error:  # a mark must not end the job
                    failed = error
            if handoff is None:
                work = original(group, *args, **kwargs)
                if failed is not None:  # and torch found nothing wrong
                    say_once(NAME, failed)
                return work
            with Around([(mark, handoff)]):
                work = original(group, *args, **kwargs)
            if not sends:
                self._remember(work, (handoff,))
            return work

        return transfer

    def any_source(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Count a receive from whatever rank, once it is known from which; it is not marked."""

        @functools.wraps(original)
        def receive(group: Any, *args: Any, **kwargs: Any) -> Any:
            work = original(group, *args, **kwargs)
            if self._counts():
                try:
                    self._unknown[work] = (group, int((*args, *kwargs.values())[1]))
                except Exception as error:  # a mark must not end the job
                    say_once(NAME, error)
            return work

        return receive

    def batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark a batch: all its transfers are around the whole."""

        @functools.wraps(original)
        def batch(p2p_op_list: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._counts():
                return original(p2p_op_list, *args, **kwargs)
            found: list[Handoff | None] = []
            around, failed = [], None
            try:
                for op in p2p_op_list:
                    sends = op.op.__name__ == "isend"
                    handoff = self._transfer(op.group, op.tensor, op.group_peer, op.tag, sends)
                    found.append(None if sends else handoff)
                    if handoff is not None:
                        around.append((SUBMIT if sends else RECEIVE, handoff))
            except Exception as error:  # a mark must not end the job
                failed = error
            token = _batched.set(True)
            try:
                with Around(around):
                    works = original(p2p_op_list, *args, **kwargs)
            finally:
                _batched.reset(token)
            if failed is not None:
                say_once(NAME, failed)
            one_each = len(works) == len(found)
            for at, work in enumerate(works):
                own = found[at : at + 1] if one_each else found
                self._remember(work, tuple(handoff for handoff in own if handoff is not None))
            return works

        return batch

    def collective(self, original: Callable[..., Any], given: int) -> Callable[..., Any]:
        """Mark a collective."""

        @functools.wraps(original)
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            handoff = None
            if self._attached.active and not marking._compiling():
                try:
                    seq = self._groups.call(group)
                    if marking._emitters and not marked_above.get():
                        every = (*args, *kwargs.values())
                        tensors = every[given] if 0 <= given < len(every) else ()
                        handoff = self._of_group(group, seq, tensors)
                except Exception as error:  # a mark must not end the job
                    say_once(NAME, error)
            if handoff is None:
                return original(group, *args, **kwargs)
            with Around([(SUBMIT, handoff), (RECEIVE, handoff)]):
                work = original(group, *args, **kwargs)
            self._remember(work, (handoff,))
            return work

        return call

    def _of_group(self, group: Any, seq: int, tensors: Any) -> Handoff:
        made = Handoff(seq=seq)
        name = "_".join(group.group_name.split())  # one word
        rank = self._groups._ranks.get(group.group_name) or self._groups._look(group.group_name)
        made.set(group=name, rank=rank[group.rank()], step=marking.current_step.get(), **_of_tensors(group, tensors))
        return made

    def _remember(self, work: Any, handoffs: tuple[Handoff, ...]) -> None:
        if handoffs and work is not None:
            with suppress(TypeError):  # a work that cannot be referred to weakly: its wait is not marked
                self._waits[work] = self._waits.get(work, ()) + handoffs

    def wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Mark the wait for what a work receives."""

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._attached.active or marking._compiling():
                return original(work, *args, **kwargs)
            handoffs = self._waits.pop(work, ()) if self._waits else ()
            if handoffs and marking._emitters:
                with Around([(RECEIVE, handoff) for handoff in handoffs]):
                    return original(work, *args, **kwargs)
            result = original(work, *args, **kwargs)
            if self._unknown and work in self._unknown:
                group, tag = self._unknown.pop(work)
                try:
                    self._groups.transfer(group, work._source_rank(), tag, sends=False)
                except Exception as error:  # a mark must not end the job
                    say_once(NAME, error)
            return result

        return wait


def _of_tensors(group: Any, tensors: Any) -> dict[str, Any]:
    """Return bytes, device and backend of what is moved."""
    every = list(_flat(tensors))
    if not every:
        return {"transport": backend_of(group, "cpu")} if len(group._device_types) == 1 else {}
    kind = every[0].device.type
    return {
        "bytes": sum(t.numel() * t.element_size() for t in every),
        "device": "cpu" if kind == "cpu" else None,
        "transport": backend_of(group, kind),
    }


def _flat(tensors: Any) -> Iterator[Any]:
    if isinstance(tensors, (list, tuple)):
        for inner in tensors:
            yield from _flat(inner)
    elif hasattr(tensors, "element_size"):
        yield tensors


def _install(attached: Attached) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    marker = _Marker(attached)
    methods: dict[str, Callable[[Any], Any]] = {
        "send": functools.partial(marker.point_to_point, sends=True),
        "recv": functools.partial(marker.point_to_point, sends=False),
        "recv_anysource": marker.any_source,
        **{name: functools.partial(marker.collective, given=given) for name, given in COLLECTIVES.items()},
    }
    for name, make in methods.items():
        for owner in set(with_subclasses(c10d.ProcessGroup, name)):
            attached.replace(owner, name, make(getattr(owner, name)))
    for owner in set(with_subclasses(c10d.Work, "wait")):
        attached.replace(owner, "wait", marker.wait(owner.wait))
    batch = marker.batch(c10d.batch_isend_irecv)
    for module in (c10d, dist):
        attached.replace(module, "batch_isend_irecv", batch)


ADAPTER = Adapter(
    name=NAME,
    checked="torch 2.11.0, 2.13.0 and 2.14.1",
    targets=(
        Target(_C10D, "batch_isend_irecv", ("p2p_op_list",)),
        Target("torch.distributed", "batch_isend_irecv", ("p2p_op_list",)),
        BoundTarget(_C10D, "ProcessGroup.send", ("tensors", "dstRank", "tag")),
        BoundTarget(_C10D, "ProcessGroup.recv", ("tensors", "srcRank", "tag")),
        BoundTarget(_C10D, "ProcessGroup.recv_anysource", ("arg0", "arg1")),
        BoundTarget(_C10D, "ProcessGroup.allreduce", ("tensors", "opts")),
        BoundTarget(_C10D, "ProcessGroup.broadcast", ("tensors", "opts")),
        BoundTarget(_C10D, "ProcessGroup.allgather", ("output_tensors", "input_tensors", "opts")),
        BoundTarget(_C10D, "Work.wait", ("timeout",)),
    ),
    install=_install,
)

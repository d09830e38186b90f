"""Keys for adapters: what goes over each pair of ranks, counted in the order in which it goes.

Transfers of one pair of ranks, one direction and one communicator are matched in the order in which they are issued,
so counting them on both sides gives both the same number. Everything that counts is in here; the adapters say what to
count.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from gapscope_instrumentation import marking
from gapscope_instrumentation.adapters.base import Attached
from gapscope_instrumentation.handoff import Handoff

FORWARD, BACKWARD = 0, 1
"""Channels of activations and of their gradients; an adapter may use further ones for messages of other types."""

Fields = Callable[[], dict[str, Any]]
"""Gives fields that all handoffs of a wire have."""

_TIED = "gapscope_handoff"


class Wire:
    """One channel between two ranks, as one of the two sees it.

    Args:
        src: Source rank.
        dst: Destination rank.
        channel: What else shares the pair of ranks.
        fields: Fields of every handoff of it.

    Attributes:
        passed: How many handoffs have gone over it.
    """

    __slots__ = ("_announced", "_fields", "channel", "dst", "passed", "src")

    def __init__(self, src: int, dst: int, channel: int = FORWARD, **fields: Any) -> None:
        marking.notice_torch()
        self.src, self.dst, self.channel, self.passed = src, dst, channel, 0
        self._fields = fields
        self._announced: Handoff | None = None

    def announce(self, **fields: Any) -> Handoff:
        """Return the handoff that goes over the wire next: what is being computed now.

        No number is used up: what is computed and then not sent gives its number to what is sent.
        """
        self._announced = self._made(self.passed, fields)
        return self._announced

    def next(self, **fields: Any) -> Handoff | None:
        """Count one handoff that goes over the wire now.

        Args:
            fields: What is known of it now, ``bytes`` among it; it adds to what was known when it was announced.

        Returns:
            The handoff; None while marks are off.
        """
        number, announced = self.passed, self._announced
        self.passed += 1
        self._announced = None
        if not marking.emitters():
            return None
        if announced is not None and announced.seq == number:
            return completed(announced, **fields)
        return self._made(number, fields)

    def _made(self, number: int, fields: dict[str, Any]) -> Handoff:
        known = {"step": marking.current_step.get()} | self._fields | fields
        return Handoff(self.src, self.dst, number, channel=self.channel, **known)


class Wires:
    """All wires of a process. They stay when an adapter is detached, so that no number comes twice."""

    def __init__(self) -> None:
        self._out: dict[tuple[int, int, int], Wire] = {}
        self._in: dict[tuple[int, int, int], Wire] = {}

    def out(self, src: int, dst: int, channel: int = FORWARD, fields: Fields = dict) -> Wire:
        """Return the wire on which this rank, ``src``, sends; ``fields`` is asked when it is made."""
        return self._of(self._out, (src, dst, channel), fields)

    def into(self, src: int, dst: int, channel: int = FORWARD, fields: Fields = dict) -> Wire:
        """Return the wire on which this rank, ``dst``, receives; ``fields`` is asked when it is made."""
        return self._of(self._in, (src, dst, channel), fields)

    @staticmethod
    def _of(wires: dict[tuple[int, int, int], Wire], key: tuple[int, int, int], fields: Fields) -> Wire:
        wire = wires.get(key)
        if wire is None:
            wire = wires[key] = Wire(*key, **fields())
        return wire


def marks_on(attached: Attached) -> bool:
    """Return whether the adapter is attached and marks go anywhere."""
    return attached.active and bool(marking.emitters())


def completed(handoff: Handoff, **fields: Any) -> Handoff:
    """Return a handoff of the same key of which more is known; one that was marked already keeps its form."""
    return handoff.message(handoff.slot, fields.pop("bytes", handoff.bytes), **fields) if fields else handoff


def tie(thing: Any, handoff: Handoff | None) -> None:
    """Leave a handoff on the object that it brought, for whoever uses the object; it goes when the object goes."""
    if handoff is not None:
        with suppress(AttributeError, TypeError):  # it has no room for attributes: its use is not marked
            setattr(thing, _TIED, handoff)


def tied(thing: Any) -> Handoff | None:
    """Return the handoff that was left on an object; None if there is none."""
    found = getattr(thing, _TIED, None)
    return found if isinstance(found, Handoff) else None


def argument(function: Callable[..., Any], name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function that finds an argument in ``args, kwargs`` of a call: given, its default, or None."""
    parameters = inspect.signature(function).parameters
    at = list(parameters).index(name) if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY else sys.maxsize
    default = parameters[name].default
    default = None if default is inspect.Parameter.empty else default

    def find(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return kwargs[name] if name in kwargs else args[at] if at < len(args) else default

    return find


def tensor_bytes(tensor: Any) -> int:
    """Return the bytes of a tensor's elements. It asks for shape and type alone and never waits."""
    return int(tensor.numel()) * int(tensor.element_size())


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, without torch."""
    return hasattr(value, "numel") and hasattr(value, "element_size")


def where(group: Any, tensors: Iterable[Any] = ()) -> dict[str, Any]:
    """Return ``transport`` and ``device`` of what a process group moves, as far as they are known.

    Args:
        group: A process group of torch.
        tensors: What it moves; without, what its only backend tells: gloo moves host memory.
    """
    on_cpu = next((bool(getattr(tensor, "is_cpu", False)) for tensor in tensors), None)
    transport = _backend(group, on_cpu)
    if on_cpu is None:
        on_cpu = transport == "gloo"
    known: dict[str, Any] = {} if transport is None else {"transport": transport}
    return known | {"device": "cpu"} if on_cpu else known


def _backend(group: Any, on_cpu: bool | None) -> str | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        said = str(distributed.get_backend(group))  # type: ignore[union-attr]
    except (AttributeError, AssertionError, KeyError, RuntimeError, TypeError, ValueError):
        return None
    for part in said.split(","):
        device, _, backend = part.rpartition(":")
        if backend != "undefined" and (not device or (on_cpu is not None and (device == "cpu") == on_cpu)):
            return backend
    return None

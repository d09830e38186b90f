"""The marks: brackets around the code that enqueues the work of a handoff, and points.

Each takes a handoff, or an edge for its next one; ``with``, as a decorator, or ``start()`` and ``end()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from contextvars import Token
from itertools import count
from typing import Any, TypeVar

from gapscope_instrumentation import marking, recorder
from gapscope_instrumentation.edges import Edge
from gapscope_instrumentation.handoff import Handoff
from gapscope_instrumentation.marking import (
    AVAILABLE,
    CONSUME,
    CONSUMER_START,
    IDLE,
    MOVEMENT_START,
    PRODUCE,
    PRODUCER_FINISH,
    RECEIVE,
    REQUEST,
    STEP,
    SUBMIT,
    Bracket,
    Nothing,
    point,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Where = Handoff | Edge


def produce(where: Where, /) -> Bracket:
    """Bracket the code that computes what is handed off (source rank)."""
    if marking._compiling():
        return Nothing(PRODUCE, None)
    return Bracket(PRODUCE, where) if marking._emitters else where._off[PRODUCE]


def submit(where: Where, /) -> Bracket:
    """Bracket the send call (source rank)."""
    if marking._compiling():
        return Nothing(SUBMIT, None)
    return Bracket(SUBMIT, where) if marking._emitters else where._off[SUBMIT]


def receive(where: Where, /) -> Bracket:
    """Bracket the receive: posting it, waiting for it, what must follow before use; several per handoff are fine."""
    if marking._compiling():
        return Nothing(RECEIVE, None)
    return Bracket(RECEIVE, where) if marking._emitters else where._off[RECEIVE]


def consume(where: Where, /) -> Bracket:
    """Bracket the code that uses what was handed off (destination rank)."""
    if marking._compiling():
        return Nothing(CONSUME, None)
    return Bracket(CONSUME, where) if marking._emitters else where._off[CONSUME]


def transfer(where: Where, /) -> Transfer:
    """Bracket a movement that this process makes alone: an offload to host memory, a load from it, a one-sided copy."""
    return Transfer(submit(where), receive(where))


def producer_finish(where: Where, /) -> None:
    """Mark that all work before this, on the calling thread, is what was handed off."""
    if marking._emitters:
        point(PRODUCER_FINISH, where)
    elif where._counts_itself and not marking._compiling():
        where._skip(PRODUCER_FINISH)


def movement_start(where: Where, /) -> None:
    """Mark that the next operation launched moves the first byte."""
    if marking._emitters:
        point(MOVEMENT_START, where)
    elif where._counts_itself and not marking._compiling():
        where._skip(MOVEMENT_START)


def available(where: Where, /) -> None:
    """Mark that after all work before this, the data may be read."""
    if marking._emitters:
        point(AVAILABLE, where)
    elif where._counts_itself and not marking._compiling():
        where._skip(AVAILABLE)


def consumer_start(where: Where, /) -> None:
    """Mark that the next operation launched is the first that uses the data."""
    if marking._emitters:
        point(CONSUMER_START, where)
    elif where._counts_itself and not marking._compiling():
        where._skip(CONSUMER_START)


class Transfer:
    """A submit and a receive around one movement."""

    __slots__ = ("_receive", "_submit")

    def __init__(self, submit_bracket: Bracket, receive_bracket: Bracket) -> None:
        self._submit, self._receive = submit_bracket, receive_bracket

    def start(self) -> Transfer:
        """Open both."""
        self._submit.start()
        self._receive.start()
        return self

    def end(self) -> None:
        """Close both."""
        self._receive.end()
        self._submit.end()

    def __enter__(self) -> None:
        self._submit.__enter__()
        self._receive.__enter__()

    def __exit__(self, kind: object, error: object, at: object) -> None:
        self._receive.__exit__(kind, error, at)
        self._submit.__exit__(kind, error, at)


class _Step(Bracket):
    """The bracket of a step: handoffs made inside bear its number."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        if recorder.looks_due():
            recorder.notice()
        self._before: Token[int | None] | None = marking.current_step.set(self._where.step)
        Bracket.__enter__(self)

    def __exit__(self, kind: object, error: object, at: object) -> None:
        Bracket.__exit__(self, kind, error, at)
        before, self._before = self._before, None
        if before is not None:
            with suppress(ValueError):  # ended in another context than it began in, as a callback may
                marking.current_step.reset(before)


_requests = count()


def step(number: int, /, *, requests: Iterable[str] | None = None, rank: int | None = None, **fields: Any) -> Bracket:
    """Bracket one step of the job: an iteration of training, a decode step.

    Handoffs that an edge makes inside bear its number.

    Args:
        number: The same on every rank.
        requests: Ids of the requests that it serves.
        rank: This rank, where nothing else tells it.
        fields: Fields of your own.
    """
    if marking._compiling():
        return Nothing(STEP, None)
    if not marking._emitters:
        return IDLE
    unit = Handoff()
    unit.step = number
    if rank is not None:
        unit.rank = rank
    if requests is not None:
        fields["requests"] = ",".join(map(str, requests))
    if fields:
        unit.set(**fields)
    return _Step(STEP, unit)


def request(name: str, /, *, rank: int | None = None, **fields: Any) -> Bracket:
    """Bracket one request, from its arrival to its answer.

    Args:
        name: Its id: one word.
        rank: This rank, where nothing else tells it.
        fields: Fields of your own.
    """
    if marking._compiling():
        return Nothing(REQUEST, None)
    if not marking._emitters:
        return IDLE
    unit = Handoff(seq=next(_requests), rank=rank)
    unit.set(**{key: value for key, value in fields.items() if key not in ("src", "dst", "seq")})
    unit.extra = {"id": name, **{key: value for key, value in (unit.extra or {}).items() if key != "id"}}
    return Bracket(REQUEST, unit)


def stage(*, consumes: Where | None = None, produces: Where | None = None) -> Callable[[Function], Function]:
    """Return a decorator for the callable of a pipeline stage: each call uses one handoff and computes the next one.

    Args:
        consumes: Edge that the stage takes its input from; None: the first stage.
        produces: Edge that its result goes to; None: the last stage.
    """

    def around() -> ExitStack:
        stack = ExitStack()
        if consumes is not None:
            stack.enter_context(consume(consumes))
        if produces is not None:
            stack.enter_context(produce(produces))
        return stack

    def decorate(function: Function) -> Function:
        return marking.wrap(function, around)

    return decorate
